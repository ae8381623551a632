// Package ingest is the client of the manager's ingest API.
//
// It promises that
//   - the bearer token goes to the server of the configuration only, over verified TLS, and is read anew for
//     every request, since the kubelet renews it,
//   - a server that is away (restarting, unreachable, overloaded) is waited for up to a deadline,
//   - a refusal is final: it is not repeated.
//
// It knows the contract's transport, not the meaning of what it carries.
package ingest
