package storetest

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// lease leases all images in the queue for a minute.
func (f fixture) lease(t testing.TB, holder string) []store.Lease {
	t.Helper()
	return got[[]store.Lease](t)(f.LeaseMatches(t.Context(), grype, holder, 100, f.clock.Now(), f.clock.Now().Add(time.Minute)))
}

// leasedNames returns the names of the leased images.
func leasedNames(leases []store.Lease, names ...string) []string {
	var lent []string
	for _, lease := range leases {
		i := slices.IndexFunc(names, func(name string) bool { return digest(name) == lease.PlatformDigest })
		if i < 0 {
			lent = append(lent, lease.PlatformDigest)
			continue
		}
		lent = append(lent, names[i])
	}
	return lent
}

func (f fixture) data(t testing.TB, version string) {
	t.Helper()
	must(t, f.SetDataVersion(t.Context(), grype, store.DataVersion{Version: version}))
}

// suspend sets whether the Scanner that has the image app is suspended.
func (f fixture) suspend(t testing.TB, suspended bool) {
	t.Helper()
	u := used("scanner", "app", workload("api", "r"))
	u.Suspended = suspended
	must(t, f.SetUsage(t.Context(), u))
}

// testRequestMatch checks that a requested image is due again with the same data, and that its findings stay.
func (on suite) testRequestMatch(t *testing.T) {
	f := on.newStore(t)
	f.data(t, "v1")
	f.saveCatalogs(t, "app")
	must(t, f.SetUsage(t.Context(), used("s1", "app", workload("web", "r"))))
	found := vulnerable("CVE-2026-0001", "openssl")
	f.report(t, "app", found)
	equal(t, "lent of what is current", len(f.lease(t, "manager")), 0)
	must(t, f.RequestMatch(t.Context(), subject("app")))
	equal(t, "lent of what was requested", leasedNames(f.lease(t, "manager"), "app"), []string{"app"})
	equal(t, "what was found", len(got[[]finding.Finding](t)(f.Findings(t.Context(), subject("app")))), 1)
	f.report(t, "app", found)
	must(t, f.ReturnLeases(t.Context(), grype, "manager"))
	equal(t, "lent after it was matched again", len(f.lease(t, "manager")), 0)
	must(t, f.RequestMatch(t.Context(), subject("unknown")))
}

// testReturnLeases checks that returned images can be leased again at once, and that leases of other holders do not end.
func (on suite) testReturnLeases(t *testing.T) {
	f := on.newStore(t)
	for _, name := range []string{"one", "two", "three"} {
		f.saveCatalogs(t, name)
		must(t, f.SetUsage(t.Context(), used("s1", name, workload("web", "r"))))
	}
	lent := func(holder string, limit int) []store.Lease {
		return got[[]store.Lease](t)(f.LeaseMatches(t.Context(), grype, holder, limit, f.clock.Now(), f.clock.Now().Add(time.Hour)))
	}
	kept := lent("other", 1)
	equal(t, "lent", len(lent("manager", 9)), 2)
	must(t, f.ReturnLeases(t.Context(), clair, "manager"))
	equal(t, "lent by this engine still", len(lent("manager", 9)), 0)
	must(t, f.ReturnLeases(t.Context(), grype, "manager"))
	again := lent("manager", 9)
	equal(t, "lent again", len(again), 2)
	must(t, f.ReturnLeases(t.Context(), grype, "manager", again[0].ID, "unknown"))
	more := lent("manager", 9)
	equal(t, "lent a third time", len(more), 1)
	equal(t, "returned", more[0].PlatformDigest, again[1].PlatformDigest)
	got[store.Lease](t)(f.Lease(t.Context(), kept[0].ID, "other", f.clock.Now()))
}

func (on suite) testDataVersion(t *testing.T) {
	f := on.newStore(t)
	if _, err := f.DataVersion(t.Context(), grype); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("before it is known: got %v, want ErrNotFound", err)
	}
	first := f.clock.Now()
	for _, test := range []struct {
		version store.DataVersion
		since   time.Time
	}{
		{store.DataVersion{Version: "v1", Built: first, Tool: "grype 0.110.0"}, first},
		{store.DataVersion{Version: "v1", Built: first, Tool: "grype"}, first},
		{store.DataVersion{Version: "v2"}, first.Add(2 * time.Hour)},
	} {
		must(t, f.SetDataVersion(t.Context(), grype, test.version))
		test.version.Since = test.since
		equal(t, "data version", got[store.DataVersion](t)(f.DataVersion(t.Context(), grype)), test.version)
		f.clock.pass(time.Hour)
	}
	if _, err := f.DataVersion(t.Context(), "fake"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("another engine's: got %v, want ErrNotFound", err)
	}
}

func (on suite) testQueueContents(t *testing.T) {
	all := []string{"app"}
	for name, test := range map[string]struct {
		given  func(t *testing.T, f fixture)
		queued bool
		lent   bool
	}{
		"cataloged and in use": {func(t *testing.T, f fixture) {}, true, true},
		"without any data version yet": {func(t *testing.T, f fixture) {
			f.exec(t, `DELETE FROM data_versions`)
		}, true, true},
		"not in use": {func(t *testing.T, f fixture) {
			must(t, f.ReleaseImage(t.Context(), scannerImage("app"), false))
		}, false, false},
		"kept without workloads": {func(t *testing.T, f fixture) { f.use(t, "scanner", "app") }, true, true},
		"in use with another engine": {func(t *testing.T, f fixture) {
			u := used("scanner", "app", workload("api", "r"))
			u.Engine = "fake"
			must(t, f.SetUsage(t.Context(), u))
		}, false, false},
		"of a suspended Scanner": {func(t *testing.T, f fixture) { f.suspend(t, true) }, false, false},
		"of a suspended Scanner and another one": {func(t *testing.T, f fixture) {
			f.suspend(t, true)
			f.use(t, "another", "app", workload("api", "r"))
		}, true, true},
		"of a Scanner that goes on": {func(t *testing.T, f fixture) {
			f.suspend(t, true)
			f.suspend(t, false)
		}, true, true},
		"in use in another scope": {func(t *testing.T, f fixture) {
			u := used("scanner", "app", workload("api", "r"))
			u.Scope = "shop"
			must(t, f.SetUsage(t.Context(), u))
		}, false, false},
		"matched with this data": {func(t *testing.T, f fixture) { f.report(t, "app") }, false, false},
		"matched with other data": {func(t *testing.T, f fixture) {
			f.report(t, "app")
			f.data(t, "v2")
		}, true, true},
		"leased": {func(t *testing.T, f fixture) { f.lease(t, "job") }, true, false},
		"leased too long ago": {func(t *testing.T, f fixture) {
			f.lease(t, "job")
			f.clock.pass(time.Minute)
		}, true, true},
		"leased by a job that has ended": {func(t *testing.T, f fixture) {
			must(t, f.SaveJob(t.Context(), store.Job{Name: "match", UID: "job", Purpose: store.JobMatch}))
			f.lease(t, "job")
			must(t, f.DeleteJob(t.Context(), "", "match"))
		}, true, true},
		"failed": {func(t *testing.T, f fixture) { f.fail(t, time.Hour) }, false, false},
		"failed, and its time has come": {func(t *testing.T, f fixture) {
			f.fail(t, time.Hour)
			f.clock.pass(time.Hour)
		}, true, true},
		"failed, and the clock was put back": {func(t *testing.T, f fixture) {
			f.fail(t, time.Hour)
			f.clock.pass(-7 * time.Hour)
		}, true, true},
		"failed with other data": {func(t *testing.T, f fixture) {
			f.fail(t, time.Hour)
			f.data(t, "v2")
		}, true, true},
		"failed with the data from before a change": {func(t *testing.T, f fixture) {
			lease := f.lease(t, "job")[0]
			f.data(t, "v2")
			must(t, f.FailMatch(t.Context(), lease.ID, "job", store.MatchFailure{RetryAt: f.clock.Now().Add(time.Hour)}))
		}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := on.newStore(t)
			f.data(t, "v1")
			f.saveCatalogs(t, "app")
			f.use(t, "scanner", "app", workload("api", "r"))
			f.use(t, "scanner", "not cataloged", workload("web", "r"))
			test.given(t, f)
			if queued := got[int](t)(f.QueueLength(t.Context(), grype)) > 0; queued != test.queued {
				t.Errorf("in the queue: %t, want %t", queued, test.queued)
			}
			var want []string
			if test.lent {
				want = all
			}
			equal(t, "what is lent", leasedNames(f.lease(t, "other job"), all...), want)
		})
	}
}

// fail leases the image and fails its match.
func (f fixture) fail(t *testing.T, retry time.Duration) store.MatchFailure {
	t.Helper()
	failure := store.MatchFailure{Reason: "DecodeFailed", Message: "unexpected end", FailedAt: f.clock.Now(), RetryAt: f.clock.Now().Add(retry)}
	must(t, f.FailMatch(t.Context(), f.lease(t, "job")[0].ID, "job", failure))
	return failure
}

func (on suite) testNeverMatchedComesFirstThenTheOldest(t *testing.T) {
	f := on.newStore(t)
	f.data(t, "v1")
	names := []string{"new", "oldest", "newest", "middle"}
	f.saveCatalogs(t, names...)
	for _, name := range names {
		f.use(t, "scanner", name)
		f.use(t, "other scanner", name) // it is matched only once
	}
	for _, name := range []string{"oldest", "middle", "newest"} {
		f.report(t, name)
		f.clock.pass(time.Hour)
	}
	f.data(t, "v2")
	equal(t, "length of the queue", got[int](t)(f.QueueLength(t.Context(), grype)), 4)
	now := f.clock.Now()
	first := got[[]store.Lease](t)(f.LeaseMatches(t.Context(), grype, "job", 2, now, now.Add(time.Minute)))
	equal(t, "lent first", leasedNames(first, names...), []string{"new", "oldest"})
	equal(t, "lent next", leasedNames(f.lease(t, "job"), names...), []string{"middle", "newest"})
	equal(t, "length of the queue with all lent", got[int](t)(f.QueueLength(t.Context(), grype)), 4)
	none := got[[]store.Lease](t)(f.LeaseMatches(t.Context(), grype, "job", 0, now, now))
	equal(t, "lent for a limit of none", none, []store.Lease(nil))
}

func (on suite) testALeaseIsItsHoldersForItsTime(t *testing.T) {
	f := on.newStore(t)
	catalog := catalogOf("app", f.clock.Now())
	catalog.Namespace = "shop"
	must(t, f.SaveCatalog(t.Context(), catalog, nil))
	f.use(t, "scanner", "app")
	lease := f.lease(t, "job")[0]
	want := store.Lease{ID: lease.ID, Holder: "job", PlatformDigest: digest("app"), Engine: grype, Until: f.clock.Now().Add(time.Minute)}
	equal(t, "the lease as lent", lease, want)
	want.Namespace = "shop"
	equal(t, "the lease as looked up", got[store.Lease](t)(f.Lease(t.Context(), lease.ID, "job", f.clock.Now())), want)
	for name, test := range map[string]struct {
		id, holder string
		now        time.Time
	}{
		"another holder": {lease.ID, "other job", f.clock.Now()},
		"another lease":  {"0123", "job", f.clock.Now()},
		"too late":       {lease.ID, "job", want.Until},
	} {
		if _, err := f.Lease(t.Context(), test.id, test.holder, test.now); !errors.Is(err, store.ErrLeaseEnded) {
			t.Errorf("%s: got %v, want ErrLeaseEnded", name, err)
		} else {
			f.requireContext(t, err, "look up lease")
		}
	}
}

func (on suite) testAReportEndsItsLease(t *testing.T) {
	f := on.newStore(t)
	f.saveCatalogs(t, "app", "other")
	f.use(t, "scanner", "app")
	f.use(t, "scanner", "other")
	leases := f.lease(t, "job")
	app := leases[slices.IndexFunc(leases, func(l store.Lease) bool { return l.PlatformDigest == digest("app") })]
	if _, err := f.SaveReport(t.Context(), report("other"), app.ID); !errors.Is(err, store.ErrLeaseEnded) {
		t.Errorf("a report about another image: got %v, want ErrLeaseEnded", err)
	}
	if _, err := f.Summary(t.Context(), subject("other"), store.ImageExceptions{}); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("the refused report: got %v, want ErrNotFound", err)
	}
	got[store.Difference](t)(f.SaveReport(t.Context(), report("app"), app.ID))
	if _, err := f.SaveReport(t.Context(), report("app"), app.ID); !errors.Is(err, store.ErrLeaseEnded) {
		t.Errorf("a second report with one lease: got %v, want ErrLeaseEnded", err)
	}
	f.clock.pass(time.Minute)
	late := f.lease(t, "job")[0]
	f.clock.pass(time.Minute)
	if _, err := f.SaveReport(t.Context(), report("other"), late.ID); !errors.Is(err, store.ErrLeaseEnded) {
		t.Errorf("a report that is too late: got %v, want ErrLeaseEnded", err)
	}
}

func (on suite) testMatchFailure(t *testing.T) {
	f := on.newStore(t)
	f.data(t, "v1")
	f.saveCatalogs(t, "app")
	f.use(t, "scanner", "app")
	lookup := func() (store.MatchFailure, error) { return f.MatchFailure(t.Context(), subject("app")) }
	if _, err := lookup(); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("before: got %v, want ErrNotFound", err)
	}
	failure := f.fail(t, time.Hour)
	equal(t, "the failure", got[store.MatchFailure](t)(lookup()), failure)
	if err := f.FailMatch(t.Context(), "0123", "job", failure); !errors.Is(err, store.ErrLeaseEnded) {
		t.Errorf("failing without a lease: got %v, want ErrLeaseEnded", err)
	}
	f.data(t, "v2")
	if _, err := lookup(); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("with new data: got %v, want ErrNotFound", err)
	}
	f.fail(t, time.Hour)
	f.report(t, "app")
	if _, err := lookup(); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("once matched: got %v, want ErrNotFound", err)
	}
}
