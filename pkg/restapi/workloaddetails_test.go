package restapi

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// TestGetWorkload: a workload has its images with their scans, its findings, and what of it is not scanned.
func TestGetWorkload(t *testing.T) {
	w, api := newFakeHarness(t)
	shop := w.createScanner("shop", "main")
	w.createScanned(shop, "one", vulnerable("CVE-2026-0001", "openssl", severity(finding.Critical), fixed), vulnerable("CVE-2026-0002", "zlib"))
	w.setUsed(shop, "two", store.Cluster, "web")
	w.createScan(shop, "two", func(s *v1alpha1.ImageScan) {
		s.Status.Phase, s.Status.Conditions = v1alpha1.PhaseFailed, []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: "ImageNotFound"}}
	})
	w.setUsed(shop, "three", store.Cluster, "web")
	w.createException("shop", "accepted", "CVE-2026-0002")
	answer, err := w.clientFor(anyone).GetWorkloadWithResponse(t.Context(), "shop", "Deployment", "web")
	w.must(err)
	main := restv1.ScannerReference{Kind: restv1.KindScanner, Name: "main"}
	image := func(name string, phase restv1.Phase, change func(*restv1.WorkloadImage)) restv1.WorkloadImage {
		i := restv1.WorkloadImage{Container: "main", Image: "ghcr.io/shop/" + name + ":1", Digest: key(name).Digest, Platform: "linux/amd64", Phase: phase}
		change(&i)
		return i
	}
	want := &restv1.WorkloadDetails{
		Namespace: "shop", Kind: "Deployment", Name: "web", Total: 2, Findings: restv1.FindingCounts{Critical: 1, Fixable: 1, Suppressed: 1},
		NotCovered: restv1.NotCovered{Pending: 1, Failed: 1},
		Images: []restv1.WorkloadImage{
			image("one", restv1.PhaseScanned, func(i *restv1.WorkloadImage) { i.ImageScan, i.Scanner = "one", main }),
			image("three", restv1.PhasePending, func(*restv1.WorkloadImage) {}),
			image("two", restv1.PhaseFailed, func(i *restv1.WorkloadImage) { i.ImageScan, i.Scanner, i.ScanReason = "two", main, "ImageNotFound" }),
		},
		Items: []restv1.WorkloadFinding{
			{
				ID: "CVE-2026-0001", Severity: restv1.SeverityCritical, Fixable: true, FixVersions: []string{"1.1"}, Containers: []string{"main"},
				Package: restv1.Package{Name: "openssl", Version: "1.0", Type: "deb"},
			},
			{
				ID: "CVE-2026-0002", Severity: restv1.SeverityHigh, Containers: []string{"main"}, Package: restv1.Package{Name: "zlib", Version: "1.0", Type: "deb"},
				Exception: &restv1.Exception{Kind: "VulnerabilityException", Name: "accepted", Source: restv1.ExceptionFromResource, Status: "not_affected", Justification: "vulnerable_code_not_present", Reason: "Compiled out."},
			},
		},
	}
	if diff := cmp.Diff(want, answer.JSON200, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("workload (-want +got):\n%s", diff)
	}
	if response, body := w.get("/api/v1/namespaces/shop/workloads/Deployment/other", anyone); response.StatusCode != http.StatusNotFound {
		t.Errorf("a workload that does not run: %d %s, want 404", response.StatusCode, body)
	}
	if response, body := w.get("/api/v1/namespaces/shop/workloads/Deploy%20ment/web", anyone); response.StatusCode != http.StatusBadRequest {
		t.Errorf("a kind with a blank: %d %s, want 400", response.StatusCode, body)
	}
	api.allowed = allowOnlyIn("blog")
	w.clock.Step(2 * decisionTTL)
	if response, body := w.get("/api/v1/namespaces/shop/workloads/Deployment/web", anyone); response.StatusCode != http.StatusForbidden {
		t.Errorf("a caller who does not see shop: %d %s, want 403", response.StatusCode, body)
	}
}

// TestWorkloadScannedTwice: an image that one of two scanners has a result of is scanned, and only what neither analyses is not covered.
func TestWorkloadScannedTwice(t *testing.T) {
	scan := func(phase restv1.Phase, digest string, notCovered ...string) restv1.WorkloadImage {
		return restv1.WorkloadImage{Digest: digest, Platform: "linux/amd64", Phase: phase, NotCovered: notCovered}
	}
	got := notCoveredOf([]restv1.WorkloadImage{
		scan(restv1.PhaseScanned, "a", "npm", "rust"), scan(restv1.PhaseScanned, "a", "rust"), scan(restv1.PhaseFailed, "b"), scan(restv1.PhaseScanned, "b"),
		scan(restv1.PhaseFailed, "c"), scan(restv1.PhasePending, "c"), scan(restv1.PhaseMatching, "d"),
	}, nil)
	if diff := cmp.Diff(restv1.NotCovered{Pending: 1, Failed: 1, PartlyAnalysed: 1, Ecosystems: []string{"rust"}}, got); diff != "" {
		t.Errorf("not covered (-want +got):\n%s", diff)
	}
}
