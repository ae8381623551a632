// Package policy tests what the manager's identity may do: the policies and rights of config/default on a real API
// server, asked with a real token of the manager's ServiceAccount, as somebody would who has stolen it.
//
// Nothing of the operator runs here. What its own code asks for comes from the golden files of its packages.
package policy
