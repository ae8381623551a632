// Package privilege compares the rights that the operator's processes have with those that they use: rules of RBAC with the
// API server's audit log of a run that shows all that the operator does.
package privilege
