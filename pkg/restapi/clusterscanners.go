package restapi

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"k8s.io/utils/ptr"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/inventory"
)

// ListClusterScanners implements restv1.StrictServerInterface.
func (a operations) ListClusterScanners(ctx context.Context, r restv1.ListClusterScannersRequestObject) (restv1.ListClusterScannersResponseObject, error) {
	if err := a.authorizer.requireAccess(ctx, callerOf(ctx).user, verbList, resourceClusterScanners, "", ""); err != nil {
		return nil, err
	}
	var after string
	if err := decodeContinue(ctx, r.Params.Continue, &after); err != nil {
		return nil, err
	}
	all, err := a.clusterScannersIn(ctx, ptr.Deref(r.Params.Namespace, ""))
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(x, y *v1alpha1.ClusterScanner) int { return cmp.Compare(x.Name, y.Name) })
	answer := restv1.ListClusterScanners200JSONResponse{Items: []restv1.ClusterScanner{}, Total: len(all)}
	for _, scanner := range all {
		if scanner.Name <= after {
			continue
		}
		if n := len(answer.Items); n == limitOf(r.Params.Limit) {
			answer.Continue, err = encodeContinue(ctx, answer.Items[n-1].Name)
			return answer, err
		}
		answer.Items = append(answer.Items, a.clusterScannerOf(scanner))
	}
	return answer, nil
}

// clusterScannersIn returns the ClusterScanners that cover a namespace; all of them without one.
func (a operations) clusterScannersIn(ctx context.Context, namespace string) ([]*v1alpha1.ClusterScanner, error) {
	if namespace == "" {
		all, err := inventory.ListClusterScanners(ctx, a.Reader)
		if err != nil {
			return nil, fmt.Errorf("listing ClusterScanners: %w", err)
		}
		return all, nil
	}
	covering, err := a.clusterCoverage(ctx)
	if err != nil {
		return nil, err
	}
	var all []*v1alpha1.ClusterScanner
	for _, scanner := range covering {
		if slices.Contains(scanner.covered, namespace) {
			all = append(all, scanner.ClusterScanner)
		}
	}
	return all, nil
}

// GetClusterScanner implements restv1.StrictServerInterface.
func (a operations) GetClusterScanner(ctx context.Context, r restv1.GetClusterScannerRequestObject) (restv1.GetClusterScannerResponseObject, error) {
	var scanner v1alpha1.ClusterScanner
	if err := a.getObject(ctx, resourceClusterScanners, "", r.Name, &scanner); err != nil {
		return nil, err
	}
	return restv1.GetClusterScanner200JSONResponse(a.clusterScannerOf(&scanner)), nil
}

// clusterScannerOf converts a ClusterScanner for a response. It leaves out the same as scannerOf.
func (a operations) clusterScannerOf(s *v1alpha1.ClusterScanner) restv1.ClusterScanner {
	counts := s.Status.Namespaces
	scanner := restv1.ClusterScanner{
		Name: s.Name, Engine: string(s.Spec.Backend.Type), Suspended: ptr.Deref(s.Spec.Suspend, false),
		Namespaces: restv1.NamespaceCounts{
			Selected: int(counts.Selected), Covered: int(counts.Covered), Own: int(counts.Own), Excluded: int(counts.Excluded),
			Terminating: int(counts.Terminating), NotWatched: int(counts.NotWatched),
		},
		TopNamespaces: []restv1.NamespaceFindings{},
		Images:        imageCountsOf(s.Status.Images), Findings: countsOf(s.Status.Findings), Conditions: conditionsOf(s.Status.Conditions),
		VulnerabilityData: a.dataOf(s.Status.VulnerabilityData), Problems: problemsOf(&s.Status.ScannerStatus, s.Spec.Suspend),
	}
	for _, top := range s.Status.TopNamespaces {
		scanner.TopNamespaces = append(scanner.TopNamespaces, restv1.NamespaceFindings{
			Name: top.Name, KnownExploited: int(top.KnownExploited), Critical: int(top.Critical), High: int(top.High), Fixable: int(top.Fixable),
		})
	}
	return scanner
}

// coveringScanner is a ClusterScanner with the namespaces that it covers, sorted.
type coveringScanner struct {
	*v1alpha1.ClusterScanner
	covered []string
}

type coveringScanners []coveringScanner

// namespaces returns the namespaces that at least one of the scanners covers.
func (all coveringScanners) namespaces() (names []string) {
	for _, scanner := range all {
		names = append(names, scanner.covered...)
	}
	return names
}

// clusterCoverage returns all ClusterScanners with the namespaces that they cover.
func (a operations) clusterCoverage(ctx context.Context) (all coveringScanners, err error) {
	scanners, err := inventory.ListClusterScanners(ctx, a.Reader)
	if err != nil {
		return nil, fmt.Errorf("listing ClusterScanners: %w", err)
	}
	for _, scanner := range scanners {
		namespaces, err := a.Inventory.Namespaces(ctx, scanner)
		if err != nil {
			return nil, fmt.Errorf("namespaces of ClusterScanner %s: %w", scanner.Name, err)
		}
		all = append(all, coveringScanner{scanner, namespaces.Covered})
	}
	return all, nil
}

// addClusterCoverage adds the ClusterScanners that cover a namespace that the caller sees, and their images there that the answer knows nothing
// about. Their status has these numbers only for all namespaces together, which other callers must not learn.
func (a operations) addClusterCoverage(ctx context.Context, seen sight, coverage *restv1.Coverage) error {
	for _, scanner := range seen.clusterWide {
		visible := slices.DeleteFunc(slices.Clone(scanner.covered), func(namespace string) bool { return !seen.includes(namespace) })
		if len(visible) == 0 {
			continue
		}
		coverage.Scanners++
		if scanner.Status.ObservedGeneration == 0 {
			coverage.NotCovered.NewScanners++
		}
		if v1alpha1.IsStale(scanner.ClusterScanner) {
			coverage.NotCovered.StaleScanners++
		}
		pending, failed := int(scanner.Status.Images.Pending), int(scanner.Status.Images.Failed)
		if len(visible) == len(scanner.covered) {
			coverage.Excluded += int(scanner.Status.Images.Excluded)
		} else {
			var err error
			if pending, failed, err = a.Inventory.CountUnscanned(ctx, scanner.ClusterScanner, visible); err != nil {
				return fmt.Errorf("images of ClusterScanner %s without a result: %w", scanner.Name, err)
			}
		}
		coverage.NotCovered.Pending += pending
		coverage.NotCovered.Failed += failed
	}
	return nil
}
