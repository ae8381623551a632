package controllers

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/util/workqueue"
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
	"github.com/scanner-operator/scanner-operator/pkg/inventory"
)

// eventDelay is the delay between a pod event and the reconciliation, so that a rollout causes one reconciliation.
const eventDelay = time.Second

// statusChanged passes updates that change the status, including the reconciler's own. A reconciliation that starts before the cache has
// the last written status works on an older one, and may leave a field as it is that the last one has changed. The event of the last write
// triggers another reconciliation.
var statusChanged = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*v1alpha1.ImageScan), e.ObjectNew.(*v1alpha1.ImageScan)
		return !equality.Semantic.DeepEqual(before.Status, after.Status)
	},
	DeleteFunc:  func(event.DeleteEvent) bool { return false },
	GenericFunc: func(event.GenericEvent) bool { return false },
}

type requestQueue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// SetupWithManager registers the controller.
func (r *ImageScanReconciler) SetupWithManager(mgr ctrl.Manager) error {
	scannerChanged := builder.WithPredicates(predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, rescanRequested))
	return watchExceptions(ctrl.NewControllerManagedBy(mgr), r.Exceptions, imageScansIn(r.Inventory)).
		Named("imagescan").
		For(&v1alpha1.ImageScan{}, builder.WithPredicates(predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, matchRequested, statusChanged))).
		Watches(&v1alpha1.Scanner{}, handler.EnqueueRequestsFromMapFunc(r.imageScansOfScanner), scannerChanged).
		Watches(&v1alpha1.ClusterScanner{}, handler.EnqueueRequestsFromMapFunc(r.imageScansOfScanner), scannerChanged).
		Watches(&v1alpha1.Scanner{}, handler.EnqueueRequestsFromMapFunc(r.clusterImageScansIn), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.ImageScan{}, r.deletionEvents()).
		Watches(&corev1.Pod{}, r.podEvents(), builder.WithPredicates(podChanged)).
		WatchesRawSource(source.Channel(r.Wakeups.Subscribe(), handler.EnqueueRequestsFromMapFunc(r.imageScansOfDigest))).
		WithOptions(controller.Options{MaxConcurrentReconciles: 4}).
		Complete(withStoreBackoff{withReadAccess{r, r.Permissions}})
}

func (r *ImageScanReconciler) imageScansOfScanner(ctx context.Context, o client.Object) []reconcile.Request {
	return requestsFor(ctx, r.Client, &v1alpha1.ImageScanList{}, client.InNamespace(o.GetNamespace()),
		client.MatchingFields{inventory.ImageScansByScanner: inventory.ScannerValue(inventory.ReferenceTo(o.(v1alpha1.GenericScanner)))})
}

// clusterImageScansIn returns the ImageScans of ClusterScanners in the namespace of a Scanner, which may cover the namespace instead.
func (r *ImageScanReconciler) clusterImageScansIn(ctx context.Context, o client.Object) (requests []reconcile.Request) {
	scanners, err := inventory.ListClusterScanners(ctx, r.Client)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "listing ClusterScanners from the cache")
	}
	for _, scanner := range scanners {
		requests = append(requests, requestsFor(ctx, r.Client, &v1alpha1.ImageScanList{}, client.InNamespace(o.GetNamespace()),
			client.MatchingFields{inventory.ImageScansByScanner: inventory.ScannerValue(inventory.ReferenceTo(scanner))})...)
	}
	return requests
}

// imageScansOfDigest returns the ImageScans in all namespaces that have the digest of a wake-up.
func (r *ImageScanReconciler) imageScansOfDigest(ctx context.Context, o client.Object) []reconcile.Request {
	return requestsFor(ctx, r.Client, &v1alpha1.ImageScanList{}, client.MatchingFields{inventory.ImageScansByDigest: o.(*v1alpha1.ImageScan).Spec.Digest})
}

// podEvents enqueues the ImageScans of the images that a pod runs or ran before the event.
func (r *ImageScanReconciler) podEvents() handler.EventHandler {
	enqueue := func(ctx context.Context, q requestQueue, objects ...client.Object) {
		for _, o := range objects {
			resolved, _ := inventory.ImagesOf(o.(*corev1.Pod))
			for _, img := range resolved {
				for _, request := range requestsFor(ctx, r.Client, &v1alpha1.ImageScanList{},
					client.InNamespace(o.GetNamespace()), client.MatchingFields{inventory.ImageScansByDigest: img.ID.Digest}) {
					q.AddAfter(request, eventDelay)
				}
			}
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q requestQueue) { enqueue(ctx, q, e.Object) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q requestQueue) {
			enqueue(ctx, q, e.ObjectOld, e.ObjectNew)
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q requestQueue) { enqueue(ctx, q, e.Object) },
	}
}
