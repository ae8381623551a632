package controllers

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/inventory"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// retire deletes the ImageScan of an image that was unused for longer than the Scanner's retention.
func (r *ImageScanReconciler) retire(ctx context.Context, s *imageScanScope) (time.Duration, error) {
	if err := r.Store.ReleaseImage(ctx, s.scannerImage(), false); err != nil {
		return 0, err
	}
	// The precondition ensures that the decision is based on the latest UnusedSinceTime.
	err := r.delete(ctx, s, client.Preconditions{ResourceVersion: &s.scan.ResourceVersion})
	if apierrors.IsConflict(err) {
		return eventDelay, nil
	}
	return 0, err
}

// releaseUncovered releases the image of an ImageScan whose namespace the ClusterScanner does not cover any more. The release comes before the
// deletion: until then the image would count, and the exceptions of the namespace do not.
func (r *ImageScanReconciler) releaseUncovered(ctx context.Context, scan *v1alpha1.ImageScan) error {
	owner := metav1.GetControllerOf(scan)
	key, err := inventory.KeyOf(scan)
	if owner == nil || err != nil {
		return nil //nolint:nilerr // the store has no such image
	}
	img := store.ScannerImage{Scanner: string(owner.UID), Namespace: scan.Namespace, Key: key}
	scanner, err := r.uncoveringScanner(ctx, img)
	if scanner == nil || err != nil {
		return err
	}
	return r.release(ctx, img, scanner)
}

// release releases an image that a ClusterScanner does not cover any more, and wakes the ClusterScanner.
func (r *ImageScanReconciler) release(ctx context.Context, img store.ScannerImage, uncoveredBy *v1alpha1.ClusterScanner) error {
	if err := r.Store.ReleaseImage(ctx, img, true); err != nil {
		return err
	}
	r.Wakeups.Scanner(ctx, uncoveredBy)
	return nil
}

// scannerImage returns the image as the store knows it.
func (s *imageScanScope) scannerImage() store.ScannerImage {
	return store.ScannerImage{Scanner: string(s.scanner.GetUID()), Namespace: s.scan.Namespace, Key: s.key}
}

func (r *ImageScanReconciler) delete(ctx context.Context, s *imageScanScope, only client.Preconditions) error {
	s.retired = true
	only.UID = &s.scan.UID
	return client.IgnoreNotFound(r.Client.Delete(ctx, s.scan, only))
}

// setUnusedSince sets since when no pod runs the image: the end of the last ended pod that still exists, or now. It is now if a pod ran the
// image until now: that pod may be gone, and the pods that still exist may have ended long before.
func (s *imageScanScope) setUnusedSince(now time.Time) {
	since := s.scan.Status.UnusedSinceTime
	if since == nil && s.wasRunning {
		since = &metav1.Time{Time: now}
	}
	for _, u := range s.uses.Ended {
		if since == nil || u.EndedAt.After(since.Time) {
			since = &metav1.Time{Time: u.EndedAt}
		}
	}
	if since == nil {
		since = &metav1.Time{Time: now}
	}
	s.scan.Status.UnusedSinceTime = since
}

// untilRetirement returns how long an unused image is still kept; 0 once the retention is over.
func (r *ImageScanReconciler) untilRetirement(s *imageScanScope) time.Duration {
	keep := inventory.Retention(s.scanner)
	// If the clock was set back, UnusedSinceTime may lie in the future.
	return min(max(0, keep-r.Clock.Since(s.scan.Status.UnusedSinceTime.Time)), keep)
}
