package controllers

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/exception/active"
	"github.com/scanner-operator/scanner-operator/pkg/export"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/inventory"
	"github.com/scanner-operator/scanner-operator/pkg/preflight"
	"github.com/scanner-operator/scanner-operator/pkg/scan"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

const (
	// exportDelay is how long changes are collected before a Scanner's workloads are compared with what the tools have. For a whole cluster that is
	// much to read, and ImageScans change all the time.
	exportDelay = time.Minute
	// exportInterval is the maximum time between two comparisons, since not everything that decides about an export is an event.
	exportInterval = 30 * time.Minute
	// exportersAtOnce is how many Scanners can have slow tools without delaying others.
	exportersAtOnce = 4
)

// ExportReconciler sends the findings and SBOMs of Scanners and ClusterScanners to other tools. It writes nothing to the Kubernetes API except events. The
// results are in the store, where the ScannerReconciler reads them.
type ExportReconciler struct {
	Client      client.Client
	Store       *store.Store
	Backends    backend.Choosers
	Clock       clock.PassiveClock
	Events      events.EventRecorder
	Wakeups     *Wakeups
	Sender      export.Sender
	Exceptions  active.Source
	Namespace   string // the operator's own, where the Secrets of a ClusterScanner's exports are
	Inventory   *inventory.Inventory
	Permissions *preflight.Checker
	Metrics     *Metrics
	// ClusterName is the name of the cluster where an export has none; empty if it has none.
	ClusterName string
}

// Reconcile runs the exports of a Scanner concurrently, so that a slow tool does not delay the others.
func (r *ExportReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	scanner, err := inventory.ReadScanner(ctx, r.Client, req.NamespacedName)
	if scanner == nil || err != nil {
		return ctrl.Result{}, err
	}
	exports := scanner.Settings().Exports
	if scanner.GetDeletionTimestamp() != nil || isSuspended(scanner) || len(exports) == 0 {
		return ctrl.Result{}, nil
	}
	if admitted, err := r.Inventory.Admits(ctx, scanner); err != nil || !admitted {
		return ctrl.Result{}, err
	}
	namespaces, err := r.Inventory.Namespaces(ctx, scanner)
	if err != nil {
		return ctrl.Result{}, err
	}
	exceptions, exceptionEnds, err := r.Exceptions.InForceIn(ctx, namespaces.Covered)
	if err != nil {
		return ctrl.Result{}, err
	}
	workloads, err := r.Store.WorkloadVersions(ctx, string(scanner.GetUID()))
	if err != nil {
		return ctrl.Result{}, err
	}
	covered := make(map[string]bool, len(namespaces.Covered))
	for _, namespace := range namespaces.Covered {
		covered[namespace] = true
	}
	exporter := export.Exporter{Store: r.Store, Sender: r.Sender, Now: r.Clock.Now}
	results, errs := make([]export.Result, len(exports)), make([]error, len(exports))
	var runs errgroup.Group
	for i, one := range exports {
		settings := r.settings(scanner, one)
		settings.Exceptions, settings.IsCovered = exceptions, func(namespace string) bool { return covered[namespace] }
		settings.HasOtherImages = func(ctx context.Context, namespace, kind, name string, known []image.Key) (bool, error) {
			return r.Inventory.HasOtherImages(ctx, scanner, namespace, kind, name, known)
		}
		runs.Go(func() error {
			results[i], errs[i] = exporter.Run(ctx, settings, workloads)
			r.report(ctx, scanner, one.Name, results[i])
			return nil
		})
	}
	_ = runs.Wait() // each run has its error
	return ctrl.Result{RequeueAfter: r.untilNext(ctx, exports, results, errs, exceptionEnds)}, nil
}

// untilNext returns the time until an export has work again, and logs errors other than those of the store. exceptionEnds is when the next
// exception ends; zero if none does.
func (r *ExportReconciler) untilNext(ctx context.Context, exports []v1alpha1.Export, results []export.Result, errs []error, exceptionEnds time.Time) time.Duration {
	next := exceptionEnds
	for i, result := range results {
		if errs[i] != nil {
			result.Next = r.Clock.Now().Add(scan.StoreRetry)
			if store.StorageFault(errs[i]) == nil && ctx.Err() == nil {
				ctrl.LoggerFrom(ctx).Error(errs[i], "Exporting", "export", exports[i].Name)
			}
		}
		if next.IsZero() || !result.Next.IsZero() && result.Next.Before(next) {
			next = result.Next
		}
	}
	if next.IsZero() {
		return exportInterval
	}
	return min(max(next.Sub(r.Clock.Now()), time.Millisecond), exportInterval)
}

// settings translates an export's spec.
func (r *ExportReconciler) settings(scanner v1alpha1.GenericScanner, one v1alpha1.Export) export.Settings {
	settings := export.Settings{
		UID: string(scanner.GetUID()), Scanner: client.ObjectKeyFromObject(scanner).String(), Name: one.Name, Generation: scanner.GetGeneration(),
		Engine: string(cmp.Or(scanner.Settings().Backend.Type, v1alpha1.BackendGrype)), EngineGaps: EngineGaps(r.Backends.For(scanner)),
	}
	if dojo := one.DefectDojo; dojo != nil {
		settings.Cluster, settings.ProductType = dojo.Engagement, cmp.Or(dojo.ProductType, "Kubernetes")
		settings.Receiver = announce.ReceiverRef{Type: export.TypeDefectDojo, SecretName: dojo.SecretRef.Name}
	}
	if track := one.DependencyTrack; track != nil {
		settings.Cluster = track.ProjectVersion
		settings.Receiver = announce.ReceiverRef{Type: export.TypeDependencyTrack, SecretName: track.SecretRef.Name}
	}
	settings.Cluster = cmp.Or(settings.Cluster, r.ClusterName)
	settings.Receiver.Namespace, settings.Receiver.SecretKey = cmp.Or(scanner.GetNamespace(), r.Namespace), "address"
	return settings
}

// report counts the attempts, emits an event when an export begins or ceases to fail, and wakes the ScannerReconciler.
func (r *ExportReconciler) report(ctx context.Context, scanner v1alpha1.GenericScanner, name string, result export.Result) {
	log := ctrl.LoggerFrom(ctx).WithValues("export", name)
	for _, outcome := range result.Outcomes {
		r.Metrics.countExport(outcome)
		log.V(1).Info("Sent what a workload has", "result", outcome.Result, "reason", outcome.Reason, "message", outcome.Message)
	}
	if result.Before == result.After {
		return
	}
	before, _ := result.Before.Problem()
	reason, message := result.After.Problem()
	switch {
	case reason != "" && reason != before:
		log.Info("An export fails", "reason", reason, "message", message)
		r.Events.Eventf(scanner, nil, corev1.EventTypeWarning, reason, "Export", "%s", truncate(fmt.Sprintf("export %s: %s", name, message), maxEventNote))
	case reason == "" && before != "":
		r.Events.Eventf(scanner, nil, corev1.EventTypeNormal, v1alpha1.ReasonExported, "Export", "export %s works, after it had not", name)
	}
	r.Wakeups.Scanner(ctx, scanner)
}

// SweepExports deletes the records of exports that no Scanner lists. It must be called periodically, not at once: an export that is listed again
// soon continues where it was.
func (r *ExportReconciler) SweepExports(ctx context.Context) error {
	scanners, err := inventory.ListScanners(ctx, r.Client, metav1.NamespaceAll)
	if err != nil {
		return err
	}
	for _, scanner := range scanners {
		var names []string
		for _, one := range scanner.Settings().Exports {
			names = append(names, one.Name)
		}
		if err := r.Store.RetainExports(ctx, string(scanner.GetUID()), names); err != nil {
			return err
		}
	}
	return nil
}

// SetupWithManager registers the controller.
func (r *ExportReconciler) SetupWithManager(mgr ctrl.Manager) error {
	changed := builder.WithPredicates(predicate.GenerationChangedPredicate{})
	return watchExceptions(ctrl.NewControllerManagedBy(mgr), r.Exceptions, scannersFor(r.Inventory)).
		Named("export").
		For(&v1alpha1.Scanner{}, changed).
		Watches(&v1alpha1.ClusterScanner{}, &handler.EnqueueRequestForObject{}, changed).
		Watches(&v1alpha1.ImageScan{}, enqueueAfter(exportDelay, scannerOf)).
		WithOptions(controller.Options{MaxConcurrentReconciles: exportersAtOnce}).
		Complete(withStoreBackoff{withReadAccess{r, r.Permissions}})
}
