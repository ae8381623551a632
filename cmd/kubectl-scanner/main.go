// Command kubectl-scanner is the kubectl plugin "kubectl scanner". It shows what the operator found, as the caller and with the caller's
// permissions: docs/use/kubectl-plugin.md.
package main

import (
	"context"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
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
		Browse:  browse,
	}
	status := app.Run(ctx, os.Args[1:])
	stop()
	os.Exit(status)
}

// browse opens an address with the program that the desktop has for it.
func browse(ctx context.Context, address string) error {
	program := []string{"xdg-open"}
	switch runtime.GOOS {
	case "darwin":
		program = []string{"open"}
	case "windows":
		program = []string{"rundll32", "url.dll,FileProtocolHandler"}
	}
	return exec.CommandContext(ctx, program[0], append(program[1:], address)...).Run() //nolint:gosec // The programs are those above.
}
