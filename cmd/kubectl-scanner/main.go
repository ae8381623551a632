// Command kubectl-scanner is the kubectl plugin "kubectl scanner". It shows what the operator found, as the caller and with the caller's
// permissions: docs/use/kubectl-plugin.md.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"

	"github.com/scanner-operator/scanner-operator/cmd/kubectl-scanner/command"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	app := command.App{
		Streams: genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr},
		Clock:   clock.RealClock{},
	}
	status := app.Run(ctx, os.Args[1:])
	stop()
	os.Exit(status)
}
