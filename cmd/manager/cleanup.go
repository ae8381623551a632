package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/pkg/backend/grype"
	"github.com/scanner-operator/scanner-operator/pkg/cleanup"
	"github.com/scanner-operator/scanner-operator/pkg/config"
	"github.com/scanner-operator/scanner-operator/pkg/preflight"
)

const (
	// cleanupQPS lets "manager cleanup" process thousands of pods in minutes. The command shares this rate limit with nothing else.
	cleanupQPS = 50
	// defaultNamespace is where the operator is installed unless another namespace was chosen.
	defaultNamespace = "scanner-operator-system"
	// storePVC is the name of the store's PersistentVolumeClaim in all installers.
	storePVC = "scanner-operator-store"
)

// runCleanup removes from the cluster what the operator created, before or after the operator is uninstalled. It connects with $KUBECONFIG, or
// as the pod that it runs in.
func runCleanup(ctx context.Context, args []string, out io.Writer) error {
	work := cleanup.Cleaner{Out: out, ManagerObjects: ownObjects()}
	if err := parseCleanup(args, &work); err != nil {
		return err
	}
	setLogger("info")
	cluster, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("no cluster: set KUBECONFIG, or run it in a pod: %w", err)
	}
	cluster.QPS, cluster.Burst = cleanupQPS, 2*cleanupQPS
	if work.Client, err = client.New(cluster, client.Options{Scheme: newScheme()}); err != nil {
		return err
	}
	if err := work.Run(ctx); err != nil {
		return fmt.Errorf("this could not be cleaned up; run it again when the cause is gone:\n%w", err)
	}
	return nil
}

// parseCleanup parses the flags of the command.
func parseCleanup(args []string, work *cleanup.Cleaner) error {
	flags := newFlags("cleanup")
	namespaces := flags.String("namespace", "", "only what is in these namespaces, separated by commas (default all); what belongs to ClusterScanners is in the operator's namespace")
	flags.StringVar(&work.Home, "operator-namespace", cmp.Or(os.Getenv("POD_NAMESPACE"), defaultNamespace), "the operator's own namespace (default $POD_NAMESPACE, else "+defaultNamespace+")")
	flags.StringVar(&work.Manager, "deployment", managerName, "name of the manager's Deployment in the operator's namespace")
	flags.BoolVar(&work.DryRun, "dry-run", false, "change nothing, only say what would be removed")
	flags.BoolVar(&work.Scanners, "scanners", false, "delete all Scanners and ClusterScanners first, and let a manager that runs undo what it did for them")
	flags.StringVar(&work.ClusterScanner, "cluster-scanner", "", "delete the ClusterScanner with this name first, as --scanners does with all")
	flags.BoolVar(&work.StopManager, "stop-manager", false, "scale the manager's Deployment to zero and wait for its pods to end before anything else is removed")
	flags.BoolVar(&work.Permissions, "permissions", false, "remove nothing, only name the ClusterRoleBindings that an earlier installation has left, also beside a newer one")
	flags.DurationVar(&work.Timeout, "timeout", 2*time.Minute, "how long to wait for Scanners and ClusterScanners to go, and for the manager to stop")
	database := flags.Bool("database", false, "delete the claim that holds vulnerability databases, which can be downloaded again")
	flags.BoolVar(&work.Results, "results", false, "delete all ImageScans and the store's claim "+storePVC+": all findings, and the record of what was announced; a database on a server stays")
	flags.BoolVar(&work.CRDs, "crds", false, "delete the operator's CustomResourceDefinitions, and with them all Scanners, ClusterScanners, ImageScans and exceptions")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("%q is not a flag", flags.Arg(0))
	}
	var err error
	if work.Namespaces, err = config.ParseNamespaces(*namespaces); err != nil {
		return fmt.Errorf("--namespace: %w", err)
	}
	if *database {
		work.PVCs = append(work.PVCs, pvc(grype.DatabasePVC))
	}
	if work.Results {
		work.PVCs = append(work.PVCs, pvc(storePVC))
	}
	if work.CRDs && len(work.Namespaces) > 0 {
		return errors.New("--crds: kinds belong to all namespaces, so it cannot be used with --namespace")
	}
	if work.Timeout <= 0 {
		return errors.New("--timeout: must be more than 0")
	}
	return nil
}

func pvc(name string) cleanup.ObjectRef {
	return cleanup.ObjectRef{Kind: corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"), Name: name}
}

// ownObjects returns the objects that a manager creates in its namespace and would create again.
func ownObjects() []cleanup.ObjectRef {
	secret, configMap := corev1.SchemeGroupVersion.WithKind("Secret"), corev1.SchemeGroupVersion.WithKind("ConfigMap")
	return []cleanup.ObjectRef{
		{Kind: secret, Name: authoritySecret},
		{Kind: secret, Name: notifierSecret},
		{Kind: configMap, Name: authorityBundle},
		{Kind: configMap, Name: preflight.DeliveriesConfigMap},
		{Kind: coordinationv1.SchemeGroupVersion.WithKind("Lease"), Name: managerName},
	}
}
