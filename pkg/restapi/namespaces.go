package restapi

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// namespacePosition is a position in a list of namespaces: the last namespace before it. The zero value is the beginning.
type namespacePosition struct {
	KnownExploited int `json:"knownExploited"`
	Critical       int `json:"critical"`
	High           int `json:"high"`
	// Name is empty at the beginning of the list.
	Name string `json:"name"`
}

func positionOfNamespace(n *restv1.NamespaceDetails) namespacePosition {
	return namespacePosition{n.Findings.KnownExploited, n.Findings.Critical, n.Findings.High, n.Name}
}

func (p namespacePosition) compare(other namespacePosition) int {
	return cmp.Or(cmp.Compare(other.KnownExploited, p.KnownExploited), cmp.Compare(other.Critical, p.Critical), cmp.Compare(other.High, p.High),
		cmp.Compare(p.Name, other.Name))
}

// ListNamespaces implements restv1.StrictServerInterface.
func (a operations) ListNamespaces(ctx context.Context, r restv1.ListNamespacesRequestObject) (restv1.ListNamespacesResponseObject, error) {
	seen, err := a.sightOf(ctx, nil)
	if err != nil {
		return nil, err
	}
	var after namespacePosition
	if err := decodeContinue(ctx, r.Params.Continue, &after); err != nil {
		return nil, err
	}
	all, err := a.namespacesWithFindings(ctx, seen)
	if err != nil {
		return nil, err
	}
	answer := restv1.ListNamespaces200JSONResponse{Items: []restv1.NamespaceDetails{}}
	others, err := a.unscannedNamespaces(ctx, seen)
	if err != nil {
		return nil, err
	}
	answer.AllNamespaces = others != nil
	for _, name := range others {
		if all[name] == nil {
			all[name] = &restv1.NamespaceDetails{Name: name, Scanners: []restv1.ScannerReference{}}
		}
	}
	var passing []*restv1.NamespaceDetails
	for _, n := range all {
		if r.Params.Excluded != nil && *r.Params.Excluded != seen.clusterWide.exclude(n.Name) {
			continue
		}
		if isScanned := len(n.Scanners) > 0; ptr.Deref(r.Params.Scanned, isScanned) == isScanned {
			passing = append(passing, n)
		}
	}
	slices.SortFunc(passing, func(x, y *restv1.NamespaceDetails) int { return positionOfNamespace(x).compare(positionOfNamespace(y)) })
	answer.Total = len(passing)
	for _, n := range passing {
		if after.Name != "" && positionOfNamespace(n).compare(after) <= 0 {
			continue
		}
		if count := len(answer.Items); count == limitOf(r.Params.Limit) {
			answer.Continue, err = encodeContinue(ctx, positionOfNamespace(&answer.Items[count-1]))
			return answer, err
		}
		if n.Coverage, err = a.coverageOf(ctx, seen.only(n.Name)); err != nil {
			return nil, err
		}
		answer.Items = append(answer.Items, *n)
	}
	return answer, nil
}

// only returns what the sight includes of one namespace.
func (s sight) only(namespace string) sight {
	one := sight{namespace: namespace, visibility: visibility{namespaces: []string{namespace}}, clusterWide: s.clusterWide}
	for i := range s.scanners {
		if s.scanners[i].Namespace == namespace {
			one.scanners = append(one.scanners, s.scanners[i])
		}
	}
	return one
}

// namespacesWithFindings returns the namespaces that are scanned and that the caller sees, with their scanners and findings.
func (a operations) namespacesWithFindings(ctx context.Context, seen sight) (map[string]*restv1.NamespaceDetails, error) {
	all := map[string]*restv1.NamespaceDetails{}
	add := func(name string, scanner restv1.ScannerReference, findings restv1.FindingCounts) {
		if !seen.includes(name) {
			return
		}
		if all[name] == nil {
			all[name] = &restv1.NamespaceDetails{Name: name}
		}
		all[name].Scanners = append(all[name].Scanners, scanner)
		addCounts(&all[name].Findings, findings)
	}
	for i := range seen.scanners {
		s := &seen.scanners[i]
		add(s.Namespace, restv1.ScannerReference{Kind: restv1.KindScanner, Name: s.Name}, countsOf(s.Status.Findings))
	}
	for _, scanner := range seen.clusterWide {
		if !slices.ContainsFunc(scanner.covered, seen.includes) {
			continue
		}
		exceptions, _, err := a.exceptions().InForceIn(ctx, scanner.covered)
		if err != nil {
			return nil, fmt.Errorf("reading exceptions: %w", err)
		}
		var byNamespace map[string]store.Totals
		err = a.query(ctx, func(ctx context.Context) (err error) {
			_, byNamespace, err = a.Store.NamespaceTotals(ctx, string(scanner.UID), exceptions)
			return err
		})
		if err != nil {
			return nil, err
		}
		for _, name := range scanner.covered {
			add(name, restv1.ScannerReference{Kind: restv1.KindClusterScanner, Name: scanner.Name}, totalsOf(byNamespace[name]))
		}
	}
	return all, nil
}

// unscannedNamespaces returns the names of the cluster's namespaces, or nil for a caller that must not know them. An operator that is limited
// to some namespaces knows no others.
func (a operations) unscannedNamespaces(ctx context.Context, seen sight) ([]string, error) {
	if !seen.all || !a.Inventory.Watches(metav1.NamespaceAll) {
		return nil, nil
	}
	allowed, err := a.authorizer.MayUse(ctx, callerOf(ctx).user, authorizationv1.ResourceAttributes{Version: "v1", Resource: "namespaces", Verb: verbList})
	if err != nil || !allowed {
		return nil, err
	}
	namespaces := &metav1.PartialObjectMetadataList{}
	namespaces.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NamespaceList"))
	if err := a.Reader.List(ctx, namespaces, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing namespaces: %w", err)
	}
	names := make([]string, len(namespaces.Items))
	for i := range namespaces.Items {
		names[i] = namespaces.Items[i].Name
	}
	return names, nil
}
