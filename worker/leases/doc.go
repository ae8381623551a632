// Package leases implements a match worker: it leases images from the ingest API, matches them and
// reports, until there has been no work for a while.
//
// It promises that
//   - each lease in progress ends with a report or a failure, unless the worker must stop or the
//     server takes the lease back; any other lease returns to the server when it expires,
//   - a bad SBOM does not stop the other matches, and neither does a match that takes long or never ends,
//   - the database changes only while no match is running.
//
// It knows the order of the steps, not how a step is implemented.
package leases
