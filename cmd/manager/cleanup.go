package main

import (
	"context"
	"flag"
	"fmt"
	"io"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/controllers"
)

// cleanupQPS lets "manager cleanup" work on thousands of pods in minutes; nothing else of the operator runs then.
const cleanupQPS = 50

// cleanup takes finalizers and annotations off pods and Scanners when the operator is gone. It reaches the cluster by
// $KUBECONFIG or as the pod that it runs in.
func cleanup(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("manager cleanup", flag.ContinueOnError)
	namespace := flags.String("namespace", "", "only objects of this namespace (default all)")
	dryRun := flags.Bool("dry-run", false, "change nothing, only say what would be removed")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("%q is not a flag of manager cleanup", flags.Arg(0))
	}
	setLogger("info")
	config, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("no cluster: set KUBECONFIG, or run it in a pod: %w", err)
	}
	config.QPS, config.Burst = cleanupQPS, 2*cleanupQPS
	direct, err := client.New(config, client.Options{Scheme: newScheme()})
	if err != nil {
		return err
	}
	work := controllers.Cleanup{Client: direct, Namespace: *namespace, DryRun: *dryRun, Out: out}
	if err := work.Run(ctx); err != nil {
		return fmt.Errorf("this could not be cleaned up; run it again when the cause is gone:\n%w", err)
	}
	return nil
}
