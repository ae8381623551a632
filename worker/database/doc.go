// Package database keeps vulnerability databases on disk and opens them.
//
// It promises that
//   - each build is installed in a directory of its own, beside the other builds, and is never
//     replaced in place: SQLite's shared cache is keyed by path, so a process that has a build open would continue to
//     see the old file at the same path,
//   - a build becomes visible only when it is complete and verified: partly installed builds are removed,
//   - a broken build is refused, and the last good build stays,
//   - an open build is never removed as outdated, not even by another process on the same volume,
//   - the caches of earlier lookups and matches hold only what follows from the build itself, and are bounded.
//
// It never uses Grype's own updater, which replaces databases in place. It knows nothing of images or of the ingest API.
package database
