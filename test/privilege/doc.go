// Package privilege compares the permissions that the operator's processes have with those that they use: RBAC rules with the API
// server's audit log of a run that uses all functions of the operator.
package privilege
