package restapi

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// actionLines lists all actions, one repository on each page: "repository: package ends IDs".
func (w *harness) actionLines(namespace *string) (lines []string) {
	w.t.Helper()
	params := restv1.ListActionsParams{Namespace: namespace, Limit: ptr.To(1)}
	for first := true; first || params.Continue != nil; first = false {
		page, err := w.clientFor(anyone).ListActionsWithResponse(w.t.Context(), &params)
		w.must(err)
		if page.JSON200 == nil {
			w.t.Fatalf("actions: %d %s", page.StatusCode(), page.Body)
		}
		for _, r := range page.JSON200.Items {
			lines = append(lines, linesOf(r)...)
		}
		params.Continue = nextPage(page.JSON200.Continue)
	}
	return lines
}

func linesOf(r restv1.RepositoryActions) (lines []string) {
	for _, a := range r.Actions {
		line := r.Repository + ": " + a.Package + " ends"
		for _, ended := range a.Ends {
			line += " " + ended.ID
		}
		lines = append(lines, line)
	}
	return lines
}

// createActions creates three images: one with nothing to act on, and two with updates that end findings.
func (w *harness) createActions() {
	w.t.Helper()
	scanner := w.createScanner("shop", "main", func(s *v1alpha1.Scanner) {
		s.Status.ObservedGeneration, s.Status.Findings = 1, v1alpha1.FindingCounts{Critical: 1, High: 2, Fixable: 3, KnownExploited: 1}
		s.Status.VulnerabilityData = &v1alpha1.VulnerabilityData{BuildTime: metav1.NewTime(noon.Add(-6 * time.Hour)), Tool: "grype 1"}
	})
	w.createScanned(scanner, "web", vulnerable("CVE-2026-0001", "openssl", severity(finding.Critical), fixed), vulnerable("CVE-2026-0002", "openssl", fixed))
	w.createScanned(w.createScanner("blog", "main"), "blog", vulnerable("CVE-2026-0003", "curl", severity(finding.Low), fixed, exploited))
	w.createScanned(scanner, "clean", vulnerable("CVE-2026-0004", "zlib"), vulnerable("CVE-2026-0005", "zlib", severity(finding.Medium), fixed))
}

// TestActions: each caller gets the updates for the images that run in its namespaces. What exceptions suppress is not in them.
func TestActions(t *testing.T) {
	w, api := newFakeHarness(t)
	w.createActions()
	web := restv1.RepositoryActions{
		Repository: "ghcr.io/shop/web", Namespaces: []string{"shop"}, WorkloadCount: 1, ActionCount: 1,
		Workloads: []restv1.RunningContainer{{Namespace: "shop", Kind: "Deployment", Name: "web", Container: "main", Image: "ghcr.io/shop/web:1"}},
		Actions: []restv1.Action{{
			Package: "openssl", Type: "deb", Installed: []string{"1.0"}, FixVersions: []string{"1.1"}, Critical: 1, High: 1, SinceTime: noon,
			Ends: []restv1.EndedFinding{
				{ID: "CVE-2026-0001", Severity: restv1.SeverityCritical, SinceTime: noon}, {ID: "CVE-2026-0002", Severity: restv1.SeverityHigh, SinceTime: noon},
			},
		}},
	}
	answer, err := w.clientFor(anyone).ListActionsWithResponse(t.Context(), &restv1.ListActionsParams{Namespace: ptr.To("shop")})
	w.must(err)
	want := &restv1.ActionList{Items: []restv1.RepositoryActions{web}, Total: 1, Coverage: restv1.Coverage{Scanners: 1, Scanned: 2}}
	if diff := cmp.Diff(want, answer.JSON200); diff != "" {
		t.Errorf("actions in shop (-want +got):\n%s", diff)
	}

	const ofBlog, ofShop = "ghcr.io/blog/blog: curl ends CVE-2026-0003", "ghcr.io/shop/web: openssl ends CVE-2026-0001 CVE-2026-0002"
	check := func(what string, want ...string) {
		t.Helper()
		if got := w.actionLines(nil); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	check("everything", ofBlog, ofShop)
	w.createException("shop", "accepted", "CVE-2026-0001")
	check("with an exception", ofBlog, "ghcr.io/shop/web: openssl ends CVE-2026-0002")
	w.createException("blog", "accepted", "CVE-2026-0003")
	check("with all of a repository suppressed", "ghcr.io/shop/web: openssl ends CVE-2026-0002")
	api.allowed = allowOnlyIn("blog")
	w.clock.Step(2 * decisionTTL) // the earlier decisions are remembered until then
	check("for a caller who sees blog")
}

// TestOverview: one answer has what there is to do, and what is not scanned. Its numbers are those of the Scanners that the caller sees.
func TestOverview(t *testing.T) {
	w, _ := newFakeHarness(t)
	w.createActions()
	w.createException("shop", "soon", "CVE-2026-0099", func(e *v1alpha1.ExceptionSpec) {
		e.ExpirationTime = ptr.To(metav1.NewTime(noon.Add(6 * 24 * time.Hour)))
	})
	w.createException("shop", "later", "CVE-2026-0099", func(e *v1alpha1.ExceptionSpec) {
		e.ExpirationTime = ptr.To(metav1.NewTime(noon.Add(8 * 24 * time.Hour)))
	})
	w.createException("blog", "soon", "CVE-2026-0099", func(e *v1alpha1.ExceptionSpec) { e.ExpirationTime = ptr.To(metav1.NewTime(noon.Add(time.Hour))) })
	get := func(namespace *string) *restv1.Overview {
		t.Helper()
		answer, err := w.clientFor(anyone).GetOverviewWithResponse(t.Context(), &restv1.GetOverviewParams{Namespace: namespace})
		w.must(err)
		if answer.JSON200 == nil {
			t.Fatalf("overview: %d %s", answer.StatusCode(), answer.Body)
		}
		return answer.JSON200
	}
	shop := get(ptr.To("shop"))
	actions := shop.Actions
	shop.Actions = nil
	want := &restv1.Overview{
		Coverage: restv1.Coverage{Scanners: 1, Scanned: 2}, Findings: restv1.FindingCounts{Critical: 1, High: 2, Fixable: 3, KnownExploited: 1}, ActionRepositories: 1,
		Data: []restv1.EngineData{{Engine: "Grype", BuildTime: noon.Add(-6 * time.Hour), AgeSeconds: 6 * 3600, Tool: "grype 1"}}, ExceptionsEndingSoon: 1,
		History: []restv1.DayOfHistory{}, Health: restv1.Health{Scanners: []restv1.ProblemCount{}},
	}
	if diff := cmp.Diff(want, shop); diff != "" {
		t.Errorf("overview of shop (-want +got):\n%s", diff)
	}
	if len(actions) != 1 || len(actions[0].Actions) != 1 || actions[0].Actions[0].Package != "openssl" {
		t.Errorf("actions in shop: %+v", actions)
	}
	all := get(nil)
	var lines []string
	for _, r := range all.Actions {
		lines = append(lines, linesOf(r)...)
	}
	if want := []string{"ghcr.io/blog/blog: curl ends CVE-2026-0003", "ghcr.io/shop/web: openssl ends CVE-2026-0001 CVE-2026-0002"}; !slices.Equal(lines, want) {
		t.Errorf("actions everywhere: %q, want %q", lines, want)
	}
	if all.ExceptionsEndingSoon != 2 || all.Coverage.Scanners != 2 || all.Coverage.NotCovered.NewScanners != 1 {
		t.Errorf("overview of all namespaces: %+v", all)
	}
}

// TestOverviewShowsEachRepository: a repository with many actions does not hide those of others, and says how many it has.
func TestOverviewShowsEachRepository(t *testing.T) {
	w, _ := newFakeHarness(t)
	scanner := w.createScanner("shop", "main")
	var many []finding.Finding
	for i := range 200 {
		many = append(many, vulnerable(fmt.Sprintf("CVE-2026-1%03d", i), fmt.Sprintf("lib%03d", i), severity(finding.Critical), fixed))
	}
	w.createScanned(scanner, "legacy", many...)
	w.createScanned(scanner, "web", vulnerable("CVE-2026-0001", "openssl", fixed))
	answer, err := w.clientFor(anyone).GetOverviewWithResponse(t.Context(), nil)
	w.must(err)
	var got []string
	for _, r := range answer.JSON200.Actions {
		got = append(got, fmt.Sprintf("%s of %d", linesOf(r), r.ActionCount))
	}
	want := []string{
		"[ghcr.io/shop/legacy: lib000 ends CVE-2026-1000] of 200", "[ghcr.io/shop/legacy: lib001 ends CVE-2026-1001] of 200",
		"[ghcr.io/shop/legacy: lib002 ends CVE-2026-1002] of 200", "[ghcr.io/shop/web: openssl ends CVE-2026-0001] of 1",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("actions (-want +got):\n%s", diff)
	}
}

// TestOverviewOfAClusterScanner: a caller who sees some of the namespaces that a ClusterScanner covers gets the findings of these only.
func TestOverviewOfAClusterScanner(t *testing.T) {
	w, api := newFakeHarness(t)
	w.createNamespaces("blog", "shop")
	platform := w.createClusterScanner("platform", func(s *v1alpha1.ClusterScanner) {
		s.Status.ObservedGeneration, s.Status.Findings = 1, v1alpha1.FindingCounts{Critical: 7, High: 9}
	})
	w.createScannedIn("shop", platform, "web", vulnerable("CVE-2026-0001", "openssl", severity(finding.Critical), fixed), vulnerable("CVE-2026-0002", "curl"))
	w.createScannedIn("blog", platform, "blog", vulnerable("CVE-2026-0003", "zlib"))
	w.createException("shop", "accepted", "CVE-2026-0002")
	for _, tt := range []struct {
		sees []string
		want restv1.FindingCounts
	}{
		{[]string{"shop"}, restv1.FindingCounts{Critical: 1, Fixable: 1, Suppressed: 1}},
		{[]string{"blog"}, restv1.FindingCounts{High: 1}},
		{[]string{"blog", "shop"}, restv1.FindingCounts{Critical: 7, High: 9}}, // as the status has them
	} {
		api.allowed = allowOnlyIn(tt.sees...)
		w.clock.Step(2 * decisionTTL)
		answer, err := w.clientFor(anyone).GetOverviewWithResponse(t.Context(), nil)
		w.must(err)
		if answer.JSON200 == nil {
			t.Fatalf("%q: %d %s", tt.sees, answer.StatusCode(), answer.Body)
		}
		if diff := cmp.Diff(tt.want, answer.JSON200.Findings); diff != "" {
			t.Errorf("findings for a caller who sees %s (-want +got):\n%s", fmt.Sprint(tt.sees), diff)
		}
	}
}
