package controllers

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// uncountingStore is a store whose findings cannot be counted.
type uncountingStore struct{ *failingStore }

func (s uncountingStore) ScannerTotals(context.Context, string, exception.Set) (store.Totals, error) {
	return store.Totals{}, errors.New("reading findings: disk I/O error")
}

// TestStatusOfPartialFacts: while the store has a problem, the coverage that can be read still goes into the status and the metrics. What
// cannot be read stays as it was, and unknown receivers cause no event until the condition shows them.
func TestStatusOfPartialFacts(t *testing.T) {
	scanner := theScanner(notifying("team"))
	handled := func(s *v1alpha1.ImageScan) {
		s.Status.HandledRequest, s.CreationTimestamp = digestOfRequest("now"), metav1.NewTime(noon.Add(-time.Hour))
	}
	u := newUnit(t, scanner, scanOf(scanner, web, scanned, handled), scanOf(scanner, vulnerable, handled))
	u.saveUsedImage(web, vulnerability("CVE-2026-0001", finding.High))
	registry := prometheus.NewRegistry()
	u.scanners.Metrics = NewMetrics(registry)
	before := u.reconcileScanner().Status
	u.takeEvents()

	u.requestRescan("now")
	u.must(u.client.Create(t.Context(), aPod(fixtureNamespace, "a", running("a", web), running("b", vulnerable), waiting("c", "nginx", "ErrImagePull"), withReceivers("nobody"))))
	u.scanners.Store = uncountingStore{&failingStore{Store: u.store, problem: store.ErrVolumeFailed}}
	during := u.reconcileScanner().Status
	if want := (v1alpha1.ImageCounts{Total: 3, Scanned: 1, Pending: 1, Failed: 1}); during.Images != want || during.LastHandledRequestedAt != "now" {
		t.Errorf("images %+v and request %q, want %+v and %q", during.Images, during.LastHandledRequestedAt, want, "now")
	}
	if during.Findings != before.Findings {
		t.Errorf("findings %+v, want those of before: %+v", during.Findings, before.Findings)
	}
	got := measured(t, registry)
	for name, want := range map[string]float64{
		"images_failed NotPulled": 1, "oldest_result_timestamp_seconds": float64(noon.Unix()),
		"longest_pending_timestamp_seconds": float64(noon.Add(-time.Hour).Unix()),
	} {
		if value, found := got[name]; !found || value != want {
			t.Errorf("%s is %v (%v), want %v", name, value, found, want)
		}
	}
	if events := strings.Join(u.takeEvents(), "\n"); strings.Contains(events, v1alpha1.ReasonUnknownReceiver) {
		t.Errorf("events %q, want none about receivers", events)
	}
	u.scanners.Store = u.store
	u.reconcileScanner()
	if events := strings.Join(u.takeEvents(), "\n"); strings.Count(events, v1alpha1.ReasonUnknownReceiver) != 1 {
		t.Errorf("events %q, want one about receivers", events)
	}
}

// TestSuppressedDespiteReceiver: the findings that exceptions suppress are counted, and the exceptions are woken, even if the state of a
// receiver cannot be read.
func TestSuppressedDespiteReceiver(t *testing.T) {
	scanner := theScanner(notifying("team"))
	scan := scanOf(scanner, web)
	u := newUnit(t, scanner, scan, anException("patched", "CVE-2026-0001"), aPod(fixtureNamespace, "a", running("c", web)))
	u.saveReport(web, vulnerability("CVE-2026-0001", finding.High))
	u.reconcile(scan)
	u.must(u.store.SaveReceiverState(t.Context(), string(scanner.UID), "team", []byte("{")))
	woken := u.scanners.Wakeups.SubscribeExceptions()
	if _, err := u.scanners.Reconcile(t.Context(), requestFor(scanner)); err == nil {
		t.Error("the state of the receiver was read")
	}
	name := types.NamespacedName{Namespace: fixtureNamespace, Name: "patched"}
	n, known := u.scanners.Suppressed.total(name, []types.NamespacedName{client.ObjectKeyFromObject(scanner)})
	if n != 1 || !known {
		t.Errorf("%d findings are suppressed (%v), want 1", n, known)
	}
	select {
	case event := <-woken:
		if diff := cmp.Diff(name, client.ObjectKeyFromObject(event.Object)); diff != "" {
			t.Errorf("woken (-want +got):\n%s", diff)
		}
	default:
		t.Error("the exception was not woken")
	}
}
