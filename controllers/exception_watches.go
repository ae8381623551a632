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
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/exception/active"
	"github.com/scanner-operator/scanner-operator/pkg/inventory"
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

// namespaceChanged passes events that change which scanners cover a namespace, or which exceptions, receivers or channels apply to it.
var namespaceChanged = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool { return !e.IsInInitialList },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.GetAnnotations(), e.ObjectNew.GetAnnotations()
		return !maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels()) ||
			before[v1alpha1.AnnotationReceiver] != after[v1alpha1.AnnotationReceiver] ||
			before[v1alpha1.AnnotationSlackChannel] != after[v1alpha1.AnnotationSlackChannel] ||
			e.ObjectOld.GetDeletionTimestamp().IsZero() != e.ObjectNew.GetDeletionTimestamp().IsZero()
	},
	GenericFunc: func(event.GenericEvent) bool { return false },
}

// +kubebuilder:rbac:roleName=scanner-operator-manager-cluster,groups="",resources=namespaces,verbs=get;list;watch

// objectsIn returns the requests of a controller's objects for a namespace (empty: all of them).
type objectsIn func(ctx context.Context, reader client.Reader, namespace string) []reconcile.Request

// imageScansIn returns the objectsIn of a controller of ImageScans.
func imageScansIn(images *inventory.Inventory) objectsIn {
	return func(ctx context.Context, reader client.Reader, namespace string) []reconcile.Request {
		return watchedRequests(ctx, images, reader, &v1alpha1.ImageScanList{}, namespace)
	}
}

// scannersFor returns the objectsIn of a controller of scanners: the Scanners of the namespace, and all ClusterScanners.
func scannersFor(images *inventory.Inventory) objectsIn {
	return func(ctx context.Context, reader client.Reader, namespace string) []reconcile.Request {
		return slices.Concat(watchedRequests(ctx, images, reader, &v1alpha1.ScannerList{}, namespace),
			requestsFor(ctx, reader, &v1alpha1.ClusterScannerList{}))
	}
}

// watchedRequests returns the requests of the objects in a namespace (empty: all), none if the operator does not watch it: events of namespaces
// come from all of them.
func watchedRequests(
	ctx context.Context, images *inventory.Inventory, reader client.Reader, list client.ObjectList, namespace string,
) []reconcile.Request {
	if namespace != "" && !images.Watches(namespace) {
		return nil
	}
	return requestsFor(ctx, reader, list, client.InNamespace(namespace))
}

// watchExceptions makes a controller reconcile its objects when the exceptions that apply to them change, or when another scanner covers their
// namespace or the namespace names other receivers.
func watchExceptions(b *ctrl.Builder, exceptions active.Source, objects objectsIn) *ctrl.Builder {
	w := exceptionWatch{exceptions, objects}
	changes := handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q requestQueue) { w.changed(ctx, q, e.Object) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q requestQueue) {
			w.changed(ctx, q, e.ObjectOld, e.ObjectNew)
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q requestQueue) { w.changed(ctx, q, e.Object) },
	}
	all := func(string) bool { return true }
	return b.
		Watches(&v1alpha1.VulnerabilityException{}, changes, builder.WithPredicates(suppressionChanged)).
		Watches(&v1alpha1.ClusterVulnerabilityException{}, changes, builder.WithPredicates(suppressionChanged)).
		WatchesMetadata(&corev1.Namespace{}, handler.Funcs{
			CreateFunc: func(ctx context.Context, e event.CreateEvent, q requestQueue) {
				w.enqueue(ctx, q, e.Object.GetName(), all)
			},
			UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q requestQueue) {
				w.enqueue(ctx, q, e.ObjectNew.GetName(), all)
			},
			DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q requestQueue) {
				w.enqueue(ctx, q, e.Object.GetName(), all)
			},
		}, builder.WithPredicates(namespaceChanged))
}

type exceptionWatch struct {
	exceptions active.Source
	objects    objectsIn
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

// enqueue enqueues the objects for a namespace (empty: for all namespaces) for which concerned returns true, recountPace apart. An object without
// a namespace, a ClusterScanner, is always enqueued.
func (w exceptionWatch) enqueue(ctx context.Context, q requestQueue, namespace string, concerned func(string) bool) {
	after := eventDelay
	for _, request := range w.objects(ctx, w.exceptions.Reader, namespace) {
		if request.Namespace == "" || concerned(request.Namespace) {
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
