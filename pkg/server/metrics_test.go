package server

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// TestRequestsAreCounted: by route and status. What a worker sends names no time series.
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
	families, err := registry.Gather()
	a.must(err)
	got := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			labels := ""
			for _, label := range metric.GetLabel() {
				labels += " " + label.GetValue()
			}
			got[family.GetName()+labels] = metric.GetCounter().GetValue() + float64(metric.GetHistogram().GetSampleCount())
		}
	}
	want := map[string]float64{
		"scanner_operator_ingest_requests_total 200 POST " + workerapi.PathDatabase:        1,
		"scanner_operator_ingest_requests_total 409 GET " + workerapi.PathLeaseInput:       2,
		"scanner_operator_ingest_request_duration_seconds POST " + workerapi.PathDatabase:  1,
		"scanner_operator_ingest_request_duration_seconds GET " + workerapi.PathLeaseInput: 2,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("counted (-want +got):\n%s", diff)
	}
}
