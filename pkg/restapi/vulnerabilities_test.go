package restapi

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// createTwoTeams creates two namespaces, each with an image. Both have CVE-2026-0001.
func (w *harness) createTwoTeams() {
	w.t.Helper()
	covered := func(scanned, pending int32) func(*v1alpha1.Scanner) {
		return func(s *v1alpha1.Scanner) {
			s.Status.ObservedGeneration = 1
			s.Status.Images = v1alpha1.ImageCounts{Total: scanned + pending, Scanned: scanned, Pending: pending}
		}
	}
	shop, blog := w.createScanner("shop", "main", covered(1, 0)), w.createScanner("blog", "main", covered(1, 2))
	w.createScanned(blog, "blog",
		vulnerable("CVE-2026-0001", "openssl", severity(finding.Medium), alias("GHSA-aaaa-bbbb-cccc")), vulnerable("CVE-2026-0003", "zlib", severity(finding.Low)))
	w.clock.Step(time.Hour)
	w.createScanned(shop, "web",
		vulnerable("CVE-2026-0001", "openssl", severity(finding.Critical), fixed, alias("GHSA-aaaa-bbbb-cccc")), vulnerable("CVE-2026-0002", "curl", exploited))
}

// vulnerabilities lists all vulnerabilities, one on each page.
func (w *harness) vulnerabilities(token string, params restv1.ListVulnerabilitiesParams) (all []restv1.Vulnerability, coverage restv1.Coverage) {
	w.t.Helper()
	params.Limit = ptr.To(1)
	for first := true; first || params.Continue != nil; first = false {
		page, err := w.clientFor(token).ListVulnerabilitiesWithResponse(w.t.Context(), &params)
		w.must(err)
		if page.JSON200 == nil {
			w.t.Fatalf("vulnerabilities: %d %s", page.StatusCode(), page.Body)
		}
		all, coverage = append(all, page.JSON200.Items...), page.JSON200.Coverage
		if params.Continue = nextPage(page.JSON200.Continue); params.Continue == nil && page.JSON200.Total != len(all) {
			w.t.Errorf("%d vulnerabilities on all pages, and a total of %d", len(all), page.JSON200.Total)
		}
	}
	return all, coverage
}

// TestVulnerabilities: each caller gets the vulnerabilities of the namespaces that it may see, worst first, and learns what is not scanned there.
func TestVulnerabilities(t *testing.T) {
	w, api := newFakeHarness(t)
	w.createTwoTeams()
	got, coverage := w.vulnerabilities(anyone, restv1.ListVulnerabilitiesParams{})
	want := []restv1.Vulnerability{
		{ID: "CVE-2026-0002", Severity: restv1.SeverityHigh, KnownExploited: true, FirstSeenTime: noon.Add(time.Hour), Images: 1, Namespaces: 1},
		{ID: "CVE-2026-0001", Severity: restv1.SeverityCritical, Fixable: true, FirstSeenTime: noon, Images: 2, Namespaces: 2},
		{ID: "CVE-2026-0003", Severity: restv1.SeverityLow, FirstSeenTime: noon, Images: 1, Namespaces: 1},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("vulnerabilities of all namespaces (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(restv1.Coverage{AllNamespaces: true, Scanners: 2, Scanned: 2, NotCovered: restv1.NotCovered{Pending: 2}}, coverage); diff != "" {
		t.Errorf("coverage of all namespaces (-want +got):\n%s", diff)
	}

	api.allowed = allowOnlyIn("blog")
	w.clock.Step(2 * decisionTTL) // the earlier decisions are remembered until then
	want = []restv1.Vulnerability{
		{ID: "CVE-2026-0001", Severity: restv1.SeverityMedium, Images: 1, Namespaces: 1}, {ID: "CVE-2026-0003", Severity: restv1.SeverityLow, Images: 1, Namespaces: 1},
	}
	got, coverage = w.vulnerabilities(anyone, restv1.ListVulnerabilitiesParams{})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("vulnerabilities of a caller who sees blog (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(restv1.Coverage{Scanners: 1, Scanned: 1, NotCovered: restv1.NotCovered{Pending: 2}}, coverage); diff != "" {
		t.Errorf("coverage of a caller who sees blog (-want +got):\n%s", diff)
	}
	if response, body := w.get("/api/v1/vulnerabilities?firstSeenSince=2026-03-01T12:00:00Z", anyone); response.StatusCode != http.StatusBadRequest {
		t.Errorf("a caller who sees blog may learn when others had a vulnerability: %d %s", response.StatusCode, body)
	}
}

// TestVulnerabilitiesFiltered: each parameter narrows down.
func TestVulnerabilitiesFiltered(t *testing.T) {
	w, _ := newFakeHarness(t)
	w.createScanned(w.createScanner("shop", "main"), "web",
		vulnerable("CVE-2026-0001", "a", severity(finding.Critical), fixed, func(f *finding.Finding) { f.EPSS = 0.07 }),
		vulnerable("CVE-2026-0002", "b", severity(finding.Low), exploited), vulnerable("GHSA-aaaa-bbbb-0003", "c", severity(finding.Unknown)))
	for query, want := range map[string]string{
		"":                                    "0002 0001 0003",
		"namespace=shop":                      "0002 0001 0003",
		"namespace=blog":                      "",
		"minSeverity=Low":                     "0002 0001",
		"severity=Unknown,Critical":           "0001 0003",
		"fixable=true":                        "0001",
		"knownExploited=true":                 "0002",
		"minEPSSPercent=7":                    "0001",
		"minEPSSPercent=8":                    "",
		"text=cve-2026":                       "0002 0001",
		"firstSeenSince=2026-03-01T12:00:00Z": "0002 0001 0003",
		"firstSeenSince=2026-03-01T12:00:01Z": "",
	} {
		page, err := w.clientFor(anyone).ListVulnerabilitiesWithResponse(t.Context(), nil, func(_ context.Context, r *http.Request) error {
			r.URL.RawQuery = query
			return nil
		})
		w.must(err)
		var got []string
		for _, v := range page.JSON200.Items {
			got = append(got, v.ID[len(v.ID)-4:])
		}
		if strings.Join(got, " ") != want || page.JSON200.Total != len(got) {
			t.Errorf("with %q: %q (total %d), want %q", query, got, page.JSON200.Total, want)
		}
	}
}

// TestVulnerability: a vulnerability is found by its ID and aliases. One that nobody runs is no error, and what is not scanned is said with it.
func TestVulnerability(t *testing.T) {
	w, api := newFakeHarness(t)
	w.createTwoTeams()
	get := func(id string, namespace *string) restv1.VulnerabilityDetails {
		t.Helper()
		answer, err := w.clientFor(anyone).GetVulnerabilityWithResponse(t.Context(), id, &restv1.GetVulnerabilityParams{Namespace: namespace})
		w.must(err)
		if answer.JSON200 == nil {
			t.Fatalf("%s: %d %s", id, answer.StatusCode(), answer.Body)
		}
		return *answer.JSON200
	}
	everywhere := restv1.Coverage{AllNamespaces: true, Scanners: 2, Scanned: 2, NotCovered: restv1.NotCovered{Pending: 2}}
	want := restv1.VulnerabilityDetails{
		Ids: []string{"CVE-2026-0001"}, Names: []string{"cve-2026-0001", "ghsa-aaaa-bbbb-cccc"}, Severity: restv1.SeverityCritical, Fixable: true,
		FirstSeenTime: noon, Images: 2, Namespaces: 2, Coverage: everywhere,
		Packages: []restv1.VulnerablePackage{{Name: "openssl", Version: "1.0", Type: "deb"}, {Name: "openssl", Version: "1.0", Type: "deb", FixVersions: []string{"1.1"}}},
	}
	for _, id := range []string{"CVE-2026-0001", "cve-2026-0001", "GHSA-AAAA-bbbb-cccc"} {
		if diff := cmp.Diff(want, get(id, nil)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", id, diff)
		}
	}
	nobody := restv1.VulnerabilityDetails{Ids: []string{}, Severity: restv1.SeverityUnknown, Packages: []restv1.VulnerablePackage{}, Coverage: everywhere}
	if diff := cmp.Diff(nobody, get("CVE-1999-0001", nil)); diff != "" {
		t.Errorf("a vulnerability that nobody has (-want +got):\n%s", diff)
	}
	nobody.Coverage = restv1.Coverage{Scanners: 1, Scanned: 1}
	if diff := cmp.Diff(nobody, get("CVE-2026-0003", ptr.To("shop"))); diff != "" {
		t.Errorf("a vulnerability that another namespace has (-want +got):\n%s", diff)
	}
	api.allowed = allowOnlyIn("blog")
	w.clock.Step(2 * decisionTTL) // the earlier decisions are remembered until then
	blog := get("CVE-2026-0001", nil)
	if blog.Images != 1 || blog.Severity != restv1.SeverityMedium || blog.Fixable || !slices.Equal(blog.Ids, []string{"CVE-2026-0001"}) || len(blog.Packages) != 1 {
		t.Errorf("to a caller who sees blog: %s", fmt.Sprintf("%+v", blog))
	}
	if other := get("CVE-2026-0002", nil); len(other.Ids) != 0 || other.KnownExploited {
		t.Errorf("a caller who sees blog learns what shop has: %+v", other)
	}
}
