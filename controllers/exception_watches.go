package controllers

import (
	"context"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/exception/active"
)

// recountPace is the delay between two objects that are enqueued because of one exception. It keeps the queue free for others in a large
// cluster: 10,000 objects take 200 seconds.
const recountPace = 20 * time.Millisecond

// suppressionChanged passes events that can change which findings an exception suppresses: changes of its spec, its deletion and its expiry.
// Exceptions of the initial list change nothing, since all objects are reconciled at the start.
var suppressionChanged = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool { return !e.IsInInitialList },
	UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() || !hasExpired(e.ObjectOld) && hasExpired(e.ObjectNew)
	},
	GenericFunc: func(event.GenericEvent) bool { return false },
}

// hasExpired reports whether an exception is expired according to its status.
func hasExpired(o client.Object) bool {
	ready := meta.FindStatusCondition(exceptionObjectOf(o).status.Conditions, v1alpha1.ConditionReady)
	return ready != nil && ready.Reason == v1alpha1.ReasonExpired
}

// namespaceChanged passes updates that change which exceptions or receivers apply to a namespace.
var namespaceChanged = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		return !maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels()) ||
			e.ObjectOld.GetAnnotations()[v1alpha1.AnnotationReceiver] != e.ObjectNew.GetAnnotations()[v1alpha1.AnnotationReceiver]
	},
	DeleteFunc:  func(event.DeleteEvent) bool { return false },
	GenericFunc: func(event.GenericEvent) bool { return false },
}

// +kubebuilder:rbac:roleName=scanner-operator-manager-cluster,groups="",resources=namespaces,verbs=get;list;watch

// watchExceptions makes a controller reconcile its objects when the exceptions that apply to them change, or their namespace names other
// receivers. objects is an empty list of the controller's kind.
func watchExceptions(b *ctrl.Builder, exceptions active.Source, objects client.ObjectList) *ctrl.Builder {
	w := exceptionWatch{exceptions, objects}
	changes := handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q requestQueue) { w.changed(ctx, q, e.Object) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q requestQueue) {
			w.changed(ctx, q, e.ObjectOld, e.ObjectNew)
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q requestQueue) { w.changed(ctx, q, e.Object) },
	}
	return b.
		Watches(&v1alpha1.VulnerabilityException{}, changes, builder.WithPredicates(suppressionChanged)).
		Watches(&v1alpha1.ClusterVulnerabilityException{}, changes, builder.WithPredicates(suppressionChanged)).
		WatchesMetadata(&corev1.Namespace{}, handler.Funcs{UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q requestQueue) {
			w.enqueue(ctx, q, e.ObjectNew.GetName(), func(string) bool { return true })
		}}, builder.WithPredicates(namespaceChanged))
}

type exceptionWatch struct {
	exceptions active.Source
	objects    client.ObjectList
}

// changed enqueues the objects in the namespaces to which any of the given versions of an exception applies.
func (w exceptionWatch) changed(ctx context.Context, q requestQueue, versions ...client.Object) {
	var about []func(namespace string) bool
	for _, o := range versions {
		one, err := appliesTo(ctx, w.exceptions, o)
		if err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "listing namespaces from the cache")
			one = func(string) bool { return true }
		}
		about = append(about, one)
	}
	w.enqueue(ctx, q, versions[0].GetNamespace(), func(namespace string) bool {
		return slices.ContainsFunc(about, func(one func(string) bool) bool { return one(namespace) })
	})
}

// enqueue enqueues the objects of a namespace (empty: of all namespaces) for which concerned returns true, recountPace apart.
func (w exceptionWatch) enqueue(ctx context.Context, q requestQueue, namespace string, concerned func(string) bool) {
	list, after := w.objects.DeepCopyObject().(client.ObjectList), eventDelay
	for _, request := range requestsFor(ctx, w.exceptions.Reader, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy) {
		if concerned(request.Namespace) {
			q.AddAfter(request, after)
			after += recountPace
		}
	}
}

// appliesTo returns a function that reports whether an exception applies to a namespace.
func appliesTo(ctx context.Context, exceptions active.Source, o client.Object) (func(namespace string) bool, error) {
	if wide, ok := o.(*v1alpha1.ClusterVulnerabilityException); ok {
		return exceptions.Selects(ctx, wide)
	}
	return func(namespace string) bool { return namespace == o.GetNamespace() }, nil
}
