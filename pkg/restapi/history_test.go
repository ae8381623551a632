package restapi

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/exception/active"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/history"
)

// TestHistory: the counts of a day are those of the namespaces that the caller sees, and those of today equal what the other pages show now.
func TestHistory(t *testing.T) {
	w, api := newFakeHarness(t)
	w.createNamespaces("blog", "infra", "new", "shop")
	w.createActions() // 2 in shop and 1 in blog
	platform := w.createClusterScanner("platform", func(s *v1alpha1.ClusterScanner) { s.Spec.ExcludeNamespaces = []string{"blog", "shop"} })
	w.createScannedIn("infra", platform, "dns", vulnerable("CVE-2026-0001", "openssl", severity(finding.Critical), fixed))
	w.createScanIn("new", platform, "first", func(s *v1alpha1.ImageScan) { s.Status.Phase = v1alpha1.PhasePending })
	recorder := history.Recorder{
		Reader: w.cluster, Store: w.store, Inventory: w.api.Inventory, Exceptions: active.Source{Reader: w.cluster, Clock: w.clock},
	}
	get := func(params restv1.GetHistoryParams) []restv1.DayOfHistory {
		t.Helper()
		answer, err := w.clientFor(anyone).GetHistoryWithResponse(t.Context(), &params)
		w.must(err)
		if answer.JSON200 == nil {
			t.Fatalf("history: %d %s", answer.StatusCode(), answer.Body)
		}
		return answer.JSON200.Items
	}
	require := func(what string, params restv1.GetHistoryParams, want ...string) {
		t.Helper()
		var got []string
		for _, d := range get(params) {
			got = append(got, fmt.Sprintf("%s %d to act on: %d exploited, %d critical, %d high in %d of %d",
				d.Day, d.ToActOn, d.KnownExploited, d.Critical, d.High, d.Scanned, d.Images))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	everywhere, shop, blog := restv1.GetHistoryParams{}, restv1.GetHistoryParams{Namespace: ptr.To("shop")}, restv1.GetHistoryParams{Namespace: ptr.To("blog")}
	require("before the first record", everywhere)
	w.must(recorder.Record(t.Context()))
	require("everywhere", everywhere, "2026-03-01 4 to act on: 1 exploited, 2 critical, 2 high in 4 of 5")
	require("in shop", shop, "2026-03-01 2 to act on: 0 exploited, 1 critical, 2 high in 2 of 2")
	require("in a namespace without a result", restv1.GetHistoryParams{Namespace: ptr.To("new")})

	w.createException("shop", "accepted", "CVE-2026-0001")
	w.clock.Step(24 * time.Hour)
	w.must(recorder.Record(t.Context()))
	require("in shop with an exception", shop,
		"2026-03-01 2 to act on: 0 exploited, 1 critical, 2 high in 2 of 2", "2026-03-02 1 to act on: 0 exploited, 0 critical, 2 high in 2 of 2")
	require("today", restv1.GetHistoryParams{Days: ptr.To(1)}, "2026-03-02 3 to act on: 1 exploited, 1 critical, 2 high in 4 of 5")

	today, ends := get(everywhere)[1], 0
	actions, err := w.clientFor(anyone).ListActionsWithResponse(t.Context(), &restv1.ListActionsParams{})
	w.must(err)
	for _, r := range actions.JSON200.Items {
		for _, a := range r.Actions {
			ends += len(a.Ends)
		}
	}
	if today.ToActOn != ends {
		t.Errorf("%d to act on today, and the updates end %d", today.ToActOn, ends)
	}
	overview, err := w.clientFor(anyone).GetOverviewWithResponse(t.Context(), &restv1.GetOverviewParams{})
	w.must(err)
	if diff := cmp.Diff(get(everywhere), overview.JSON200.History); diff != "" {
		t.Errorf("the overview's history (-want +got):\n%s", diff)
	}

	api.allowed = allowOnlyIn("blog", "infra")
	w.clock.Step(2 * decisionTTL)
	require("for a caller who sees two namespaces", restv1.GetHistoryParams{Days: ptr.To(1)}, "2026-03-02 2 to act on: 1 exploited, 1 critical, 0 high in 2 of 2")
	require("in blog", blog, "2026-03-01 1 to act on: 1 exploited, 0 critical, 0 high in 1 of 1", "2026-03-02 1 to act on: 1 exploited, 0 critical, 0 high in 1 of 1")
	for _, days := range []string{"0", "91", "-1", "1.5", "x"} {
		if response, body := w.get("/api/v1/history?days="+days, anyone); response.StatusCode != http.StatusBadRequest {
			t.Errorf("days=%s: %d %s, want 400", days, response.StatusCode, body)
		}
	}
}
