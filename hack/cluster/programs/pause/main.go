// Command pause is the first process of every pod of the local cluster: it holds the pod's namespaces open
// and does nothing else until it gets a signal to stop.
//
// It also reaps: in a pod that shares its process namespace, pause is process 1, and whatever loses its parent there
// becomes its child. It must not know anything about Kubernetes.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for received := range signals {
		if received != syscall.SIGCHLD {
			return
		}
		reap()
	}
}

// reap collects every child that has ended. One signal can stand for several ends, so it goes on until none is left.
func reap() {
	for {
		if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
			return
		}
	}
}
