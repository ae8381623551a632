// Package clairfeed writes advisories in the formats of the projects that Clair 4.9 reads them from, as a tree of files to
// be served in their place: Debian's security tracker, Alpine's secdb, OSV, NVD and Red Hat's mapping files.
//
// It promises that a file whose content stays the same is not touched, so that its time tells when it changed, and that a
// reader never sees half a file. The advisories are those from which the worker's vulndb builds a database for Grype;
// test/fixtures/advisories describes their format.
//
// It must not know who serves the tree. Whoever does must answer with ETag and Last-Modified, list directories as HTML, and
// send no ETag for ecosystems.txt: an answer of 304 there makes Clair 4.9 forget all updaters of OSV until it is restarted
// (claircore v1.5.48, updater/osv/osv.go).
package clairfeed
