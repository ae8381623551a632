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

// Limits bound what is done for one namespace, whose users are free to make Scanners and pods. A limit of 0 is none.
type Limits struct {
	// Scanners are worked for, the oldest of a namespace. For the others only their finalizers and the condition that says so are kept.
	Scanners int
	// ImageScans may be in a namespace before the operator makes no more there.
	ImageScans int
}

// admits says whether a Scanner is one of those that are worked for: of the oldest in its namespace, by name if they are equally old.
// One that is being deleted counts no more, and need not be in the cache.
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

// admitted are the indexes of the Scanners of a namespace that are worked for, and of those that are being deleted.
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

// full says whether a namespace has as many ImageScans as it may.
func (l Limits) full(ctx context.Context, cache client.Reader, namespace string) (bool, error) {
	if l.ImageScans == 0 {
		return false, nil
	}
	var all v1alpha1.ImageScanList
	err := cache.List(ctx, &all, client.InNamespace(namespace), client.UnsafeDisableDeepCopy)
	return len(all.Items) >= l.ImageScans, err
}

// tooManyScanners says what a Scanner that is not admitted has to hear.
func (l Limits) tooManyScanners() string {
	return fmt.Sprintf("nothing is done for this Scanner: the operator works for the %d oldest Scanners of a namespace. "+
		"Delete another one, or have limits.scannersPerNamespace raised in the operator's configuration", l.Scanners)
}

// overStoreBudget says that images are not scanned for want of room in the store; empty if there is none.
func overStoreBudget(images []coveredImage) string {
	n := countReason(images, v1alpha1.ReasonStoreBudgetExceeded)
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d images are not scanned: the SBOMs and findings of the namespace's images have used up their room in the operator's store. "+
		"Exclude images, or have ingest.storeSizePerNamespace raised in the operator's configuration", n, len(images))
}

// tooManyImages says what images without an ImageScan wait for; empty if no image does.
func (l Limits) tooManyImages(images []coveredImage) string {
	n := countReason(images, v1alpha1.ReasonTooManyImages)
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d images are not scanned: the namespace has %d ImageScans, and no more are made. Have a shorter "+
		"spec.unusedImageRetention, or limits.imageScansPerNamespace raised in the operator's configuration", n, len(images), l.ImageScans)
}

// countReason returns how many images are not scanned for a reason.
func countReason(images []coveredImage, reason string) (n int) {
	for _, img := range images {
		if img.Reason == reason {
			n++
		}
	}
	return n
}
