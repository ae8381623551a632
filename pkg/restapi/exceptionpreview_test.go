package restapi

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// TestPreviewException: a preview shows what an exception would suppress in the namespaces that the caller sees. Nothing is suppressed by it.
func TestPreviewException(t *testing.T) {
	w, api := newFakeHarness(t)
	w.createScanned(w.createScanner("shop", "main"), "web", vulnerable("CVE-2026-0001", "openssl", severity(finding.Critical), fixed), vulnerable("CVE-2026-0002", "zlib"))
	w.createScanned(w.createScanner("blog", "main"), "blog", vulnerable("CVE-2026-0001", "openssl"))
	w.createException("shop", "old", "CVE-2026-0002")
	preview := func(params restv1.PreviewExceptionParams) *restv1.ExceptionPreview {
		t.Helper()
		answer, err := w.clientFor(anyone).PreviewExceptionWithResponse(t.Context(), &params)
		w.must(err)
		if answer.JSON200 == nil {
			t.Fatalf("preview: %d %s", answer.StatusCode(), answer.Body)
		}
		return answer.JSON200
	}
	want := &restv1.ExceptionPreview{
		Total: 1, Findings: restv1.FindingCounts{Critical: 1, Fixable: 1}, Coverage: restv1.Coverage{Scanners: 1, Scanned: 1, NotCovered: restv1.NotCovered{NewScanners: 1}},
		Items: []restv1.PreviewedFinding{{
			ID: "CVE-2026-0001", Severity: restv1.SeverityCritical, Fixable: true, Package: restv1.Package{Name: "openssl", Version: "1.0", Type: "deb"},
			Repository: "ghcr.io/shop/web", Containers: 1,
		}},
	}
	if diff := cmp.Diff(want, preview(restv1.PreviewExceptionParams{Namespace: ptr.To("shop"), Vulnerability: []string{"cve-2026-0001"}})); diff != "" {
		t.Errorf("preview in shop (-want +got):\n%s", diff)
	}
	lines := func(params restv1.PreviewExceptionParams) string {
		t.Helper()
		var all []string
		for _, f := range preview(params).Items {
			line := f.Repository + " " + f.ID
			if f.Exception != nil {
				line += " by " + f.Exception.Name
			}
			all = append(all, line)
		}
		return strings.Join(all, ", ")
	}
	openssl := restv1.PreviewExceptionParams{Package: ptr.To("open*"), PackageVersion: ptr.To("1.*"), PackageType: ptr.To("deb")}
	check := func(what, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	check("everywhere", lines(openssl), "ghcr.io/shop/web CVE-2026-0001, ghcr.io/blog/blog CVE-2026-0001")
	check("what is suppressed already", lines(restv1.PreviewExceptionParams{Vulnerability: []string{"CVE-2026-0002"}}), "ghcr.io/shop/web CVE-2026-0002 by old")
	check("in images", lines(restv1.PreviewExceptionParams{Package: ptr.To("*"), Image: []string{"*/blog", "x"}}), "ghcr.io/blog/blog CVE-2026-0001")
	api.allowed = allowOnlyIn("blog")
	w.clock.Step(2 * decisionTTL)
	check("for a caller who sees blog", lines(openssl), "ghcr.io/blog/blog CVE-2026-0001")
	if got := w.findings("blog", "blog", restv1.ListFindingsParams{Suppressed: ptr.To(true)}); len(got) > 0 {
		t.Errorf("suppressed findings after the previews: %+v, want none", got)
	}
}

// TestPreviewExceptionRefusals: what cannot be an exception, and one that would suppress too much, is refused with the way out.
func TestPreviewExceptionRefusals(t *testing.T) {
	w, api := newFakeHarness(t)
	w.createScanner("shop", "main")
	refusal := func(query string) string {
		t.Helper()
		response, body := w.get("/api/v1/exceptions/preview?"+query, anyone)
		var p restv1.Problem
		if err := json.Unmarshal(body, &p); err != nil {
			t.Fatalf("%d %s", response.StatusCode, body)
		}
		return fmt.Sprintf("%d %s %s", response.StatusCode, p.Reason, p.Field)
	}
	const ofVulnerability = "400 InvalidParameter vulnerability"
	for query, want := range map[string]string{
		"":                           ofVulnerability,
		"image=x":                    ofVulnerability,
		"vulnerability=CVE-1,,CVE-2": ofVulnerability,
		"vulnerability=CVE%201":      ofVulnerability,
		"vulnerability=a" + strings.Repeat(",a", 100): ofVulnerability,
		"package=" + strings.Repeat("a", 257):         "400 InvalidParameter package",
	} {
		if got := refusal(query); got != want {
			t.Errorf("%.40s: %s, want %s", query, got, want)
		}
	}
	w.api.Store = tooMany{w.store}
	if got := refusal("package=*"); got != "422 TooLarge " {
		t.Errorf("an exception for too much: %s, want 422 TooLarge", got)
	}
	api.allowed = allowOnlyIn("blog")
	w.clock.Step(2 * decisionTTL)
	if got := refusal("package=*&namespace=shop"); got != "403 Forbidden " {
		t.Errorf("a preview in a namespace that the caller does not see: %s, want 403 Forbidden", got)
	}
}

// tooMany is a store with too many findings for a preview.
type tooMany struct{ *store.Store }

func (tooMany) PreviewSuppression(context.Context, store.SuppressionQuery, int) (store.SuppressionPreview, error) {
	return store.SuppressionPreview{}, fmt.Errorf("previewing: %w", store.ErrTooManyCandidates)
}
