// Package history records each day how many findings the namespaces have, so that people can see whether they become fewer.
//
// It counts as the status of Scanners and the REST API do, and only writes to the store.
package history

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/exception/active"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/inventory"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// Store is the part of the store that a Recorder uses.
type Store interface {
	ScannerTotals(ctx context.Context, scanner string, exceptions exception.Set) (store.Totals, error)
	NamespaceTotals(ctx context.Context, scanner string, exceptions exception.Set) (store.Totals, map[string]store.Totals, error)
	RecordDay(ctx context.Context, all store.DailyCounts, namespaces map[string]store.DailyCounts) error
}

// Inventory is the part of the inventory that a Recorder uses.
type Inventory interface {
	Namespaces(ctx context.Context, scanner v1alpha1.GenericScanner) (inventory.Namespaces, error)
}

// Recorder records the counts of today.
type Recorder struct {
	// Reader reads Scanners, ClusterScanners and ImageScans from a cache.
	Reader     client.Reader
	Exceptions active.Source
	Inventory  Inventory
	Store      Store
}

// Record records what each namespace has now, and all of them together. A finding counts once in all images of a repository, for each scanner, and
// not if it is suppressed. A namespace counts if at least one of its images has a result, possibly of an earlier attempt: without one, its findings are
// not known. After an error, what was recorded before stays.
func (r Recorder) Record(ctx context.Context) error {
	scanners, err := inventory.ListScanners(ctx, r.Reader, "")
	if err != nil {
		return fmt.Errorf("listing scanners: %w", err)
	}
	namespaces, all, err := r.countImages(ctx)
	if err != nil {
		return err
	}
	for _, scanner := range scanners {
		total, byNamespace, err := r.totals(ctx, scanner)
		if err != nil {
			return fmt.Errorf("counting findings of %s %s: %w", scanner.ScannerKind(), scanner.GetName(), err)
		}
		addTotals(&all, total)
		for namespace, part := range byNamespace {
			if counts, has := namespaces[namespace]; has {
				addTotals(&counts, part)
				namespaces[namespace] = counts
			}
		}
	}
	return r.Store.RecordDay(ctx, all, namespaces)
}

// countImages counts the images that run, in the namespaces that have at least one with a result. An image counts once in a namespace.
func (r Recorder) countImages(ctx context.Context) (namespaces map[string]store.DailyCounts, all store.DailyCounts, err error) {
	var scans v1alpha1.ImageScanList
	if err := r.Reader.List(ctx, &scans, client.UnsafeDisableDeepCopy); err != nil {
		return nil, all, fmt.Errorf("listing ImageScans: %w", err)
	}
	type image struct{ namespace, digest, platform string }
	scanned, known := map[image]bool{}, map[string]bool{}
	for i := range scans.Items {
		if scan := &scans.Items[i]; scan.Status.UnusedSinceTime == nil {
			key := image{scan.Namespace, scan.Spec.Digest, scan.Spec.Platform}
			isScanned := scan.Status.Phase == v1alpha1.PhaseScanned
			scanned[key] = scanned[key] || isScanned
			known[scan.Namespace] = known[scan.Namespace] || isScanned || scan.Status.Findings != nil
		}
	}
	namespaces = map[string]store.DailyCounts{}
	for key, hasResult := range scanned {
		counts := namespaces[key.namespace]
		counts.Images++
		if hasResult {
			counts.Scanned++
		}
		namespaces[key.namespace] = counts
	}
	for name, counts := range namespaces {
		all.Images, all.Scanned = all.Images+counts.Images, all.Scanned+counts.Scanned
		if !known[name] {
			delete(namespaces, name)
		}
	}
	return namespaces, all, nil
}

func (r Recorder) totals(ctx context.Context, scanner v1alpha1.GenericScanner) (total store.Totals, byNamespace map[string]store.Totals, err error) {
	covered, uid := []string{scanner.GetNamespace()}, string(scanner.GetUID())
	if scanner.ScannerKind() == v1alpha1.KindClusterScanner {
		namespaces, err := r.Inventory.Namespaces(ctx, scanner)
		if err != nil {
			return total, nil, err
		}
		covered = namespaces.Covered
	}
	exceptions, _, err := r.Exceptions.InForceIn(ctx, covered)
	if err != nil {
		return total, nil, err
	}
	if scanner.ScannerKind() == v1alpha1.KindClusterScanner {
		return r.Store.NamespaceTotals(ctx, uid, exceptions)
	}
	total, err = r.Store.ScannerTotals(ctx, uid, exceptions)
	return total, map[string]store.Totals{scanner.GetNamespace(): total}, err
}

func addTotals(sum *store.DailyCounts, more store.Totals) {
	sum.ToActOn += more.ToActOn
	sum.KnownExploited += more.Counts.KnownExploited
	sum.Critical += more.Counts.Of(finding.Critical)
	sum.High += more.Counts.Of(finding.High)
}
