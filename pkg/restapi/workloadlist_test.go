package restapi

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// TestListRunningWorkloads: each caller gets the workloads of its namespaces with their counts and what of them is not scanned.
func TestListRunningWorkloads(t *testing.T) {
	w, api := newFakeHarness(t)
	shop, blog := w.createScanner("shop", "main"), w.createScanner("blog", "main")
	one := w.createScanned(shop, "one", vulnerable("CVE-2026-0001", "openssl", severity(finding.Critical), fixed), vulnerable("CVE-2026-0002", "zlib", fixed))
	w.setUsed(shop, "two", store.Cluster, "web")
	w.createScan(shop, "two", func(s *v1alpha1.ImageScan) { s.Status.Phase = v1alpha1.PhaseFailed })
	w.setUsed(shop, "three", store.Cluster, "import")
	w.createScanned(blog, "posts", vulnerable("CVE-2026-0003", "curl", exploited, fixed))
	// Another scanner has no result of the same image.
	second := w.createScanner("shop", "second")
	w.setUsed(second, "one", store.Cluster, "web")
	w.createScan(second, "one-again", func(s *v1alpha1.ImageScan) {
		s.Spec.Digest, s.Spec.Platform, s.Status.Phase = one.Spec.Digest, one.Spec.Platform, v1alpha1.PhaseFailed
	})
	w.createException("shop", "accepted", "CVE-2026-0002")

	check := func(what string, params restv1.ListRunningWorkloadsParams, want ...string) {
		t.Helper()
		var got []string
		params.Limit = ptr.To(1)
		for first := true; first || params.Continue != nil; first = false {
			page, err := w.clientFor(anyone).ListRunningWorkloadsWithResponse(t.Context(), &params)
			w.must(err)
			if page.JSON200 == nil {
				t.Fatalf("%s: %d %s", what, page.StatusCode(), page.Body)
			}
			for _, i := range page.JSON200.Items {
				got = append(got, fmt.Sprintf("%s/%s/%s: %d images in %d containers, %d exploited, %d critical, %d high, %d to act on, %d suppressed, %d pending, %d failed", i.Namespace, i.Kind, i.Name,
					i.Images, i.Containers, i.Findings.KnownExploited, i.Findings.Critical, i.Findings.High, i.ToActOn, i.Findings.Suppressed, i.NotCovered.Pending, i.NotCovered.Failed))
			}
			if want := len(want); page.JSON200.Total != want {
				t.Errorf("%s: total %d, want %d", what, page.JSON200.Total, want)
			}
			params.Continue = nextPage(page.JSON200.Continue)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	const (
		posts   = "blog/Deployment/web: 1 images in 1 containers, 1 exploited, 0 critical, 1 high, 1 to act on, 0 suppressed, 0 pending, 0 failed"
		web     = "shop/Deployment/web: 2 images in 1 containers, 0 exploited, 1 critical, 0 high, 1 to act on, 1 suppressed, 0 pending, 1 failed"
		pending = "shop/Deployment/import: 1 images in 1 containers, 0 exploited, 0 critical, 0 high, 0 to act on, 0 suppressed, 1 pending, 0 failed"
	)
	check("everywhere", restv1.ListRunningWorkloadsParams{}, posts, web, pending)
	check("in shop", restv1.ListRunningWorkloadsParams{Namespace: ptr.To("shop")}, web, pending)
	check("with a text", restv1.ListRunningWorkloadsParams{Text: ptr.To("IMP")}, pending)
	check("with another text", restv1.ListRunningWorkloadsParams{Text: ptr.To("nothing")})
	api.allowed = allowOnlyIn("blog")
	w.clock.Step(2 * decisionTTL)
	check("for a caller who sees blog", restv1.ListRunningWorkloadsParams{}, posts)
}

// listingReader counts the lists of ImageScans by namespace.
type listingReader struct {
	client.Reader
	lists map[string]int
}

func (r listingReader) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if _, isScans := list.(*v1alpha1.ImageScanList); isScans {
		r.lists[(&client.ListOptions{}).ApplyOptions(options).Namespace]++
	}
	return r.Reader.List(ctx, list, options...)
}

// TestImageScansAreReadByNamespace: no request holds the ImageScans of all namespaces at once, nor reads those of namespaces that its caller does
// not see.
func TestImageScansAreReadByNamespace(t *testing.T) {
	w, api := newFakeHarness(t)
	w.createTwoTeams()
	for _, of := range []string{"", "shop"} {
		if of != "" {
			api.allowed = allowOnlyIn(of)
			w.clock.Step(2 * decisionTTL)
		}
		for _, path := range []string{"overview", "workloads", "findings", "vulnerabilities", "vulnerabilities/CVE-2026-0001/workloads", "actions"} {
			reader := listingReader{w.cluster, map[string]int{}}
			w.api.Reader = reader
			response, body := w.get("/api/v1/"+path, anyone)
			w.requireStatus(answer{response, body}, http.StatusOK)
			for namespace := range reader.lists {
				if namespace == "" || of != "" && namespace != of {
					t.Errorf("%s for a caller who sees %q reads the ImageScans of %q", path, of, namespace)
				}
			}
		}
	}
}
