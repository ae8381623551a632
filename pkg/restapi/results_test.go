package restapi

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// findings lists all findings of an image that pass the filters, page by page.
func (w *harness) findings(namespace, name string, params restv1.ListFindingsParams) (all []restv1.Finding) {
	w.t.Helper()
	for first := true; first || params.Continue != nil; first = false {
		page, err := w.clientFor(anyone).ListFindingsWithResponse(w.t.Context(), namespace, name, &params)
		w.must(err)
		if page.JSON200 == nil {
			w.t.Fatalf("findings of %s/%s: %d %s", namespace, name, page.StatusCode(), page.Body)
		}
		all = append(all, page.JSON200.Items...)
		if params.Continue = nextPage(page.JSON200.Continue); params.Continue == nil && page.JSON200.Total != len(all) {
			w.t.Errorf("%d findings on all pages, %d are counted", len(all), page.JSON200.Total)
		}
	}
	return all
}

func ids(findings []restv1.Finding) string {
	var ids []string
	for _, f := range findings {
		ids = append(ids, f.ID[len(f.ID)-4:])
	}
	return strings.Join(ids, " ")
}

// TestFinding: a finding is returned completely, with the report that it comes from.
func TestFinding(t *testing.T) {
	w, _ := newFakeHarness(t)
	w.createScanned(w.createScanner("shop", "main"), "web", vulnerable("CVE-2026-0001", "openssl", severity(finding.Critical), fixed, exploited, alias("GHSA-aaaa-bbbb-cccc"), func(f *finding.Finding) {
		f.Paths, f.Description, f.URL, f.CVSS, f.EPSS, f.FixAvailable = []string{"/lib/a"}, "A flaw.", "https://example.com/1", 9.8, 0.5, noon
		f.Advisories = []finding.Advisory{{ID: "DSA-1", Source: "debian", Severity: "High", FixState: "fixed", FixVersions: []string{"1.1"}, Ratings: []finding.Rating{{Source: "nvd", Version: "3.1", Vector: "CVSS:3.1/AV:N", Score: 9.8}}}}
	}))
	answer, err := w.clientFor(anyone).ListFindingsWithResponse(t.Context(), "shop", "web", nil)
	w.must(err)
	want := &restv1.FindingList{
		Report: restv1.Report{Engine: engine, DataVersion: "v1", MatchTime: noon, Current: true, Distro: "debian 12", Phase: restv1.PhaseScanned},
		Total:  1,
		Items: []restv1.Finding{{
			ID: "CVE-2026-0001", Aliases: []string{"GHSA-aaaa-bbbb-cccc"}, Severity: restv1.SeverityCritical,
			Package: restv1.Package{Name: "openssl", Version: "1.0", Type: "deb", PURL: "pkg:deb/debian/openssl@1.0"}, Paths: []string{"/lib/a"},
			FixState: "fixed", Fixable: true, FixVersions: []string{"1.1"}, FixAvailableTime: noon, Description: "A flaw.", URL: "https://example.com/1",
			CVSS: 9.8, EPSS: 0.5, KnownExploited: true, FirstSeenTime: noon, LastSeenTime: noon, FixSinceTime: noon, KnownExploitedSinceTime: noon,
			Advisories: []restv1.Advisory{{ID: "DSA-1", Source: "debian", Severity: "High", FixState: "fixed", FixVersions: []string{"1.1"},
				Ratings: []restv1.Rating{{Source: "nvd", Version: "3.1", Vector: "CVSS:3.1/AV:N", Score: 9.8}}}},
		}},
	}
	if diff := cmp.Diff(want, answer.JSON200); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
	w.must(w.store.SetDataVersion(t.Context(), engine, store.DataVersion{Version: "v2"}))
	answer, err = w.clientFor(anyone).ListFindingsWithResponse(t.Context(), "shop", "web", nil)
	w.must(err)
	if answer.JSON200.Report.Current {
		t.Error("the report is called current although newer data waits")
	}
}

// TestFindingsFiltered: each parameter narrows down.
func TestFindingsFiltered(t *testing.T) {
	w, _ := newFakeHarness(t)
	w.createScanned(w.createScanner("shop", "main"), "web",
		vulnerable("CVE-2026-0001", "openssl", severity(finding.Critical), fixed, exploited),
		vulnerable("CVE-2026-0002", "openssl", severity(finding.High), alias("GHSA-aaaa-bbbb-cccc")),
		vulnerable("CVE-2026-0003", "zlib", severity(finding.Medium), fixed),
		vulnerable("CVE-2026-0004", "zlib", severity(finding.Negligible)),
		vulnerable("CVE-2026-0005", "zlib", severity(finding.Unknown), func(f *finding.Finding) { f.Description = "heap overflow" }),
	)
	for name, tt := range map[string]struct {
		params restv1.ListFindingsParams
		want   string
	}{
		"nothing":                {restv1.ListFindingsParams{}, "0001 0002 0003 0004 0005"},
		"high at least":          {restv1.ListFindingsParams{MinSeverity: ptr.To(restv1.SeverityHigh)}, "0001 0002"},
		"unknown at least":       {restv1.ListFindingsParams{MinSeverity: ptr.To(restv1.SeverityUnknown)}, "0001 0002 0003 0004 0005"},
		"two severities":         {restv1.ListFindingsParams{Severity: []restv1.Severity{restv1.SeverityUnknown, restv1.SeverityCritical}}, "0001 0005"},
		"both, which disagree":   {restv1.ListFindingsParams{MinSeverity: ptr.To(restv1.SeverityCritical), Severity: []restv1.Severity{restv1.SeverityMedium}}, ""},
		"fixable":                {restv1.ListFindingsParams{Fixable: ptr.To(true)}, "0001 0003"},
		"not fixable":            {restv1.ListFindingsParams{Fixable: ptr.To(false)}, "0002 0004 0005"},
		"exploited":              {restv1.ListFindingsParams{KnownExploited: ptr.To(true)}, "0001"},
		"a package":              {restv1.ListFindingsParams{Package: ptr.To("openssl")}, "0001 0002"},
		"an alias":               {restv1.ListFindingsParams{ID: ptr.To("ghsa-aaaa-bbbb-cccc")}, "0002"},
		"a text":                 {restv1.ListFindingsParams{Text: ptr.To("HEAP")}, "0005"},
		"first seen at noon":     {restv1.ListFindingsParams{FirstSeenSince: ptr.To(noon)}, "0001 0002 0003 0004 0005"},
		"first seen later":       {restv1.ListFindingsParams{FirstSeenSince: ptr.To(noon.Add(time.Millisecond))}, ""},
		"a text that is nowhere": {restv1.ListFindingsParams{Text: ptr.To("' OR 1=1 --")}, ""},
	} {
		for _, limit := range []int{1, 2, 500} {
			tt.params.Limit = &limit
			if got := ids(w.findings("shop", "web", tt.params)); got != tt.want {
				t.Errorf("%s, with pages of %d: %q, want %q", name, limit, got, tt.want)
			}
		}
	}
}

// TestPagesExpire: the next page of a report that was replaced is refused with 410 Expired.
func TestPagesExpire(t *testing.T) {
	w, _ := newFakeHarness(t)
	findings := []finding.Finding{vulnerable("CVE-2026-0001", "a"), vulnerable("CVE-2026-0002", "a")}
	w.createScanned(w.createScanner("shop", "main"), "web", findings...)
	first, err := w.clientFor(anyone).ListFindingsWithResponse(t.Context(), "shop", "web", &restv1.ListFindingsParams{Limit: ptr.To(1)})
	w.must(err)
	w.saveReport("web", store.Cluster, findings...)
	second, err := w.clientFor(anyone).ListFindingsWithResponse(t.Context(), "shop", "web", &restv1.ListFindingsParams{Limit: ptr.To(1), Continue: &first.JSON200.Continue})
	w.must(err)
	if p := second.ApplicationProblemJSONDefault; second.StatusCode() != http.StatusGone || p.Reason != restv1.ReasonExpired {
		t.Errorf("the second page is %d %s, want 410 Expired", second.StatusCode(), second.Body)
	}
}

// TestContinueOfAnotherRequest: a continue token is refused in any other request.
func TestContinueOfAnotherRequest(t *testing.T) {
	w, _ := newFakeHarness(t)
	scanner := w.createScanner("shop", "main")
	w.createScanned(scanner, "web", vulnerable("CVE-2026-0001", "a"), vulnerable("CVE-2026-0002", "a"))
	w.createScanned(scanner, "api", vulnerable("CVE-2026-0001", "a"), vulnerable("CVE-2026-0002", "a"))
	first, err := w.clientFor(anyone).ListFindingsWithResponse(t.Context(), "shop", "web", &restv1.ListFindingsParams{Limit: ptr.To(1)})
	w.must(err)
	token := "&continue=" + first.JSON200.Continue
	for path, want := range map[string]int{
		"/api/v1/namespaces/shop/imagescans/web/findings?limit=1" + token:               http.StatusOK,
		"/api/v1/namespaces/shop/imagescans/web/findings?limit=500" + token:             http.StatusOK, // with another page size
		"/api/v1/namespaces/shop/imagescans/api/findings?limit=1" + token:               http.StatusBadRequest,
		"/api/v1/namespaces/shop/imagescans/web/findings?limit=1&fixable=false" + token: http.StatusBadRequest,
		"/api/v1/scanners?limit=1" + token:                                              http.StatusBadRequest,
		"/api/v1/vulnerabilities/CVE-2026-0001/workloads?limit=1" + token:               http.StatusBadRequest,
	} {
		if response, body := w.get(path, anyone); response.StatusCode != want {
			t.Errorf("GET %s: %d %s, want %d", path, response.StatusCode, body, want)
		}
	}
}

// TestNotScanned: an image without a result causes a refusal with the reason, and never an empty list.
func TestNotScanned(t *testing.T) {
	w, _ := newFakeHarness(t)
	scanner := w.createScanner("shop", "main")
	phase := func(phase v1alpha1.ImageScanPhase, reason string) func(*v1alpha1.ImageScan) {
		return func(s *v1alpha1.ImageScan) {
			s.Status = v1alpha1.ImageScanStatus{Phase: phase, Conditions: []metav1.Condition{{Type: "Ready", Status: "False", Reason: reason, Message: "in words", LastTransitionTime: metav1.NewTime(noon)}}}
			if phase == v1alpha1.PhaseFailed {
				s.Status.NextAttemptTime = ptr.To(metav1.NewTime(noon.Add(time.Hour)))
			}
		}
	}
	w.createScan(scanner, "unknown", phase("", ""))
	w.createScan(scanner, "pending", phase(v1alpha1.PhasePending, "Pending"))
	w.setUsed(scanner, "pending", store.Cluster, "web")
	w.createScan(scanner, "matching", phase(v1alpha1.PhaseMatching, "Matching"))
	w.setUsed(scanner, "matching", store.Cluster, "web")
	w.saveSBOM("matching", store.Cluster, "{}")
	w.createScan(scanner, "failed", phase(v1alpha1.PhaseFailed, "ImageNotFound"))
	w.setUsed(scanner, "failed", store.Cluster, "web")
	w.createScan(scanner, "failed-again", phase(v1alpha1.PhaseFailed, "MatchWorkerDied"))
	w.setUsed(scanner, "failed-again", store.Cluster, "web")
	w.saveSBOM("failed-again", store.Cluster, "{}")
	w.saveReport("failed-again", store.Cluster)
	for name, want := range map[string]struct {
		phase  restv1.Phase
		reason string
	}{
		"unknown": {restv1.PhasePending, ""}, "pending": {restv1.PhasePending, "Pending"}, "matching": {restv1.PhaseMatching, "Matching"},
		"failed": {restv1.PhaseFailed, "ImageNotFound"}, "failed-again": {restv1.PhaseFailed, "MatchWorkerDied"},
	} {
		answer, err := w.clientFor(anyone).ListFindingsWithResponse(t.Context(), "shop", name, nil)
		w.must(err)
		p := answer.ApplicationProblemJSONDefault
		if answer.StatusCode() != http.StatusConflict || p.Reason != restv1.ReasonNotScanned || p.Phase != want.phase || p.ScanReason != want.reason || !strings.Contains(p.Detail, want.reason) {
			t.Errorf("findings of an image that is %s: %d %s, want 409 with phase %s and reason %s", name, answer.StatusCode(), answer.Body, want.phase, want.reason)
		}
		if want.phase == restv1.PhaseFailed && !p.NextAttemptTime.Equal(noon.Add(time.Hour)) {
			t.Errorf("findings of an image that is %s: the next attempt is at %s", name, p.NextAttemptTime)
		}
		for _, what := range []string{"cyclonedx", "sbom"} {
			response, body := w.get("/api/v1/namespaces/shop/imagescans/"+name+"/"+what, anyone)
			if hasSBOM := what == "sbom" && (name == "matching" || name == "failed-again"); response.StatusCode != http.StatusConflict && !hasSBOM {
				t.Errorf("%s of an image that is %s: %d %s, want 409", what, name, response.StatusCode, body)
			}
		}
	}
	old, err := w.clientFor(anyone).ListFindingsWithResponse(t.Context(), "shop", "failed-again", &restv1.ListFindingsParams{Outdated: ptr.To(true)})
	w.must(err)
	if old.JSON200 == nil || old.JSON200.Report.Phase != restv1.PhaseFailed {
		t.Errorf("what was found before the failure: %d %s, want it, with the phase Failed", old.StatusCode(), old.Body)
	}
	if response, _ := w.get("/api/v1/namespaces/shop/imagescans/failed-again/cyclonedx?outdated=true", anyone); response.StatusCode != http.StatusOK {
		t.Errorf("what was found before the failure as CycloneDX: %d", response.StatusCode)
	}
}

// TestCredentialScopes: what a namespace's own Jobs found is returned only for ImageScans of that namespace. An ImageScan that names a Scanner or an
// image of another namespace gets nothing.
func TestCredentialScopes(t *testing.T) {
	w, _ := newFakeHarness(t)
	shop, blog := w.createScanner("shop", "main"), w.createScanner("blog", "main")
	w.createScan(shop, "web")
	w.setUsed(shop, "web", "shop", "web")
	w.saveSBOM("web", "shop", `{"of":"shop"}`)
	w.saveReport("web", "shop", vulnerable("CVE-2026-0001", "openssl"))
	w.createScan(blog, "web")
	w.setUsed(blog, "web", store.Cluster, "web")
	w.saveSBOM("web", store.Cluster, `{"of":"all"}`)
	w.saveReport("web", store.Cluster, vulnerable("CVE-2026-0002", "openssl"))
	for namespace, want := range map[string]string{"shop": "0001", "blog": "0002"} {
		if got := ids(w.findings(namespace, "web", restv1.ListFindingsParams{})); got != want {
			t.Errorf("findings in %s: %q, want %q", namespace, got, want)
		}
	}
	if _, body := w.get("/api/v1/namespaces/blog/imagescans/web/sbom", anyone); string(body) != `{"of":"all"}` {
		t.Errorf("the SBOM in blog is %s", body)
	}
	// A user in blog may write ImageScans.
	w.createScan(blog, "stolen-owner", func(s *v1alpha1.ImageScan) {
		s.Spec.Digest, s.OwnerReferences[0].UID = key("web").Digest, shop.UID
	})
	w.createScan(blog, "other-image", func(s *v1alpha1.ImageScan) { s.Spec.Digest = key("secret").Digest })
	w.setUsed(shop, "secret", "shop", "web")
	w.saveSBOM("secret", "shop", "secret")
	w.saveReport("secret", "shop", vulnerable("CVE-2026-0003", "openssl"))
	for _, name := range []string{"stolen-owner", "other-image"} {
		for _, what := range []string{"findings", "sbom", "cyclonedx"} {
			if response, body := w.get("/api/v1/namespaces/blog/imagescans/"+name+"/"+what, anyone); response.StatusCode < 400 {
				t.Errorf("%s of %s: %d %s, want a refusal", what, name, response.StatusCode, body)
			}
		}
	}
}

// TestWorkloads: workloads with a vulnerability are found by its ID and its aliases, in the namespaces that the caller asks for.
func TestWorkloads(t *testing.T) {
	w, _ := newFakeHarness(t)
	shop, blog := w.createScanner("shop", "main"), w.createScanner("blog", "main")
	w.createScanned(shop, "web", vulnerable("CVE-2026-0001", "openssl", severity(finding.Critical), fixed, exploited, alias("GHSA-aaaa-bbbb-cccc")))
	w.createScanned(blog, "blog", vulnerable("CVE-2026-0001", "openssl", exploited))
	want := restv1.Workload{
		Namespace: "shop", Kind: "Deployment", Name: "web", Container: "main", Image: "ghcr.io/shop/web:1", Digest: key("web").Digest, Platform: "linux/amd64",
		Vulnerability: "CVE-2026-0001", Severity: restv1.SeverityCritical, KnownExploited: true, Fixable: true, FixState: "fixed", FixVersions: []string{"1.1"},
		Package: restv1.Package{Name: "openssl", Version: "1.0", Type: "deb", PURL: "pkg:deb/debian/openssl@1.0"}, Engines: []string{engine},
	}
	ids := map[string]string{"CVE-2026-0001": "CVE-2026-0001", "cve-2026-0001": "CVE-2026-0001", "GHSA-AAAA-bbbb-cccc": "GHSA-aaaa-bbbb-cccc"}
	for id := range ids {
		answer, err := w.clientFor(anyone).ListWorkloadsWithResponse(t.Context(), id, &restv1.ListWorkloadsParams{Namespace: ptr.To("shop")})
		w.must(err)
		if diff := cmp.Diff(&restv1.WorkloadList{ID: ids[id], Items: []restv1.Workload{want}, Total: 1, Scanners: 1, Scanned: 1, NotCovered: restv1.NotCovered{NewScanners: 1}, Known: restv1.KnownFound}, answer.JSON200); diff != "" {
			t.Errorf("who runs %s in shop (-want +got):\n%s", id, diff)
		}
	}
	var seen []string
	params := restv1.ListWorkloadsParams{Limit: ptr.To(1)}
	for first := true; first || params.Continue != nil; first = false {
		page, err := w.clientFor(anyone).ListWorkloadsWithResponse(t.Context(), "CVE-2026-0001", &params)
		w.must(err)
		if !page.JSON200.AllNamespaces || page.JSON200.Total != 2 {
			t.Errorf("a page of all namespaces: %s", page.Body)
		}
		for _, workload := range page.JSON200.Items {
			seen = append(seen, workload.Namespace)
		}
		params.Continue = nextPage(page.JSON200.Continue)
	}
	if !slices.Equal(seen, []string{"blog", "shop"}) {
		t.Errorf("in all namespaces, one on each page: %q", seen)
	}
	nobody, err := w.clientFor(anyone).ListWorkloadsWithResponse(t.Context(), "CVE-1999-0001", nil)
	w.must(err)
	if nobody.JSON200 == nil || nobody.JSON200.Total != 0 {
		t.Errorf("who runs what nobody has: %s", nobody.Body)
	}
}

// TestWorkloadsOfTwoEngines: a container is listed once for a finding of two engines. The response reports what neither engine analyses.
func TestWorkloadsOfTwoEngines(t *testing.T) {
	w, _ := newFakeHarness(t)
	const clair = "clair https://clair.example.com"
	first, second := w.createScanner("shop", "first"), w.createScanner("shop", "second")
	w.createScanned(first, "web", vulnerable("CVE-2026-0001", "openssl"), vulnerable("CVE-2026-0002", "zlib"))
	notCovered := func(name, as string, ecosystems ...string) {
		w.createScan(second, as, func(s *v1alpha1.ImageScan) {
			s.Spec.Digest, s.Status.Engine, s.Status.NotCovered = key(name).Digest, v1alpha1.BackendClair, ecosystems
		})
		w.must(w.store.SetUsage(t.Context(), store.ImageUsage{Scanner: string(second.UID), Namespace: "shop", Key: key(name), Engine: clair, Workloads: []store.Workload{{
			Namespace: "shop", Kind: "Deployment", Name: "web", Container: "main", Repository: "ghcr.io/shop/" + name, Reference: "ghcr.io/shop/" + name + ":1",
		}}}))
	}
	notCovered("web", "web-by-clair", "npm", "cargo")
	_, err := w.store.SaveReport(t.Context(), store.Report{
		Subject: store.Subject{PlatformDigest: digest("web"), Engine: clair}, DataVersion: "v1", Findings: []finding.Finding{vulnerable("CVE-2026-0001", "openssl", severity(finding.Critical))},
	}, "")
	w.must(err)
	asked := func(id string) *restv1.WorkloadList {
		answer, err := w.clientFor(anyone).ListWorkloadsWithResponse(t.Context(), id, &restv1.ListWorkloadsParams{Namespace: ptr.To("shop")})
		w.must(err)
		return answer.JSON200
	}
	if got := asked("CVE-2026-0001"); got.Total != 1 || len(got.Items) != 1 || !slices.Equal(got.Items[0].Engines, []string{clair, engine}) || got.Items[0].Severity != restv1.SeverityCritical {
		t.Errorf("what both found is %+v, want one item of both engines, as bad as the worse says", got)
	}
	if got := asked("CVE-2026-0002"); got.Total != 1 || !slices.Equal(got.Items[0].Engines, []string{engine}) {
		t.Errorf("what one found is %+v", got)
	}
	if got := asked("CVE-2026-0001").NotCovered; got.PartlyAnalysed != 0 || got.Ecosystems != nil {
		t.Errorf("of an image that Grype has scanned too, %+v is not covered", got)
	}
	notCovered("api", "api", "npm", "cargo")
	notCovered("other", "other", "npm", "nuget")
	w.createScan(first, "api-waiting", func(s *v1alpha1.ImageScan) { s.Spec.Digest, s.Status.Phase = key("api").Digest, v1alpha1.PhaseMatching })
	w.createScan(second, "unused", func(s *v1alpha1.ImageScan) {
		s.Status.NotCovered, s.Status.UnusedSinceTime = []string{"gem"}, ptr.To(metav1.NewTime(noon))
	})
	w.createScan(w.createScanner("blog", "main"), "elsewhere", func(s *v1alpha1.ImageScan) { s.Status.NotCovered = []string{"hex"} })
	if got := asked("CVE-2026-0001").NotCovered; got.PartlyAnalysed != 2 || !slices.Equal(got.Ecosystems, []string{"cargo", "npm", "nuget"}) {
		t.Errorf("not covered is %+v, want two images and what only Clair looked at them for", got)
	}
	findings, err := w.clientFor(anyone).ListFindingsWithResponse(t.Context(), "shop", "web-by-clair", nil)
	w.must(err)
	if report := findings.JSON200.Report; report.Engine != clair || !slices.Equal(report.NotCovered, []string{"npm", "cargo"}) {
		t.Errorf("the report is %+v, want its engine, and what that does not cover", report)
	}
	scan, err := w.clientFor(anyone).GetImageScanWithResponse(t.Context(), "shop", "web-by-clair")
	w.must(err)
	if !slices.Equal(scan.JSON200.NotCovered, []string{"npm", "cargo"}) || scan.JSON200.Engine != "Clair" {
		t.Errorf("the ImageScan is %+v", scan.JSON200)
	}
	if _, body := w.get("/api/v1/namespaces/shop/imagescans/web-by-clair/cyclonedx", anyone); !strings.Contains(string(body), `"scanner-operator:notCovered"`) {
		t.Errorf("the document does not list the packages that are not covered: %s", body)
	}
	if response, body := w.get("/api/v1/namespaces/shop/imagescans/other/sbom", anyone); response.StatusCode != http.StatusConflict || !strings.Contains(string(body), "Clair does not make one") {
		t.Errorf("the SBOM of an image that only Clair has: %d %s", response.StatusCode, body)
	}
}

// TestWorkloadsNotCovered: the response distinguishes "no workload runs it" from "not scanned yet", in the namespaces that the caller sees.
func TestWorkloadsNotCovered(t *testing.T) {
	w, api := newFakeHarness(t)
	counts := func(pending, failed int32) func(*v1alpha1.Scanner) {
		return func(s *v1alpha1.Scanner) {
			s.Status.ObservedGeneration = 1
			s.Status.Images = v1alpha1.ImageCounts{Total: 9 + pending + failed, Scanned: 9, Pending: pending, Failed: failed}
		}
	}
	w.createScanner("clean", "main", counts(0, 0))
	w.createScanner("shop", "main", counts(2, 1))
	w.createScanner("shop", "second", counts(0, 3))
	w.createScanner("young", "main", func(s *v1alpha1.Scanner) { s.Status = v1alpha1.ScannerStatus{} })
	w.createScanner("hidden", "main", counts(100, 100))
	api.allowed = allowOnlyIn("clean", "shop", "young", "bare")
	for namespace, want := range map[string]restv1.WorkloadList{
		"clean": {Scanners: 1},
		"shop":  {Scanners: 2, NotCovered: restv1.NotCovered{Pending: 2, Failed: 4}},
		"young": {Scanners: 1, NotCovered: restv1.NotCovered{NewScanners: 1}},
		"bare":  {},
		"":      {Scanners: 4, NotCovered: restv1.NotCovered{Pending: 2, Failed: 4, NewScanners: 1}},
	} {
		params := &restv1.ListWorkloadsParams{}
		if namespace != "" {
			params.Namespace = &namespace
		}
		answer, err := w.clientFor(anyone).ListWorkloadsWithResponse(t.Context(), "CVE-2026-0001", params)
		w.must(err)
		want.ID, want.Items, want.Known = "CVE-2026-0001", []restv1.Workload{}, restv1.KnownNotChecked
		if diff := cmp.Diff(&want, answer.JSON200); diff != "" {
			t.Errorf("who runs what was found nowhere, in namespace %q (-want +got):\n%s", namespace, diff)
		}
	}
}

// TestSBOM: an SBOM is sent as stored to callers that accept zstd, and decompressed to others. A caller that has it gets 304.
func TestSBOM(t *testing.T) {
	w, _ := newFakeHarness(t)
	scanner := w.createScanner("shop", "main")
	w.createScan(scanner, "web")
	w.setUsed(scanner, "web", store.Cluster, "web")
	sbom := `{"artifacts":["` + strings.Repeat("openssl ", 100_000) + `"]}`
	w.saveSBOM("web", store.Cluster, sbom)
	const path = "/api/v1/namespaces/shop/imagescans/web/sbom"

	plain, body := w.get(path, anyone, "Accept-Encoding", "identity")
	if plain.StatusCode != http.StatusOK || string(body) != sbom || plain.Header.Get("Content-Encoding") != "" {
		t.Errorf("without zstd: %d, %d bytes, want the %d of the SBOM", plain.StatusCode, len(body), len(sbom))
	}
	packed, body := w.get(path, anyone, "Accept-Encoding", "gzip, zstd;q=0.5")
	if packed.Header.Get("Content-Encoding") != "zstd" || packed.ContentLength != int64(len(body)) || decompress(t, body) != sbom {
		t.Errorf("with zstd: %v, %d bytes", packed.Header, len(body))
	}
	if refused, _ := w.get(path, anyone, "Accept-Encoding", "zstd;q=0"); refused.Header.Get("Content-Encoding") != "" {
		t.Error("zstd is sent to somebody who refuses it")
	}
	if plain.Header.Get("ETag") == packed.Header.Get("ETag") || plain.Header.Get("Vary") != "Accept, Accept-Encoding" {
		t.Errorf("both forms have the tag %s", plain.Header.Get("ETag"))
	}
	again, _ := w.get(path, anyone, "If-None-Match", `"x", `+plain.Header.Get("ETag"))
	if again.StatusCode != http.StatusNotModified {
		t.Errorf("asked for what the caller has: %d, want 304", again.StatusCode)
	}
	w.saveSBOM("web", store.Cluster, "{}")
	if newer, body := w.get(path, anyone, "If-None-Match", plain.Header.Get("ETag")); newer.StatusCode != http.StatusOK || string(body) != "{}" {
		t.Errorf("after it was replaced: %d %s", newer.StatusCode, body)
	}
	w.requireNoDownloads()
}

// TestSBOMFormats: the SBOM is sent in the format that the caller names, and each format has an ETag of its own. An image that was cataloged without it
// causes a refusal with the way out.
func TestSBOMFormats(t *testing.T) {
	w, _ := newFakeHarness(t)
	scanner := w.createScanner("shop", "main")
	for _, name := range []string{"web", "old", "new"} {
		w.createScan(scanner, name)
		w.setUsed(scanner, name, store.Cluster, name)
	}
	w.saveSBOM("old", store.Cluster, `{"format":"syft"}`)
	documents := map[store.Artifact]string{
		store.ArtifactSBOM: `{"format":"syft"}`, store.ArtifactCycloneDX: `{"format":"cyclonedx"}`, store.ArtifactSPDX: `{"format":"spdx"}`,
	}
	artifacts := map[store.Artifact]io.Reader{}
	for artifact, text := range documents {
		artifacts[artifact] = bytes.NewReader(compress(t, text))
	}
	w.must(w.store.SaveCatalog(t.Context(), store.Catalog{Engine: engine, Key: key("web"), PlatformDigest: digest("web"), CatalogedAt: w.clock.Now()}, artifacts))

	path := func(name string) string { return "/api/v1/namespaces/shop/imagescans/" + name + "/sbom" }
	tags := map[string]string{}
	for what, tt := range map[string]struct {
		query, accept, want, contentType string
	}{
		"nothing":              {"", "", `{"format":"syft"}`, "application/vnd.syft+json"},
		"anything":             {"", "*/*", `{"format":"syft"}`, "application/vnd.syft+json"},
		"CycloneDX":            {"", "application/vnd.cyclonedx+json", `{"format":"cyclonedx"}`, "application/vnd.cyclonedx+json; version=1.6"},
		"SPDX by its version":  {"", "application/spdx+json;version=2.3", `{"format":"spdx"}`, "application/spdx+json; version=2.3"},
		"the format of a link": {"?format=spdx-json", "text/html", `{"format":"spdx"}`, "application/spdx+json; version=2.3"},
	} {
		response, body := w.get(path("web")+tt.query, anyone, "Accept", tt.accept, "Accept-Encoding", "identity")
		if response.StatusCode != http.StatusOK || string(body) != tt.want || response.Header.Get("Content-Type") != tt.contentType {
			t.Errorf("%s: %d %s of type %s, want %s of type %s", what, response.StatusCode, body, response.Header.Get("Content-Type"), tt.want, tt.contentType)
		}
		tag := response.Header.Get("ETag")
		if other, found := tags[tag]; found && other != tt.want {
			t.Errorf("%s and %s have the same ETag", other, tt.want)
		}
		tags[tag] = tt.want
		if again, _ := w.get(path("web")+tt.query, anyone, "Accept", tt.accept, "Accept-Encoding", "identity", "If-None-Match", tag); again.StatusCode != http.StatusNotModified {
			t.Errorf("%s: asked for what the caller has: %d, want 304", what, again.StatusCode)
		}
	}

	for _, tt := range []struct {
		path, accept string
		status       int
		reason       restv1.Reason
		text         string
	}{
		{path("web"), "application/vnd.cyclonedx+json;version=1.5, text/html", http.StatusNotAcceptable, restv1.ReasonNotAcceptable,
			"application/vnd.syft+json, application/vnd.cyclonedx+json; version=1.6, application/spdx+json; version=2.3"},
		{path("web") + "?format=cyclonedx", "", http.StatusBadRequest, restv1.ReasonInvalidParameter, "syft-json, cyclonedx-json"},
		{path("old"), "application/spdx+json", http.StatusConflict, restv1.ReasonFormatNotStored, "grype.catalog.additionalFormats"},
		{path("old") + "?format=cyclonedx-json", "", http.StatusConflict, restv1.ReasonFormatNotStored, "DELETE /api/v1/namespaces/shop/imagescans/old/report"},
		{path("new") + "?format=cyclonedx-json", "", http.StatusConflict, restv1.ReasonNotScanned, "no SBOM yet"},
	} {
		response, body := w.get(tt.path, anyone, "Accept", tt.accept)
		var p restv1.Problem
		w.must(json.Unmarshal(body, &p))
		if response.StatusCode != tt.status || p.Reason != tt.reason || !strings.Contains(p.Detail, tt.text) {
			t.Errorf("%s, accepting %q: %d %s, want %d %s and %q", tt.path, tt.accept, response.StatusCode, body, tt.status, tt.reason, tt.text)
		}
	}

	accept := "application/spdx+json"
	generated, err := w.clientFor(anyone).GetSBOMWithResponse(t.Context(), "shop", "web", &restv1.GetSBOMParams{Accept: &accept})
	w.must(err)
	if string(generated.Body) != `{"format":"spdx"}` {
		t.Errorf("the generated client, with Accept alone: %d %s", generated.StatusCode(), generated.Body)
	}

	for name, want := range map[string][]restv1.SBOMFormat{
		"web": {restv1.FormatSyft, restv1.FormatCycloneDX, restv1.FormatSPDX}, "old": {restv1.FormatSyft}, "new": nil,
	} {
		scan, err := w.clientFor(anyone).GetImageScanWithResponse(t.Context(), "shop", name)
		w.must(err)
		if diff := cmp.Diff(want, scan.JSON200.SBOMFormats); diff != "" {
			t.Errorf("formats of %s (-want +got):\n%s", name, diff)
		}
	}
	w.requireNoDownloads()
}

// TestSBOMOrigin: an image and its findings say where the list of packages comes from. A report of another tool has a list of its own.
func TestSBOMOrigin(t *testing.T) {
	w, _ := newFakeHarness(t)
	scanner := w.createScanner("shop", "default")
	for name, origin := range map[string]*v1alpha1.SBOMOrigin{
		"attested":  {Source: v1alpha1.SBOMFromAttestation, Signer: "key sha256:4f9c2e0d8a1b7c35"},
		"cataloged": {Source: v1alpha1.SBOMFromImage, Message: "no SBOM is attached"},
		"plain":     nil,
	} {
		scan := w.createScanned(scanner, name)
		scan.Status.Phase, scan.Status.SBOM = v1alpha1.PhaseScanned, origin
		w.must(w.cluster.Status().Update(t.Context(), scan))
	}
	w.requireStatus(w.put(reportPath("shop", "attested", "ci"), anyone, reportText(-10, "CVE-2026-0001")), http.StatusCreated)
	api := w.clientFor(anyone)
	for name, want := range map[string]*restv1.SBOMOrigin{
		"attested":  {Source: restv1.SBOMFromAttestation, Signer: "key sha256:4f9c2e0d8a1b7c35"},
		"cataloged": {Source: restv1.SBOMFromImage, Message: "no SBOM is attached"},
		"plain":     nil,
	} {
		scan, err := api.GetImageScanWithResponse(t.Context(), "shop", name)
		w.must(err)
		if diff := cmp.Diff(want, scan.JSON200.SBOM); diff != "" {
			t.Errorf("the image %s (-want +got):\n%s", name, diff)
		}
		findings, err := api.ListFindingsWithResponse(t.Context(), "shop", name, &restv1.ListFindingsParams{})
		w.must(err)
		if diff := cmp.Diff(want, findings.JSON200.Report.SBOM); diff != "" {
			t.Errorf("the findings of %s (-want +got):\n%s", name, diff)
		}
	}
	findings, err := api.ListFindingsWithResponse(t.Context(), "shop", "attested", &restv1.ListFindingsParams{Source: ptr.To("ci")})
	w.must(err)
	if origin := findings.JSON200.Report.SBOM; origin != nil {
		t.Errorf("the report of another tool has the origin %+v of the engine's list", origin)
	}
}

// TestAcceptedSBOMFormat: the format follows from an Accept header by quality and precision.
func TestAcceptedSBOMFormat(t *testing.T) {
	for accept, want := range map[string]restv1.SBOMFormat{
		"":                 restv1.FormatSyft,
		"*/*":              restv1.FormatSyft,
		"application/json": restv1.FormatSyft,
		"application/json, application/spdx+json;q=0.9":                                restv1.FormatSyft,
		"*/*, application/spdx+json":                                                   restv1.FormatSPDX,
		"application/*;q=0.2, application/vnd.syft+json;q=0.1, text/html":              restv1.FormatCycloneDX,
		"application/vnd.cyclonedx+json; version=\"1.6\"":                              restv1.FormatCycloneDX,
		"APPLICATION/SPDX+JSON;Version=2.3;Q=0.5, application/vnd.cyclonedx+json;q=.4": restv1.FormatSPDX,
		"application/vnd.cyclonedx+json;version=1.4, application/spdx+json;q=0.1":      restv1.FormatSPDX,
		"text/html, */*;q=0, application/spdx+json":                                    restv1.FormatSPDX,
		"application/spdx+json;version=3.0":                                            "",
		"application/vnd.syft+json;version=16":                                         "",
		"application/spdx+json;q=0":                                                    "",
		"application/spdx+json;q=high, ;;, \"":                                         "",
		"application/vnd.cyclonedx+xml":                                                "",
		"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8":              restv1.FormatSyft,
	} {
		format, err := acceptedSBOMFormat(accept)
		if format.name != want || (err == nil) != (want != "") {
			t.Errorf("%q selects %q (%v), want %q", accept, format.name, err, want)
		}
	}
}

// TestBrokenSBOM: an SBOM that cannot be read to its end is not sent as a complete response.
func TestBrokenSBOM(t *testing.T) {
	w, _ := newFakeHarness(t)
	scanner := w.createScanner("shop", "main")
	w.createScan(scanner, "web")
	w.setUsed(scanner, "web", store.Cluster, "web")
	noise := make([]byte, 1<<20)
	_, _ = rand.Read(noise)
	whole := compress(t, string(noise))
	w.must(w.store.SaveCatalog(t.Context(), store.Catalog{Engine: "grype", Key: key("web"), PlatformDigest: digest("web")},
		map[store.Artifact]io.Reader{store.ArtifactSBOM: bytes.NewReader(whole[:len(whole)/2])}))
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.url+"/api/v1/namespaces/shop/imagescans/web/sbom", nil)
	w.must(err)
	r.Header.Set("Authorization", "Bearer "+anyone)
	r.Header.Set("Accept-Encoding", "identity")
	client := &http.Client{Transport: w.http.Transport.(*conformanceTransport).next}
	response, err := client.Do(r)
	w.must(err)
	defer response.Body.Close()
	if n, err := io.Copy(io.Discard, response.Body); response.StatusCode == http.StatusOK && err == nil {
		t.Errorf("half an SBOM is sent as a whole one, %d bytes", n)
	}
}

// TestCycloneDX: the document has the same findings as the list.
func TestCycloneDX(t *testing.T) {
	w, _ := newFakeHarness(t)
	w.must(w.store.SetDataVersion(t.Context(), engine, store.DataVersion{Version: "v1", Tool: "grype 0.110.0"}))
	w.createScanned(w.createScanner("shop", "main"), "web", vulnerable("CVE-2026-0001", "openssl", fixed), vulnerable("CVE-2026-0001", "libssl"), vulnerable("CVE-2026-0002", "zlib"))
	const path = "/api/v1/namespaces/shop/imagescans/web/cyclonedx"
	response, body := w.get(path, anyone)
	if response.Header.Get("Content-Type") != "application/vnd.cyclonedx+json; version=1.6" {
		t.Errorf("the content type is %s", response.Header.Get("Content-Type"))
	}
	var bom cdx.BOM
	w.must(cdx.NewBOMDecoder(bytes.NewReader(body), cdx.BOMFileFormatJSON).Decode(&bom))
	if bom.SpecVersion != cdx.SpecVersion1_6 || len(*bom.Vulnerabilities) != 2 || len(*bom.Components) != 3 {
		t.Errorf("the document is of version %s, with %d vulnerabilities in %d packages", bom.SpecVersion, len(*bom.Vulnerabilities), len(*bom.Components))
	}
	if tool := (*bom.Metadata.Tools.Components)[0]; bom.Metadata.Component.Name != "ghcr.io/shop/web" || tool.Version != "0.110.0" {
		t.Errorf("the document is about %s, made by %s %s", bom.Metadata.Component.Name, tool.Name, tool.Version)
	}
	tag := response.Header.Get("ETag")
	if same, _ := w.get(path, anyone, "If-None-Match", tag); same.StatusCode != http.StatusNotModified {
		t.Errorf("asked for what the caller has: %d, want 304", same.StatusCode)
	}
	w.saveReport("web", store.Cluster, vulnerable("CVE-2026-0002", "zlib"))
	changed, body := w.get(path, anyone, "If-None-Match", tag)
	if changed.StatusCode != http.StatusOK {
		t.Errorf("after the report was replaced: %d, want 200", changed.StatusCode)
	}
	if strings.Contains(string(body), bom.SerialNumber) {
		t.Errorf("after the report was replaced the serial number is still %s", bom.SerialNumber)
	}
	w.requireNoDownloads()
}

// TestEmptyReport: a clean image has a list without items, and a document without vulnerabilities.
func TestEmptyReport(t *testing.T) {
	w, _ := newFakeHarness(t)
	w.createScanned(w.createScanner("shop", "main"), "web")
	answer, err := w.clientFor(anyone).ListFindingsWithResponse(t.Context(), "shop", "web", nil)
	w.must(err)
	if answer.JSON200 == nil || answer.JSON200.Items == nil || answer.JSON200.Total != 0 {
		t.Errorf("findings of a clean image: %d %s", answer.StatusCode(), answer.Body)
	}
	if response, body := w.get("/api/v1/namespaces/shop/imagescans/web/cyclonedx", anyone); response.StatusCode != http.StatusOK || !strings.Contains(string(body), `"vulnerabilities":[]`) {
		t.Errorf("the document of a clean image: %d %s", response.StatusCode, body)
	}
}

// TestReportTooLarge: a report that would take too much memory as one document is refused. Its findings can still be listed in pages.
func TestReportTooLarge(t *testing.T) {
	if testing.Short() {
		t.Skip("large documents are made in the run without -short")
	}
	many := make([]finding.Finding, maxDocumentFindings+1)
	for i := range many {
		many[i] = vulnerable(fmt.Sprintf("CVE-2026-%06d", i), "a")
	}
	control := func(character string) string { return strings.Repeat(character, maxDocumentBytes/6/2) } // six bytes each in JSON
	for name, findings := range map[string][]finding.Finding{
		"long texts":         {vulnerable("CVE-2026-0001", strings.Repeat("x", maxDocumentBytes/4)), vulnerable("CVE-2026-0002", strings.Repeat("y", maxDocumentBytes/4))},
		"control characters": {vulnerable("CVE-2026-0001", control("\x01")), vulnerable("CVE-2026-0002", control("\x02"))},
		"many findings":      many,
	} {
		w, _ := newFakeHarness(t)
		w.createScanned(w.createScanner("shop", "main"), "web", findings...)
		response, body := w.get("/api/v1/namespaces/shop/imagescans/web/cyclonedx", anyone)
		if response.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(string(body), "page through its findings") {
			t.Errorf("%s: %d, %d bytes, want 422 that says to page through the findings", name, response.StatusCode, len(body))
		}
		w.requireNoDownloads()
		log := w.sarif("/api/v1/namespaces/shop/imagescans/web/sarif")
		if isWhole := len(log.Results) == len(findings); isWhole != (name == "many findings") || log.Properties.Truncated == isWhole || log.Properties.Findings != len(findings) {
			t.Errorf("%s: SARIF has %d results and %+v, want all findings, or that they are not all", name, len(log.Results), log.Properties)
		}
		if all := w.findings("shop", "web", restv1.ListFindingsParams{Limit: ptr.To(500)}); len(all) != len(findings) {
			t.Errorf("%s: %d findings on all pages, want %d", name, len(all), len(findings))
		}
	}
}

// TestQuerySlots: a query waits while all slots are taken. The request is refused when it ends before, and may be sent again.
func TestQuerySlots(t *testing.T) {
	w, _ := newFakeHarness(t)
	w.createScanned(w.createScanner("shop", "main"), "web")
	var releases []func()
	for i := range maxQueries {
		release, err := w.api.queries.Acquire(t.Context(), fmt.Sprint("other-", i))
		w.must(err)
		releases = append(releases, release)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	ctx = context.WithValue(ctx, callerKey{}, &caller{})
	err := w.api.query(ctx, func(context.Context) error { return fmt.Errorf("it was called all the same") })
	answer := httptest.NewRecorder()
	w.api.writeError(answer, httptest.NewRequest(http.MethodGet, "/", nil), err)
	if answer.Code != http.StatusServiceUnavailable || answer.Header().Get("Retry-After") == "" {
		t.Errorf("while others are served: %v, %d, want 503 with Retry-After", err, answer.Code)
	}
	for _, release := range releases {
		release()
	}
	w.must(w.api.query(context.WithValue(t.Context(), callerKey{}, &caller{}), func(context.Context) error { return nil }))
}

// TestKnownVulnerability: what nobody runs is an all-clear only of an id that the data of each engine can find.
func TestKnownVulnerability(t *testing.T) {
	w, _ := newFakeHarness(t)
	w.createScanned(w.createScanner("shop", "main"), "web", vulnerable("SNYK-like-name", "openssl"))
	want := func(what string, wanted map[string]restv1.VulnerabilityKnown) {
		t.Helper()
		for id, want := range wanted {
			answer, err := w.clientFor(anyone).ListWorkloadsWithResponse(t.Context(), id, &restv1.ListWorkloadsParams{})
			w.must(err)
			if got := answer.JSON200.Known; got != want {
				t.Errorf("%s: %s is %s in the data, want %s", what, id, got, want)
			}
		}
	}
	always := map[string]restv1.VulnerabilityKnown{
		"SNYK-like-name": restv1.KnownFound, "snyk-LIKE-name": restv1.KnownFound, "nginx": restv1.KnownNotAnID, "web-1": restv1.KnownNotAnID, "CVE-2099-0001": restv1.KnownNotAnID,
	}
	want("without a list", always)
	want("without a list", map[string]restv1.VulnerabilityKnown{"CVE-2024-3094": restv1.KnownNotChecked, "CVE-2024-3095": restv1.KnownNotChecked})
	data := func(version string) {
		w.must(w.store.SetDataVersion(t.Context(), "grype", store.DataVersion{Version: version}))
	}
	data("v1")
	w.must(w.store.SaveVulnerabilityIDs(t.Context(), "grype", "v1", "CVE-2024-3094\nGHSA-AAAA-BBBB-CCCC\nNGINX\n"))
	want("with a list", always)
	want("with a list", map[string]restv1.VulnerabilityKnown{
		"CVE-2024-3094": restv1.KnownFound, "cve 2024 3094": restv1.KnownFound, "ghsa-aaaa-bbbb-cccc": restv1.KnownFound, "CVE-2024-3095": restv1.KnownNot, "CVE-2024-30940": restv1.KnownNot, "RHSA-2024:1234": restv1.KnownNot,
	})
	data("newer")
	want("with newer data, whose list is missing", map[string]restv1.VulnerabilityKnown{"SNYK-like-name": restv1.KnownNotMatched, "CVE-2024-3094": restv1.KnownNotChecked, "CVE-2024-3095": restv1.KnownNotChecked})
	w.must(w.store.SaveVulnerabilityIDs(t.Context(), "grype", "newer", "CVE-2024-3094\n"))
	want("before the match with newer data", map[string]restv1.VulnerabilityKnown{"SNYK-like-name": restv1.KnownNotMatched, "CVE-2024-3094": restv1.KnownNotMatched, "CVE-2024-3095": restv1.KnownNot})
	w.must(w.store.SaveVulnerabilityIDs(t.Context(), "grype", "v1", "CVE-2024-3094\n"))
	data("v1")
	w.createScanner("clairs", "main", func(s *v1alpha1.Scanner) { s.Spec.Backend.Type = v1alpha1.BackendClair })
	want("with Clair", always)
	want("with Clair", map[string]restv1.VulnerabilityKnown{"CVE-2024-3094": restv1.KnownNotChecked, "CVE-2024-3095": restv1.KnownNotChecked})
	for namespace, known := range map[string]restv1.VulnerabilityKnown{"shop": restv1.KnownFound, "clairs": restv1.KnownNotChecked, "void": restv1.KnownNotChecked} {
		answer, err := w.clientFor(anyone).ListWorkloadsWithResponse(t.Context(), "CVE-2024-3094", &restv1.ListWorkloadsParams{Namespace: &namespace})
		w.must(err)
		if got := answer.JSON200.Known; got != known {
			t.Errorf("in %s, it is %s in the data, want %s", namespace, got, known)
		}
	}
}

// TestTypedID: each operation about a vulnerability takes its id as people type it, and says what it is.
func TestTypedID(t *testing.T) {
	w, _ := newFakeHarness(t)
	w.createScanned(w.createScanner("shop", "main"), "web", vulnerable("CVE-2024-3094", "xz", alias("GHSA-rxwq-x6h5-x525")))
	for typed, want := range map[string]string{"cve 2024 3094": "CVE-2024-3094", " CVE\u20132024\u20133094 ": "CVE-2024-3094", "ghsa_RXWQ_x6h5_x525": "GHSA-rxwq-x6h5-x525"} {
		list, err := w.clientFor(anyone).ListWorkloadsWithResponse(t.Context(), typed, &restv1.ListWorkloadsParams{})
		w.must(err)
		details, err := w.clientFor(anyone).GetVulnerabilityWithResponse(t.Context(), typed, &restv1.GetVulnerabilityParams{})
		w.must(err)
		_, csv := w.get("/api/v1/vulnerabilities/"+url.PathEscape(typed)+"/workloads.csv", anyone)
		if list.JSON200 == nil || list.JSON200.ID != want || list.JSON200.Total != 1 || details.JSON200 == nil || len(details.JSON200.Ids) != 1 || bytes.Count(csv, []byte("CVE-2024-3094")) != 1 {
			t.Errorf("%q: %s, %s, %s; want %s in one container", typed, list.Body, details.Body, csv, want)
		}
	}
	list, err := w.clientFor(anyone).ListWorkloadsWithResponse(t.Context(), " Web 1 ", &restv1.ListWorkloadsParams{})
	w.must(err)
	if list.JSON200 == nil || list.JSON200.ID != "Web 1" {
		t.Errorf("a text that is no id becomes %s", list.Body)
	}
}
