package restapi

import (
	"context"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// sight is what a caller may see of the images in one namespace or in all.
type sight struct {
	visibility
	// namespace is the one that the request names; empty for all.
	namespace string
	// scanners are those of the namespace, or of all namespaces. clusterWide are all ClusterScanners.
	scanners    []v1alpha1.Scanner
	clusterWide coveringScanners
}

// sightOf returns what the caller may see of the images in the namespace that a request names, or of all namespaces.
func (a operations) sightOf(ctx context.Context, namespace *string) (s sight, err error) {
	s.namespace = ptr.Deref(namespace, "")
	if s.clusterWide, err = a.clusterCoverage(ctx); err != nil {
		return sight{}, err
	}
	s.scanners, s.visibility, err = a.listWithVisibility(ctx, resourceImageScans, s.namespace, s.clusterWide.namespaces()...)
	return s, err
}

// inStore returns the sight for a query to the store.
func (s sight) inStore() store.Sight { return store.Sight{All: s.all, Namespaces: s.namespaces} }

// scannedNamespaces returns the namespaces that the caller sees and that have a Scanner or are covered by a ClusterScanner, sorted.
func (s sight) scannedNamespaces() []string {
	names := slices.DeleteFunc(s.clusterWide.namespaces(), func(name string) bool { return !s.includes(name) })
	for i := range s.scanners {
		if name := s.scanners[i].Namespace; s.includes(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// coverageOf counts what is scanned in the namespaces that a caller sees, and what is not. Without these numbers, an image that was not scanned would
// look like one without findings.
func (a operations) coverageOf(ctx context.Context, s sight) (coverage restv1.Coverage, err error) {
	coverage.AllNamespaces = s.all
	coverage.Scanners, coverage.Excluded, coverage.NotCovered = countNotCovered(s.scanners, s.visibility)
	if err := a.addClusterCoverage(ctx, s, &coverage); err != nil {
		return restv1.Coverage{}, err
	}
	return coverage, a.countScanned(ctx, s, &coverage)
}

// staleScanners returns the Scanners and ClusterScanners of a namespace whose results may lack what became known of late.
func (s sight) staleScanners(namespace string) sets.Set[restv1.ScannerReference] {
	stale := sets.New[restv1.ScannerReference]()
	for i := range s.scanners {
		if scanner := &s.scanners[i]; scanner.Namespace == namespace && v1alpha1.IsStale(scanner) {
			stale.Insert(restv1.ScannerReference{Kind: restv1.KindScanner, Name: scanner.Name})
		}
	}
	for _, scanner := range s.clusterWide {
		if slices.Contains(scanner.covered, namespace) && v1alpha1.IsStale(scanner.ClusterScanner) {
			stale.Insert(restv1.ScannerReference{Kind: restv1.KindClusterScanner, Name: scanner.Name})
		}
	}
	return stale
}

// eachScanner calls use with the settings and the status of each Scanner and ClusterScanner that covers a namespace that the caller sees.
func (s sight) eachScanner(use func(*v1alpha1.ScanSettings, *v1alpha1.ScannerStatus)) {
	for i := range s.scanners {
		if scanner := &s.scanners[i]; s.includes(scanner.Namespace) {
			use(&scanner.Spec.ScanSettings, &scanner.Status)
		}
	}
	for _, scanner := range s.clusterWide {
		if slices.ContainsFunc(scanner.covered, s.includes) {
			use(&scanner.Spec.ScanSettings, &scanner.Status.ScannerStatus)
		}
	}
}

// engines returns the names in the store of the engines that scan what the caller sees. An instance of an engine counts as the engine.
func (s sight) engines() []string {
	names := sets.New[string]()
	s.eachScanner(func(settings *v1alpha1.ScanSettings, _ *v1alpha1.ScannerStatus) {
		names.Insert(strings.ToLower(string(settings.Backend.Type)))
	})
	return sets.List(names)
}
