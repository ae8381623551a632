// Command scanner-grype is the Grype backend's worker. It runs as a Kubernetes Job:
//
//	scanner-grype catalog   pulls one image, finds its packages and uploads them
//	scanner-grype match     matches cataloged images with a vulnerability database, many with one database
//	scanner-grype version   prints its version and those of Syft and Grype
//
// It exits with 0 when its work is done. It exits with 1 after a failure, whose reason it writes to the termination
// file, and with 2 if its flags or its environment are not usable.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/scanner-operator/scanner-operator/registry/failure"
	"github.com/scanner-operator/scanner-operator/worker/clock"
	"github.com/scanner-operator/scanner-operator/worker/version"
	"github.com/scanner-operator/scanner-operator/workerapi"
	project "github.com/scanner-operator/scanner-operator/workerapi/version"

	// The image is built from scratch: root certificates for registries and the database come with the
	// binary, unless SSL_CERT_FILE or SSL_CERT_DIR name others.
	_ "golang.org/x/crypto/x509roots/fallback"
)

// Exit codes.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

// process is the environment of a command. Tests replace it.
type process struct {
	getenv         func(string) string
	stdout, stderr io.Writer
	// The files are those of workerapi outside of tests.
	tokenFile       string
	terminationFile string
	pullSecretsDir  string
	clock           clock.Clock
	// transport replaces the network to registries and clouds in tests; nil for the network.
	transport http.RoundTripper
}

// main runs the command with the arguments, environment and signals of the process.
func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], process{
		getenv: os.Getenv, stdout: os.Stdout, stderr: os.Stderr,
		tokenFile: workerapi.TokenFile, terminationFile: workerapi.TerminationFile, pullSecretsDir: workerapi.PullSecretsDir,
		clock: clock.System{},
	})
	// Exit runs no deferred calls.
	stop()
	os.Exit(code)
}

const usage = `Usage: scanner-grype <command> [flags]

Commands:
  catalog   pull an image, find its packages, upload them
  match     match cataloged images with a vulnerability database
  version   print versions

"scanner-grype <command> -h" explains the flags of a command. Each can be given by environment, too.
`

// run runs one command and returns the exit code.
func run(ctx context.Context, args []string, p process) int {
	if len(args) == 0 {
		fmt.Fprint(p.stderr, usage)
		return exitUsage
	}
	switch command, rest := args[0], args[1:]; command {
	case "catalog":
		return p.runCommand(ctx, workerapi.ReasonCatalogFailed, func(log *slog.Logger) (job, error) { return p.parseCatalog(rest, log) })
	case "match":
		return p.runCommand(ctx, workerapi.ReasonMatchFailed, func(log *slog.Logger) (job, error) { return p.parseMatch(rest, log) })
	case "version", "-version", "--version":
		fmt.Fprintln(p.stdout, project.Line("scanner-grype", version.Syft(), version.Grype()))
		return exitDone
	case "help", "-h", "-help", "--help":
		fmt.Fprint(p.stdout, usage)
		return exitDone
	default:
		fmt.Fprintf(p.stderr, "scanner-grype: unknown command %q\n\n%s", command, usage)
		return exitUsage
	}
}

// job is a command with parsed and valid flags.
type job interface {
	run(ctx context.Context, log *slog.Logger) error
}

// runCommand parses and runs a command and returns the exit code. It writes a failure to the termination file, where the manager reads it.
// fallback is the reason of a failure that has none.
func (p process) runCommand(ctx context.Context, fallback string, parse func(*slog.Logger) (job, error)) int {
	log := slog.New(slog.NewTextHandler(p.stderr, nil))
	log.Info("starting", "version", project.Line("scanner-grype", version.Syft(), version.Grype()))
	job, err := parse(log)
	switch {
	case errors.Is(err, flag.ErrHelp):
		// The flag package has printed the help.
		return exitDone
	case err != nil:
		fmt.Fprintf(p.stderr, "scanner-grype: %v\n", err)
		// The manager creates the arguments, so it must see that they are wrong in the same way as any other failure.
		p.writeFailure(log, failure.Describe(err, fallback))
		return exitUsage
	}
	if err := runRecovering(ctx, job, log); err != nil {
		described := failure.Describe(err, fallback)
		log.Error("failed", "reason", described.Reason, "error", described.Message)
		p.writeFailure(log, described)
		return exitFailed
	}
	return exitDone
}

// runRecovering runs a job and turns a panic into an error, since the content of images is untrusted.
func runRecovering(ctx context.Context, job job, log *slog.Logger) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			log.Error("panic", "cause", cause, "stack", string(debug.Stack()))
			err = fmt.Errorf("the worker panicked: %v", cause)
		}
	}()
	return job.run(ctx, log)
}

// writeFailure writes the failure to the termination file. An error of writing is only logged, so that it does not hide the failure.
func (p process) writeFailure(log *slog.Logger, f workerapi.Failure) {
	if err := failure.Write(p.terminationFile, f); err != nil {
		log.Error("the failure could not be written to the termination file", "error", err)
	}
}
