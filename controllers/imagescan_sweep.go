package controllers

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/inventory"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// sweepPage is the page size for reading ImageScans from the API server: at most 2 MiB.
const sweepPage = 500

// SweepUses releases the images that the store has for a Scanner without an ImageScan, in all namespaces. It must be called periodically:
// ImageScans are deleted while no manager runs, and a restored etcd lacks some.
func (r *ImageScanReconciler) SweepUses(ctx context.Context) error {
	return r.sweepUses(ctx, metav1.NamespaceAll)
}

// sweepInterval is the minimum time between two sweeps of a namespace by sweepAfterDeletion.
const sweepInterval = 10 * time.Second

// sweepAfterDeletion sweeps a namespace in which an ImageScan was deleted. When thousands are deleted together, for example with their
// Scanner, one sweep per deletion would read all remaining ImageScans each time. Deletions within sweepInterval after a sweep are therefore
// left to SweepUses.
func (r *ImageScanReconciler) sweepAfterDeletion(ctx context.Context, namespace string) error {
	now := r.Clock.Now()
	if last, found := r.swept.Load(namespace); found {
		if since := now.Sub(last.(time.Time)); since >= 0 && since < sweepInterval {
			return nil
		}
	}
	r.swept.Store(namespace, now)
	err := r.sweepUses(ctx, namespace)
	if err != nil {
		r.swept.Delete(namespace)
	}
	return err
}

// sweepUses sweeps one namespace, or all. The cache only finds candidates: an image is released only if the API server has no ImageScan for
// it. The store is read first, so that an ImageScan created meanwhile is found.
func (r *ImageScanReconciler) sweepUses(ctx context.Context, namespace string) error {
	uses, err := r.Store.ScannerImages(ctx, namespace)
	if err != nil || len(uses) == 0 {
		return err
	}
	uses, err = withoutImageScan(ctx, r.Client, 0, namespace, uses)
	if err != nil {
		return err
	}
	byNamespace := map[string][]store.ScannerImage{}
	for _, use := range uses {
		// A namespace that the operator does not watch any more cannot be read: its ImageScans may stay.
		scanner, err := r.uncoveringScanner(ctx, use)
		if err != nil {
			return err
		}
		if scanner != nil {
			if err := r.release(ctx, use, scanner); err != nil {
				return err
			}
			continue
		}
		byNamespace[use.Namespace] = append(byNamespace[use.Namespace], use)
	}
	for namespace, uses := range byNamespace {
		gone, err := withoutImageScan(ctx, r.Reader, sweepPage, namespace, uses)
		if apierrors.IsForbidden(err) {
			continue // without read access, a missing ImageScan proves nothing
		}
		if err != nil {
			return err
		}
		for _, use := range gone {
			ctrl.LoggerFrom(ctx).Info("Releasing an image without an ImageScan", "namespace", use.Namespace, "image", use.Key.String())
			if err := r.Store.ReleaseImage(ctx, use, false); err != nil {
				return err
			}
			// An ImageScan that was created since then records its use again.
			r.Wakeups.Image(ctx, use.Key.Digest)
		}
	}
	return nil
}

// uncoveringScanner returns the ClusterScanner that has an image in the store and does not cover the image's namespace any more; nil if there is
// none.
func (r *ImageScanReconciler) uncoveringScanner(ctx context.Context, img store.ScannerImage) (*v1alpha1.ClusterScanner, error) {
	scanner, err := r.Inventory.ClusterScannerByUID(ctx, types.UID(img.Scanner))
	if scanner == nil || err != nil {
		return nil, err
	}
	covered, err := r.Inventory.Covers(ctx, scanner, img.Namespace)
	if covered || err != nil {
		return nil, err
	}
	return scanner, nil
}

// withoutImageScan returns those images that have no ImageScan. It reads ImageScans in pages of pageSize; 0 for a cache, which has no
// pages but a token in each list.
func withoutImageScan(
	ctx context.Context, reader client.Reader, pageSize int64, namespace string, uses []store.ScannerImage,
) (gone []store.ScannerImage, err error) {
	there := map[store.ScannerImage]bool{}
	var page v1alpha1.ImageScanList
	for next := true; next; next = pageSize > 0 && page.Continue != "" {
		options := client.ListOptions{Namespace: namespace, Limit: pageSize, Continue: page.Continue, UnsafeDisableDeepCopy: ptr.To(pageSize == 0)}
		page = v1alpha1.ImageScanList{}
		if err := reader.List(ctx, &page, &options); err != nil {
			return nil, err
		}
		for i := range page.Items {
			scan := &page.Items[i]
			owner := metav1.GetControllerOf(scan)
			key, err := inventory.KeyOf(scan)
			if owner != nil && err == nil {
				there[store.ScannerImage{Scanner: string(owner.UID), Namespace: scan.Namespace, Key: key}] = true
			}
		}
	}
	for _, use := range uses {
		if !there[use] {
			gone = append(gone, use)
		}
	}
	return gone, nil
}
