package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/exception/active"
	"github.com/scanner-operator/scanner-operator/pkg/inventory"
	"github.com/scanner-operator/scanner-operator/pkg/preflight"
)

// recountInterval is the minimum time between two updates of status.findings of one exception, since that number changes often while many
// images are scanned.
const recountInterval = 10 * time.Second

// ExceptionReconciler maintains the status of VulnerabilityExceptions and ClusterVulnerabilityExceptions: whether an exception is in force
// and how many findings it suppresses. Other reconcilers read exceptions directly. They learn from the status that an exception has
// expired.
type ExceptionReconciler struct {
	Client      client.Client
	Exceptions  active.Source
	Clock       clock.PassiveClock
	Events      events.EventRecorder
	Suppressed  *SuppressionCounts
	Wakeups     *Wakeups
	Permissions *preflight.Checker
	Inventory   *inventory.Inventory

	mutex     sync.Mutex
	recounted map[types.NamespacedName]time.Time
}

// exceptionObject is an exception of either kind.
type exceptionObject struct {
	object client.Object
	spec   *v1alpha1.ExceptionSpec
	status *v1alpha1.ExceptionStatus
}

func exceptionObjectOf(o client.Object) exceptionObject {
	if e, wide := o.(*v1alpha1.ClusterVulnerabilityException); wide {
		return exceptionObject{o, &e.Spec.ExceptionSpec, &e.Status}
	}
	e := o.(*v1alpha1.VulnerabilityException)
	return exceptionObject{o, &e.Spec, &e.Status}
}

// expired reports whether the exception has expired at a time.
func (d exceptionObject) expired(now time.Time) bool {
	return d.spec.ExpirationTime != nil && !now.Before(d.spec.ExpirationTime.Time)
}

// selectorProblem describes an invalid namespace selector that the API server accepted. Such an exception selects no namespace. Empty if
// the selector is valid.
func (d exceptionObject) selectorProblem() string {
	if e, wide := d.object.(*v1alpha1.ClusterVulnerabilityException); wide {
		if _, err := active.Selector(e); err != nil {
			return fmt.Sprintf("spec.namespaceSelector: %v; nothing is covered until it is corrected", err)
		}
	}
	return ""
}

// +kubebuilder:rbac:groups=scanner-operator.io,resources=vulnerabilityexceptions,verbs=list;watch
// +kubebuilder:rbac:groups=scanner-operator.io,resources=vulnerabilityexceptions/status,verbs=patch
// +kubebuilder:rbac:roleName=scanner-operator-manager-cluster,groups=scanner-operator.io,resources=clustervulnerabilityexceptions,verbs=list;watch
// +kubebuilder:rbac:roleName=scanner-operator-manager-cluster,groups=scanner-operator.io,resources=clustervulnerabilityexceptions/status,verbs=patch

// reconcilerOf returns the reconciler of one kind, given by an empty object of that kind.
func (r *ExceptionReconciler) reconcilerOf(kind client.Object) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
		object := kind.DeepCopyObject().(client.Object)
		if err := r.Client.Get(ctx, req.NamespacedName, object); err != nil {
			r.dropRecount(req.NamespacedName)
			return ctrl.Result{}, client.IgnoreNotFound(err)
		}
		return r.reconcile(ctx, exceptionObjectOf(object))
	})
}

func (r *ExceptionReconciler) reconcile(ctx context.Context, d exceptionObject) (ctrl.Result, error) {
	before := d.object.DeepCopyObject().(client.Object)
	refusal, err := r.refusal(ctx, d.object)
	if err != nil {
		return ctrl.Result{}, err
	}
	ready := d.ready(r.Clock.Now(), refusal)
	changed := conditionChanged(d.status.Conditions, ready)
	meta.SetStatusCondition(&d.status.Conditions, ready)
	stalled := ready.Reason == v1alpha1.ReasonInvalidSelector || ready.Reason == v1alpha1.ReasonTooManyExceptions
	setWhileTrue(&d.status.Conditions, v1alpha1.ConditionStalled, stalled, ready.Reason, ready.Message, d.object.GetGeneration())
	d.status.ObservedGeneration = d.object.GetGeneration()
	next, err := r.recount(ctx, d, ready.Status == metav1.ConditionTrue)
	if err != nil {
		return ctrl.Result{}, err
	}
	d.setColumns()
	if !equality.Semantic.DeepEqual(exceptionObjectOf(before).status, d.status) {
		if err := r.Client.Status().Patch(ctx, d.object, client.MergeFrom(before)); err != nil {
			return ctrl.Result{}, client.IgnoreNotFound(err)
		}
		if changed && ready.Status == metav1.ConditionFalse {
			r.Events.Eventf(d.object, nil, corev1.EventTypeWarning, ready.Reason, "Except", "%s", truncate(ready.Message, maxEventNote))
		}
	}
	if ready.Status == metav1.ConditionTrue && d.spec.ExpirationTime != nil {
		end := max(d.spec.ExpirationTime.Sub(r.Clock.Now()), time.Millisecond)
		if next == 0 || end < next {
			next = end
		}
	}
	return ctrl.Result{RequeueAfter: next}, nil
}

// refusal returns why an exception exceeds the bounds of its namespace; empty if it does not. A cluster-wide one has none.
func (r *ExceptionReconciler) refusal(ctx context.Context, o client.Object) (string, error) {
	if o.GetNamespace() == "" {
		return "", nil
	}
	var all v1alpha1.VulnerabilityExceptionList
	if err := r.Client.List(ctx, &all, client.InNamespace(o.GetNamespace()), client.UnsafeDisableDeepCopy); err != nil {
		return "", err
	}
	return active.Refusals(&all, r.Clock.Now())(o.GetNamespace(), o.GetName()), nil
}

// misjudged returns the requests of the exceptions in the namespace of a changed one whose status does not say whether they exceed the bounds.
func (r *ExceptionReconciler) misjudged(ctx context.Context, changed client.Object) (requests []reconcile.Request) {
	var all v1alpha1.VulnerabilityExceptionList
	if err := r.Client.List(ctx, &all, client.InNamespace(changed.GetNamespace()), client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "listing exceptions from the cache")
		return nil
	}
	refusal := active.Refusals(&all, r.Clock.Now())
	for i := range all.Items {
		e := &all.Items[i]
		ready := meta.FindStatusCondition(e.Status.Conditions, v1alpha1.ConditionReady)
		isRefused := ready != nil && ready.Reason == v1alpha1.ReasonTooManyExceptions
		if isRefused != (refusal(e.Namespace, e.Name) != "") {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(e)})
		}
	}
	return requests
}

// ready returns the condition Ready: whether the exception is in force. refusal is why it exceeds the bounds of its namespace; empty if it does not.
func (d exceptionObject) ready(now time.Time, refusal string) metav1.Condition {
	ready := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, ObservedGeneration: d.object.GetGeneration()}
	problem := d.selectorProblem()
	switch {
	case d.expired(now):
		ready.Reason = v1alpha1.ReasonExpired
		ready.Message = fmt.Sprintf("it ended at %s, and its findings are news again: set spec.expirationTime to a later time, or delete it", formatTime(d.spec.ExpirationTime))
	case problem != "":
		ready.Reason, ready.Message = v1alpha1.ReasonInvalidSelector, truncate(problem, v1alpha1.MaxMessageBytes)
	case refusal != "":
		ready.Reason, ready.Message = v1alpha1.ReasonTooManyExceptions, refusal
	case d.spec.ExpirationTime != nil:
		ready.Status, ready.Reason, ready.Message = metav1.ConditionTrue, v1alpha1.ReasonInForce, "in force until "+formatTime(d.spec.ExpirationTime)
	default:
		ready.Status, ready.Reason, ready.Message = metav1.ConditionTrue, v1alpha1.ReasonInForce, "in force; it does not expire"
	}
	return ready
}

func formatTime(t *metav1.Time) string { return t.UTC().Format(time.RFC3339) }

// recount sets the number of findings that the exception suppresses. It returns the time until the next recount; 0 if a change will trigger
// it.
func (r *ExceptionReconciler) recount(ctx context.Context, d exceptionObject, inForce bool) (time.Duration, error) {
	n, known := 0, true
	if inForce {
		scanners, err := r.scanners(ctx, d)
		if err != nil {
			return 0, err
		}
		n, known = r.Suppressed.total(client.ObjectKeyFromObject(d.object), scanners)
	}
	if !known || d.status.Findings != nil && *d.status.Findings == clamp(n) {
		return 0, nil
	}
	if wait := r.mayRecount(client.ObjectKeyFromObject(d.object)); wait > 0 && inForce {
		return wait, nil
	}
	d.status.Findings = ptr.To(clamp(n))
	return 0, nil
}

// scanners returns the scanners in whose namespaces the exception applies.
func (r *ExceptionReconciler) scanners(ctx context.Context, d exceptionObject) ([]types.NamespacedName, error) {
	scanners, err := inventory.ListScanners(ctx, r.Client, metav1.NamespaceAll)
	if err != nil {
		return nil, err
	}
	concerned, err := appliesTo(ctx, r.Exceptions, d.object)
	if err != nil {
		return nil, err
	}
	var names []types.NamespacedName
	for _, s := range scanners {
		covered, err := r.Inventory.Namespaces(ctx, s)
		if err != nil {
			return nil, err
		}
		if s.GetDeletionTimestamp() == nil && slices.ContainsFunc(covered.Covered, concerned) {
			names = append(names, client.ObjectKeyFromObject(s))
		}
	}
	return names, nil
}

// mayRecount returns how long status.findings must not be updated yet. If it returns 0, it records that the update happens now.
func (r *ExceptionReconciler) mayRecount(name types.NamespacedName) time.Duration {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	now := r.Clock.Now()
	if last, found := r.recounted[name]; found && now.Sub(last) < recountInterval {
		return recountInterval - max(now.Sub(last), 0)
	}
	if r.recounted == nil {
		r.recounted = map[types.NamespacedName]time.Time{}
	}
	r.recounted[name] = now
	return 0
}

func (r *ExceptionReconciler) dropRecount(name types.NamespacedName) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	delete(r.recounted, name)
}

// SetupWithManager registers one controller for each kind.
func (r *ExceptionReconciler) SetupWithManager(mgr ctrl.Manager) error {
	return errors.Join(
		r.setup(mgr, "vulnerabilityexception", &v1alpha1.VulnerabilityException{}, func(o client.Object) bool { return o.GetNamespace() != "" }),
		r.setup(mgr, "clustervulnerabilityexception", &v1alpha1.ClusterVulnerabilityException{}, func(o client.Object) bool { return o.GetNamespace() == "" }),
	)
}

func (r *ExceptionReconciler) setup(mgr ctrl.Manager, name string, kind client.Object, ofKind func(client.Object) bool) error {
	recounted := source.Channel(r.Wakeups.SubscribeExceptions(), &handler.EnqueueRequestForObject{},
		source.WithPredicates[client.Object, reconcile.Request](predicate.NewPredicateFuncs(ofKind)))
	b := ctrl.NewControllerManagedBy(mgr).
		Named(name).
		For(kind, builder.WithPredicates(predicate.GenerationChangedPredicate{}))
	if _, own := kind.(*v1alpha1.VulnerabilityException); own {
		b = b.Watches(kind, handler.EnqueueRequestsFromMapFunc(r.misjudged), builder.WithPredicates(suppressionChanged))
	}
	return b.
		WatchesRawSource(recounted).
		Complete(withStoreBackoff{withReadAccess{r.reconcilerOf(kind), r.Permissions}})
}
