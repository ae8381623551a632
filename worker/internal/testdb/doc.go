// Package testdb builds small Grype vulnerability databases from advisories in readable files, for tests
// and demonstrations without a network.
//
// It promises that the same advisories and build time give databases with the same findings, and that Grype
// itself accepts the result: as a cache, and as a download. The format of the files is described in
// test/fixtures/advisories/README.md. It is not a source of truth about vulnerabilities and knows nothing of
// where real ones are published.
package testdb
