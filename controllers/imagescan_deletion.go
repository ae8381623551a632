package controllers

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/inventory"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// Bounds of deletedScans. A recreated ImageScan beyond them keeps its last result, and a failed match its retry time.
const (
	maxDeletedScans = 1000
	deletedScanTime = 10 * time.Minute
)

// deletedScans has the ImageScans that were deleted while their image was in use. The next ImageScan for the same image is then a request
// to scan it again. The zero value is ready for use. It is safe for concurrent use.
type deletedScans struct {
	mu sync.Mutex
	at map[store.ScannerImage]time.Time
}

// add records a deletion. It drops the deletion if maxDeletedScans recent ones are already recorded.
func (d *deletedScans) add(img store.ScannerImage, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.at == nil {
		d.at = map[store.ScannerImage]time.Time{}
	}
	if len(d.at) >= maxDeletedScans {
		for other, at := range d.at {
			if now.Sub(at) >= deletedScanTime {
				delete(d.at, other)
			}
		}
	}
	if len(d.at) < maxDeletedScans {
		d.at[img] = now
	}
}

// has reports whether a deletion was recorded within deletedScanTime.
func (d *deletedScans) has(img store.ScannerImage, now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	at, found := d.at[img]
	return found && now.Sub(at) < deletedScanTime
}

func (d *deletedScans) remove(img store.ScannerImage) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.at, img)
}

// deletionEvents records deleted ImageScans. It enqueues nothing: the PodReconciler recreates the ImageScan for a pod that runs the image.
func (r *ImageScanReconciler) deletionEvents() handler.EventHandler {
	return handler.Funcs{DeleteFunc: func(_ context.Context, e event.DeleteEvent, _ requestQueue) { r.rememberDeletion(e.Object) }}
}

func (r *ImageScanReconciler) rememberDeletion(o client.Object) {
	scan, owner := o.(*v1alpha1.ImageScan), metav1.GetControllerOf(o)
	key, err := inventory.KeyOf(scan)
	if err != nil || owner == nil || scan.Status.UnusedSinceTime != nil {
		return
	}
	r.deleted.add(store.ScannerImage{Scanner: string(owner.UID), Namespace: scan.Namespace, Key: key}, r.Clock.Now())
}

// rematch requests another match of an image whose ImageScan was deleted and recreated. The request overrides the retry time of a failed
// match. The last result stays until the next one. The image is indexed again without any request, since the new ImageScan has no failed
// attempts.
func (r *ImageScanReconciler) rematch(ctx context.Context, s *imageScanScope) error {
	img := s.scannerImage()
	r.deleted.remove(img) // first, so that another deletion meanwhile counts again
	if err := r.Store.RequestMatch(ctx, s.subject()); err != nil {
		r.deleted.add(img, r.Clock.Now())
		return err
	}
	return promptEngine(ctx, s.backend)
}
