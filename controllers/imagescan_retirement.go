package controllers

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/pkg/inventory"
)

// retire deletes the ImageScan of an image that was unused for longer than the Scanner's retention.
func (r *ImageScanReconciler) retire(ctx context.Context, s *imageScanScope) (time.Duration, error) {
	if err := r.Store.ReleaseImage(ctx, string(s.scanner.UID), s.key); err != nil {
		return 0, err
	}
	// The precondition ensures that the decision is based on the latest UnusedSinceTime.
	err := r.delete(ctx, s, client.Preconditions{ResourceVersion: &s.scan.ResourceVersion})
	if apierrors.IsConflict(err) {
		return eventDelay, nil
	}
	return 0, err
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
