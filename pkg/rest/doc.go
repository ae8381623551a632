// Package rest is the read-only REST API for people and their tools: what is scanned, and what was found. Its contract
// is the OpenAPI document of package restv1; package server is the other API, which workers report to.
//
// Callers see what Kubernetes RBAC lets them see of scanners and imagescans, and learn nothing of anything else, not even
// whether it exists. A scan that failed or is not done is never an empty list. Each request is bounded in what it may
// ask, in the time that it may take and in the memory that it may need, so that nobody holds up the operator's work.
package rest
