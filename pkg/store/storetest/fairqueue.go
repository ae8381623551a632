package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// useIn records that the Scanner of a namespace has images.
func (f fixture) useIn(t testing.TB, namespace string, names ...string) {
	t.Helper()
	for _, name := range names {
		u := used("scanner of "+namespace, name)
		u.Namespace = namespace
		must(t, f.SetUsage(t.Context(), u))
	}
}

// queueIn is a store with images to match, by namespace.
func (on suite) queueIn(t testing.TB, images map[string][]string) fixture {
	t.Helper()
	f := on.newStore(t)
	must(t, f.SetDataVersion(t.Context(), grype, store.DataVersion{Version: "v1"}))
	for namespace, names := range images {
		f.saveCatalogs(t, names...)
		f.useIn(t, namespace, names...)
	}
	return f
}

// leaseOne leases the next image and returns the image's name, which starts with that of its namespace; empty if there is none.
func (f fixture) leaseOne(t testing.TB, holder string, names []string) (store.Lease, string) {
	t.Helper()
	leases := got[[]store.Lease](t)(f.LeaseMatches(t.Context(), grype, holder, 1, f.clock.Now(), f.clock.Now().Add(time.Hour)))
	if len(leases) == 0 {
		return store.Lease{}, ""
	}
	return leases[0], leasedNames(leases, names...)[0]
}

func (f fixture) done(t testing.TB, lease store.Lease) {
	t.Helper()
	got[store.Difference](t)(f.SaveReport(t.Context(), store.Report{
		Subject: store.Subject{PlatformDigest: lease.PlatformDigest, Engine: grype}, DataVersion: "v1", MatchedAt: f.clock.Now(),
	}, lease.ID))
}

func many(name string, n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("%s %02d", name, i))
	}
	return names
}

// testQueueIsFairToNamespaces checks that a namespace with many images does not delay others with few.
func (on suite) testQueueIsFairToNamespaces(t *testing.T) {
	large, small := many("large", 6), many("small", 2)
	names := slices.Concat(large, small)
	f := on.queueIn(t, map[string][]string{"large": large, "small": small})
	var order []string
	for range names {
		lease, name := f.leaseOne(t, "job", names)
		order = append(order, name)
		f.done(t, lease)
	}
	for i, name := range order[:4] {
		if want := []string{"large", "small"}[i%2]; name[:5] != want {
			t.Errorf("turn %d is %s, want an image of %s: %q", i, name, want, order)
		}
	}
	f.data(t, "v2")
	batch := leasedNames(f.lease(t, "job"), names...)
	if len(batch) != len(names) || !slices.Contains(batch[:4], "small 00") || !slices.Contains(batch[:4], "small 01") {
		t.Errorf("leased at once: %q, want all, and the small namespace's among the first four", batch)
	}
}

// testSlowImagesDelayOnlyTheirNamespace checks that a namespace whose matches never end holds one of two slots while others have
// images to match.
func (on suite) testSlowImagesDelayOnlyTheirNamespace(t *testing.T) {
	slow, quick := many("slow_", 5), many("quick", 9)
	names := slices.Concat(slow, quick)
	f := on.queueIn(t, map[string][]string{"slow": slow, "quick": quick})
	running, matched := map[string]store.Lease{}, 0
	for range 20 {
		for len(running) < 2 {
			lease, name := f.leaseOne(t, "job", names)
			if name == "" {
				break
			}
			running[name] = lease
		}
		for name, lease := range running {
			if name[:5] == "quick" {
				f.done(t, lease)
				delete(running, name)
				matched++
			}
		}
	}
	if matched != len(quick) {
		t.Errorf("beside images that hang %d of %d others are matched, want all", matched, len(quick))
	}
}

// testSharedImagesAreLeasedOnce checks that an image of several namespaces is leased once, for whichever is served first.
func (on suite) testSharedImagesAreLeasedOnce(t *testing.T) {
	f := on.queueIn(t, map[string][]string{"a": {"shared", "a 0"}, "b": {"shared"}, "c": {"shared", "c 0"}})
	equal(t, "the queue", got[int](t)(f.QueueLength(t.Context(), grype)), 3)
	names := []string{"shared", "a 0", "c 0"}
	leased := leasedNames(f.lease(t, "job"), names...)
	slices.Sort(leased)
	equal(t, "leased", leased, []string{"a 0", "c 0", "shared"})
}

// testTheQueueFollowsTheStore checks that the queue always equals the tables that it is derived from, after random writes.
func (on suite) testTheQueueFollowsTheStore(t *testing.T) {
	for seed := range uint64(6) {
		f := on.newStore(t)
		random := rand.New(rand.NewPCG(seed, 1))
		names, engines := many("image", 6), []string{grype, "fake"}
		one := func(of []string) string { return of[random.IntN(len(of))] }
		steps := []func() error{
			func() error {
				u := used("scanner "+one(names[:3]), one(names))
				u.Namespace, u.Engine, u.Suspended = one([]string{"a", "b"}), one(engines), random.IntN(4) == 0
				return f.SetUsage(t.Context(), u)
			},
			func() error {
				c := catalogOf(one(names), f.clock.Now())
				c.Engine = one(engines)
				return f.SaveCatalog(t.Context(), c, nil)
			},
			func() error {
				return f.ReleaseImage(t.Context(), store.ScannerImage{Scanner: "scanner " + one(names[:3]), Namespace: "shop", Key: key(one(names))}, false)
			},
			func() error { return f.DeleteCatalog(t.Context(), one(engines), digest(one(names))) },
			func() error {
				_, err := f.SaveReport(t.Context(), store.Report{
					Subject: store.Subject{PlatformDigest: digest(one(names)), Engine: one(engines)}, DataVersion: one([]string{"", "v1", "v2", "v3"}), MatchedAt: f.clock.Now(),
				}, "")
				return err
			},
			func() error {
				return f.SetDataVersion(t.Context(), one(engines), store.DataVersion{Version: one([]string{"v1", "v2", "v3"})})
			},
			func() error {
				leases, err := f.LeaseMatches(t.Context(), grype, "job", 2, f.clock.Now(), f.clock.Now().Add(time.Minute))
				for _, lease := range leases[:random.IntN(len(leases)+1)] {
					must(t, f.FailMatch(t.Context(), lease.ID, "job", store.MatchFailure{Reason: "X", FailedAt: f.clock.Now(), RetryAt: f.clock.Now().Add(time.Hour)}))
				}
				return err
			},
			func() error { return f.DeleteScanners(t.Context(), []string{"scanner " + one(names[:3])}) },
			func() error {
				f.clock.pass(time.Duration(random.IntN(50)) * time.Minute)
				_, err := f.Sweep(t.Context(), f.clock.Now().Add(-time.Hour))
				return err
			},
		}
		for range 150 {
			must(t, steps[random.IntN(len(steps))]())
			f.requireConsistentQueue(t, seed)
		}
	}
}

// requireConsistentQueue compares the queue with the view that derives it from the other tables, and its length with a query of these
// tables.
func (f fixture) requireConsistentQueue(t *testing.T, seed uint64) {
	t.Helper()
	const columns = `engine, namespace, manifest_id, made_with, matched_at`
	var differences, due int
	f.queryRow(t, `SELECT
		(SELECT count(*) FROM (SELECT `+columns+` FROM matchable EXCEPT SELECT `+columns+` FROM matchable_images) AS more) +
		(SELECT count(*) FROM (SELECT `+columns+` FROM matchable_images EXCEPT SELECT `+columns+` FROM matchable) AS fewer),
		(SELECT count(DISTINCT si.manifest_id) FROM scanner_images si
			JOIN catalogues c ON c.manifest_id = si.manifest_id AND c.engine = 'grype'
			LEFT JOIN data_versions d ON d.engine = 'grype'
			LEFT JOIN reports r ON r.manifest_id = si.manifest_id AND r.engine = 'grype'
			WHERE si.engine = 'grype' AND si.suspended = 0 AND (r.id IS NULL OR r.data_version <> d.version)
			AND NOT EXISTS (SELECT 1 FROM match_failures f WHERE f.manifest_id = si.manifest_id AND f.engine = 'grype'
				AND f.data_version = coalesce(d.version, '') AND f.retry_at > ?1 AND f.failed_at <= ?1))`,
		[]any{f.clock.Now().UnixMilli()}, &differences, &due)
	if differences != 0 {
		t.Fatalf("seed %d: %d rows of the queue are not what the tables behind it say", seed, differences)
	}
	if n := got[int](t)(f.QueueLength(t.Context(), grype)); n != due {
		t.Fatalf("seed %d: the queue has %d images, want %d", seed, n, due)
	}
}

// testWaitingWorkersWriteNothing checks that asking for a lease starts no write transaction while everything that is due is leased.
func (on suite) testWaitingWorkersWriteNothing(t *testing.T) {
	f := on.queueIn(t, map[string][]string{"shop": {"shared", "one"}, "blog": {"shared"}})
	writes := func() bool {
		before := f.revision(t)
		f.leaseOne(t, "job", []string{"shared", "one"})
		return f.revision(t) != before
	}
	for i := range 2 {
		equal(t, fmt.Sprintf("written with %d of 2 images leased", i), writes(), true)
	}
	equal(t, "written with all images leased", writes(), false)
	f.clock.pass(2 * time.Hour)
	equal(t, "written when the leases have run out", writes(), true)
}
