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

// history keeps so many ended Jobs, for an hour.
func history(failed, succeeded int) func(*Options) {
	return func(o *Options) {
		o.Config.Grype.Catalog.History = config.JobHistory{Failed: failed, Succeeded: succeeded}
		o.Config.Grype.Catalog.History.TTL.Duration = time.Hour
	}
}

// runsOnce has the Job of a new image end, a second after the one before.
func (e *engine) runsOnce(name string, fails bool) {
	e.t.Helper()
	img := public(name)
	e.uses(img)
	e.index(img)
	jobs := e.jobs("catalog")
	job := &jobs[len(jobs)-1] // names ascend
	if fails {
		e.ends(job, batchv1.JobFailed, "BackoffLimitExceeded", "")
	} else {
		e.catalogues(img)
		e.ends(job, batchv1.JobComplete, "", "")
	}
	e.pass(time.Second)
	e.tends()
}

// left are the catalog Jobs in the cluster, by number.
func (e *engine) left() (numbers []string) {
	e.t.Helper()
	for _, job := range e.jobs("catalog") {
		numbers = append(numbers, job.Name[len(job.Name)-1:])
	}
	return numbers
}

// TestHistory: the latest ended Jobs stay, so that people can read their logs; the others are removed.
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
			e.crashes(1) // no match worker is to start, and take a number
			for i, fails := range []bool{true, false, true, false, true} {
				e.runsOnce(fmt.Sprint(i+1), fails)
			}
			if diff := cmp.Diff(tt.want, e.left()); diff != "" {
				t.Errorf("the Jobs that stay (-want +got):\n%s", diff)
			}
			if got := len(e.records()); got != len(tt.want) {
				t.Errorf("%d records, want one of each Job that stays", got)
			}
		})
	}
}

// TestHistoryOfOneNamespace: a namespace whose Jobs keep failing leaves another's failed Job to be looked at, though all
// of them are in the operator's namespace.
func TestHistoryOfOneNamespace(t *testing.T) {
	e := newEngine(t, history(2, 0))
	fails := func(img backend.Image) string {
		e.uses(img)
		e.index(img)
		job := e.jobFor(img)
		e.ends(job, batchv1.JobFailed, "BackoffLimitExceeded", "")
		e.pass(time.Second)
		e.tends()
		return job.Name
	}
	theirs := fails(in("blog", "theirs", "blog"))
	for i := range 5 {
		fails(in("shop", fmt.Sprint("scanner ", i), fmt.Sprint("shop-", i)))
	}
	if records := e.records(); !contains(records, theirs+"!") || len(records) != 3 {
		t.Errorf("records %q, want %s and two of the other namespace", records, theirs)
	}
}

// TestEndOfHistory: an ended Job goes when its time is over and when its Scanner goes, so that nothing of the operator
// is left in a namespace; its own TTL sees to the first when the operator is not there.
func TestEndOfHistory(t *testing.T) {
	for name, tt := range map[string]struct {
		happens func(e *engine)
		stays   bool
	}{
		"nothing happens":      {func(*engine) {}, true},
		"just before its time": {func(e *engine) { e.pass(time.Hour - 2*time.Second) }, true},
		"its time is over":     {func(e *engine) { e.pass(time.Hour) }, false},
		"its Scanner goes":     {func(e *engine) { e.must(e.Store.ForgetScanners(e.t.Context(), []string{scannerUID})) }, false},
		"somebody deleted it":  {func(e *engine) { job := e.job("catalog"); e.must(e.cluster.Delete(e.t.Context(), job)) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t, history(5, 5))
			e.runsOnce("web", true)
			if ttl := e.job("catalog").Spec.TTLSecondsAfterFinished; ttl == nil || *ttl != 3600 {
				t.Errorf("the Job's TTL is %v, want 3600 seconds", ttl)
			}
			tt.happens(e)
			e.tends()
			if stays := len(e.jobs("catalog")) == 1; stays != tt.stays {
				t.Errorf("the Job stays: %v, want %v", stays, tt.stays)
			}
		})
	}
}

// TestEndedJobMayDoNothing: a Job that stays to be looked at is not live for the ingest API, and still one of ours.
func TestEndedJobMayDoNothing(t *testing.T) {
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
