package controllers

import (
	"cmp"
	"context"
	"slices"
	"strings"
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
	"github.com/scanner-operator/scanner-operator/pkg/exception/cluster"
	"github.com/scanner-operator/scanner-operator/pkg/rights"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// statusInterval is how often a Scanner's status is computed without anything having happened. Whatever it shows comes with an event of
// its own, or is noticed for all Scanners at once (NoticeEngines): this is for what was missed.
const statusInterval = 5 * time.Minute

// scannersAtOnce is how many Scanners are reconciled at a time, so that one for which the API server or an engine takes its time does
// not keep the others waiting.
const scannersAtOnce = 4

// ScannerReconciler says in a Scanner's status what is covered, what was found and what is wrong. Beside that it
// changes nothing but the Scanner's own finalizers.
type ScannerReconciler struct {
	Client client.Client
	// Reader reads without a cache.
	Reader   client.Reader
	Store    store.Store
	Backends backend.Choosers
	Clock    clock.PassiveClock
	Events   events.EventRecorder
	Wakeups  *Wakeups
	// Exceptions are left out of the counts, and what they cover goes to Covered.
	Exceptions cluster.Source
	Covered    *Covered
	// StoreDurable says whether the store outlives the pod, and StoreAdvice what to do if it does not.
	StoreDurable bool
	StoreAdvice  string
	Rights       *rights.Checker
	Limits       Limits
	// Metrics are told what each Scanner covers.
	Metrics *Metrics

	rivals   rivals
	holdings holdings
	engines  noticedEngines
}

// scannerScope is what the parts of a Scanner's status are computed from.
type scannerScope struct {
	scanner *v1alpha1.Scanner
	images  []coveredImage
	// backend is nil when the operator runs without the Scanner's engine.
	backend backend.Backend
	// storeTrouble is the reason why the store cannot be used as it should; empty if it can. Set by setStore.
	storeTrouble string
	// rival says that another operator works on the Scanner too.
	rival bool
	// unknownReceivers says which receivers pods name that there are not; empty if there are none.
	unknownReceivers string
	// missingRights says what the operator may not do in the namespace, and how to let it; empty if there is nothing.
	missingRights string
	// refused says that the namespace has too many Scanners, of which this is not among the first.
	refused bool
}

// +kubebuilder:rbac:groups=scanner-operator.io,resources=scanners/status,verbs=patch

// Reconcile handles one Scanner.
func (r *ScannerReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var scanner v1alpha1.Scanner
	err := r.Client.Get(ctx, req.NamespacedName, &scanner)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, err
	}
	if err != nil {
		r.rivals.forget(req.NamespacedName)
		r.Metrics.forget(req.NamespacedName)
		r.holdings.drop(req.NamespacedName, "")
		r.wakeExceptions(ctx, r.Covered.forget(req.NamespacedName))
		return ctrl.Result{}, r.ForgetGone(ctx)
	}
	if !r.Rights.Readable(scanner.Namespace) {
		return r.awaitRights(ctx, &scanner)
	}
	undone, err := r.keepFinalizers(ctx, &scanner)
	if err != nil && r.Store.Health() == nil {
		return ctrl.Result{}, err
	}
	if !scanner.DeletionTimestamp.IsZero() {
		r.rivals.forget(req.NamespacedName)
		return ctrl.Result{RequeueAfter: undone}, r.ForgetGone(ctx)
	}
	admitted, err := r.Limits.admits(ctx, r.Client, &scanner)
	if err != nil {
		return ctrl.Result{}, err
	}
	if !admitted {
		return ctrl.Result{RequeueAfter: undone}, r.refuse(ctx, &scanner)
	}
	next := ctrl.Result{RequeueAfter: min(cmp.Or(undone, statusInterval), statusInterval)}
	before := scanner.DeepCopy()
	if before.Status.StoreID == r.Store.ID() {
		r.rivals.wrote(req.NamespacedName)
	}
	s := &scannerScope{scanner: &scanner, backend: r.Backends.For(&scanner), missingRights: r.Rights.Missing(scanner.Namespace)}
	if s.rival, err = r.rivals.look(ctx, r.Clock, r.Reader, &scanner, r.Store.ID()); err != nil {
		return ctrl.Result{}, err
	}
	if err := r.computeStatus(ctx, s); err != nil && r.Store.Health() == nil {
		return ctrl.Result{}, err
	}
	if s.rival {
		next.RequeueAfter = min(next.RequeueAfter, rivalInterval)
	}
	// What a store in trouble could not tell stays as it was; why, it can always be said.
	r.setStore(s)
	r.setReady(s)
	r.Metrics.covers(s)
	return next, r.patchStatus(ctx, before, s)
}

// refuse says on a Scanner that nothing is done for it. It is looked at again when it, or another Scanner of the namespace, changes.
func (r *ScannerReconciler) refuse(ctx context.Context, scanner *v1alpha1.Scanner) error {
	before := scanner.DeepCopy()
	s := &scannerScope{scanner: scanner, backend: r.Backends.For(scanner), refused: true}
	scanner.Status.ObservedGeneration = scanner.Generation
	r.setReady(s)
	r.Metrics.forget(client.ObjectKeyFromObject(scanner))
	return r.patchStatus(ctx, before, s)
}

// patchStatus writes the status if it has changed, and tells what users would want to hear.
func (r *ScannerReconciler) patchStatus(ctx context.Context, before *v1alpha1.Scanner, s *scannerScope) error {
	if equality.Semantic.DeepEqual(before.Status, s.scanner.Status) {
		return nil
	}
	if err := r.Client.Status().Patch(ctx, s.scanner, client.MergeFrom(before)); err != nil {
		return client.IgnoreNotFound(err)
	}
	if s.scanner.Status.StoreID == r.Store.ID() {
		r.rivals.wrote(client.ObjectKeyFromObject(s.scanner))
	}
	r.tell(before, s)
	return nil
}

// ForgetGone removes from the store what belongs to Scanners that have gone. It is also to be called now and
// then: an ImageScan may have been looked at a moment after its Scanner went. The store is asked first, so that a
// Scanner that is made meanwhile is none that has gone.
func (r *ScannerReconciler) ForgetGone(ctx context.Context) error {
	known, err := r.Store.Scanners(ctx)
	if err != nil {
		return err
	}
	var scanners v1alpha1.ScannerList
	if err := r.Client.List(ctx, &scanners, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	lives := make(map[string]bool, len(scanners.Items))
	for i := range scanners.Items {
		lives[string(scanners.Items[i].UID)] = scanners.Items[i].DeletionTimestamp.IsZero()
	}
	gone := slices.DeleteFunc(known, func(uid string) bool { return lives[uid] })
	if len(gone) == 0 {
		return nil
	}
	there, complete, err := r.stillThere(ctx)
	if err != nil || !complete {
		return err
	}
	return r.Store.ForgetScanners(ctx, slices.DeleteFunc(gone, func(uid string) bool { return there[types.UID(uid)] }))
}

// computeStatus sets all that is asked of the store.
func (r *ScannerReconciler) computeStatus(ctx context.Context, s *scannerScope) error {
	status := &s.scanner.Status
	status.ObservedGeneration = s.scanner.Generation
	images, recent, err := scannerCoverage(ctx, r.Client, r.Store, r.Limits, s.scanner, engineOf(s.backend))
	if err != nil {
		return err
	}
	s.images, status.Images = images, countImages(images)
	status.Images.RecentlyUsed = clamp(len(recent))
	if err := r.setRequest(ctx, s.scanner); err != nil {
		return err
	}
	if err := r.count(ctx, s.scanner); err != nil {
		return err
	}
	receivers, err := r.receivers(ctx, s.scanner)
	if err != nil {
		return err
	}
	if err := r.setBackend(ctx, s); err != nil {
		return err
	}
	if s.unknownReceivers, err = (inventory{client: r.Client, jobs: r.Store}).unknownReceivers(ctx, s.scanner); err != nil {
		return err
	}
	r.setReceivers(s, receivers)
	return nil
}

// count sets what was found, and passes on what exceptions cover.
func (r *ScannerReconciler) count(ctx context.Context, scanner *v1alpha1.Scanner) error {
	exceptions, _, err := r.Exceptions.InForce(ctx, scanner.Namespace)
	if err != nil {
		return err
	}
	totals, err := r.Store.ScannerTotals(ctx, string(scanner.UID), exceptions)
	if err != nil {
		return err
	}
	scanner.Status.Findings = countsOf(totals.Counts, totals.Excepted)
	r.wakeExceptions(ctx, r.Covered.count(client.ObjectKeyFromObject(scanner), exceptions, totals.ByException))
	return nil
}

func (r *ScannerReconciler) wakeExceptions(ctx context.Context, names []types.NamespacedName) {
	for _, name := range names {
		r.Wakeups.Exception(ctx, name)
	}
}

// tell makes an event of each change of a condition that users would ask about.
func (r *ScannerReconciler) tell(before *v1alpha1.Scanner, s *scannerScope) {
	after := s.scanner
	for _, condition := range after.Status.Conditions {
		if changed(before.Status.Conditions, condition) && isTold(before.Status.Conditions, condition) {
			r.Events.Eventf(after, nil, eventType(condition), condition.Reason, "Scan", "%s", truncate(noteOf(after, condition), maxEventNote))
		}
	}
	if told := meta.FindStatusCondition(before.Status.Conditions, v1alpha1.ConditionNotificationsDelivered); s.unknownReceivers != "" &&
		(told == nil || !strings.Contains(told.Message, s.unknownReceivers)) {
		r.Events.Eventf(after, nil, corev1.EventTypeWarning, v1alpha1.ReasonUnknownReceiver, "Notify", "%s", s.unknownReceivers)
	}
}

// isTold says whether a change of a condition is worth an event. That the store is as it should be is worth one only after
// it was not.
func isTold(before []metav1.Condition, now metav1.Condition) bool {
	switch now.Type {
	case v1alpha1.ConditionReady, v1alpha1.ConditionBackendAvailable:
		return true
	case v1alpha1.ConditionStoreDurable:
		return now.Status == metav1.ConditionFalse || meta.FindStatusCondition(before, now.Type) != nil
	}
	return false
}

// noteOf is a condition's message or, where all is well and it has none, what that means.
func noteOf(scanner *v1alpha1.Scanner, condition metav1.Condition) string {
	switch {
	case condition.Message != "":
		return condition.Message
	case condition.Type == v1alpha1.ConditionStoreDurable:
		return "the store works and outlives the pod"
	case scanner.Status.VulnerabilityData != nil && !scanner.Status.VulnerabilityData.BuildTime.IsZero():
		return "the engine works, with vulnerability data of " + scanner.Status.VulnerabilityData.BuildTime.UTC().Format(time.RFC3339)
	}
	return "the engine works"
}

// SetupWithManager registers the controller.
func (r *ScannerReconciler) SetupWithManager(mgr ctrl.Manager) error {
	return watchExceptions(ctrl.NewControllerManagedBy(mgr), r.Exceptions, &v1alpha1.ScannerList{}).
		Named("scanner").
		For(&v1alpha1.Scanner{}, builder.WithPredicates(predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, rescanRequested))).
		Watches(&v1alpha1.Scanner{}, after(rivalInterval, itself), builder.WithPredicates(storeChanged)).
		Watches(&v1alpha1.Scanner{}, settled(r.ofNamespace), builder.WithPredicates(deleted)).
		Watches(&v1alpha1.ImageScan{}, settled(scannerOf)).
		Watches(&corev1.Pod{}, settled(r.ofNamespace), builder.WithPredicates(podChanged)).
		WatchesRawSource(source.Channel(r.Wakeups.SubscribeScanners(), &handler.EnqueueRequestForObject{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: scannersAtOnce}).
		Complete(patient{watchful{r, r.Rights}})
}

// scannerOf is the Scanner that an ImageScan belongs to.
func scannerOf(_ context.Context, o client.Object) []reconcile.Request {
	scan := o.(*v1alpha1.ImageScan)
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: scan.Namespace, Name: scan.Spec.Scanner}}}
}

// deleted lets pass that an object has gone, or is about to.
var deleted = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetDeletionTimestamp().IsZero() && !e.ObjectNew.GetDeletionTimestamp().IsZero()
	},
	GenericFunc: func(event.GenericEvent) bool { return false },
}

// ofNamespace are the Scanners of the namespace that an object is in, but for those that are too many.
func (r *ScannerReconciler) ofNamespace(ctx context.Context, o client.Object) (requests []reconcile.Request) {
	var all v1alpha1.ScannerList
	if err := r.Client.List(ctx, &all, client.InNamespace(o.GetNamespace()), client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "listing Scanners from the cache")
		return nil
	}
	for i := range r.Limits.admitted(all.Items) {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&all.Items[i])})
	}
	return requests
}

// settled enqueues after a moment, so that a burst of events is one reconciliation.
func settled(requests handler.MapFunc) handler.EventHandler { return after(settle, requests) }

// after enqueues after a time.
func after(wait time.Duration, requests handler.MapFunc) handler.EventHandler {
	enqueue := func(ctx context.Context, q requestQueue, o client.Object) {
		for _, request := range requests(ctx, o) {
			q.AddAfter(request, wait)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q requestQueue) { enqueue(ctx, q, e.Object) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q requestQueue) { enqueue(ctx, q, e.ObjectNew) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q requestQueue) { enqueue(ctx, q, e.Object) },
	}
}
