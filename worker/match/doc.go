// Package match finds the vulnerabilities of one SBOM.
//
// It promises that
//   - the findings are those that Grype's command line prints for the same SBOM and database,
//   - a database that fails during the match is an error, never an empty result,
//   - whatever an SBOM contains, only its own match fails, even if Grype panics,
//   - earlier and concurrent matches do not change a report.
//
// It knows nothing of registries, leases or the ingest API.
package match
