package store

import (
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
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
func queueIn(t testing.TB, images map[string][]string) fixture {
	t.Helper()
	f := newStore(t)
	must(t, f.SetDataVersion(t.Context(), grype, DataVersion{Version: "v1"}))
	for namespace, names := range images {
		f.saveCatalogs(t, names...)
		f.useIn(t, namespace, names...)
	}
	return f
}

// leaseOne leases the next image and returns the image's name, which starts with that of its namespace; empty if there is none.
func (f fixture) leaseOne(t testing.TB, holder string, names []string) (Lease, string) {
	t.Helper()
	leases := got[[]Lease](t)(f.LeaseMatches(t.Context(), grype, holder, 1, f.clock.Now(), f.clock.Now().Add(time.Hour)))
	if len(leases) == 0 {
		return Lease{}, ""
	}
	return leases[0], leasedNames(leases, names...)[0]
}

func (f fixture) done(t testing.TB, lease Lease) {
	t.Helper()
	got[Difference](t)(f.SaveReport(t.Context(), Report{
		Subject: Subject{PlatformDigest: lease.PlatformDigest, Engine: grype}, DataVersion: "v1", MatchedAt: f.clock.Now(),
	}, lease.ID))
}

func many(name string, n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("%s %02d", name, i))
	}
	return names
}

// TestQueueIsFairToNamespaces checks that a namespace with many images does not delay others with few.
func TestQueueIsFairToNamespaces(t *testing.T) {
	large, small := many("large", 6), many("small", 2)
	names := slices.Concat(large, small)
	f := queueIn(t, map[string][]string{"large": large, "small": small})
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

// TestSlowImagesDelayOnlyTheirNamespace checks that a namespace whose matches never end holds one of two slots while others have
// images to match.
func TestSlowImagesDelayOnlyTheirNamespace(t *testing.T) {
	slow, quick := many("slow_", 5), many("quick", 9)
	names := slices.Concat(slow, quick)
	f := queueIn(t, map[string][]string{"slow": slow, "quick": quick})
	running, matched := map[string]Lease{}, 0
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

// TestSharedImagesAreLeasedOnce checks that an image of several namespaces is leased once, for whichever is served first.
func TestSharedImagesAreLeasedOnce(t *testing.T) {
	f := queueIn(t, map[string][]string{"a": {"shared", "a 0"}, "b": {"shared"}, "c": {"shared", "c 0"}})
	equal(t, "the queue", got[int](t)(f.QueueLength(t.Context(), grype)), 3)
	names := []string{"shared", "a 0", "c 0"}
	leased := leasedNames(f.lease(t, "job"), names...)
	slices.Sort(leased)
	equal(t, "leased", leased, []string{"a 0", "c 0", "shared"})
}

// TestTheQueueFollowsTheStore checks that the queue always equals the tables that it is derived from, after random writes.
func TestTheQueueFollowsTheStore(t *testing.T) {
	for seed := range uint64(6) {
		f := newStore(t)
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
				return f.ReleaseImage(t.Context(), ScannerImage{"scanner " + one(names[:3]), "shop", key(one(names))}, false)
			},
			func() error { return f.DeleteCatalog(t.Context(), one(engines), digest(one(names))) },
			func() error {
				_, err := f.SaveReport(t.Context(), Report{
					Subject: Subject{PlatformDigest: digest(one(names)), Engine: one(engines)}, DataVersion: one([]string{"", "v1", "v2", "v3"}), MatchedAt: f.clock.Now(),
				}, "")
				return err
			},
			func() error {
				return f.SetDataVersion(t.Context(), one(engines), DataVersion{Version: one([]string{"v1", "v2", "v3"})})
			},
			func() error {
				leases, err := f.LeaseMatches(t.Context(), grype, "job", 2, f.clock.Now(), f.clock.Now().Add(time.Minute))
				for _, lease := range leases[:random.IntN(len(leases)+1)] {
					must(t, f.FailMatch(t.Context(), lease.ID, "job", MatchFailure{Reason: "X", FailedAt: f.clock.Now(), RetryAt: f.clock.Now().Add(time.Hour)}))
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
	must(t, f.reader.QueryRow(`SELECT
		(SELECT count(*) FROM (SELECT `+columns+` FROM matchable EXCEPT SELECT `+columns+` FROM matchable_images)) +
		(SELECT count(*) FROM (SELECT `+columns+` FROM matchable_images EXCEPT SELECT `+columns+` FROM matchable)),
		(SELECT count(DISTINCT si.manifest_id) FROM scanner_images si
			JOIN catalogues c ON c.manifest_id = si.manifest_id AND c.engine = 'grype'
			LEFT JOIN data_versions d ON d.engine = 'grype'
			LEFT JOIN reports r ON r.manifest_id = si.manifest_id AND r.engine = 'grype'
			WHERE si.engine = 'grype' AND si.suspended = 0 AND (r.id IS NULL OR r.data_version <> d.version)
			AND NOT EXISTS (SELECT 1 FROM match_failures f WHERE f.manifest_id = si.manifest_id AND f.engine = 'grype'
				AND f.data_version = coalesce(d.version, '') AND f.retry_at > ?1 AND f.failed_at <= ?1))`,
		millis{f.clock.Now()}).Scan(&differences, &due))
	if differences != 0 {
		t.Fatalf("seed %d: %d rows of the queue are not what the tables behind it say", seed, differences)
	}
	if n := got[int](t)(f.QueueLength(t.Context(), grype)); n != due {
		t.Fatalf("seed %d: the queue has %d images, want %d", seed, n, due)
	}
}

func TestTheQueueIsSearchedByIndex(t *testing.T) {
	f := newStore(t)
	queue := got[matchQueue](t)(openQueue(t.Context(), f.reading(), grype, f.clock.Now()))
	args := queue.args(sql.Named("namespace", "shop"), sql.Named("version", "v1"), sql.Named("suspected", false))
	f.requireIndexes(t, countQueue, args, "matchable_by_data", "matchable_by_retry", "matchable_by_failure")
	f.requireIndexes(t, hasQueue, args, "matchable_by_", "leases_by_engine")
	if plan := f.queryPlan(t, isolatedDue, args...); strings.Contains(plan, "SCAN m") {
		t.Errorf("the statement goes through the queue:\n%s", plan)
	}
	for _, side := range queueSides {
		f.requireIndexes(t, nextOf(side), args, "matchable_by_namespace")
		f.requireNoSort(t, nextOf(side), args)
	}
}

// TestWaitingWorkersWriteNothing checks that asking for a lease starts no write transaction while everything that is due is
// leased. A read-only store shows this, since it refuses write transactions.
func TestWaitingWorkersWriteNothing(t *testing.T) {
	f := queueIn(t, map[string][]string{"shop": {"shared", "one"}, "blog": {"shared"}})
	readOnly, err := OpenSQLiteReadOnly(f.path)
	must(t, err)
	t.Cleanup(func() { must(t, readOnly.Close()) })
	ask := func() error {
		_, err := readOnly.LeaseMatches(t.Context(), grype, "job", 1, f.clock.Now(), f.clock.Now().Add(time.Minute))
		return err
	}
	for i := range 2 {
		if err := ask(); !errors.Is(err, ErrReadOnly) {
			t.Errorf("%d of 2 images leased: %v, want %v", i, err, ErrReadOnly)
		}
		f.leaseOne(t, "job", []string{"shared", "one"})
	}
	must(t, ask())
	f.clock.pass(time.Hour)
	if err := ask(); !errors.Is(err, ErrReadOnly) {
		t.Errorf("leases have run out: %v, want %v", err, ErrReadOnly)
	}
}

// requireNoSort fails the test if a statement sorts its rows.
func (f fixture) requireNoSort(t *testing.T, statement string, args []any) {
	t.Helper()
	if plan := f.queryPlan(t, statement, args...); strings.Contains(plan, "TEMP B-TREE") {
		t.Errorf("the statement sorts:\n%s", plan)
	}
}

// TestTheQueueOfOlderStores checks that what was due or had failed before an upgrade is so after it.
func TestTheQueueOfOlderStores(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	olderStore(t, path, 6,
		`INSERT INTO meta (name, value) VALUES ('id', 'older')`,
		`INSERT INTO manifests (id, platform_digest, scope, last_used) VALUES (1, '`+digest("due")+`', '', 0), (2, '`+digest("failed")+`', '', 0), (3, '`+digest("current")+`', '', 0)`,
		`INSERT INTO catalogues (manifest_id, engine, distro, packages, tool, catalogued_at) VALUES (1, 'grype', '', 1, 'syft', 0), (2, 'grype', '', 1, 'syft', 0), (3, 'grype', '', 1, 'syft', 0)`,
		`INSERT INTO data_versions (engine, version, tool) VALUES ('grype', 'v1', '')`,
		`INSERT INTO reports (id, revision, manifest_id, engine, data_version, matched_at, distro) VALUES (1, 1, 3, 'grype', 'v1', 0, '')`,
		`INSERT INTO match_failures (manifest_id, engine, data_version, reason, message, failed_at, retry_at) VALUES (2, 'grype', 'v1', 'X', '', 0, `+fmt.Sprint(newClock().Now().Add(time.Hour).UnixMilli())+`)`,
		`INSERT INTO scanner_images (scanner, namespace, digest, platform, scope, engine, manifest_id)
			VALUES ('s', 'shop', 'a', '', '', 'grype', 1), ('s', 'shop', 'b', '', '', 'grype', 2), ('s', 'shop', 'c', '', '', 'grype', 3), ('t', 'shop', 'a', '', '', 'grype', 1)`,
	)
	f := openStore(t, path)
	f.requireConsistentQueue(t, 0)
	equal(t, "leased", leasedNames(f.lease(t, "job"), "due", "failed", "current"), []string{"due"})
	f.clock.pass(time.Hour)
	equal(t, "the queue when the failure is over", got[int](t)(f.QueueLength(t.Context(), grype)), 2)
}
