package grype

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"

	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/config"
)

// history configures how many ended Jobs are kept, for an hour.
func history(failed, succeeded int) func(*Options) {
	return func(o *Options) {
		o.Config.Grype.Catalog.History = config.JobHistory{Failed: failed, Succeeded: succeeded}
		o.Config.Grype.Catalog.History.TTL.Duration = time.Hour
	}
}

// runsOnce runs the Job of a new image to its end, one second after the previous one.
func (e *engine) runsOnce(name string, fails bool) {
	e.t.Helper()
	img := public(name)
	e.setUsed(img)
	e.index(img)
	jobs := e.jobs("catalog")
	job := &jobs[len(jobs)-1] // names are in ascending order
	if fails {
		e.setEndCondition(job, batchv1.JobFailed, "BackoffLimitExceeded", "")
	} else {
		e.saveCatalog(img)
		e.setEndCondition(job, batchv1.JobComplete, "", "")
	}
	e.advance(time.Second)
	e.runJobsOnce()
}

// remainingJobs returns the numbers of the catalog Jobs in the cluster.
func (e *engine) remainingJobs() (numbers []string) {
	e.t.Helper()
	for _, job := range e.jobs("catalog") {
		numbers = append(numbers, job.Name[len(job.Name)-1:])
	}
	return numbers
}

// TestHistory: the latest ended Jobs are kept for their logs, and the others are removed.
func TestHistory(t *testing.T) {
	for name, tt := range map[string]struct {
		failed, succeeded int
		want              []string
	}{
		"none":                   {0, 0, nil},
		"the latest failed ones": {2, 0, []string{"3", "5"}},
		"the latest of each":     {1, 2, []string{"2", "4", "5"}},
		"more than there are":    {10, 10, []string{"1", "2", "3", "4", "5"}},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t, history(tt.failed, tt.succeeded))
			e.crashes(1) // prevents a match worker, which would take a number
			for i, fails := range []bool{true, false, true, false, true} {
				e.runsOnce(fmt.Sprint(i+1), fails)
			}
			if diff := cmp.Diff(tt.want, e.remainingJobs()); diff != "" {
				t.Errorf("the Jobs that stay (-want +got):\n%s", diff)
			}
			if got := len(e.records()); got != len(tt.want) {
				t.Errorf("%d records, want one of each Job that stays", got)
			}
		})
	}
}

// TestHistoryOfOneNamespace: a namespace whose Jobs keep failing does not displace the failed Job of another one, even though all Jobs are
// in the operator's namespace.
func TestHistoryOfOneNamespace(t *testing.T) {
	e := newEngine(t, history(2, 0))
	fails := func(img backend.Image) string {
		e.setUsed(img)
		e.index(img)
		job := e.jobFor(img)
		e.setEndCondition(job, batchv1.JobFailed, "BackoffLimitExceeded", "")
		e.advance(time.Second)
		e.runJobsOnce()
		return job.Name
	}
	theirs := fails(imageIn("blog", "theirs", "blog"))
	for i := range 5 {
		fails(imageIn("shop", fmt.Sprint("scanner ", i), fmt.Sprint("shop-", i)))
	}
	if records := e.records(); !contains(records, theirs+"!") || len(records) != 3 {
		t.Errorf("records %q, want %s and two of the other namespace", records, theirs)
	}
}

// TestEndOfHistory: an ended Job is removed when its TTL expires, and when its Scanner is deleted so that nothing stays in the namespace.
// The Job's own TTL does the first when the operator is not running.
func TestEndOfHistory(t *testing.T) {
	for name, tt := range map[string]struct {
		happens func(e *engine)
		stays   bool
	}{
		"nothing happens":      {func(*engine) {}, true},
		"just before its time": {func(e *engine) { e.advance(time.Hour - 2*time.Second) }, true},
		"its time is over":     {func(e *engine) { e.advance(time.Hour) }, false},
		"its Scanner goes":     {func(e *engine) { e.must(e.Store.DeleteScanners(e.t.Context(), []string{scannerUID})) }, false},
		"somebody deleted it":  {func(e *engine) { job := e.job("catalog"); e.must(e.cluster.Delete(e.t.Context(), job)) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t, history(5, 5))
			e.runsOnce("web", true)
			if ttl := e.job("catalog").Spec.TTLSecondsAfterFinished; ttl == nil || *ttl != 3600 {
				t.Errorf("the Job's TTL is %v, want 3600 seconds", ttl)
			}
			tt.happens(e)
			e.runJobsOnce()
			if stays := len(e.jobs("catalog")) == 1; stays != tt.stays {
				t.Errorf("the Job stays: %v, want %v", stays, tt.stays)
			}
		})
	}
}

// TestEndedJobIsNotLive: an ended Job that is kept is not live for the ingest API, but still recorded as the operator's.
func TestEndedJobIsNotLive(t *testing.T) {
	e := newEngine(t, history(5, 5))
	e.runsOnce("web", true)
	job := e.job("catalog")
	if _, err := e.Store.JobByUID(t.Context(), string(job.UID)); err == nil {
		t.Error("the ingest API takes its token")
	}
	if _, err := e.Store.ClaimJob(t.Context(), string(job.UID), "pod"); err == nil {
		t.Error("a pod can speak for it")
	}
	if own, err := e.Store.IsRecorded(t.Context(), job.Namespace, job.Name, string(job.UID)); err != nil || !own {
		t.Errorf("its pod is taken for a tenant's: %v, %v", own, err)
	}
}
