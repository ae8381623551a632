package restapi

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// TestClusterScannerCoverage: a ClusterScanner's coverage is returned completely, and each one is on exactly one page.
func TestClusterScannerCoverage(t *testing.T) {
	w, _ := newFakeHarness(t)
	w.createClusterScanner("platform", func(s *v1alpha1.ClusterScanner) {
		s.Spec.Suspend = ptr.To(true)
		s.Status = v1alpha1.ClusterScannerStatus{
			ScannerStatus: v1alpha1.ScannerStatus{
				Images:            v1alpha1.ImageCounts{Total: 10, Scanned: 4, Pending: 3, Failed: 2, Excluded: 1, RecentlyUsed: 7},
				Findings:          v1alpha1.FindingCounts{Critical: 1, High: 2, KnownExploited: 8},
				VulnerabilityData: &v1alpha1.VulnerabilityData{BuildTime: metav1.NewTime(noon.Add(-2 * time.Hour)), Tool: "grype 0.110.0"},
				Conditions:        []metav1.Condition{{Type: "Ready", Status: "False", Reason: "Scanning", LastTransitionTime: metav1.NewTime(noon)}},
			},
			Namespaces:    v1alpha1.NamespaceCounts{Selected: 15, Covered: 5, Own: 4, Excluded: 3, Terminating: 2, NotWatched: 1},
			TopNamespaces: []v1alpha1.NamespaceFindings{{Name: "shop", KnownExploited: 8, Critical: 1, High: 2, Fixable: 3}},
		}
	})
	for i := range 4 {
		w.createClusterScanner(fmt.Sprint("other-", i))
	}
	want := restv1.ClusterScanner{
		Name: "platform", Engine: "Grype", Suspended: true,
		Namespaces:        restv1.NamespaceCounts{Selected: 15, Covered: 5, Own: 4, Excluded: 3, Terminating: 2, NotWatched: 1},
		TopNamespaces:     []restv1.NamespaceFindings{{Name: "shop", KnownExploited: 8, Critical: 1, High: 2, Fixable: 3}},
		Images:            restv1.ImageCounts{Total: 10, Scanned: 4, Pending: 3, Failed: 2, Excluded: 1, RecentlyUsed: 7},
		Findings:          restv1.FindingCounts{Critical: 1, High: 2, KnownExploited: 8},
		VulnerabilityData: restv1.VulnerabilityData{BuildTime: noon.Add(-2 * time.Hour), AgeSeconds: 7200, Tool: "grype 0.110.0"},
		Conditions:        []restv1.Condition{{Type: "Ready", Status: "False", Reason: "Scanning", LastTransitionTime: noon}},
		Problems:          []restv1.ScannerProblem{restv1.ProblemSuspended, restv1.ProblemFailedImages},
	}
	one, err := w.clientFor(anyone).GetClusterScannerWithResponse(t.Context(), "platform")
	w.must(err)
	if diff := cmp.Diff(&want, one.JSON200); diff != "" {
		t.Errorf("the ClusterScanner (-want +got):\n%s", diff)
	}
	for limit := 1; limit < 7; limit++ {
		var names []string
		params := restv1.ListClusterScannersParams{Limit: &limit}
		for first := true; first || params.Continue != nil; first = false {
			page, err := w.clientFor(anyone).ListClusterScannersWithResponse(t.Context(), &params)
			w.must(err)
			if page.JSON200.Total != 5 || len(page.JSON200.Items) > limit {
				t.Fatalf("a page of at most %d has %d of %d ClusterScanners, want 5 in all", limit, len(page.JSON200.Items), page.JSON200.Total)
			}
			for _, s := range page.JSON200.Items {
				names = append(names, s.Name)
			}
			params.Continue = nextPage(page.JSON200.Continue)
		}
		if got := strings.Join(names, " "); got != "other-0 other-1 other-2 other-3 platform" {
			t.Errorf("with pages of %d: ClusterScanners %q", limit, got)
		}
	}
	missing, err := w.clientFor(anyone).GetClusterScannerWithResponse(t.Context(), "missing")
	w.must(err)
	if p := missing.ApplicationProblemJSONDefault; missing.StatusCode() != http.StatusNotFound || p.Detail != `there is no clusterscanner.scanner-operator.io "missing"` {
		t.Errorf("a ClusterScanner that does not exist: %d %s", missing.StatusCode(), missing.Body)
	}
}

// withoutClusterScanners allows everything except what is about ClusterScanners.
func withoutClusterScanners(spec authorizationv1.SubjectAccessReviewSpec) bool {
	return spec.ResourceAttributes.Resource != resourceClusterScanners
}

// TestResultsOfClusterScanner: who may see the ImageScans of a namespace sees the results of a ClusterScanner there, without a permission on
// ClusterScanners, and only those of images that the ClusterScanner has in that namespace.
func TestResultsOfClusterScanner(t *testing.T) {
	w, api := newFakeHarness(t)
	api.allowed = withoutClusterScanners
	w.createNamespaces("shop", "blog")
	platform := w.createClusterScanner("platform")
	w.createScannedIn("shop", platform, "web", vulnerable("CVE-2026-0001", "openssl"))
	scan, err := w.clientFor(anyone).GetImageScanWithResponse(t.Context(), "shop", "web")
	w.must(err)
	if want := (restv1.ScannerReference{Kind: restv1.KindClusterScanner, Name: "platform"}); scan.JSON200 == nil || scan.JSON200.Scanner != want {
		t.Errorf("the ImageScan is %s, want the scanner %+v", scan.Body, want)
	}
	if got := ids(w.findings("shop", "web", restv1.ListFindingsParams{})); got != "0001" {
		t.Errorf("findings: %q, want 0001", got)
	}
	const path = "/api/v1/namespaces/shop/imagescans/web/"
	for _, what := range []string{"sbom", "cyclonedx", "openvex"} {
		if response, body := w.get(path+what, anyone); response.StatusCode != http.StatusOK {
			t.Errorf("%s: %d %s", what, response.StatusCode, body)
		}
	}
	if response, body := w.get("/api/v1/clusterscanners/platform", anyone); response.StatusCode != http.StatusForbidden ||
		!strings.Contains(string(body), "scanner-operator-cluster-view") {
		t.Errorf("the ClusterScanner itself: %d %s, want a refusal that names the role", response.StatusCode, body)
	}

	// A user in blog may write ImageScans, and names an image that runs in shop only, or a Scanner that does not own the ImageScan.
	w.createScanIn("blog", platform, "web")
	w.createScanIn("blog", platform, "renamed", func(s *v1alpha1.ImageScan) { s.Spec.ScannerRef.Kind = v1alpha1.KindScanner })
	for _, name := range []string{"web", "renamed"} {
		for _, what := range []string{"findings", "sbom", "cyclonedx"} {
			if response, body := w.get("/api/v1/namespaces/blog/imagescans/"+name+"/"+what, anyone); response.StatusCode < 400 {
				t.Errorf("%s of %s in blog: %d %s, want a refusal", what, name, response.StatusCode, body)
			}
		}
	}
}

// TestWorkloadsOfClusterScanner: workloads in the namespaces that a ClusterScanner covers are found, and what is not known about them is
// counted for the namespaces that the caller may see, and for no other.
func TestWorkloadsOfClusterScanner(t *testing.T) {
	w, api := newFakeHarness(t)
	w.createNamespaces("shop", "blog", "kube-system")
	platform := w.createClusterScanner("platform", func(s *v1alpha1.ClusterScanner) {
		s.Spec.ExcludeNamespaces = []string{"kube-system"}
		s.Status.ObservedGeneration, s.Status.Images = 1, v1alpha1.ImageCounts{Total: 9, Scanned: 2, Pending: 4, Failed: 3}
	})
	w.must(w.cluster.Create(t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node"}, Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{OperatingSystem: "linux", Architecture: "amd64"}},
	}))
	for _, namespace := range []string{"shop", "blog"} {
		w.createScannedIn(namespace, platform, "of-"+namespace, vulnerable("CVE-2026-0001", "openssl"))
		w.createPod(namespace, "of-"+namespace)
	}
	w.createScanIn("shop", platform, "new", func(s *v1alpha1.ImageScan) { s.Status = v1alpha1.ImageScanStatus{Phase: v1alpha1.PhasePending} })
	w.createPod("shop", "new")
	w.createScanIn("shop", platform, "failing", func(s *v1alpha1.ImageScan) {
		s.Status = v1alpha1.ImageScanStatus{Phase: v1alpha1.PhaseFailed, Attempts: 1}
	})
	w.createPod("shop", "failing")
	everywhere, onlyShop, onlyBlog := func(authorizationv1.SubjectAccessReviewSpec) bool { return true }, allowOnlyIn("shop"), allowOnlyIn("blog")
	for name, tt := range map[string]struct {
		allowed    func(authorizationv1.SubjectAccessReviewSpec) bool
		namespace  *string
		namespaces string
		scanners   int
		missing    restv1.NotCovered
	}{
		"all namespaces":        {everywhere, nil, "blog shop", 1, restv1.NotCovered{Pending: 4, Failed: 3}},
		"one of all":            {everywhere, ptr.To("shop"), "shop", 1, restv1.NotCovered{Pending: 1, Failed: 1}},
		"those that one sees":   {onlyShop, nil, "shop", 1, restv1.NotCovered{Pending: 1, Failed: 1}},
		"a complete one":        {onlyBlog, nil, "blog", 1, restv1.NotCovered{}},
		"one that is left out":  {everywhere, ptr.To("kube-system"), "", 0, restv1.NotCovered{}},
		"one that is not there": {everywhere, ptr.To("nowhere"), "", 0, restv1.NotCovered{}},
	} {
		api.allowed = tt.allowed
		w.clock.Step(2 * decisionTTL)
		answer, err := w.clientFor(anyone).ListWorkloadsWithResponse(t.Context(), "CVE-2026-0001", &restv1.ListWorkloadsParams{Namespace: tt.namespace})
		w.must(err)
		if answer.JSON200 == nil {
			t.Errorf("%s: %d %s", name, answer.StatusCode(), answer.Body)
			continue
		}
		var namespaces []string
		for _, workload := range answer.JSON200.Items {
			namespaces = append(namespaces, workload.Namespace)
		}
		if got := strings.Join(namespaces, " "); got != tt.namespaces || answer.JSON200.Scanners != tt.scanners {
			t.Errorf("%s: workloads in %q of %d scanners, want %q of %d", name, got, answer.JSON200.Scanners, tt.namespaces, tt.scanners)
		}
		if diff := cmp.Diff(tt.missing, answer.JSON200.NotCovered); diff != "" {
			t.Errorf("%s: not covered (-want +got):\n%s", name, diff)
		}
	}
}

// createPod creates a pod that runs the image with this name on the node "node".
func (w *harness) createPod(namespace, name string) {
	w.t.Helper()
	reference := "ghcr.io/" + namespace + "/" + name
	w.must(w.cluster.Create(w.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       corev1.PodSpec{NodeName: "node", Containers: []corev1.Container{{Name: "main", Image: reference + ":1"}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{
			Name: "main", ImageID: reference + "@" + key(name).Digest, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
		}}},
	}))
}

// TestMessagesOfClusterScanner: the messages of a ClusterScanner are listed, and not those of a Scanner with its name.
func TestMessagesOfClusterScanner(t *testing.T) {
	w, _ := newFakeHarness(t)
	platform, own := w.createClusterScanner("platform"), w.createScanner("shop", "platform")
	for _, scanner := range []v1alpha1.GenericScanner{platform, own} {
		w.must(w.store.RecordAnnouncement(t.Context(), string(scanner.GetUID()), "team", store.Announcement{
			MessageID: fmt.Sprintf("%032s", scanner.ScannerKind()), At: noon,
			LogEntry: &store.Message{Kind: "News", Title: "of the " + string(scanner.ScannerKind()), Body: []byte(`{"id":"1"}`)},
		}))
	}
	page, err := w.clientFor(anyone).ListClusterScannerMessagesWithResponse(t.Context(), "platform", nil)
	w.must(err)
	var titles []string
	for _, m := range page.JSON200.Items {
		titles = append(titles, m.Title)
	}
	if !slices.Equal(titles, []string{"of the ClusterScanner"}) {
		t.Errorf("the messages are %q, want that of the ClusterScanner", titles)
	}
	if rendered := page.JSON200.Items[0].Slack; rendered == nil || rendered.Text != `{"id":"1"}` || string(rendered.Blocks) != `[{"type":"divider"}]` {
		t.Errorf("the message for Slack is %+v", rendered)
	}
	if other, err := w.clientFor(anyone).ListClusterScannerMessagesWithResponse(t.Context(), "platform", &restv1.ListClusterScannerMessagesParams{Receiver: ptr.To("other")}); err != nil || len(other.JSON200.Items) != 0 {
		t.Errorf("the messages to another receiver: %s (%v)", other.Body, err)
	}
}

// TestMessagesOfChannels: the filter by a receiver includes the messages to the channels that namespaces have chosen, and each message has its
// channel.
func TestMessagesOfChannels(t *testing.T) {
	w, _ := newFakeHarness(t)
	platform := w.createClusterScanner("platform")
	for i, destination := range []string{"teams", "teams/#shop", "teams2", "teams2/#shop"} {
		w.must(w.store.RecordAnnouncement(t.Context(), string(platform.UID), destination, store.Announcement{
			MessageID: fmt.Sprintf("%032d", i), At: noon, LogEntry: &store.Message{Kind: "News", Title: destination, Body: []byte(`{"id":"1"}`)},
		}))
	}
	page, err := w.clientFor(anyone).ListClusterScannerMessagesWithResponse(t.Context(), "platform", &restv1.ListClusterScannerMessagesParams{Receiver: ptr.To("teams")})
	w.must(err)
	var got []string
	for _, m := range page.JSON200.Items {
		got = append(got, m.Receiver+" "+m.Channel)
	}
	if diff := cmp.Diff([]string{"teams #shop", "teams "}, got); diff != "" {
		t.Errorf("receivers and channels (-want +got):\n%s", diff)
	}
}
