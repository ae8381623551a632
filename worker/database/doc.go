// Package database keeps vulnerability databases on disk and opens them.
//
// It promises that
//   - each build is installed in a directory of its own, side by side with the others, and is never
//     replaced in place: SQLite's shared cache is keyed by path, so a process that has one open would go on
//     seeing the old file at the same path,
//   - a build becomes visible only when it is complete and verified: half-installed ones are removed,
//   - a build that is broken is refused, and the last good one stays,
//   - an open build is never removed, not even by another process on the same volume,
//   - what is remembered of earlier look-ups is what the build itself says, and is bounded.
//
// It never uses Grype's own updater, which replaces in place. It knows nothing of images or of the ingest API.
package database
