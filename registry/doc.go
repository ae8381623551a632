// Package registry pulls images for the worker, and locates the layers of images for other clients. Its only sources are the registry
// that a reference names and the mirrors that the operator's configuration lists for that registry. It sends each host only the
// credentials for that host.
//
// It promises that
//   - a credential is used only for the host (and repository path) that its pull secret names; a mirror gets only
//     credentials for the mirror's own host,
//   - an identity is used only for a host that the configuration gives a provider, over TLS with well-known authorities,
//   - content from a mirror matches the digest of the reference: images without a digest are never pulled from mirrors,
//   - a CA that is configured for a host is trusted for that host only,
//   - plain HTTP is used only with hosts that are listed for it, whatever a registry redirects to
//     and however local an address looks,
//   - an error carries a reason of workerapi, and no credential.
//
// It deliberately does not use Syft's own image sources: "registry" also selects a source that sends the
// first credential to any registry after a failed pull, and all of them flatten errors to text. The package knows
// nothing of SBOMs, vulnerabilities, engines or the ingest API. It is a separate module without Kubernetes, Grype and
// Syft, so that manager and worker can share it.
package registry
