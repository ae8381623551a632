package controllers

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
)

// Limits bounds the work for one namespace, whose users may create any number of Scanners and pods. 0 means no limit.
type Limits struct {
	// Scanners is the number of Scanners that are admitted in a namespace, the oldest first. For the others, the operator maintains only
	// their finalizers and the condition with the reason.
	Scanners int
	// ImageScans is the number of ImageScans in a namespace from which on the operator creates no more there.
	ImageScans int
}

// admits reports whether a Scanner is among the oldest of its namespace, within the limit. Scanners of the same age are ordered by name. A
// Scanner that is being deleted does not count against the limit. scanner itself need not be in the cache.
func (l Limits) admits(ctx context.Context, cache client.Reader, scanner *v1alpha1.Scanner) (bool, error) {
	if l.Scanners == 0 {
		return true, nil
	}
	var all v1alpha1.ScannerList
	if err := cache.List(ctx, &all, client.InNamespace(scanner.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return false, err
	}
	before := 0
	for i := range all.Items {
		if other := &all.Items[i]; other.DeletionTimestamp.IsZero() && byAge(other, scanner) < 0 {
			if before++; before >= l.Scanners {
				return false, nil
			}
		}
	}
	return true, nil
}

// admitted returns the indexes of the admitted Scanners of a namespace, and of those that are being deleted.
func (l Limits) admitted(all []v1alpha1.Scanner) iter.Seq[int] {
	return func(yield func(int) bool) {
		order := make([]int, len(all))
		for i := range order {
			order[i] = i
		}
		if l.Scanners > 0 && len(all) > l.Scanners {
			slices.SortFunc(order, func(a, b int) int { return byAge(&all[a], &all[b]) })
		}
		lives := 0
		for _, i := range order {
			if all[i].DeletionTimestamp.IsZero() {
				if lives++; l.Scanners > 0 && lives > l.Scanners {
					continue
				}
			}
			if !yield(i) {
				return
			}
		}
	}
}

func byAge(a, b *v1alpha1.Scanner) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
}

// isFull reports whether a namespace has reached the limit of ImageScans.
func (l Limits) isFull(ctx context.Context, cache client.Reader, namespace string) (bool, error) {
	if l.ImageScans == 0 {
		return false, nil
	}
	var all v1alpha1.ImageScanList
	err := cache.List(ctx, &all, client.InNamespace(namespace), client.UnsafeDisableDeepCopy)
	return len(all.Items) >= l.ImageScans, err
}

// scannerLimitMessage returns the message for a Scanner that is not admitted.
func (l Limits) scannerLimitMessage() string {
	return fmt.Sprintf("nothing is done for this Scanner: the operator works for the %d oldest Scanners of a namespace. "+
		"Delete another one, or have limits.scannersPerNamespace raised in the operator's configuration", l.Scanners)
}

// storeBudgetMessage returns the message about images that exceed the namespace's budget in the store; empty if there are none.
func storeBudgetMessage(images []coveredImage) string {
	n := countReason(images, v1alpha1.ReasonStoreBudgetExceeded)
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d images are not scanned: the SBOMs and findings of the namespace's images have used up their room in the operator's store. "+
		"Exclude images, or have ingest.storeSizePerNamespace raised in the operator's configuration", n, len(images))
}

// imageLimitMessage returns the message about images for which no ImageScan is created; empty if there are none.
func (l Limits) imageLimitMessage(images []coveredImage) string {
	n := countReason(images, v1alpha1.ReasonTooManyImages)
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d images are not scanned: the namespace has %d ImageScans, and no more are made. Have a shorter "+
		"spec.unusedImageRetention, or limits.imageScansPerNamespace raised in the operator's configuration", n, len(images), l.ImageScans)
}

// countReason returns how many images have a reason.
func countReason(images []coveredImage, reason string) (n int) {
	for _, img := range images {
		if img.Reason == reason {
			n++
		}
	}
	return n
}
