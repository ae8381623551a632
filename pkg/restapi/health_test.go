package restapi

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// TestProblems: what keeps a scanner's results from being complete, current or announced is a problem, and nothing else is.
func TestProblems(t *testing.T) {
	condition := func(kind, status, reason string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: metav1.ConditionStatus(status), Reason: reason}
	}
	for name, tt := range map[string]struct {
		conditions []metav1.Condition
		failed     int32
		suspend    bool
		want       []restv1.ScannerProblem
	}{
		"new": {},
		"healthy": {conditions: []metav1.Condition{
			condition(v1alpha1.ConditionReady, "True", v1alpha1.ReasonScanned), condition(v1alpha1.ConditionBackendAvailable, "True", v1alpha1.ReasonAvailable),
			condition(v1alpha1.ConditionNotificationsDelivered, "True", v1alpha1.ReasonDelivered),
		}},
		"messages wait":     {conditions: []metav1.Condition{condition(v1alpha1.ConditionNotificationsDelivered, "True", v1alpha1.ReasonDeliveryPending)}},
		"outdated data":     {conditions: []metav1.Condition{condition(v1alpha1.ConditionBackendAvailable, "True", v1alpha1.ReasonDataOutdated)}, want: []restv1.ScannerProblem{restv1.ProblemDataOutdated}},
		"an anomaly":        {conditions: []metav1.Condition{condition(v1alpha1.ConditionBackendAvailable, "True", v1alpha1.ReasonDataAnomaly)}, want: []restv1.ScannerProblem{restv1.ProblemDataOutdated}},
		"no data":           {conditions: []metav1.Condition{condition(v1alpha1.ConditionBackendAvailable, "False", v1alpha1.ReasonNoVulnerabilityData)}, want: []restv1.ScannerProblem{restv1.ProblemEngineUnavailable}},
		"failing":           {conditions: []metav1.Condition{condition(v1alpha1.ConditionNotificationsDelivered, "False", v1alpha1.ReasonDeliveryFailed)}, want: []restv1.ScannerProblem{restv1.ProblemMessagesFailing}},
		"an invalid time":   {conditions: []metav1.Condition{condition(v1alpha1.ConditionNotificationsDelivered, "False", v1alpha1.ReasonInvalidTime)}, want: []restv1.ScannerProblem{restv1.ProblemMessagesFailing}},
		"no receiver":       {conditions: []metav1.Condition{condition(v1alpha1.ConditionNotificationsDelivered, "True", v1alpha1.ReasonNoReceivers)}, want: []restv1.ScannerProblem{restv1.ProblemNoReceiver}},
		"stalled":           {conditions: []metav1.Condition{condition(v1alpha1.ConditionStalled, "True", v1alpha1.ReasonTooManyImages)}, want: []restv1.ScannerProblem{restv1.ProblemStalled}},
		"suspended, failed": {failed: 1, suspend: true, want: []restv1.ScannerProblem{restv1.ProblemSuspended, restv1.ProblemFailedImages}},
	} {
		t.Run(name, func(t *testing.T) {
			status := &v1alpha1.ScannerStatus{Conditions: tt.conditions, Images: v1alpha1.ImageCounts{Failed: tt.failed}}
			scanner := &v1alpha1.Scanner{Spec: v1alpha1.ScannerSpec{ScanSettings: v1alpha1.ScanSettings{Suspend: &tt.suspend}}, Status: *status}
			stale := slices.ContainsFunc(tt.want, func(p restv1.ScannerProblem) bool {
				return p == restv1.ProblemStalled || p == restv1.ProblemSuspended || p == restv1.ProblemEngineUnavailable || p == restv1.ProblemDataOutdated
			})
			if v1alpha1.IsStale(scanner) != stale {
				t.Errorf("IsStale is %t, and the problems are %q", !stale, tt.want)
			}
			if got := problemsOf(status, &tt.suspend); !slices.Equal(got, tt.want) {
				t.Errorf("problems %q, want %q", got, tt.want)
			}
		})
	}
}

// TestHealthOfOverview: the overview counts problems of the scanners that the caller sees, and as many namespaces as the list has that it links.
func TestHealthOfOverview(t *testing.T) {
	w, api := newFakeHarness(t)
	w.createNamespaces("shop", "blog", "forgotten", "kube-system")
	silent := func(s *v1alpha1.ScannerStatus) {
		s.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionNotificationsDelivered, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonNoReceivers}}
	}
	w.createScanner("shop", "main", func(s *v1alpha1.Scanner) { silent(&s.Status); s.Status.Images.Failed = 2 })
	w.createScanner("blog", "main", func(s *v1alpha1.Scanner) { silent(&s.Status) })
	w.createClusterScanner("platform", func(s *v1alpha1.ClusterScanner) {
		silent(&s.Status.ScannerStatus)
		s.Spec.ExcludeNamespaces = []string{"kube-system"}
		s.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"no": "namespace"}}
	})
	health := func(namespace *string) restv1.Health {
		t.Helper()
		w.clock.Step(2 * decisionTTL) // the earlier decisions are remembered until then
		answer, err := w.clientFor(anyone).GetOverviewWithResponse(t.Context(), &restv1.GetOverviewParams{Namespace: namespace})
		w.must(err)
		return answer.JSON200.Health
	}
	check := func(who string, got, want restv1.Health) {
		t.Helper()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("health for %s (-want +got):\n%s", who, diff)
		}
	}
	failed := restv1.ProblemCount{Problem: restv1.ProblemFailedImages, Scanners: 1}
	all := health(nil)
	check("an administrator", all, restv1.Health{UnscannedNamespaces: 1, Scanners: []restv1.ProblemCount{failed, {Problem: restv1.ProblemNoReceiver, Scanners: 2, ClusterScanners: 1}}})
	list, err := w.clientFor(anyone).ListNamespacesWithResponse(t.Context(), &restv1.ListNamespacesParams{Scanned: ptr.To(false), Excluded: ptr.To(false)})
	w.must(err)
	if list.JSON200.Total != all.UnscannedNamespaces || list.JSON200.Items[0].Name != "forgotten" {
		t.Errorf("the list has %+v, the overview counts %d", list.JSON200.Items, all.UnscannedNamespaces)
	}
	wide, err := w.clientFor(anyone).ListClusterScannersWithResponse(t.Context(), &restv1.ListClusterScannersParams{Namespace: ptr.To("blog")})
	w.must(err)
	if wide.JSON200.Total != 0 {
		t.Errorf("ClusterScanners of blog: %+v, want none, as the overview counts", wide.JSON200.Items)
	}
	check("a namespace", health(ptr.To("blog")), restv1.Health{Scanners: []restv1.ProblemCount{{Problem: restv1.ProblemNoReceiver, Scanners: 1}}})
	api.allowed = allowOnlyIn("shop")
	check("a member of shop", health(nil), restv1.Health{Scanners: []restv1.ProblemCount{failed, {Problem: restv1.ProblemNoReceiver, Scanners: 1}}})
}

// TestStaleScanners: no response is complete while results may lack what became known of late, whoever asks and however. Images that are excluded
// are counted.
func TestStaleScanners(t *testing.T) {
	w, api := newFakeHarness(t)
	condition := func(kind, status, reason string) func(*v1alpha1.Scanner) {
		return func(s *v1alpha1.Scanner) {
			s.Status.ObservedGeneration, s.Status.Images.Excluded = 1, 2
			s.Status.Conditions = []metav1.Condition{{Type: kind, Status: metav1.ConditionStatus(status), Reason: reason}}
		}
	}
	for namespace, change := range map[string]func(*v1alpha1.Scanner){
		"current":   condition(v1alpha1.ConditionBackendAvailable, "True", v1alpha1.ReasonAvailable),
		"outdated":  condition(v1alpha1.ConditionBackendAvailable, "True", v1alpha1.ReasonDataOutdated),
		"anomaly":   condition(v1alpha1.ConditionBackendAvailable, "True", v1alpha1.ReasonDataAnomaly),
		"engine":    condition(v1alpha1.ConditionBackendAvailable, "False", v1alpha1.ReasonNoVulnerabilityData),
		"stalled":   condition(v1alpha1.ConditionStalled, "True", v1alpha1.ReasonTooManyImages),
		"suspended": func(s *v1alpha1.Scanner) { s.Status.ObservedGeneration, s.Spec.Suspend = 1, ptr.To(true) },
	} {
		scanner := w.createScanner(namespace, "main", change)
		w.createScanned(scanner, "web-of-"+namespace)
		w.setUsed(scanner, "web-of-"+namespace, store.Cluster, "web")
	}
	check := func(what string, got restv1.NotCovered, stale int) {
		t.Helper()
		if diff := cmp.Diff(restv1.NotCovered{StaleScanners: stale}, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: not covered (-want +got):\n%s", what, diff)
		}
	}
	for namespace, stale := range map[string]int{"current": 0, "outdated": 1, "anomaly": 1, "engine": 1, "stalled": 1, "suspended": 1} {
		client := w.clientFor(anyone)
		list, err := client.ListVulnerabilitiesWithResponse(t.Context(), &restv1.ListVulnerabilitiesParams{Namespace: &namespace})
		w.must(err)
		check("vulnerabilities in "+namespace, list.JSON200.Coverage.NotCovered, stale)
		runs, err := client.ListWorkloadsWithResponse(t.Context(), "CVE-2026-0001", &restv1.ListWorkloadsParams{Namespace: &namespace})
		w.must(err)
		check("who runs it in "+namespace, runs.JSON200.NotCovered, stale)
		workload, err := client.GetWorkloadWithResponse(t.Context(), namespace, "Deployment", "web")
		w.must(err)
		check("a workload of "+namespace, workload.JSON200.NotCovered, stale)
		workloads, err := client.ListRunningWorkloadsWithResponse(t.Context(), &restv1.ListRunningWorkloadsParams{Namespace: &namespace})
		w.must(err)
		check("the workloads of "+namespace, workloads.JSON200.Items[0].NotCovered, stale)
		response, _ := w.get("/api/v1/vulnerabilities.csv?namespace="+namespace, anyone)
		if name := response.Header.Get("Content-Disposition"); strings.Contains(name, "incomplete") != (stale > 0) {
			t.Errorf("the CSV of %s is called %s", namespace, name)
		}
	}
	all, err := w.clientFor(anyone).ListVulnerabilitiesWithResponse(t.Context(), &restv1.ListVulnerabilitiesParams{})
	w.must(err)
	check("all namespaces", all.JSON200.Coverage.NotCovered, 5)
	if got := all.JSON200.Coverage.Excluded; got != 10 {
		t.Errorf("%d images are excluded, want the 10 of all Scanners", got)
	}
	api.allowed = allowOnlyIn("current")
	w.clock.Step(2 * decisionTTL)
	one, err := w.clientFor(anyone).ListVulnerabilitiesWithResponse(t.Context(), &restv1.ListVulnerabilitiesParams{})
	w.must(err)
	check("a caller who sees one namespace", one.JSON200.Coverage.NotCovered, 0)
}
