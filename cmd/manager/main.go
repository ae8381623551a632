// Command manager runs the operator: its controllers, the ingest API that workers report to, and the store. Its help lists the other
// commands.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/go-logr/logr"
	_ "golang.org/x/crypto/x509roots/fallback" // the image has no root certificates of its own
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/scanner-operator/scanner-operator/pkg/preflight"
	"github.com/scanner-operator/scanner-operator/pkg/terminal"
	"github.com/scanner-operator/scanner-operator/workerapi/version"
)

// usage is printed before the flags. %[1]s is the program's name.
const usage = `Usage:
  %[1]s [flags]            run the operator
  %[1]s findings [flags]   print what the store knows, for use with kubectl exec
  %[1]s backup [flags]     write the whole store to standard output or a file, while the manager runs
  %[1]s restore [FILE]     have the manager take a backup when it starts the next time
  %[1]s migrate-store      move the whole store into another database, or into a file as text, or from there
  %[1]s grant [flags]      print the permission for one Secret, such as that of a Slack webhook, for kubectl apply -f -
  %[1]s create FILE        create the operator's own objects, once the cluster serves their kinds; those that exist are not changed
  %[1]s crds               print the CustomResourceDefinitions that this version needs, for use with kubectl exec
  %[1]s cleanup [flags]    remove what is the operator's from the cluster, before the operator goes or after
  %[1]s version            print the version

Flags; each may also be given as an environment variable, such as SCANNER_LOG_LEVEL for --log-level:
`

func main() {
	ctx := ctrl.SetupSignalHandler()
	subcommand := ""
	if len(os.Args) > 1 {
		subcommand = os.Args[1]
	}
	switch subcommand {
	case "findings":
		exit(subcommand, printFindings(ctx, os.Args[2:], os.Stdout))
	case "backup":
		exit(subcommand, runBackup(ctx, os.Args[2:], os.Stdout, os.Stderr))
	case "restore":
		exit(subcommand, restore(ctx, os.Args[2:], os.Stdin, terminal.Writer{To: os.Stdout}))
	case "migrate-store":
		exit(subcommand, migrateStore(ctx, os.Args[2:], os.Stdin, os.Stdout, terminal.Writer{To: os.Stderr}))
	case "grant":
		exit(subcommand, printGrant(os.Args[2:], os.Stdout))
	case "create":
		exit(subcommand, runCreate(ctx, os.Args[2:], terminal.Writer{To: os.Stdout}))
	case "crds":
		exit(subcommand, preflight.PrintCRDs(os.Stdout))
	case "cleanup":
		exit(subcommand, runCleanup(ctx, os.Args[2:], terminal.Writer{To: os.Stdout}))
	case "version", "-version", "--version":
		fmt.Println(version.Line("scanner-operator"))
		exit(subcommand, nil)
	}
	exit("", run(ctx, os.Args[1:]))
}

// exit ends the process. An error is printed with the name of its command.
func exit(subcommand string, err error) {
	switch {
	case err == nil:
		os.Exit(0)
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	}
	fmt.Fprintf(terminal.Writer{To: os.Stderr}, "%s: %v\n", commandName(subcommand), err)
	os.Exit(1)
}

func run(ctx context.Context, args []string) error {
	var o options
	flags := newFlags("")
	o.addFlags(flags)
	flags.Usage = func() { printHelp(flags) }
	if err := o.parse(flags, args); err != nil {
		return err
	}
	setLogger(o.LogLevel)
	limitGarbage()
	ctrl.Log.Info("Starting", "version", version.Version, "commit", version.Commit, "go", runtime.Version())
	if o.FakeBackend {
		ctrl.Log.Info("Findings of Scanners with backend type Grype are invented, for tests", "flag", fakeBackendFlag)
	}
	operator, err := newOperator(ctx, o)
	if err != nil {
		return err
	}
	return operator.run(ctx)
}

// Percentages of the live heap by which it grows before Go collects garbage. Most of the manager's memory are pods that stay, so that collecting
// more often costs little processor time.
const (
	gcPercent        = 50
	defaultGCPercent = 100
)

// limitGarbage has Go collect garbage at gcPercent, unless GOGC has set another percentage than Go's default.
func limitGarbage() {
	if before := debug.SetGCPercent(gcPercent); before != defaultGCPercent {
		debug.SetGCPercent(before)
	}
}

// setLogger sends all logs as JSON to log/slog.
func setLogger(level string) {
	threshold := slog.LevelInfo
	if level == "debug" {
		threshold = slog.LevelDebug
	}
	handler := slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: threshold})
	ctrl.SetLogger(logr.FromSlogHandler(handler))
	klog.SetSlogLogger(slog.New(handler)) // client-go's leader election
	slog.SetDefault(slog.New(handler))
}
