// Package clairfeed writes advisories in the formats of the upstream projects that Clair 4.9 reads: Debian's security tracker, Alpine's
// secdb, OSV, NVD and Red Hat's mapping files. The result is a tree of files that a web server can serve instead of them.
//
// A file whose content is unchanged is not written, so its modification time is the time of its last change. A reader never sees a
// partial file. The advisories are those from which the worker's vulndb builds a database for Grype; test/fixtures/advisories describes
// their format.
//
// The package must not know the server of the tree. The server must send ETag and Last-Modified and list directories as HTML. It must
// not send an ETag for ecosystems.txt: a 304 response there makes Clair 4.9 lose all OSV updaters until it is restarted (claircore
// v1.5.48, updater/osv/osv.go).
package clairfeed
