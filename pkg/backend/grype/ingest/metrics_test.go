package ingest

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// TestRequestsAreCounted: requests are counted by route and status. Nothing that a worker sends creates a time series.
func TestRequestsAreCounted(t *testing.T) {
	a := newIngestAPI(t, Limits{})
	registry := prometheus.NewRegistry()
	a.ingest.Metrics = registry
	handler, err := a.ingest.Handler()
	a.must(err)
	a.serve(handler)
	w := a.job(store.JobMatch, "match")
	w.want(w.post(workerapi.PathDatabase, workerapi.DatabaseStatus{}, nil), http.StatusOK, "")
	for _, lease := range []string{"one", "two"} {
		w.send(http.MethodGet, "/v1/match/leases/"+lease+"/input", nil)
	}
	want := map[string]float64{
		"scanner_operator_ingest_requests_total 200 POST " + workerapi.PathDatabase:        1,
		"scanner_operator_ingest_requests_total 409 GET " + workerapi.PathLeaseInput:       2,
		"scanner_operator_ingest_request_duration_seconds POST " + workerapi.PathDatabase:  1,
		"scanner_operator_ingest_request_duration_seconds GET " + workerapi.PathLeaseInput: 2,
	}
	if diff := cmp.Diff(want, a.counted(registry, "scanner_operator_ingest_request")); diff != "" {
		t.Errorf("counted (-want +got):\n%s", diff)
	}
}

// TestBudgetsAreCounted: the metrics have what is stored for each namespace, what is in the spool, and what was refused for lack of space.
func TestBudgetsAreCounted(t *testing.T) {
	a := newIngestAPI(t, Limits{})
	registry := prometheus.NewRegistry()
	a.ingest.Metrics, a.ingest.StoreBytes = registry, 1<<20
	handler, err := a.ingest.Handler()
	a.must(err)
	a.serve(handler)
	a.tenant("shop", "catalog", web).uploadValidResult()
	a.ingest.StoreBytes = 1
	w := a.tenant("bank", "catalog", web)
	w.want(w.uploadResult(newCatalogUpload(t)), http.StatusRequestEntityTooLarge, "storeSizePerNamespace")
	a.ingest.spool.share = 10
	w.want(w.uploadResult(newCatalogUpload(t)), http.StatusInsufficientStorage, "spoolSizePerNamespace")
	a.ingest.spool.share, a.ingest.spool.limit = 256<<10, 10
	w.want(w.uploadResult(newCatalogUpload(t)), http.StatusInsufficientStorage, "spoolSize")
	a.ingest.spool.limit = 256 << 10
	a.tenant("slow", "catalog", web).stallUpload(1000)
	a.eventuallyHolds(1000)
	a.must(a.ingest.Sweep(t.Context()))
	want := map[string]float64{
		"scanner_operator_ingest_over_budget_total spool": 1, "scanner_operator_ingest_over_budget_total spool-namespace": 1,
		"scanner_operator_ingest_over_budget_total store": 1, "scanner_operator_ingest_spool_bytes slow": 1000,
		"scanner_operator_ingest_spool_limit_bytes":  float64(a.ingest.SpoolShare),
		"scanner_operator_ingest_stored_bytes shop":  float64(len(newCatalogUpload(t).sbom) + len(newCatalogUpload(t).matchInput)),
		"scanner_operator_ingest_stored_limit_bytes": 1 << 20,
	}
	got := a.counted(registry, "scanner_operator_ingest")
	for name := range got {
		if strings.HasPrefix(name, "scanner_operator_ingest_request") {
			delete(got, name)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("counted (-want +got):\n%s", diff)
	}
}

// counted returns the metrics whose names have the prefix, by name and label values.
func (a *ingestAPI) counted(registry *prometheus.Registry, prefix string) map[string]float64 {
	a.t.Helper()
	families, err := registry.Gather()
	a.must(err)
	got := map[string]float64{}
	for _, family := range families {
		if !strings.HasPrefix(family.GetName(), prefix) {
			continue
		}
		for _, metric := range family.GetMetric() {
			labels := ""
			for _, label := range metric.GetLabel() {
				labels += " " + label.GetValue()
			}
			got[family.GetName()+labels] = metric.GetCounter().GetValue() + metric.GetGauge().GetValue() + float64(metric.GetHistogram().GetSampleCount())
		}
	}
	return got
}
