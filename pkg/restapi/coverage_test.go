package restapi

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
)

// TestScannerCoverage: a Scanner's coverage is returned completely.
func TestScannerCoverage(t *testing.T) {
	w, _ := newFakeHarness(t)
	w.createScanner("shop", "main", func(s *v1alpha1.Scanner) {
		s.Spec.Suspend = ptr.To(true)
		s.Status = v1alpha1.ScannerStatus{
			Images:            v1alpha1.ImageCounts{Total: 10, Scanned: 4, Pending: 3, Failed: 2, Excluded: 1, RecentlyUsed: 7},
			Findings:          v1alpha1.FindingCounts{Critical: 1, High: 2, Medium: 3, Low: 4, Negligible: 5, Unknown: 6, Fixable: 7, KnownExploited: 8},
			VulnerabilityData: &v1alpha1.VulnerabilityData{BuildTime: metav1.NewTime(noon.Add(-2 * time.Hour)), Tool: "grype 0.110.0"},
			Conditions:        []metav1.Condition{{Type: "Ready", Status: "False", Reason: "Scanning", Message: "3 of 10 images have no result yet", LastTransitionTime: metav1.NewTime(noon)}},
		}
	})
	w.createScanner("shop", "new")
	want := restv1.Scanner{
		Namespace: "shop", Name: "main", Engine: "Grype", Suspended: true,
		Images:            restv1.ImageCounts{Total: 10, Scanned: 4, Pending: 3, Failed: 2, Excluded: 1, RecentlyUsed: 7},
		Findings:          restv1.FindingCounts{Critical: 1, High: 2, Medium: 3, Low: 4, Negligible: 5, Unknown: 6, Fixable: 7, KnownExploited: 8},
		VulnerabilityData: restv1.VulnerabilityData{BuildTime: noon.Add(-2 * time.Hour), AgeSeconds: 7200, Tool: "grype 0.110.0"},
		Conditions:        []restv1.Condition{{Type: "Ready", Status: "False", Reason: "Scanning", Message: "3 of 10 images have no result yet", LastTransitionTime: noon}},
		Problems:          []restv1.ScannerProblem{restv1.ProblemSuspended, restv1.ProblemFailedImages},
	}
	one, err := w.clientFor(anyone).GetScannerWithResponse(t.Context(), "shop", "main")
	w.must(err)
	if diff := cmp.Diff(&want, one.JSON200); diff != "" {
		t.Errorf("the Scanner (-want +got):\n%s", diff)
	}
	all, err := w.clientFor(anyone).ListScannersWithResponse(t.Context(), nil)
	w.must(err)
	fresh := restv1.Scanner{Namespace: "shop", Name: "new", Engine: "Grype", Conditions: []restv1.Condition{}, Problems: []restv1.ScannerProblem{}}
	if diff := cmp.Diff(&restv1.ScannerList{Items: []restv1.Scanner{want, fresh}, Total: 2, AllNamespaces: true}, all.JSON200); diff != "" {
		t.Errorf("all Scanners (-want +got):\n%s", diff)
	}
}

// TestListsInPages: each item is on exactly one page, in order, whatever the page size is.
func TestListsInPages(t *testing.T) {
	w, _ := newFakeHarness(t)
	for i := range 7 {
		s := w.createScanner(fmt.Sprint("n", i%3), fmt.Sprint("s", i))
		if s.Namespace == "n0" {
			for j := range 3 {
				w.createScan(s, fmt.Sprintf("image-%d-%d", j, i))
			}
		}
	}
	wantScanners := "n0/s0 n0/s3 n0/s6 n1/s1 n1/s4 n2/s2 n2/s5"
	wantScans := "image-0-0 image-0-3 image-0-6 image-1-0 image-1-3 image-1-6 image-2-0 image-2-3 image-2-6"
	for limit := 1; limit < 12; limit++ {
		var scanners, scans []string
		params := restv1.ListScannersParams{Limit: &limit}
		for first := true; first || params.Continue != nil; first = false {
			page, err := w.clientFor(anyone).ListScannersWithResponse(t.Context(), &params)
			w.must(err)
			if page.JSON200.Total != 7 || len(page.JSON200.Items) > limit {
				t.Fatalf("a page of at most %d has %d of %d Scanners, want 7 in all", limit, len(page.JSON200.Items), page.JSON200.Total)
			}
			for _, s := range page.JSON200.Items {
				scanners = append(scanners, s.Namespace+"/"+s.Name)
			}
			params.Continue = nextPage(page.JSON200.Continue)
		}
		ofImages := restv1.ListImageScansParams{Limit: &limit}
		for first := true; first || ofImages.Continue != nil; first = false {
			page, err := w.clientFor(anyone).ListImageScansWithResponse(t.Context(), "n0", &ofImages)
			w.must(err)
			for _, s := range page.JSON200.Items {
				scans = append(scans, s.Name)
			}
			ofImages.Continue = nextPage(page.JSON200.Continue)
		}
		if got := strings.Join(scanners, " "); got != wantScanners {
			t.Errorf("with pages of %d: Scanners %q, want %q", limit, got, wantScanners)
		}
		if got := strings.Join(scans, " "); got != wantScans {
			t.Errorf("with pages of %d: ImageScans %q, want %q", limit, got, wantScans)
		}
	}
}

// TestImageScans: an ImageScan is returned completely, and the list can be filtered.
func TestImageScans(t *testing.T) {
	w, _ := newFakeHarness(t)
	a, b := w.createScanner("shop", "a"), w.createScanner("shop", "b")
	at := metav1.NewTime(noon)
	w.createScan(a, "clean", func(s *v1alpha1.ImageScan) {
		s.Status.Findings = &v1alpha1.FindingCounts{}
		s.Status.ScanTime, s.Status.UnusedSinceTime, s.Status.Workloads, s.Status.WorkloadCount = &at, &at, []string{"Deployment/web"}, 1
	})
	w.createScan(a, "failing", func(s *v1alpha1.ImageScan) {
		s.Status = v1alpha1.ImageScanStatus{Phase: v1alpha1.PhaseFailed, Attempts: 3, NextAttemptTime: &at,
			Conditions: []metav1.Condition{{Type: "Ready", Status: "False", Reason: "ImageNotFound", LastTransitionTime: at}}}
	})
	w.createScanIn("shop", w.createClusterScanner("b"), "wide")
	w.createScan(b, "fresh", func(s *v1alpha1.ImageScan) { s.Status = v1alpha1.ImageScanStatus{} })

	clean, err := w.clientFor(anyone).GetImageScanWithResponse(t.Context(), "shop", "clean")
	w.must(err)
	want := restv1.ImageScan{
		Namespace: "shop", Name: "clean", Scanner: restv1.ScannerReference{Kind: restv1.KindScanner, Name: "a"}, Digest: key("clean").Digest, Platform: "linux/amd64", References: []string{"ghcr.io/shop/clean:1"},
		Phase: restv1.PhaseScanned, Findings: &restv1.FindingCounts{}, ScanTime: noon, UnusedSinceTime: noon, Workloads: []string{"Deployment/web"}, WorkloadCount: 1,
		Conditions: []restv1.Condition{}, MayRescan: true,
	}
	if diff := cmp.Diff(&want, clean.JSON200); diff != "" {
		t.Errorf("a clean image (-want +got):\n%s", diff)
	}
	failing, err := w.clientFor(anyone).GetImageScanWithResponse(t.Context(), "shop", "failing")
	w.must(err)
	if got := failing.JSON200; got.Findings != nil || got.Phase != restv1.PhaseFailed || got.Attempts != 3 || !got.NextAttemptTime.Equal(noon) || got.Conditions[0].Reason != "ImageNotFound" {
		t.Errorf("a failed image is %+v, want its failure and no counts", got)
	}
	for name, tt := range map[string]struct {
		params restv1.ListImageScansParams
		want   string
	}{
		"all, those that do not run last": {restv1.ListImageScansParams{}, "failing fresh wide clean"},
		"of a name":                       {restv1.ListImageScansParams{Scanner: ptr.To("b")}, "fresh wide"},
		"of a Scanner":                    {restv1.ListImageScansParams{Scanner: ptr.To("b"), ScannerKind: ptr.To(restv1.KindScanner)}, "fresh"},
		"of ClusterScanners":              {restv1.ListImageScansParams{ScannerKind: ptr.To(restv1.KindClusterScanner)}, "wide"},
		"in a phase":                      {restv1.ListImageScansParams{Phase: ptr.To(restv1.PhaseFailed)}, "failing"},
		"not looked at yet":               {restv1.ListImageScansParams{Phase: ptr.To(restv1.PhasePending)}, "fresh"},
		"both":                            {restv1.ListImageScansParams{Phase: ptr.To(restv1.PhaseScanned), Scanner: ptr.To("a"), ScannerKind: ptr.To(restv1.KindClusterScanner)}, ""},
	} {
		page, err := w.clientFor(anyone).ListImageScansWithResponse(t.Context(), "shop", &tt.params)
		w.must(err)
		var names []string
		for _, s := range page.JSON200.Items {
			names = append(names, s.Name)
		}
		if got := strings.Join(names, " "); got != tt.want || page.JSON200.Total != len(names) {
			t.Errorf("%s: %q (total %d), want %q", name, got, page.JSON200.Total, tt.want)
		}
	}
	missing, err := w.clientFor(anyone).GetImageScanWithResponse(t.Context(), "shop", "missing")
	w.must(err)
	if p := missing.ApplicationProblemJSONDefault; missing.StatusCode() != http.StatusNotFound || p.Reason != restv1.ReasonNotFound || !strings.Contains(p.Detail, `"missing"`) {
		t.Errorf("an ImageScan that does not exist: %d %+v", missing.StatusCode(), p)
	}
}
