// Package registry knows how images are reached: it pulls them for the worker, and says where others find their
// layers. It asks the registry that the reference names or a mirror that the operator's configuration gives it, and
// nobody else, with the credentials that belong to that host and no others.
//
// It promises that
//   - a credential is used only for the host (and repository path) that its pull secret names; a mirror gets only
//     what is for the mirror's own host,
//   - what a mirror delivers is what the digest says: images without a digest are not asked of mirrors,
//   - an authority that is configured for a host vouches for that host only,
//   - nothing goes over plain HTTP except to hosts that are listed for it, whatever a registry redirects to
//     and however local an address looks,
//   - an error carries a reason of the contract, and no credential.
//
// It deliberately does not go through Syft's own image sources: "registry" also selects one that sends the
// first credential to any registry after a failed pull, and all of them flatten errors to text. It knows
// nothing of SBOMs, vulnerabilities, engines or the ingest API, and is a module of its own without Kubernetes, Grype and
// Syft, so that manager and worker can share it.
package registry
