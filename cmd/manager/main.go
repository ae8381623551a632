// Command manager runs the operator: its controllers, the ingest API that workers report to, and the store.
// Its other commands are in the text that --help prints.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"runtime"

	"github.com/go-logr/logr"
	_ "golang.org/x/crypto/x509roots/fallback" // the image has no root certificates of its own
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/scanner-operator/scanner-operator/pkg/kinds"
	"github.com/scanner-operator/scanner-operator/workerapi/version"
)

// usage is printed before the flags.
const usage = `Usage:
  manager [flags]            run the operator
  manager findings [flags]   print what the store knows, for use with kubectl exec
  manager backup [flags]     write the whole store to standard output or a file, while the manager runs
  manager restore [FILE]     have the manager take a backup when it starts the next time
  manager crds               print the definitions of the operator's kinds that this version needs, for use with kubectl exec
  manager cleanup [flags]    remove what is the operator's from the cluster, before the operator goes or after
  manager version            print the version

Flags; each may also be given as an environment variable, such as SCANNER_LOG_LEVEL for --log-level:
`

func main() {
	ctx := ctrl.SetupSignalHandler()
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "findings":
			exit(printFindings(ctx, os.Args[2:], os.Stdout))
		case "backup":
			exit(backup(ctx, os.Args[2:], os.Stdout, os.Stderr))
		case "restore":
			exit(restore(ctx, os.Args[2:], os.Stdin, os.Stdout))
		case "crds":
			exit(kinds.Print(os.Stdout))
		case "cleanup":
			exit(cleanup(ctx, os.Args[2:], os.Stdout))
		case "version", "-version", "--version":
			fmt.Println(version.Line("scanner-operator"))
			exit(nil)
		}
	}
	exit(run(ctx, os.Args[1:]))
}

func exit(err error) {
	switch {
	case err == nil:
		os.Exit(0)
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	}
	fmt.Fprintln(os.Stderr, "manager:", err)
	os.Exit(1)
}

func run(ctx context.Context, args []string) error {
	var o options
	flags := flag.NewFlagSet("manager", flag.ContinueOnError)
	o.addFlags(flags)
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), usage)
		flags.PrintDefaults()
	}
	if err := o.parse(flags, args); err != nil {
		return err
	}
	setLogger(o.LogLevel)
	ctrl.Log.Info("Starting", "version", version.Version, "commit", version.Commit, "go", runtime.Version())
	operator, err := newOperator(ctx, o)
	if err != nil {
		return err
	}
	return operator.run(ctx)
}

// setLogger has everything logged as JSON by log/slog.
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
