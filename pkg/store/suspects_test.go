package store

import (
	"database/sql"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

// workerDies leases what there is with a new Job, which ends without a word, and returns the names of what it had.
func (f fixture) workerDies(t *testing.T, names ...string) []string {
	t.Helper()
	uid := randomID()
	must(t, f.SaveJob(t.Context(), Job{Name: "match", UID: uid, Purpose: JobMatch}))
	had := lent(f.lease(t, uid), names...)
	must(t, f.DeleteJob(t.Context(), "", "match"))
	slices.Sort(had)
	return had
}

// queued is a store with images to match.
func queued(t *testing.T, names ...string) fixture {
	t.Helper()
	f := newStore(t)
	f.data(t, "v1")
	for _, name := range names {
		f.catalogue(t, name)
		f.use(t, "scanner", name)
	}
	return f
}

// An image that kills its worker takes others with it once, and then no more.
func TestASuspectIsLentLastAndAlone(t *testing.T) {
	names := []string{"killer", "innocent", "third"}
	f := queued(t, "killer", "innocent")
	equal(t, "lent at first", f.workerDies(t, names...), []string{"innocent", "killer"})
	f.catalogue(t, "third")
	f.use(t, "scanner", "third")
	equal(t, "the queue", got[int](t)(f.QueueLength(t.Context(), grype)), 3)
	equal(t, "lent next", lent(f.lease(t, "job"), names...), []string{"third"})
	for _, want := range []string{"killer", "innocent"} {
		equal(t, "lent then", lent(f.lease(t, "job"), names...), []string{want})
	}
	equal(t, "lent when all are", f.lease(t, "job"), []Lease(nil))
	f.report(t, "innocent")
	f.data(t, "v2")
	equal(t, "lent with new data", len(f.workerDies(t, names...)), 0) // the leases of before still hold
	f.clock.pass(time.Minute)
	equal(t, "lent with new data, when they have ended", len(f.lease(t, "job")), 3)
}

func TestAnImageWhoseWorkersDieFails(t *testing.T) {
	f := queued(t, "killer")
	lookup := func() (MatchFailure, error) { return f.MatchFailure(t.Context(), subject("killer")) }
	for n := range MaxSilentEnds {
		if _, err := lookup(); !errors.Is(err, ErrNotFound) {
			t.Errorf("after %d deaths: got %v, want ErrNotFound", n, err)
		}
		equal(t, "lent", f.workerDies(t, "killer"), []string{"killer"})
	}
	failure := got[MatchFailure](t)(lookup())
	for _, part := range []string{"ended 3 times", "memory", "grype.match.resources in the operator's configuration"} {
		if !strings.Contains(failure.Message, part) {
			t.Errorf("the message does not say %q: %s", part, failure.Message)
		}
	}
	failure.Message = ""
	equal(t, "the failure", failure, MatchFailure{Reason: "MatchWorkerDied", FailedAt: f.clock.Now(), RetryAt: f.clock.Now().Add(time.Hour)})
	equal(t, "the queue", got[int](t)(f.QueueLength(t.Context(), grype)), 0)
	f.clock.pass(time.Hour)
	equal(t, "lent after an hour", f.workerDies(t, "killer"), []string{"killer"})
	equal(t, "it has failed again, until", got[MatchFailure](t)(lookup()).RetryAt, f.clock.Now().Add(time.Hour))
	f.data(t, "v2")
	for range MaxSilentEnds - 1 {
		equal(t, "lent with new data", f.workerDies(t, "killer"), []string{"killer"})
	}
	if _, err := lookup(); !errors.Is(err, ErrNotFound) {
		t.Errorf("with new data the count begins anew: got %v, want ErrNotFound", err)
	}
}

// Only workers that die one after the other, without a word in between, accuse an image.
func TestWhatEndsASuspicion(t *testing.T) {
	for name, step := range map[string]struct {
		do        func(t *testing.T, f fixture)
		suspected bool
	}{
		"nothing": {func(t *testing.T, f fixture) {}, true},
		"a report": {func(t *testing.T, f fixture) {
			f.report(t, "app")
			got[sql.Result](t)(f.writer.Exec(`DELETE FROM reports`))
		}, false},
		"a reported failure": {func(t *testing.T, f fixture) { f.fail(t, 0) }, false},
		"a lease that ran out": {func(t *testing.T, f fixture) {
			must(t, f.SaveJob(t.Context(), Job{Name: "slow", UID: "slow", Purpose: JobMatch}))
			f.lease(t, "slow")
			f.clock.pass(time.Minute)
			must(t, f.DeleteJob(t.Context(), "", "slow"))
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := queued(t, "app")
			for range MaxSilentEnds - 1 {
				f.workerDies(t, "app")
			}
			if _, err := f.MatchFailure(t.Context(), subject("app")); !errors.Is(err, ErrNotFound) {
				t.Fatalf("failed too early: %v", err)
			}
			step.do(t, f)
			equal(t, "lent once more", f.workerDies(t, "app"), []string{"app"})
			failure, err := f.MatchFailure(t.Context(), subject("app"))
			if failed := err == nil && failure.Reason == ReasonMatchWorkerDied; failed != step.suspected {
				t.Errorf("failed after one more death: %t (%v), want %t", failed, err, step.suspected)
			}
		})
	}
}
