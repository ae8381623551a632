package restapi

import (
	"fmt"
	"slices"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/utils/ptr"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// namespaceLines lists namespaces, one on each page.
func (w *harness) namespaceLines(scanned *bool) (lines []string, all bool) {
	w.t.Helper()
	params := restv1.ListNamespacesParams{Limit: ptr.To(1), Scanned: scanned}
	for first := true; first || params.Continue != nil; first = false {
		page, err := w.clientFor(anyone).ListNamespacesWithResponse(w.t.Context(), &params)
		w.must(err)
		if page.JSON200 == nil {
			w.t.Fatalf("namespaces: %d %s", page.StatusCode(), page.Body)
		}
		for _, n := range page.JSON200.Items {
			line := n.Name
			for _, s := range n.Scanners {
				line += fmt.Sprintf(" %s/%s", s.Kind, s.Name)
			}
			lines = append(lines, fmt.Sprintf("%s: %d critical, %d high, %d scanned by %d", line, n.Findings.Critical, n.Findings.High, n.Coverage.Scanned, n.Coverage.Scanners))
		}
		params.Continue, all = nextPage(page.JSON200.Continue), page.JSON200.AllNamespaces
	}
	return lines, all
}

// TestListNamespaces: each caller gets the namespaces that it sees, those with most to act on first. Only who may list the cluster's namespaces
// learns of those that are not scanned.
func TestListNamespaces(t *testing.T) {
	w, api := newFakeHarness(t)
	w.createNamespaces("blog", "infra", "shop", "idle")
	platform := w.createClusterScanner("platform", func(s *v1alpha1.ClusterScanner) { s.Spec.ExcludeNamespaces = []string{"idle", "shop"} })
	w.createScannedIn("infra", platform, "dns", vulnerable("CVE-2026-0001", "openssl", severity(finding.Critical)))
	w.createScannedIn("blog", platform, "blog", vulnerable("CVE-2026-0002", "openssl"), vulnerable("CVE-2026-0003", "curl"))
	w.createException("blog", "accepted", "CVE-2026-0003")
	w.createScanned(w.createScanner("shop", "main", func(s *v1alpha1.Scanner) { s.Status.Findings = v1alpha1.FindingCounts{Critical: 2} }), "web")
	const (
		shop  = "shop Scanner/main: 2 critical, 0 high, 1 scanned by 1"
		infra = "infra ClusterScanner/platform: 1 critical, 0 high, 1 scanned by 1"
		blog  = "blog ClusterScanner/platform: 0 critical, 1 high, 1 scanned by 1"
		idle  = "idle: 0 critical, 0 high, 0 scanned by 0"
	)
	everything := api.allowed
	noCoreGroup := func(s authorizationv1.SubjectAccessReviewSpec) bool { return s.ResourceAttributes.Group != "" }
	for name, tt := range map[string]struct {
		allowed func(authorizationv1.SubjectAccessReviewSpec) bool
		scanned *bool
		want    []string
		all     bool
	}{
		"all":                                 {everything, nil, []string{shop, infra, blog, idle}, true},
		"those that are scanned":              {everything, ptr.To(true), []string{shop, infra, blog}, true},
		"those that are not":                  {everything, ptr.To(false), []string{idle}, true},
		"a caller who may not list them":      {noCoreGroup, nil, []string{shop, infra, blog}, false},
		"a caller who sees some of a scanner": {allowOnlyIn("blog", "shop"), nil, []string{shop, blog}, false},
	} {
		t.Run(name, func(t *testing.T) {
			api.allowed = tt.allowed
			w.clock.Step(2 * decisionTTL)
			if got, all := w.namespaceLines(tt.scanned); !slices.Equal(got, tt.want) || all != tt.all {
				t.Errorf("namespaces: %q (all: %t), want %q (all: %t)", got, all, tt.want, tt.all)
			}
		})
	}
}
