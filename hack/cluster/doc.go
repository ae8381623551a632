// Package cluster is the shell scripts in this directory: a real one-node Kubernetes for development and tests.
// It has no Go code; its tests run the parts of the scripts that could harm the machine when they are wrong.
package cluster
