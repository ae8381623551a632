// Package cluster contains the shell scripts of a one-node Kubernetes cluster for development and tests. It has no Go code of its own.
// Its tests run those parts of the scripts whose errors could damage the machine.
package cluster
