// Package catalog turns an image in a registry into a Syft SBOM and a compact match input.
//
// It promises that
//   - the packages are those that Grype itself would find in the image, with Grype's own settings,
//   - matching the compact input gives exactly the findings that matching the full SBOM gives,
//   - no file stays in the temporary directory, even after an error,
//   - an error carries a reason of workerapi.
//
// An SBOM can be written in further formats. Those documents are valid by the published schemas, whatever the image contains.
//
// It knows nothing of vulnerabilities, of the ingest API, or of the registry protocol.
package catalog
