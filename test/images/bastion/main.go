// Command bastion simulates a program that uses SSH. It creates a host key, prints the fingerprint, and runs until it is stopped.
package main

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/crypto/ssh"
)

func main() {
	public, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		fail(err)
	}
	key, err := ssh.NewPublicKey(public)
	if err != nil {
		fail(err)
	}
	fmt.Println("host key", ssh.FingerprintSHA256(key))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	<-ctx.Done()
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "bastion:", err)
	os.Exit(1)
}
