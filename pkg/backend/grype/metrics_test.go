package grype

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	batchv1 "k8s.io/api/batch/v1"

	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// newEngineWithMetrics returns an engine with metrics, and a function that reads a metric.
func newEngineWithMetrics(t *testing.T, change ...func(*Options)) (*engine, func(name string) map[string]float64) {
	t.Helper()
	registry := prometheus.NewRegistry()
	e := newEngine(t, append(change, func(o *Options) { o.Metrics = registry })...)
	return e, func(name string) map[string]float64 {
		t.Helper()
		families, err := registry.Gather()
		e.must(err)
		values := map[string]float64{}
		for _, family := range families {
			if family.GetName() != "scanner_operator_"+name {
				continue
			}
			for _, metric := range family.GetMetric() {
				labels := ""
				for _, label := range metric.GetLabel() {
					labels += label.GetValue() + " "
				}
				values[labels] = metric.GetGauge().GetValue() + metric.GetCounter().GetValue() + float64(metric.GetHistogram().GetSampleCount())
			}
		}
		return values
	}
}

func wantCounted(t *testing.T, what string, got, want map[string]float64) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// TestLadderIsCounted: each step of the ladder and its exhaustion are counted, and each Job's end is counted once.
func TestLadderIsCounted(t *testing.T) {
	e, values := newEngineWithMetrics(t)
	web := public("web")
	e.setUsed(web)
	for range 3 {
		e.index(web)
		e.killForMemory()
		e.runJobsOnce()
	}
	wantCounted(t, "steps", values("memory_ladder_steps_total"), map[string]float64{"retried ": 2, "exhausted ": 1})
	wantCounted(t, "Jobs that ended", values("jobs_ended_total"), map[string]float64{"failed catalog ": 3})
	wantCounted(t, "Jobs that were timed", values("catalog_job_duration_seconds"), map[string]float64{"failed ": 3})
}

// TestQueuesAreCounted: the metrics have the images that wait for a slot, the images that wait to be matched, and the live Jobs.
func TestQueuesAreCounted(t *testing.T) {
	e, values := newEngineWithMetrics(t, func(o *Options) { o.Config.Grype.Catalog.MaxJobs = 1 })
	for _, name := range []string{"a", "b", "c"} {
		e.setUsed(public(name))
		e.index(public(name))
	}
	wantCounted(t, "images that wait for a place", values("index_queue_images"), map[string]float64{"grype ": 2})
	e.reportInstalled(build(0))
	e.saveCatalog(public("a"))
	e.runJobsOnce()
	wantCounted(t, "images to match", values("match_queue_images"), map[string]float64{"grype ": 1})
	e.runJobsOnce()
	wantCounted(t, "Jobs", values("jobs"), map[string]float64{"catalog ": 1, "match ": 1})
	e.setEndCondition(e.job("match"), batchv1.JobComplete, "", "")
	e.runJobsOnce()
	if got := values("jobs_ended_total")["succeeded match "]; got != 1 {
		t.Errorf("%v match workers ended well, want 1", got)
	}
	wantCounted(t, "databases", values("vulnerability_database_installs_total"), map[string]float64{"installed ": 1})
	_, err := e.RecordDatabase(t.Context(), workerapi.DatabaseStatus{Error: "no room"})
	e.must(err)
	if got := values("vulnerability_database_installs_total")["refused "]; got != 1 {
		t.Errorf("%v databases were refused, want 1", got)
	}
}

// TestBackoffsAreCounted: the metrics have how often registries throttled, and how many are throttled now.
func TestBackoffsAreCounted(t *testing.T) {
	e, values := newEngineWithMetrics(t)
	for _, scope := range []store.Scope{store.Cluster, "shop"} {
		e.throttles.Record(e.clock.Now(), scope, &backend.Failure{Reason: workerapi.ReasonRegistryThrottled, Registry: "quay.io", RetryAfter: time.Minute})
	}
	wantCounted(t, "back-offs", values("registry_backoffs_total"), map[string]float64{"grype ": 2})
	wantCounted(t, "registries that are left alone", values("registries_backed_off"), map[string]float64{"grype ": 2})
	e.advance(time.Hour)
	wantCounted(t, "registries that are left alone an hour later", values("registries_backed_off"), map[string]float64{"grype ": 0})
}
