// Package restapi is the REST API for people and their tools: what is scanned, and what was found. Other tools save their own reports over it.
// Its contract is the OpenAPI document of package restv1. Package ingest is the other API, which workers report to.
//
// Callers see and save what Kubernetes RBAC lets them see of scanners and imagescans, and save as reports and sboms. They learn nothing about anything
// else, not even whether it exists. A scan that failed or is not done is never an empty list. The parameters, the duration and the memory of each request are
// bounded, so that no caller can hold up the operator's work.
package restapi
