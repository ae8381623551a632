// Package catalog finds out what is in an image: it turns an image in a registry into a Syft SBOM and a
// compact match input.
//
// It promises that
//   - the packages are those that Grype itself would find in the image, with Grype's own settings,
//   - matching the compact input gives exactly the findings that matching the full SBOM gives,
//   - nothing stays behind in the temporary directory, whatever happens,
//   - an error carries a reason of the contract.
//
// It knows nothing of vulnerabilities, of the ingest API, or of how a registry is spoken to.
package catalog
