package main

import (
	"context"
	"crypto/x509"
	"errors"
	mathrand "math/rand/v2"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/scanner-operator/scanner-operator/controllers"
	"github.com/scanner-operator/scanner-operator/pkg/announce/client"
	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/exception/active"
	"github.com/scanner-operator/scanner-operator/pkg/health"
	"github.com/scanner-operator/scanner-operator/pkg/inventory"
)

// scannerSweepInterval is how often the operator looks for objects and engines that have changed without an event.
const scannerSweepInterval = 30 * time.Second

func (op *operator) addControllers(ctx context.Context) error {
	client, events := op.manager.GetClient(), op.manager.GetEventRecorder("scanner-operator")
	durable, advice, err := op.storeVolume(op.manager.GetAPIReader()).Durability(ctx)
	if err != nil {
		return err
	}
	exceptions, suppressionCounts, images := op.exceptions(), &controllers.SuppressionCounts{}, op.inventory(op.permissions.IsCacheComplete)
	scanners := &controllers.ScannerReconciler{
		Client: client, Reader: op.manager.GetAPIReader(), Store: op.store, Backends: op.backends, Clock: op.clock, Events: events, Wakeups: op.wakeups,
		Exceptions: exceptions, Suppressed: suppressionCounts, StoreDurable: durable, StoreOnServer: !op.storeLocation().isFile(), StoreAdvice: advice, Permissions: op.permissions, Inventory: images, Metrics: op.controllerMetrics,
	}
	if err := op.addOpenReports(scanners); err != nil {
		return err
	}
	if err := op.manager.Add(op.periodic(scannerSweepInterval, "scanners", "Looking for Scanners that have gone, and at engines", func(ctx context.Context) error {
		return errors.Join(scanners.SweepScanners(ctx), scanners.DetectEngineChanges(ctx))
	})); err != nil {
		return err
	}
	notifications := op.notifications(images)
	if err := op.manager.Add(op.periodic(op.options.SweepInterval, "receivers", "Forgetting receivers that have gone", notifications.SweepReceivers)); err != nil {
		return err
	}
	exports := op.exports(images)
	if err := op.manager.Add(op.periodic(op.options.SweepInterval, "exports", "Forgetting exports that have gone", exports.SweepExports)); err != nil {
		return err
	}
	imageScans := &controllers.ImageScanReconciler{
		Client: client, Reader: op.manager.GetAPIReader(), Store: op.store, Backends: op.backends, Clock: op.clock, Events: events, Wakeups: op.wakeups,
		Exceptions: exceptions, Permissions: op.permissions, Inventory: images, Metrics: op.controllerMetrics, Random: mathrand.Float64,
	}
	if err := op.manager.Add(op.periodic(scannerSweepInterval, "uses", "Releasing images without an ImageScan", imageScans.SweepUses)); err != nil {
		return err
	}
	for _, controller := range []interface{ SetupWithManager(ctrl.Manager) error }{
		&controllers.PodReconciler{Client: client, Backends: op.backends, Clock: op.clock, Events: events, Permissions: op.permissions, Inventory: images},
		imageScans,
		scanners,
		notifications,
		exports,
		&controllers.ExceptionReconciler{
			Client: client, Exceptions: exceptions, Clock: op.clock, Events: events, Suppressed: suppressionCounts, Wakeups: op.wakeups, Permissions: op.permissions,
			Inventory: images,
		},
	} {
		if err := controller.SetupWithManager(op.manager); err != nil {
			return err
		}
	}
	return nil
}

// inventory returns an inventory. What reconciles objects needs canRead, since it must not take an object for deleted that it cannot read. What only
// shows them, on any replica, has none.
func (op *operator) inventory(canRead func(namespace string) bool) *inventory.Inventory {
	pods, _ := op.manager.GetCache().(inventory.PodVisitor)
	return &inventory.Inventory{
		Client: op.manager.GetClient(), Pods: pods, Store: op.store, Clock: op.clock, Watched: op.options.Watched, CanRead: canRead, ShareSBOMs: op.options.ShareSBOMs, Provider: op.config.Provider,
		SBOMPolicy: op.config.SBOMPolicy, VEXPolicy: op.config.VEXPolicy,
		Limits: inventory.Limits{Scanners: op.config.Limits.ScannersPerNamespace, ImageScans: op.config.Limits.ImageScansPerNamespace},
	}
}

// exceptions returns a source of exceptions that reads from the cache.
func (op *operator) exceptions() active.Source {
	return active.Source{Reader: op.manager.GetClient(), Clock: op.clock, Statements: op.statements()}
}

// statements returns what reads the statements of OpenVEX documents that are attached to images; nil if no registry's documents count.
func (op *operator) statements() active.Statements {
	if !op.config.ReadsVEX() {
		return nil
	}
	return func(ctx context.Context, namespaces []string) ([]exception.Exception, error) {
		return op.store.ImageStatements(ctx, namespaces, op.config.VEXHosts)
	}
}

// notifications creates the reconciler that sends messages to receivers.
func (op *operator) notifications(images *inventory.Inventory) *controllers.NotificationReconciler {
	return &controllers.NotificationReconciler{
		Client: op.manager.GetClient(), Store: op.store, Backends: op.backends, Clock: op.clock,
		Events: op.manager.GetEventRecorder("scanner-operator"), Wakeups: op.wakeups, Exceptions: op.exceptions(), Namespace: op.options.Namespace, ReadMore: op.options.ReadMore, Metrics: op.controllerMetrics,
		WebUI: op.config.UI.Links(), ClusterName: op.config.ClusterName,
		Thresholds: health.Thresholds{
			ScansFailing: op.config.Notifications.ScansFailingAfter.Duration, ImagesFailed: op.config.Notifications.ImagesFailedAfter.Duration,
		},
		Permissions: op.permissions, Inventory: images, RecordDelivery: op.deliveries.Count, Sender: op.notifier(),
	}
}

// exports creates the reconciler that sends findings and SBOMs to other tools.
func (op *operator) exports(images *inventory.Inventory) *controllers.ExportReconciler {
	return &controllers.ExportReconciler{
		Client: op.manager.GetClient(), Store: op.store, Backends: op.backends, Clock: op.clock, Events: op.manager.GetEventRecorder("scanner-operator"),
		Wakeups: op.wakeups, Sender: op.notifier(), Exceptions: op.exceptions(), Namespace: op.options.Namespace, Permissions: op.permissions, Inventory: images,
		Metrics: op.controllerMetrics, ClusterName: op.config.ClusterName,
	}
}

// notifier returns the client of the notifier. Its deliveries carry the epoch of this process's term.
func (op *operator) notifier() *client.Client {
	return client.New(client.Config{
		URL: op.options.NotifierURL, TokenFile: op.options.NotifierToken, Epoch: op.store.Epoch,
		CA: func() (*x509.CertPool, error) { return op.authority.Pool(), nil },
	})
}

// enqueueScanners enqueues all Scanners and ClusterScanners, so that their status shows what has changed in the operator, such as the vulnerability data in use.
func (op *operator) enqueueScanners(ctx context.Context) {
	scanners, err := inventory.ListScanners(ctx, op.manager.GetClient(), metav1.NamespaceAll)
	if err != nil {
		ctrl.Log.Error(err, "Listing Scanners from the cache")
		return
	}
	for _, scanner := range scanners {
		op.wakeups.Scanner(ctx, scanner)
	}
}
