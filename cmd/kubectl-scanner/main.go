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
	"time"

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

// browseTimeout is how long browse waits for the error of a program. Some programs last as long as the browser.
const browseTimeout = 3 * time.Second

// browse opens an address with the program that the desktop has for it.
func browse(ctx context.Context, address string) error {
	program := []string{"xdg-open"}
	switch runtime.GOOS {
	case "darwin":
		program = []string{"open"}
	case "windows":
		program = []string{"rundll32", "url.dll,FileProtocolHandler"}
	}
	//nolint:gosec,noctx // The programs are those above. The browser stays when the command ends.
	command := exec.Command(program[0], append(program[1:], address)...)
	if err := command.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	select {
	case err := <-ended:
		return err
	case <-time.After(browseTimeout):
		return nil
	case <-ctx.Done():
		return nil
	}
}
