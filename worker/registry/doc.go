// Package registry pulls images the way the worker needs it: from the registry that the reference names
// and from nowhere else, with the credentials that belong to that registry and no others.
//
// It promises that
//   - a credential is used only for the registry (and repository path) that its pull secret names,
//   - nothing goes over plain HTTP except to hosts that are listed for it, whatever a registry redirects to
//     and however local an address looks,
//   - an error of a pull carries a reason of the contract.
//
// It deliberately does not go through Syft's own image sources: "registry" also selects one that sends the
// first credential to any registry after a failed pull, and all of them flatten errors to text. It knows
// nothing of SBOMs, vulnerabilities or the ingest API.
package registry
