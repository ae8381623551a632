package storetest

import (
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// workerDies leases all images in the queue with a new Job, which ends without a report. It returns the names of the leased
// images.
func (f fixture) workerDies(t *testing.T, names ...string) []string {
	t.Helper()
	uid := rand.Text()
	must(t, f.SaveJob(t.Context(), store.Job{Name: "match", UID: uid, Purpose: store.JobMatch}))
	had := leasedNames(f.lease(t, uid), names...)
	must(t, f.DeleteJob(t.Context(), "", "match"))
	slices.Sort(had)
	return had
}

// queued is a store with images to match.
func (on suite) queued(t *testing.T, names ...string) fixture {
	t.Helper()
	f := on.newStore(t)
	f.data(t, "v1")
	for _, name := range names {
		f.saveCatalogs(t, name)
		f.use(t, "scanner", name)
	}
	return f
}

// testIsolatedImageIsLeasedLastAndAlone checks that an image that kills its worker affects other images only once.
func (on suite) testIsolatedImageIsLeasedLastAndAlone(t *testing.T) {
	names := []string{"killer", "innocent", "third"}
	f := on.queued(t, "killer", "innocent")
	equal(t, "lent at first", f.workerDies(t, names...), []string{"innocent", "killer"})
	f.saveCatalogs(t, "third")
	f.use(t, "scanner", "third")
	equal(t, "the queue", got[int](t)(f.QueueLength(t.Context(), grype)), 3)
	equal(t, "lent next", leasedNames(f.lease(t, "job"), names...), []string{"third"})
	for _, want := range []string{"killer", "innocent"} {
		equal(t, "lent then", leasedNames(f.lease(t, "job for the "+want), names...), []string{want})
	}
	equal(t, "lent when all are", f.lease(t, "idle job"), []store.Lease(nil))
	f.report(t, "innocent")
	f.data(t, "v2")
	equal(t, "lent with new data", len(f.workerDies(t, names...)), 0) // the earlier leases have not expired
	f.clock.pass(time.Minute)
	equal(t, "lent with new data, when they have ended", len(f.lease(t, "job")), 3)
}

func (on suite) testAnImageWhoseWorkersDieFails(t *testing.T) {
	f := on.queued(t, "killer")
	lookup := func() (store.MatchFailure, error) { return f.MatchFailure(t.Context(), subject("killer")) }
	for n := range store.MaxSilentEnds {
		if _, err := lookup(); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("after %d deaths: got %v, want ErrNotFound", n, err)
		}
		equal(t, "lent", f.workerDies(t, "killer"), []string{"killer"})
	}
	failure := got[store.MatchFailure](t)(lookup())
	for _, part := range []string{"ended 3 times", "memory", "grype.match.resources in the operator's configuration"} {
		if !strings.Contains(failure.Message, part) {
			t.Errorf("the message does not say %q: %s", part, failure.Message)
		}
	}
	failure.Message = ""
	equal(t, "the failure", failure, store.MatchFailure{Reason: "MatchWorkerDied", FailedAt: f.clock.Now(), RetryAt: f.clock.Now().Add(time.Hour)})
	equal(t, "the queue", got[int](t)(f.QueueLength(t.Context(), grype)), 0)
	f.clock.pass(time.Hour)
	equal(t, "lent after an hour", f.workerDies(t, "killer"), []string{"killer"})
	equal(t, "it has failed again, until", got[store.MatchFailure](t)(lookup()).RetryAt, f.clock.Now().Add(time.Hour))
	f.data(t, "v2")
	for range store.MaxSilentEnds - 1 {
		equal(t, "lent with new data", f.workerDies(t, "killer"), []string{"killer"})
	}
	if _, err := lookup(); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("with new data the count begins anew: got %v, want ErrNotFound", err)
	}
}

// testReportsResetSilentEnds checks that only silent ends in a row count, without a report or failure in between.
func (on suite) testReportsResetSilentEnds(t *testing.T) {
	for name, step := range map[string]struct {
		do        func(t *testing.T, f fixture)
		suspected bool
	}{
		"nothing": {func(t *testing.T, f fixture) {}, true},
		"a report": {func(t *testing.T, f fixture) {
			f.report(t, "app")
			f.exec(t, `DELETE FROM reports`)
		}, false},
		"a reported failure": {func(t *testing.T, f fixture) { f.fail(t, 0) }, false},
		"a lease of the manager's own that ran out": {func(t *testing.T, f fixture) {
			f.lease(t, "manager")
			f.clock.pass(time.Minute)
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := on.queued(t, "app")
			for range store.MaxSilentEnds - 1 {
				f.workerDies(t, "app")
			}
			if _, err := f.MatchFailure(t.Context(), subject("app")); !errors.Is(err, store.ErrNotFound) {
				t.Fatalf("failed too early: %v", err)
			}
			step.do(t, f)
			equal(t, "lent once more", f.workerDies(t, "app"), []string{"app"})
			failure, err := f.MatchFailure(t.Context(), subject("app"))
			if failed := err == nil && failure.Reason == store.ReasonMatchWorkerDied; failed != step.suspected {
				t.Errorf("failed after one more death: %t (%v), want %t", failed, err, step.suspected)
			}
		})
	}
}

// testAnImageThatOutlastsItsLeasesFails checks that an image whose leases expire repeatedly fails. Otherwise it would be leased
// forever without anybody knowing.
func (on suite) testAnImageThatOutlastsItsLeasesFails(t *testing.T) {
	f := on.queued(t, "endless")
	must(t, f.SaveJob(t.Context(), store.Job{Name: "match", UID: "job", Purpose: store.JobMatch}))
	lookup := func() (store.MatchFailure, error) { return f.MatchFailure(t.Context(), subject("endless")) }
	for n := range store.MaxSilentEnds {
		if _, err := lookup(); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("after %d leases that ran out: got %v, want ErrNotFound", n, err)
		}
		equal(t, "leased", leasedNames(f.lease(t, "job"), "endless"), []string{"endless"})
		f.clock.pass(time.Minute)
	}
	equal(t, "leased once more", f.lease(t, "job"), []store.Lease(nil))
	failure := got[store.MatchFailure](t)(lookup())
	for _, part := range []string{"no result 3 times in a row", "grype.match.deadline"} {
		if !strings.Contains(failure.Message, part) {
			t.Errorf("the message does not say %q: %s", part, failure.Message)
		}
	}
	failure.Message = ""
	equal(t, "the failure", failure, store.MatchFailure{Reason: "MatchTimedOut", FailedAt: f.clock.Now(), RetryAt: f.clock.Now().Add(time.Hour)})
	equal(t, "the queue", got[int](t)(f.QueueLength(t.Context(), grype)), 0)
	f.clock.pass(time.Hour)
	equal(t, "leased after an hour", leasedNames(f.lease(t, "job"), "endless"), []string{"endless"})
	f.clock.pass(time.Minute)
	must(t, f.DeleteJob(t.Context(), "", "match"))
	equal(t, "it has failed again when its worker is ended, until", got[store.MatchFailure](t)(lookup()).RetryAt, f.clock.Now().Add(time.Hour))
}

// testSilentEndsOfBothKindsCount checks that expired leases and died workers count together.
func (on suite) testSilentEndsOfBothKindsCount(t *testing.T) {
	f := on.queued(t, "app")
	for range store.MaxSilentEnds - 1 {
		f.workerDies(t, "app")
	}
	must(t, f.SaveJob(t.Context(), store.Job{Name: "slow", UID: "slow", Purpose: store.JobMatch}))
	f.lease(t, "slow")
	f.clock.pass(time.Minute)
	must(t, f.DeleteJob(t.Context(), "", "slow"))
	equal(t, "the reason", got[store.MatchFailure](t)(f.MatchFailure(t.Context(), subject("app"))).Reason, store.ReasonMatchTimedOut)
}

// testIsolatedImageIsMatchedAlone checks that a worker that matches several images at a time gets an isolated one only if it
// has no other, and nothing beside it.
func (on suite) testIsolatedImageIsMatchedAlone(t *testing.T) {
	f := on.queued(t, "killer")
	f.workerDies(t, "killer")
	f.saveCatalogs(t, "app")
	f.use(t, "scanner", "app")
	names := []string{"killer", "app", "late"}
	app := f.lease(t, "job")
	equal(t, "leased first", leasedNames(app, names...), []string{"app"})
	equal(t, "leased to the worker that has another", f.lease(t, "job"), []store.Lease(nil))
	equal(t, "leased to another worker", leasedNames(f.lease(t, "other job"), names...), []string{"killer"})
	f.saveCatalogs(t, "late")
	f.use(t, "scanner", "late")
	equal(t, "leased beside a suspected one", f.lease(t, "other job"), []store.Lease(nil))
	equal(t, "leased to the worker without one", leasedNames(f.lease(t, "job"), names...), []string{"late"})
}

// testIsolatedImagesWaitBounded checks that an isolated image is next after some minutes, however many others wait. Until it is
// leased, a worker that has another image gets nothing. Afterwards the other images come first again.
func (on suite) testIsolatedImagesWaitBounded(t *testing.T) {
	f := on.queued(t, "killer")
	f.workerDies(t, "killer")
	names := append(many("app", 9), "killer")
	for _, name := range names[:9] {
		f.saveCatalogs(t, name)
		f.use(t, "scanner", name)
	}
	_, name := f.leaseOne(t, "busy", names)
	equal(t, "leased at first", name, "app 00")
	f.clock.pass(isolatedWait - time.Second)
	quick, name := f.leaseOne(t, "idle", names)
	equal(t, "leased before the time is over", name, "app 01")
	f.done(t, quick)
	f.clock.pass(time.Second)
	_, name = f.leaseOne(t, "busy", names)
	equal(t, "leased to a worker that has another, then", name, "")
	_, name = f.leaseOne(t, "idle", names)
	equal(t, "leased to a worker that has none", name, "killer")
	_, name = f.leaseOne(t, "busy", names)
	equal(t, "leased to the worker that has another, afterwards", name, "app 02")
}
