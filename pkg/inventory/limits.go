package inventory

import (
	"cmp"
	"context"
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

// Admits reports whether a Scanner is among the oldest of its namespace, within the limit. Scanners of the same age are ordered by name. A
// Scanner that is being deleted does not count against the limit. scanner itself need not be in the cache. A ClusterScanner is always admitted.
func (i *Inventory) Admits(ctx context.Context, scanner v1alpha1.GenericScanner) (bool, error) {
	own, namespaced := scanner.(*v1alpha1.Scanner)
	if i.Limits.Scanners == 0 || !namespaced {
		return true, nil
	}
	var all v1alpha1.ScannerList
	if err := i.Client.List(ctx, &all, client.InNamespace(own.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return false, err
	}
	before := 0
	for n := range all.Items {
		if other := &all.Items[n]; other.DeletionTimestamp.IsZero() && byAge(other, own) < 0 {
			if before++; before >= i.Limits.Scanners {
				return false, nil
			}
		}
	}
	return true, nil
}

// admittedScanners returns the admitted Scanners of a namespace, and those that are being deleted. They belong to the cache.
func (i *Inventory) admittedScanners(ctx context.Context, namespace string) ([]*v1alpha1.Scanner, error) {
	var all v1alpha1.ScannerList
	if err := i.Client.List(ctx, &all, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	scanners := make([]*v1alpha1.Scanner, len(all.Items))
	for n := range all.Items {
		scanners[n] = &all.Items[n]
	}
	return i.admitted(scanners), nil
}

// admittedByNamespace returns the result of admittedScanners for each namespace with a Scanner.
func (i *Inventory) admittedByNamespace(ctx context.Context) (map[string][]*v1alpha1.Scanner, error) {
	var all v1alpha1.ScannerList
	if err := i.Client.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	byNamespace := map[string][]*v1alpha1.Scanner{}
	for n := range all.Items {
		namespace := all.Items[n].Namespace
		byNamespace[namespace] = append(byNamespace[namespace], &all.Items[n])
	}
	for namespace, scanners := range byNamespace {
		byNamespace[namespace] = i.admitted(scanners)
	}
	return byNamespace, nil
}

// admitted returns those of a namespace's Scanners that are admitted or being deleted. It changes the slice.
func (i *Inventory) admitted(scanners []*v1alpha1.Scanner) []*v1alpha1.Scanner {
	slices.SortFunc(scanners, byAge)
	live := 0
	return slices.DeleteFunc(scanners, func(s *v1alpha1.Scanner) bool {
		if !s.DeletionTimestamp.IsZero() {
			return false
		}
		live++
		return i.Limits.Scanners > 0 && live > i.Limits.Scanners
	})
}

func byAge(a, b *v1alpha1.Scanner) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
}

// IsFull reports whether a namespace has reached the limit of ImageScans.
func (i *Inventory) IsFull(ctx context.Context, namespace string) (bool, error) {
	if i.Limits.ImageScans == 0 {
		return false, nil
	}
	var all v1alpha1.ImageScanList
	err := i.Client.List(ctx, &all, client.InNamespace(namespace), client.UnsafeDisableDeepCopy)
	return len(all.Items) >= i.Limits.ImageScans, err
}
