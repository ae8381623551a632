package store

import (
	"strings"
	"testing"
	"time"
)

// TestRepositoryOfEndedPodsIsKnown checks that a repository that is about to be deleted stays known if pods have used it and
// ended meanwhile, as if pods still ran it.
func TestRepositoryOfEndedPodsIsKnown(t *testing.T) {
	r := newReceiver(t)
	r.running(t, "app", "r", vulnerable("CVE-2026-0001", "a"))
	r.expectChanges(t, "first", "New r CVE-2026-0001 High")
	unused := knownRepository{repository: "r", scanner: "scanner", name: "slack"}
	must(t, r.reader.QueryRow(`SELECT id FROM receivers`).Scan(&unused.receiver))
	ended := used("scanner", "app")
	ended.Ended = []EndedWorkload{{nightly("job", "r"), r.clock.Now()}}
	must(t, r.SetUsage(t.Context(), ended))
	must(t, r.deleteRepository(t.Context(), unused))
	r.expectChanges(t, "while the image is in use")
	must(t, r.ReleaseImage(t.Context(), ScannerImage{"scanner", "shop", key("app")}, false))
	must(t, r.deleteRepository(t.Context(), unused))
	r.running(t, "app", "r", vulnerable("CVE-2026-0001", "a"))
	r.expectChanges(t, "after it was forgotten", "New r CVE-2026-0001 High")
}

// TestSweepDeletesAnnouncementsFixedLongAgo checks that announcements of findings that were fixed long ago are deleted with the
// findings. Announcements of present findings, or of repositories that do not run, stay.
func TestSweepDeletesAnnouncementsFixedLongAgo(t *testing.T) {
	r := newReceiver(t)
	r.filter.AbsentIsFixedIn = []string{"r", "other"}
	r.running(t, "app:1", "r", vulnerable("CVE-2026-0001", "a"), vulnerable("CVE-2026-0002", "a"))
	r.running(t, "other", "other", vulnerable("CVE-2026-0003", "a"))
	r.expectChanges(t, "first", "New other CVE-2026-0003 High", "New r CVE-2026-0001 High", "New r CVE-2026-0002 High")
	must(t, r.ReleaseImage(t.Context(), ScannerImage{"scanner", "shop", key("app:1")}, false))
	must(t, r.ReleaseImage(t.Context(), ScannerImage{"scanner", "shop", key("other")}, false))
	r.running(t, "app:2", "r", vulnerable("CVE-2026-0002", "a"))
	r.expectChanges(t, "fixed", "Fixed r CVE-2026-0001 High")
	announced := func() (n int) {
		must(t, r.reader.QueryRow(`SELECT count(*) FROM announcements`).Scan(&n))
		return n
	}
	r.clock.pass(fixedFor - time.Minute)
	got[int](t)(r.Sweep(t.Context(), time.Time{}))
	equal(t, "what was announced, half a year later", announced(), 3)
	r.clock.pass(time.Hour)
	got[int](t)(r.Sweep(t.Context(), time.Time{}))
	equal(t, "what was announced, and an hour", announced(), 2)
	r.expectChanges(t, "after the sweep")
	r.requireIndexes(t, selectFixedRecords, []any{1}, "announcements_fixed (fixed_at<?)")
}

// TestSweepDeletesRepositoriesThatStoppedRunning checks that half a year after a repository stops running, receivers no longer
// know it, unless it runs in between.
func TestSweepDeletesRepositoriesThatStoppedRunning(t *testing.T) {
	r := newReceiver(t)
	r.running(t, "app", "r", vulnerable("CVE-2026-0001", "a"))
	r.running(t, "other", "other", vulnerable("CVE-2026-0003", "a"))
	r.running(t, "clean", "clean")
	r.expectChanges(t, "first", "New other CVE-2026-0003 High", "New r CVE-2026-0001 High")
	must(t, r.RecordAnnouncement(t.Context(), "scanner", "slack", Announcement{Repositories: []string{"clean"}}))
	sweep := func() {
		t.Helper()
		got[int](t)(r.Sweep(t.Context(), time.Time{}))
	}
	known := func() []string {
		t.Helper()
		return got[[]string](t)(r.KnownRepositories(t.Context(), "scanner", "slack"))
	}
	for _, name := range []string{"app", "clean"} {
		must(t, r.ReleaseImage(t.Context(), ScannerImage{"scanner", "shop", key(name)}, false))
	}
	sweep()
	r.clock.pass(unusedFor - time.Minute)
	sweep()
	equal(t, "known, half a year later", known(), []string{"clean", "other", "r"})
	r.running(t, "app", "r", vulnerable("CVE-2026-0001", "a"))
	sweep()
	r.expectChanges(t, "when it runs again in time")
	must(t, r.ReleaseImage(t.Context(), ScannerImage{"scanner", "shop", key("app")}, false))
	r.clock.pass(time.Hour)
	sweep()
	equal(t, "known, and an hour", known(), []string{"other", "r"})
	r.clock.pass(unusedFor + time.Hour)
	sweep()
	equal(t, "known, another half a year later", known(), []string{"other"})
	var left int
	must(t, r.reader.QueryRow(`SELECT (SELECT count(*) FROM announcements) + (SELECT count(*) FROM unused_repositories)`).Scan(&left))
	equal(t, "records left", left, 1)
	r.running(t, "app", "r", vulnerable("CVE-2026-0001", "a"))
	r.expectChanges(t, "when it runs again later", "New r CVE-2026-0001 High")
	if plan := r.queryPlan(t, selectUnusedRepositories, "[1]", 1, 1); strings.Contains(plan, "SCAN a\n") {
		t.Errorf("the announcements are read one by one:\n%s", plan)
	}
}
