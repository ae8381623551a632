package controllers

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/inventory"
	"github.com/scanner-operator/scanner-operator/pkg/preflight"
)

// measured returns the values of all metrics by name without its prefix, followed by the values of the labels other than the Scanner's.
func measured(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			name := strings.TrimPrefix(family.GetName(), "scanner_operator_")
			for _, label := range metric.GetLabel() {
				if label.GetName() != "scanner_namespace" && label.GetName() != "scanner" {
					name += " " + label.GetValue()
				}
			}
			values[name] = metric.GetGauge().GetValue() + metric.GetCounter().GetValue()
		}
	}
	return values
}

// TestScannerMetrics: the metrics of a Scanner follow its status and are removed with the Scanner.
func TestScannerMetrics(t *testing.T) {
	scanner := theScanner()
	u := newUnit(t, scanner, aPod(fixtureNamespace, "a", waiting("c", "nginx", "ErrImagePull")))
	registry := prometheus.NewRegistry()
	u.scanners.Metrics = NewMetrics(registry)
	u.reconcileScanner()
	got := measured(t, registry)
	for name, want := range map[string]float64{
		"images failed": 1, "images scanned": 0, "images pending": 0, "images excluded": 0, "images_failed NotPulled": 1,
		"findings critical": 0, "findings_fixable": 0, "findings_known_exploited": 0, "findings_suppressed": 0,
		"scanner_condition Ready": 1, "scanner_condition BackendAvailable": 1, "receivers working": 0, "receivers failing": 0, "pending_announcements": 0,
		"vulnerability_data_timestamp_seconds Grype": float64(noon.Add(-time.Hour).Unix()), "vulnerability_data_max_age_seconds Grype": (120 * time.Hour).Seconds(),
	} {
		if value, found := got[name]; !found || value != want {
			t.Errorf("%s is %v (%v), want %v", name, value, found, want)
		}
	}
	u.must(u.client.Delete(t.Context(), aPod(fixtureNamespace, "a")))
	u.reconcileScanner()
	if got := measured(t, registry); got["images failed"] != 0 || got["images_failed NotPulled"] != 0 {
		t.Errorf("after the pod has gone: %v", got)
	}
	u.must(u.client.Delete(t.Context(), scanner))
	_, err := u.scanners.Reconcile(t.Context(), requestFor(scanner))
	u.must(client.IgnoreNotFound(err))
	if got := measured(t, registry); len(got) != 0 {
		t.Errorf("a Scanner that has gone is measured: %v", got)
	}
}

// TestSuspendedScannerHasNoOverdueMetrics: a suspended Scanner has no metric of overdue work.
func TestSuspendedScannerHasNoOverdueMetrics(t *testing.T) {
	scanner := theScanner()
	g := gauges{scanner: scanner}
	images := []inventory.CoveredImage{{State: image.Pending, Since: noon}, {State: image.Pending, Since: noon.Add(time.Hour)}}
	g.images(images)
	active := len(g.all)
	scanner.Spec.Suspend = ptr.To(true)
	g = gauges{scanner: scanner}
	g.images(images)
	if len(g.all) != active-1 {
		t.Errorf("suspended it has %d metrics and %d otherwise, want the waiting image's time to be left out", len(g.all), active)
	}
}

// TestFailuresAreCounted: failures are counted by known reasons. All unknown reasons count as one.
func TestFailuresAreCounted(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := NewMetrics(registry)
	for _, reason := range []string{"ImageNotFound", "Invented1", "Invented2", "ImageNotFound", ""} {
		m.countFailure(reason)
	}
	m.countDelivery(&announce.Outcome{Result: announce.Delivered})
	want := map[string]float64{"scan_failures_total ImageNotFound": 2, "scan_failures_total Other": 3, "deliveries_total  " + string(announce.Delivered): 1}
	if diff := cmp.Diff(want, measured(t, registry)); diff != "" {
		t.Errorf("counted (-want +got):\n%s", diff)
	}
}

// TestFailedAttemptsAreCounted: each attempt is counted once, however often its ImageScan is reconciled.
func TestFailedAttemptsAreCounted(t *testing.T) {
	scanner := theScanner()
	scan := scanOf(scanner, web)
	u := newUnit(t, scanner, scan, aPod(fixtureNamespace, "web-1", running("main", web)))
	registry := prometheus.NewRegistry()
	u.scans.Metrics = NewMetrics(registry)
	u.engine.index = fixedResult(backend.Progress{}, &backend.Failure{Reason: "ImageNotFound", Message: "gone"})
	for range 3 {
		u.reconcile(scan)
	}
	if got := measured(t, registry)["scan_failures_total ImageNotFound"]; got != 1 {
		t.Errorf("%v failures were counted, want the one attempt", got)
	}
}

// TestReasonsOfFailuresAreKnown: each reason that an engine declares is in failureReasons.
func TestReasonsOfFailuresAreKnown(t *testing.T) {
	for _, path := range []string{"../pkg/backend/reasons.go", "../workerapi/workerapi.go"} {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		ast.Inspect(file, func(node ast.Node) bool {
			spec, isValue := node.(*ast.ValueSpec)
			if !isValue || !strings.HasPrefix(spec.Names[0].Name, "Reason") || len(spec.Values) == 0 {
				return true
			}
			reason, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			found++
			if !slices.Contains(failureReasons, reason) {
				t.Errorf("%s of %s is counted as %s", reason, path, otherReason)
			}
			return true
		})
		if found == 0 {
			t.Errorf("%s has no reasons: does this test look in the right place?", path)
		}
	}
}

// TestStoreEvents: a store that is not durable causes an event, and so does its recovery. A store that is durable from the start causes
// none.
func TestStoreEvents(t *testing.T) {
	u := newUnit(t, theScanner())
	u.scanners.StoreDurable = false
	u.scanners.StoreAdvice = "give it a volume"
	u.reconcileScanner()
	if got := u.takeEvents(); !slices.Contains(got, "Warning EphemeralVolume give it a volume") {
		t.Errorf("events %q, want that the store is not durable", got)
	}
	u.scanners.StoreDurable = true
	u.reconcileScanner()
	if diff := cmp.Diff([]string{"Normal VolumeMounted the store works and outlives the pod"}, u.takeEvents()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// TestDataEvents: outdated data causes one warning, and renewed data an event with its build time. Newer data alone causes no event.
func TestDataEvents(t *testing.T) {
	u := newUnit(t, theScanner())
	u.reconcileScanner()
	if got := u.takeEvents(); !slices.Contains(got, "Normal Available the engine works, with vulnerability data of "+noon.Add(-time.Hour).Format(time.RFC3339)) {
		t.Errorf("events %q, want that the engine works", got)
	}
	u.engine.problem = "the data is old"
	for range 2 {
		u.reconcileScanner()
	}
	if diff := cmp.Diff([]string{"Warning " + v1alpha1.ReasonDataOutdated + " the data is old"}, u.takeEvents()); diff != "" {
		t.Errorf("events when data is outdated (-want +got):\n%s", diff)
	}
	u.engine.problem, u.engine.version.Built = "", noon
	u.reconcileScanner()
	if diff := cmp.Diff([]string{"Normal Available the engine works, with vulnerability data of " + noon.Format(time.RFC3339)}, u.takeEvents()); diff != "" {
		t.Errorf("events when it is renewed (-want +got):\n%s", diff)
	}
	u.engine.version.Built = noon.Add(time.Hour)
	u.reconcileScanner()
	if got := u.takeEvents(); len(got) != 0 {
		t.Errorf("events %q for newer data", got)
	}
}

// TestUnreadableScannerMetrics: a Scanner whose namespace cannot be read is not ready in its metrics either.
func TestUnreadableScannerMetrics(t *testing.T) {
	u := newUnit(t, theScanner())
	registry := prometheus.NewRegistry()
	u.scanners.Metrics = NewMetrics(registry)
	u.reconcileScanner()
	if ready := measured(t, registry)["scanner_condition Ready"]; ready != 1 {
		t.Fatalf("Ready is %v before, want 1", ready)
	}
	ctx, done := context.WithCancel(t.Context())
	denied := interceptor.NewClient(u.client, interceptor.Funcs{Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
		return nil // the access review stays empty: nothing is allowed
	}})
	u.scanners.Permissions = &preflight.Checker{
		Client: denied, Cache: u.client, OperatorNamespace: "home", Account: "home:manager", Log: logr.Discard(), Metrics: prometheus.NewRegistry(),
		OnChange: func(context.Context, string, string) { done() },
	}
	u.must(u.scanners.Permissions.Run(ctx))
	u.reconcileScanner()
	if got, found := measured(t, registry)["scanner_condition Ready"]; !found || got != 0 || u.readyReason() != v1alpha1.ReasonMissingPermissions {
		t.Errorf("Ready is %v (%v) for %s, want 0 for %s", got, found, u.readyReason(), v1alpha1.ReasonMissingPermissions)
	}
}
