package restapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// TestListChanges: what is new since a time, what got a fix and what is fixed, in one namespace.
func TestListChanges(t *testing.T) {
	w, api := newFakeHarness(t)
	shop := w.createScanner("shop", "main")
	w.createScanned(shop, "web", vulnerable("CVE-2026-0001", "openssl"))
	w.createScanned(w.createScanner("blog", "main"), "blog", vulnerable("CVE-2026-0002", "curl"))
	w.clock.Step(2 * time.Hour)
	since := w.clock.Now().Add(-time.Hour)
	w.saveReport("web", store.Cluster, vulnerable("CVE-2026-0001", "openssl", fixed), vulnerable("CVE-2026-0003", "zlib", exploited))
	w.createException("shop", "accepted", "CVE-2026-0003")
	answer, err := w.clientFor(anyone).ListChangesWithResponse(t.Context(), "shop", &restv1.ListChangesParams{Since: since})
	w.must(err)
	change := func(kind restv1.ChangeKind, id, pkg string) restv1.Change {
		return restv1.Change{
			Change: kind, Time: w.clock.Now(), ID: id, Severity: restv1.SeverityHigh, Package: restv1.Package{Name: pkg, Version: "1.0", Type: "deb"}, Repository: "ghcr.io/shop/web",
		}
	}
	zlib, openssl := change(restv1.ChangeNew, "CVE-2026-0003", "zlib"), change(restv1.ChangeFixAvailable, "CVE-2026-0001", "openssl")
	zlib.KnownExploited = true
	zlib.Exception = &restv1.Exception{Kind: "VulnerabilityException", Name: "accepted", Source: restv1.ExceptionFromResource, Status: "not_affected", Justification: "vulnerable_code_not_present", Reason: "Compiled out."}
	openssl.Fixable, openssl.FixVersions = true, []string{"1.1"}
	want := &restv1.ChangeList{
		Items: []restv1.Change{zlib, openssl}, New: 1, FixAvailable: 1, Coverage: restv1.Coverage{Scanners: 1, Scanned: 1, NotCovered: restv1.NotCovered{NewScanners: 1}},
	}
	if diff := cmp.Diff(want, answer.JSON200, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("changes in shop (-want +got):\n%s", diff)
	}
	status := func(query string) string {
		response, body := w.get("/api/v1/namespaces/shop/changes?"+query, anyone)
		if response.StatusCode == http.StatusOK {
			return "200"
		}
		return fmt.Sprintf("%d %s", response.StatusCode, fieldOf(t, body))
	}
	at := func(age time.Duration) string {
		return "since=" + url.QueryEscape(w.clock.Now().Add(-age).Format(time.RFC3339))
	}
	for query, want := range map[string]string{
		"": "400 since", "since=yesterday": "400 since", at(-time.Hour): "400 since", at(91 * 24 * time.Hour): "400 since", at(0): "200", at(89 * 24 * time.Hour): "200",
	} {
		if got := status(query); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
	api.allowed = allowOnlyIn("blog")
	w.clock.Step(2 * decisionTTL)
	if got := status(at(time.Hour)); got != "403 " {
		t.Errorf("a caller who does not see shop: %s, want 403", got)
	}
}

// TestChangesOfPartlyCovered: of an image with contents that its engine covers in other images it is not known what is fixed.
func TestChangesOfPartlyCovered(t *testing.T) {
	w, _ := newFakeHarness(t)
	w.createScanned(w.createScanner("shop", "main"), "web", vulnerable("CVE-2026-0001", "openssl"))
	for gap, want := range map[string][]string{"nothing": {}, "OS packages (deb)": {"ghcr.io/shop/web"}} {
		_, err := w.store.SaveReport(t.Context(), store.Report{Subject: store.Subject{PlatformDigest: digest("web"), Engine: engine}, DataVersion: "v2", NotCovered: []string{gap}}, "")
		w.must(err)
		answer, err := w.clientFor(anyone).ListChangesWithResponse(t.Context(), "shop", &restv1.ListChangesParams{Since: w.clock.Now()})
		w.must(err)
		if diff := cmp.Diff(want, answer.JSON200.Unknown); diff != "" {
			t.Errorf("repositories of which it is unknown what is fixed, with the gap %q (-want +got):\n%s", gap, diff)
		}
	}
}

// fieldOf returns the field that a refusal names.
func fieldOf(t *testing.T, body []byte) string {
	t.Helper()
	var p restv1.Problem
	if err := json.Unmarshal(body, &p); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return p.Field
}
