// Package policy tests the permissions of the manager and the notifier: the admission policies and RBAC rules of config/default on a
// real API server, used with real tokens of their ServiceAccounts, as an attacker would use stolen tokens.
//
// It also tests the connections that NetworkPolicies allow, that components of config/ follow the namespace, and that the pages about
// permissions, networks and kustomize match these manifests.
//
// The operator does not run here. The requests of its own code come from the golden files of its packages.
package policy
