package restapi

import (
	"encoding/json"
	"net/http"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/restapi/sarif"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// sarifRun is the part of a run that tests of the API look at. Package sarif tests the others.
type sarifRun struct {
	Results []struct {
		RuleID              string            `json:"ruleId"`
		PartialFingerprints map[string]string `json:"partialFingerprints"`
		Suppressions        []struct {
			Justification string `json:"justification"`
		} `json:"suppressions"`
	} `json:"results"`
	Properties struct {
		Findings  int  `json:"findings"`
		Truncated bool `json:"truncated"`
	} `json:"properties"`
}

// sarif returns the run of a log.
func (w *harness) sarif(path string) sarifRun {
	w.t.Helper()
	response, body := w.get(path, anyone)
	var log struct {
		Runs []sarifRun `json:"runs"`
	}
	if err := json.Unmarshal(body, &log); err != nil || response.StatusCode != http.StatusOK || len(log.Runs) != 1 {
		w.t.Fatalf("GET %s: %d %.200s (%v), want a log with one run", path, response.StatusCode, body, err)
	}
	return log.Runs[0]
}

// TestSARIF: the log has the findings of the image, worst first, with what suppresses them. Results of the same finding in another digest and under
// another tag have the same fingerprints.
func TestSARIF(t *testing.T) {
	w, _ := newFakeHarness(t)
	scanner := w.createScanner("shop", "main")
	w.createScanned(scanner, "web", vulnerable("CVE-2026-0001", "openssl", fixed), vulnerable("CVE-2026-0002", "zlib", exploited))
	w.createException("shop", "accepted", "CVE-2026-0001")
	const path = "/api/v1/namespaces/shop/imagescans/web/sarif"
	response, _ := w.get(path, anyone)
	if response.Header.Get("Content-Type") != sarif.MediaType {
		t.Errorf("the content type is %s", response.Header.Get("Content-Type"))
	}
	log := w.sarif(path)
	var rules, reasons []string
	for _, r := range log.Results {
		rules = append(rules, r.RuleID)
		for _, s := range r.Suppressions {
			reasons = append(reasons, r.RuleID+" "+s.Justification)
		}
	}
	if want := []string{"CVE-2026-0002", "CVE-2026-0001"}; !slices.Equal(rules, want) || len(reasons) != 1 || reasons[0][:len(want[1])] != want[1] {
		t.Errorf("results are of %q, suppressed are %q; want %q, of which the second is suppressed", rules, reasons, want)
	}
	tag := response.Header.Get("ETag")
	if same, _ := w.get(path, anyone, "If-None-Match", tag); same.StatusCode != http.StatusNotModified {
		t.Errorf("asked for what the caller has: %d, want 304", same.StatusCode)
	}

	reference := "ghcr.io/shop/web:2"
	w.createScan(scanner, "newer", func(s *v1alpha1.ImageScan) { s.Spec.References = []string{reference} })
	w.must(w.store.SetUsage(t.Context(), store.ImageUsage{Scanner: string(scanner.UID), Namespace: "shop", Key: key("newer"), Engine: engine, Workloads: []store.Workload{{
		Namespace: "shop", Kind: "Deployment", Name: "web", Container: "main", Repository: "ghcr.io/shop/web", Reference: reference,
	}}}))
	w.saveSBOM("newer", store.Cluster, "{}")
	w.saveReport("newer", store.Cluster, vulnerable("CVE-2026-0002", "zlib"))
	newer := w.sarif("/api/v1/namespaces/shop/imagescans/newer/sarif")
	if diff := cmp.Diff(log.Results[0].PartialFingerprints, newer.Results[0].PartialFingerprints); diff != "" {
		t.Errorf("fingerprints in another digest of the repository (-want +got):\n%s", diff)
	}
	w.requireNoDownloads()
}

// TestSARIFTruncated: a report with more findings than a log may have gives the worst ones, and says so.
func TestSARIFTruncated(t *testing.T) {
	before := worstFindings
	worstFindings.findings = 2
	t.Cleanup(func() { worstFindings = before })
	w, _ := newFakeHarness(t)
	w.createScanned(w.createScanner("shop", "main"), "web", vulnerable("CVE-2026-0001", "a"), vulnerable("CVE-2026-0002", "a", exploited), vulnerable("CVE-2026-0003", "a", fixed))
	log := w.sarif("/api/v1/namespaces/shop/imagescans/web/sarif")
	if len(log.Results) != 2 || log.Results[0].RuleID != "CVE-2026-0002" || log.Results[1].RuleID != "CVE-2026-0003" || !log.Properties.Truncated || log.Properties.Findings != 3 {
		t.Errorf("the log is %+v, want the two worst of three findings", log)
	}
}
