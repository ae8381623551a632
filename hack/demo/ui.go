package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/scanner-operator/scanner-operator/test/scenario"
)

// uiAddress is where forwardUI listens: UI_ADDRESS, or port 8444 of this machine.
func uiAddress() string { return cmp.Or(os.Getenv("UI_ADDRESS"), "localhost:8444") }

// forwardUI listens on this machine and relays connections to the web UI until the context ends. The local cluster has a network of its own:
// the process that relays runs there, and inherits the listener of this network.
func forwardUI(ctx context.Context, root string) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", uiAddress())
	if err != nil {
		return fmt.Errorf("%w; set UI_ADDRESS, such as localhost:9444", err)
	}
	file, err := listener.(*net.TCPListener).File()
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	command := exec.CommandContext(ctx, filepath.Join(root, "hack", "cluster", "run.sh"), self, "ui-relay")
	command.ExtraFiles, command.Stdout, command.Stderr = []*os.File{file}, os.Stdout, os.Stderr
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	if err := command.Run(); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

// relayUI relays the connections of an inherited listener to the Service of the web UI.
func relayUI(ctx context.Context, options scenario.Options) error {
	listener, err := net.FileListener(os.NewFile(3, "listener"))
	if err != nil {
		return fmt.Errorf("start this by the command ui: %w", err)
	}
	context.AfterFunc(ctx, func() { _ = listener.Close() })
	environment, err := scenario.Connect(ctx, options)
	if err != nil {
		return err
	}
	port, err := environment.Forward(ctx, "scanner-operator-api", "443")
	if err != nil {
		return fmt.Errorf("%w: is the demo running? (make demo)", err)
	}
	fmt.Printf("The web UI is at https://%s. Ctrl-C ends this.\n", listener.Addr())
	for {
		from, err := listener.Accept()
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // the interrupt closed the listener
		case err != nil:
			return err
		}
		go func() { _ = relay(ctx, from, "127.0.0.1:"+port) }()
	}
}

// relay copies both directions of a connection until either ends.
func relay(ctx context.Context, from net.Conn, address string) error {
	defer from.Close()
	to, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer to.Close()
	done := make(chan error, 2)
	for _, pair := range [][2]net.Conn{{from, to}, {to, from}} {
		go func() {
			_, err := io.Copy(pair[0], pair[1])
			done <- err
		}()
	}
	return <-done
}

func checkUI(ctx context.Context, options scenario.Options) error {
	environment, err := scenario.Connect(ctx, options)
	if err != nil {
		return err
	}
	result, err := environment.CheckWebUI(ctx)
	fmt.Println(result)
	return err
}
