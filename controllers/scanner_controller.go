package controllers

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/exception/active"
	"github.com/scanner-operator/scanner-operator/pkg/inventory"
	"github.com/scanner-operator/scanner-operator/pkg/preflight"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// statusInterval is the maximum time between two computations of a Scanner's status. Each change comes with an event or is found for all
// Scanners at once (DetectEngineChanges). The interval is for missed events.
const statusInterval = 5 * time.Minute

// scannersAtOnce is how many Scanners are reconciled concurrently, so that one that waits for the API server or an engine does not delay
// the others.
const scannersAtOnce = 4

// scannerStore is the part of the store that the ScannerReconciler uses.
type scannerStore interface {
	ID() string
	Health() error
	Scanners(ctx context.Context) ([]string, error)
	DeleteScanners(ctx context.Context, scanners []string) error
	DataAnomaly(ctx context.Context, scanner, engine string) (*store.DataAnomaly, error)
	SetAnnouncedSources(ctx context.Context, scanner string, sources []string) error
	receiverStore
	exportStore
	totalsStore
}

// ScannerReconciler maintains the status of Scanners and ClusterScanners: coverage, findings and conditions. It changes nothing else of them but
// their finalizers. A request without a namespace is for a ClusterScanner.
type ScannerReconciler struct {
	Client client.Client
	// Reader reads from the API server, not from a cache.
	Reader   client.Reader
	Store    scannerStore
	Backends backend.Choosers
	Clock    clock.PassiveClock
	Events   events.EventRecorder
	Wakeups  *Wakeups
	// Exceptions suppress findings. The number of findings that each suppresses goes to Suppressed.
	Exceptions active.Source
	Suppressed *SuppressionCounts
	// StoreDurable is true if the store outlives the pod. StoreAdvice is the message to users if it does not.
	StoreDurable bool
	// StoreOnServer is true if the store is a database on a server, and not a file.
	StoreOnServer bool
	StoreAdvice   string
	Permissions   *preflight.Checker
	Inventory     *inventory.Inventory
	// Metrics exports each Scanner's coverage.
	Metrics *Metrics
	// ReportsProblem returns why Reports for other tools cannot be written, as a reason and a message; empty while they can. Nil if none are written.
	ReportsProblem func() (reason, message string)

	conflicts preflight.InstanceConflicts
	holdings  heldEngines
	engines   engineStates
	// unknownReceivers has the description of each Scanner's unknown receivers at the last event, by the Scanner's name. The condition is no memory
	// of it: a ClusterScanner's status has room for the beginnings of messages only.
	unknownReceivers sync.Map
}

// scannerScope is the input from which a Scanner's status is computed.
type scannerScope struct {
	scanner v1alpha1.GenericScanner
	scannerFacts
	// backend is nil when the operator runs without the Scanner's engine.
	backend backend.Backend
	// storeProblem is the reason why the store is unavailable; empty if it works. Set by setStore.
	storeProblem string
	// conflict is true if another operator works on the Scanner too.
	conflict bool
	// missingPermissions lists the permissions that the operator lacks in the namespace and how to grant them; empty if none is missing.
	missingPermissions string
	// refused is true if the namespace has too many Scanners and this one is not among the admitted.
	refused bool
}

// +kubebuilder:rbac:groups=scanner-operator.io,resources=scanners/status,verbs=patch
// +kubebuilder:rbac:roleName=scanner-operator-manager-cluster,groups=scanner-operator.io,resources=clusterscanners/status,verbs=patch

// Reconcile handles one Scanner or ClusterScanner.
func (r *ScannerReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	scanner, err := inventory.ReadScanner(ctx, r.Client, req.NamespacedName)
	if err != nil {
		return ctrl.Result{}, err
	}
	if scanner == nil {
		r.conflicts.Remove(req.NamespacedName)
		r.Metrics.remove(req.NamespacedName)
		r.holdings.drop(req.NamespacedName, "")
		r.unknownReceivers.Delete(req.NamespacedName)
		r.wakeExceptions(ctx, r.Suppressed.remove(req.NamespacedName))
		return ctrl.Result{}, r.SweepScanners(ctx)
	}
	if scanner.ScannerStatus().ObservedGeneration != scanner.GetGeneration() {
		r.Permissions.RequestCheck(scanner.GetNamespace()) // no request may have needed the permissions of the new settings yet
	}
	if !r.Permissions.IsCacheComplete(scanner.GetNamespace()) {
		return r.setMissingPermissions(ctx, scanner)
	}
	undone, err := r.keepFinalizers(ctx, scanner)
	if err != nil && r.Store.Health() == nil {
		return ctrl.Result{}, err
	}
	if !scanner.GetDeletionTimestamp().IsZero() {
		r.conflicts.Remove(req.NamespacedName)
		return ctrl.Result{RequeueAfter: undone}, r.SweepScanners(ctx)
	}
	admitted, err := r.Inventory.Admits(ctx, scanner)
	if err != nil {
		return ctrl.Result{}, err
	}
	if !admitted {
		return ctrl.Result{RequeueAfter: undone}, r.refuse(ctx, scanner)
	}
	next := ctrl.Result{RequeueAfter: min(cmp.Or(undone, statusInterval), statusInterval)}
	before := copyOf(scanner)
	r.conflicts.RecordWrite(scanner, r.Store.ID())
	s := &scannerScope{scanner: scanner, backend: r.Backends.For(scanner), missingPermissions: r.Permissions.Missing(scanner.GetNamespace())}
	if s.conflict, err = r.conflicts.Detect(ctx, r.Clock.Now(), r.Reader, scanner, r.Store.ID()); err != nil {
		return ctrl.Result{}, err
	}
	if err := r.computeStatus(ctx, s); err != nil && r.Store.Health() == nil {
		return ctrl.Result{}, err
	}
	if s.conflict {
		next.RequeueAfter = min(next.RequeueAfter, preflight.ConflictInterval)
	}
	// While the store is unavailable, what could not be computed stays as it was. The reason can always be set.
	r.setStore(s)
	r.setReportsNotWritten(s)
	r.setReady(s)
	r.Metrics.setScanner(s)
	return next, r.patchStatus(ctx, before, s)
}

// refuse sets the condition of a Scanner that is not admitted. It is reconciled again when it, or another Scanner of the namespace,
// changes.
func (r *ScannerReconciler) refuse(ctx context.Context, scanner v1alpha1.GenericScanner) error {
	before := copyOf(scanner)
	s := &scannerScope{scanner: scanner, backend: r.Backends.For(scanner), refused: true}
	scanner.ScannerStatus().ObservedGeneration = scanner.GetGeneration()
	r.setReady(s)
	r.Metrics.remove(client.ObjectKeyFromObject(scanner))
	return r.patchStatus(ctx, before, s)
}

// patchStatus writes the status if it has changed, and emits events.
func (r *ScannerReconciler) patchStatus(ctx context.Context, before v1alpha1.GenericScanner, s *scannerScope) error {
	s.setColumns(r.Clock.Now())
	shrinkStatusToFit(s.scanner)
	if equality.Semantic.DeepEqual(before, s.scanner) { // only the status is changed
		return nil
	}
	if err := r.Client.Status().Patch(ctx, s.scanner, client.MergeFrom(before)); err != nil {
		return client.IgnoreNotFound(err)
	}
	r.conflicts.RecordWrite(s.scanner, r.Store.ID())
	r.emitEvents(before, s)
	return nil
}

// SweepScanners removes the data of deleted Scanners from the store. It must also be called periodically: an ImageScan may be reconciled a
// moment after its Scanner was deleted. The store is read first, so that a Scanner that is created meanwhile is not removed.
func (r *ScannerReconciler) SweepScanners(ctx context.Context) error {
	known, err := r.Store.Scanners(ctx)
	if err != nil {
		return err
	}
	scanners, err := inventory.ListScanners(ctx, r.Client, metav1.NamespaceAll)
	if err != nil {
		return err
	}
	lives := make(map[string]bool, len(scanners))
	for _, scanner := range scanners {
		lives[string(scanner.GetUID())] = scanner.GetDeletionTimestamp() == nil
	}
	gone := slices.DeleteFunc(known, func(uid string) bool { return lives[uid] })
	if len(gone) == 0 {
		return nil
	}
	there, complete, err := r.listLiveScanners(ctx)
	if err != nil || !complete {
		return err
	}
	return r.Store.DeleteScanners(ctx, slices.DeleteFunc(gone, func(uid string) bool { return there[types.UID(uid)] }))
}

// computeStatus reads the facts of a Scanner, records how many findings each exception suppresses, and sets the parts of the status that follow
// from the facts. With an error, the parts whose facts were not read stay as they were.
func (r *ScannerReconciler) computeStatus(ctx context.Context, s *scannerScope) error {
	s.scanner.ScannerStatus().ObservedGeneration = s.scanner.GetGeneration()
	facts, err := r.readFacts(ctx, s.scanner, s.backend)
	s.scannerFacts = facts
	if s.totals != nil {
		r.wakeExceptions(ctx, r.Suppressed.record(client.ObjectKeyFromObject(s.scanner), s.exceptions, s.totals.ByException))
	}
	s.setStatus(r.Store.ID())
	return err
}

func (r *ScannerReconciler) wakeExceptions(ctx context.Context, names []types.NamespacedName) {
	for _, name := range names {
		r.Wakeups.Exception(ctx, name)
	}
}

// emitEvents emits an event for each relevant change of a condition, and for new unknown receivers.
func (r *ScannerReconciler) emitEvents(before v1alpha1.GenericScanner, s *scannerScope) {
	after := s.scanner
	known := before.ScannerStatus().Conditions
	for _, condition := range after.ScannerStatus().Conditions {
		if conditionChanged(known, condition) && needsEvent(known, condition) {
			r.Events.Eventf(after, nil, eventType(condition), condition.Reason, "Scan", "%s", truncate(eventNote(after, condition), maxEventNote))
		}
	}
	if s.complete {
		r.emitUnknownReceivers(before, s)
	}
}

// emitUnknownReceivers emits an event if the unknown receivers are not those of the last event or, after a restart, not those of the condition.
func (r *ScannerReconciler) emitUnknownReceivers(before v1alpha1.GenericScanner, s *scannerScope) {
	unknown := describeUnknown(s.coverage.UnknownReceivers)
	last, known := r.unknownReceivers.Swap(client.ObjectKeyFromObject(s.scanner), unknown)
	if !known {
		delivered := meta.FindStatusCondition(before.ScannerStatus().Conditions, v1alpha1.ConditionNotificationsDelivered)
		known = delivered != nil && strings.Contains(delivered.Message, unknown)
		last = unknown
	}
	if unknown != "" && (!known || last != unknown) {
		r.Events.Eventf(s.scanner, nil, corev1.EventTypeWarning, v1alpha1.ReasonUnknownReceiver, "Notify", "%s", unknown)
	}
}

// needsEvent reports whether a change of a condition is worth an event. A working store is worth one only after a problem.
func needsEvent(before []metav1.Condition, now metav1.Condition) bool {
	switch now.Type {
	case v1alpha1.ConditionReady, v1alpha1.ConditionBackendAvailable:
		return true
	case v1alpha1.ConditionStoreDurable:
		return now.Status == metav1.ConditionFalse || meta.FindStatusCondition(before, now.Type) != nil
	}
	return false
}

// eventNote returns the message of a condition's event: the condition's message or, if that is empty, what the condition means.
func eventNote(scanner v1alpha1.GenericScanner, condition metav1.Condition) string {
	switch {
	case condition.Message != "":
		return condition.Message
	case condition.Type == v1alpha1.ConditionStoreDurable:
		return "the store works and outlives the pod"
	case scanner.ScannerStatus().VulnerabilityData != nil && !scanner.ScannerStatus().VulnerabilityData.BuildTime.IsZero():
		return "the engine works, with vulnerability data of " + scanner.ScannerStatus().VulnerabilityData.BuildTime.UTC().Format(time.RFC3339)
	}
	return "the engine works"
}

// SetupWithManager registers the controller.
func (r *ScannerReconciler) SetupWithManager(mgr ctrl.Manager) error {
	changed := builder.WithPredicates(predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, rescanRequested))
	return watchExceptions(ctrl.NewControllerManagedBy(mgr), r.Exceptions, scannersFor(r.Inventory)).
		Named("scanner").
		For(&v1alpha1.Scanner{}, changed).
		Watches(&v1alpha1.ClusterScanner{}, &handler.EnqueueRequestForObject{}, changed).
		Watches(&v1alpha1.Scanner{}, enqueueAfter(preflight.ConflictInterval, ownRequest), builder.WithPredicates(preflight.StoreIDReplaced)).
		Watches(&v1alpha1.ClusterScanner{}, enqueueAfter(preflight.ConflictInterval, ownRequest), builder.WithPredicates(preflight.StoreIDReplaced)).
		Watches(&v1alpha1.Scanner{}, enqueueDelayed(r.scannersInNamespace), builder.WithPredicates(deletionStarted)).
		Watches(&v1alpha1.ImageScan{}, enqueueDelayed(scannerOf)).
		Watches(&corev1.Pod{}, enqueueDelayed(r.scannersInNamespace), builder.WithPredicates(podChanged)).
		WatchesRawSource(source.Channel(r.Wakeups.SubscribeScanners(), &handler.EnqueueRequestForObject{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: scannersAtOnce}).
		Complete(withStoreBackoff{withPermissionCheck{r, r.Permissions}})
}

// ownRequest returns the request of the object itself.
func ownRequest(_ context.Context, o client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(o)}}
}

// scannerOf returns the request of the scanner that an ImageScan names.
func scannerOf(_ context.Context, o client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: inventory.OwnerName(o.(*v1alpha1.ImageScan))}}
}

// copyOf returns a deep copy of a scanner.
func copyOf(scanner v1alpha1.GenericScanner) v1alpha1.GenericScanner {
	return scanner.DeepCopyObject().(v1alpha1.GenericScanner)
}

// deletionStarted passes two events of an object's deletion: its begin, and the removal of the object.
var deletionStarted = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetDeletionTimestamp().IsZero() && !e.ObjectNew.GetDeletionTimestamp().IsZero()
	},
	GenericFunc: func(event.GenericEvent) bool { return false },
}

// scannersInNamespace returns the requests of the scanners that cover the namespace of an object.
func (r *ScannerReconciler) scannersInNamespace(ctx context.Context, o client.Object) (requests []reconcile.Request) {
	scanners, err := r.Inventory.ScannersIn(ctx, o.GetNamespace())
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "listing Scanners from the cache")
	}
	for _, scanner := range scanners {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(scanner)})
	}
	return requests
}

// clusterEventDelay is the eventDelay of ClusterScanners. Each reconciliation reads the pods of all covered namespaces, and events of one of
// these come all the time.
const clusterEventDelay = 3 * time.Second

// enqueueDelayed enqueues after eventDelay, or clusterEventDelay for a ClusterScanner, so that a burst of events causes one reconciliation.
func enqueueDelayed(requests handler.MapFunc) handler.EventHandler {
	return enqueueWith(func(request reconcile.Request) time.Duration {
		if request.Namespace == "" {
			return clusterEventDelay
		}
		return eventDelay
	}, requests)
}

// enqueueAfter enqueues after a delay.
func enqueueAfter(wait time.Duration, requests handler.MapFunc) handler.EventHandler {
	return enqueueWith(func(reconcile.Request) time.Duration { return wait }, requests)
}

// enqueueWith enqueues each request after its delay.
func enqueueWith(delay func(reconcile.Request) time.Duration, requests handler.MapFunc) handler.EventHandler {
	enqueue := func(ctx context.Context, q requestQueue, o client.Object) {
		for _, request := range requests(ctx, o) {
			q.AddAfter(request, delay(request))
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q requestQueue) { enqueue(ctx, q, e.Object) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q requestQueue) { enqueue(ctx, q, e.ObjectNew) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q requestQueue) { enqueue(ctx, q, e.Object) },
	}
}
