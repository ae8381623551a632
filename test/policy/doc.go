// Package policy tests what the manager's and the notifier's identities may do: the policies and rights of config/default on
// a real API server, asked with real tokens of their ServiceAccounts, as somebody would who has stolen them.
//
// Beside that: what NetworkPolicies let through, that components of config/ follow the namespace, and that the pages on rights,
// networks and kustomize are those of these manifests.
//
// Nothing of the operator runs here. What its own code asks for comes from the golden files of its packages.
package policy
