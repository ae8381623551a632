package controllers

import (
	"context"
	"errors"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/inventory"
	"github.com/scanner-operator/scanner-operator/pkg/podmark"
)

// Recording a release fails only if the store fails. It is retried every releaseRetry until releaseTimeout after the pod's grace period: a
// full store must not block the deletion of a namespace's pods. Nothing is lost: when the store works again, uses are counted from the
// existing pods.
const (
	releaseRetry   = 2 * time.Second
	releaseTimeout = 15 * time.Second
)

// releasesAtOnce is how many pods are released concurrently. maxReleaseBackoff is the maximum backoff after the API server refused a release.
// It is far shorter than the default, since a pod that is not released blocks its node and its namespace.
const (
	releasesAtOnce    = 8
	maxReleaseBackoff = 30 * time.Second
)

// setupRelease registers a controller of its own, so that releases do not wait until other pods are scanned or annotated.
func (r *PodReconciler) setupRelease(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("pod-release").
		For(&corev1.Pod{}, builder.WithPredicates(predicate.NewPredicateFuncs(waitsForRelease))).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: releasesAtOnce,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](time.Second, maxReleaseBackoff),
		}).
		Complete(reconcile.Func(r.Release))
}

func waitsForRelease(pod client.Object) bool {
	return !pod.GetDeletionTimestamp().IsZero() && len(podmark.Finalizers(pod.GetFinalizers())) > 0
}

// Release handles a pod that is being deleted: it records the release, then removes all finalizers of the operator with one request.
func (r *PodReconciler) Release(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var pod corev1.Pod
	if err := r.Client.Get(ctx, req.NamespacedName, &pod); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !waitsForRelease(&pod) {
		return ctrl.Result{}, nil
	}
	held := podmark.Finalizers(pod.Finalizers)
	late := func() time.Duration { return r.Clock.Since(pod.DeletionTimestamp.Time) }
	// A store that never answers is given no more time than one that fails. A pod that is already late gets one attempt.
	if err := r.recordRelease(ctx, &pod, held, min(max(releaseTimeout-late(), releaseRetry), releaseTimeout)); err != nil {
		log := ctrl.LoggerFrom(ctx)
		if late() < releaseTimeout {
			log.Error(err, "Recording the release of a pod; it is held until then")
			return ctrl.Result{RequeueAfter: releaseRetry}, nil
		}
		log.Error(err, "Recording the release of a pod; it goes without")
	}
	return ctrl.Result{}, r.patch(ctx, &pod, podmark.Patch{RemoveFinalizers: held})
}

// recordRelease records, for the Scanners of the given finalizers, which workloads run the images without this pod.
func (r *PodReconciler) recordRelease(ctx context.Context, pod *corev1.Pod, finalizers []string, timeout time.Duration) error {
	if len(finalizers) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	resolved, _ := inventory.ImagesOf(pod)
	var errs []error
	for _, img := range resolved {
		for _, finalizer := range finalizers {
			var scans v1alpha1.ImageScanList
			err := r.Client.List(ctx, &scans, client.InNamespace(pod.Namespace),
				client.MatchingFields{inventory.ImageScansByScannerDigest: inventory.ScannerDigest(ownerOf(finalizer), img.ID.Digest)})
			if err != nil {
				return err
			}
			for i := range scans.Items {
				errs = append(errs, r.recordUses(ctx, &scans.Items[i]))
			}
		}
	}
	return errors.Join(errs...)
}

// ownerOf returns the Scanner that set a finalizer on a pod.
func ownerOf(finalizer string) v1alpha1.ScannerReference {
	return v1alpha1.ScannerReference{Kind: v1alpha1.KindScanner, Name: strings.TrimSuffix(finalizer, podmark.FinalizerSuffix)}
}

// recordUses records which workloads use the image of an ImageScan now. It records nothing if the Scanner is gone.
func (r *PodReconciler) recordUses(ctx context.Context, scan *v1alpha1.ImageScan) error {
	img, err := r.Inventory.Identify(ctx, scan)
	if img == nil || err != nil {
		return err
	}
	img.Engine = engineOf(r.Backends.For(img.Scanner))
	uses, err := r.Inventory.FindUses(ctx, *img)
	if err != nil {
		return err
	}
	return r.Inventory.RecordUses(ctx, *img, uses)
}
