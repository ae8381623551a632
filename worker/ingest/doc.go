// Package ingest is the client of the manager's ingest API.
//
// It promises that
//   - the bearer token is sent only to the configured server, over verified TLS, and is read again for
//     every request, since the kubelet renews it,
//   - calls are retried up to a deadline while the server is unavailable (restarting, unreachable, overloaded),
//   - a refusal is final: the request is not repeated.
//
// It knows how requests are transferred, not what their content means.
package ingest
