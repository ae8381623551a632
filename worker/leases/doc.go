// Package leases is the work of a match worker: it leases images from the ingest API, matches them and
// reports, until there has been nothing to do for a while.
//
// It promises that
//   - each lease that it works on ends with a report or a failure, unless the worker is told to stop or the
//     server takes the lease back; a lease that is not ended returns to the server when it expires,
//   - one bad SBOM does not stop the others, nor does one whose match takes long or never ends,
//   - the database is only changed while no match is running.
//
// It knows the order of the steps, not how a step is done.
package leases
