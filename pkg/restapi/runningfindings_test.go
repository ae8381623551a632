package restapi

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// runningFindings lists the findings of all images that run, page by page, as "namespace/ImageScan ID".
func (w *harness) runningFindings(token string, params restv1.ListRunningFindingsParams, betweenPages ...func()) (lines []string) {
	w.t.Helper()
	for first := true; first || params.Continue != nil; first = false {
		page, err := w.clientFor(token).ListRunningFindingsWithResponse(w.t.Context(), &params)
		w.must(err)
		if page.JSON200 == nil {
			w.t.Fatalf("findings: %d %s", page.StatusCode(), page.Body)
		}
		if n := len(page.JSON200.Items); params.Limit != nil && n > *params.Limit {
			w.t.Fatalf("a page has %d findings, want at most %d", n, *params.Limit)
		}
		for _, item := range page.JSON200.Items {
			lines = append(lines, item.Namespace+"/"+item.ImageScan+" "+item.Finding.ID[len(item.Finding.ID)-4:])
		}
		params.Continue = nextPage(page.JSON200.Continue)
		if first && len(betweenPages) > 0 {
			betweenPages[0]()
		}
	}
	return lines
}

// TestRunningFindings: each caller gets the findings of the images that run in its namespaces and pass the filters, and learns what is not scanned.
func TestRunningFindings(t *testing.T) {
	w, api := newFakeHarness(t)
	w.createTwoTeams()
	shop := &v1alpha1.Scanner{}
	w.must(w.cluster.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "main"}, shop))
	change := func(name string, to func(*v1alpha1.ImageScan)) {
		scan := &v1alpha1.ImageScan{}
		w.must(w.cluster.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: name}, scan))
		to(scan)
		w.must(w.cluster.Status().Update(t.Context(), scan))
	}
	w.createScan(shop, "pending")
	w.createScanned(shop, "left", vulnerable("CVE-2026-0009", "zlib"))
	change("left", func(s *v1alpha1.ImageScan) { s.Status.UnusedSinceTime = ptr.To(metav1.NewTime(noon)) })
	// The ImageScan lists the first of its workloads, and the store has all.
	others := []string{"front", "a", "b", "c", "d", "e", "f", "g", "h", "i", "j"}
	w.setUsed(shop, "web", store.Cluster, others...)
	change("web", func(s *v1alpha1.ImageScan) {
		s.Status.WorkloadCount = int32(len(others))
		for _, name := range others[1:] {
			s.Status.Workloads = append(s.Status.Workloads, "Deployment/"+name)
		}
	})
	w.createException("shop", "accepted", "CVE-2026-0001")
	blog, web := []string{"blog/blog 0001", "blog/blog 0003"}, []string{"shop/web 0002", "shop/web 0001"}
	for name, tt := range map[string]struct {
		params restv1.ListRunningFindingsParams
		want   []string
	}{
		"all":            {restv1.ListRunningFindingsParams{}, slices.Concat(blog, web)},
		"one per page":   {restv1.ListRunningFindingsParams{Limit: ptr.To(1)}, slices.Concat(blog, web)},
		"a namespace":    {restv1.ListRunningFindingsParams{Namespace: ptr.To("shop")}, web},
		"severity":       {restv1.ListRunningFindingsParams{MinSeverity: ptr.To(restv1.SeverityHigh)}, web},
		"exploited":      {restv1.ListRunningFindingsParams{KnownExploited: ptr.To(true)}, web[:1]},
		"fixable":        {restv1.ListRunningFindingsParams{Fixable: ptr.To(true)}, web[1:]},
		"a package":      {restv1.ListRunningFindingsParams{Package: ptr.To("zlib")}, blog[1:]},
		"an alias":       {restv1.ListRunningFindingsParams{ID: ptr.To("ghsa-aaaa-bbbb-cccc")}, []string{blog[0], web[1]}},
		"not suppressed": {restv1.ListRunningFindingsParams{Suppressed: ptr.To(false)}, slices.Concat(blog, web[:1])},
		"suppressed":     {restv1.ListRunningFindingsParams{Suppressed: ptr.To(true)}, web[1:]},
		"a reference":    {restv1.ListRunningFindingsParams{Image: ptr.To("shop/web")}, web},
		"a digest":       {restv1.ListRunningFindingsParams{Image: ptr.To(key("blog").Digest)}, blog},
		"a workload":     {restv1.ListRunningFindingsParams{Workload: ptr.To("deployment/front")}, web},
		"its name":       {restv1.ListRunningFindingsParams{Workload: ptr.To("front")}, web},
		"no workload":    {restv1.ListRunningFindingsParams{Workload: ptr.To("Pod/front")}, nil},
	} {
		if diff := cmp.Diff(tt.want, w.runningFindings(anyone, tt.params)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	api.allowed = allowOnlyIn("shop")
	w.clock.Step(2 * decisionTTL) // the earlier decisions are remembered until then
	if diff := cmp.Diff(web, w.runningFindings(anyone, restv1.ListRunningFindingsParams{})); diff != "" {
		t.Errorf("for a caller who may see shop only (-want +got):\n%s", diff)
	}
	if page, err := w.clientFor(anyone).ListRunningFindingsWithResponse(t.Context(), &restv1.ListRunningFindingsParams{Namespace: ptr.To("blog")}); err != nil || page.StatusCode() != 403 {
		t.Errorf("another namespace: %s (%v), want 403", page.Body, err)
	}
}

// TestRunningFindingsWhileAReportIsReplaced: no finding is left out, and the images before are not listed again.
func TestRunningFindingsWhileAReportIsReplaced(t *testing.T) {
	w, _ := newFakeHarness(t)
	scanner := w.createScanner("shop", "main")
	w.createScanned(scanner, "a", vulnerable("CVE-2026-0001", "zlib"))
	w.createScanned(scanner, "b", vulnerable("CVE-2026-0002", "zlib"), vulnerable("CVE-2026-0003", "zlib", severity(finding.Low)))
	got := w.runningFindings(anyone, restv1.ListRunningFindingsParams{Limit: ptr.To(2)}, func() {
		w.saveReportOfData("b", "2", vulnerable("CVE-2026-0004", "zlib", exploited), vulnerable("CVE-2026-0003", "zlib", severity(finding.Low)))
	})
	if want := "shop/a 0001 shop/b 0002 shop/b 0004 shop/b 0003"; strings.Join(got, " ") != want {
		t.Errorf("findings: %q, want %q", got, want)
	}
}

// TestRunningFindingsOfManyImages: a request reads a bounded number of images, and a page without findings still has a next one.
func TestRunningFindingsOfManyImages(t *testing.T) {
	w, _ := newFakeHarness(t)
	scanner := w.createScanner("shop", "main")
	for i := range maxRunningImages {
		w.createScan(scanner, fmt.Sprintf("pending-%03d", i))
	}
	w.createScanned(scanner, "web", vulnerable("CVE-2026-0001", "zlib"))
	first, err := w.clientFor(anyone).ListRunningFindingsWithResponse(t.Context(), &restv1.ListRunningFindingsParams{})
	w.must(err)
	if len(first.JSON200.Items) != 0 || first.JSON200.Continue == "" {
		t.Errorf("the first page is %s, want no findings and a next page", first.Body)
	}
	if got := w.runningFindings(anyone, restv1.ListRunningFindingsParams{}); !slices.Equal(got, []string{"shop/web 0001"}) {
		t.Errorf("findings of all pages: %q", got)
	}
}

// slowStore takes a time for each page of findings.
type slowStore struct {
	Store
	take func()
}

func (s slowStore) FindingsPage(ctx context.Context, of store.Subject, f store.FindingFilter, from store.FindingCursor, limit int) (store.FindingPage, error) {
	s.take()
	return s.Store.FindingsPage(ctx, of, f, from, limit)
}

// TestRunningFindingsOfASlowStore: a request returns what it has, and where to go on, before its time is over.
func TestRunningFindingsOfASlowStore(t *testing.T) {
	w, _ := newFakeHarness(t)
	scanner := w.createScanner("shop", "main")
	var want []string
	for i := range 5 {
		w.createScanned(scanner, fmt.Sprintf("web-%d", i), vulnerable("CVE-2026-0001", "zlib"))
		want = append(want, fmt.Sprintf("shop/web-%d 0001", i))
	}
	w.api.Store = slowStore{w.store, func() { w.clock.Step(maxRunningTime / 2) }}
	first, err := w.clientFor(anyone).ListRunningFindingsWithResponse(t.Context(), &restv1.ListRunningFindingsParams{})
	w.must(err)
	if len(first.JSON200.Items) != 2 || first.JSON200.Continue == "" {
		t.Errorf("the first page is %s, want the findings of two images and a next page", first.Body)
	}
	if got := w.runningFindings(anyone, restv1.ListRunningFindingsParams{}); !slices.Equal(got, want) {
		t.Errorf("findings of all pages: %q, want %q", got, want)
	}
}

// TestRunningFindingsOfAnnouncedReports: the findings of an announced source are listed after those of the engine, and those of other sources are not.
func TestRunningFindingsOfAnnouncedReports(t *testing.T) {
	w, _ := newFakeHarness(t)
	scanner := w.createScanner("shop", "main", func(s *v1alpha1.Scanner) {
		s.Spec.ExternalReports.Sources = []v1alpha1.ReportSource{{Name: "ci", Announce: ptr.To(true)}, {Name: "shown"}}
	})
	w.createScanned(scanner, "api", vulnerable("CVE-2026-0001", "zlib"))
	w.createScanned(scanner, "web", vulnerable("CVE-2026-0002", "zlib"), vulnerable("CVE-2026-0003", "curl"))
	w.requireStatus(w.put(reportPath("shop", "web", "ci"), anyone, reportText(-5, "CVE-2026-0002", "CVE-2026-0004")), http.StatusCreated)
	w.requireStatus(w.put(reportPath("shop", "web", "ci")+"?platform=linux/amd64", anyone, reportText(-5, "CVE-2026-0005")), http.StatusCreated)
	w.requireStatus(w.put(reportPath("shop", "web", "shown"), anyone, reportText(-5, "CVE-2026-0006")), http.StatusCreated)
	want := w.runningFindings(anyone, restv1.ListRunningFindingsParams{})
	if len(want) != 6 || want[0] != "shop/api 0001" || want[5] != "shop/web 0005" {
		t.Errorf("findings: %q, want those of the engine, and then those of the source ci", want)
	}
	for limit := 1; limit < 7; limit++ {
		if diff := cmp.Diff(want, w.runningFindings(anyone, restv1.ListRunningFindingsParams{Limit: &limit})); diff != "" {
			t.Errorf("with a limit of %d (-want +got):\n%s", limit, diff)
		}
	}
	page, err := w.clientFor(anyone).ListRunningFindingsWithResponse(t.Context(), &restv1.ListRunningFindingsParams{ID: ptr.To("CVE-2026-0005")})
	w.must(err)
	if len(page.JSON200.Items) != 1 || page.JSON200.Items[0].Engine != "external:ci" {
		t.Errorf("the finding of the source is %s", page.Body)
	}
}
