package storetest

import (
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// testSweepDeletesAnnouncementsFixedLongAgo checks that announcements of findings that were fixed long ago are deleted with the
// findings. Announcements of present findings, or of repositories that do not run, stay.
func (on suite) testSweepDeletesAnnouncementsFixedLongAgo(t *testing.T) {
	r := on.newReceiver(t)
	r.filter.AbsentIsFixedIn = []string{"r", "other"}
	r.running(t, "app:1", "r", vulnerable("CVE-2026-0001", "a"), vulnerable("CVE-2026-0002", "a"))
	r.running(t, "other", "other", vulnerable("CVE-2026-0003", "a"))
	r.expectChanges(t, "first", "New other CVE-2026-0003 High", "New r CVE-2026-0001 High", "New r CVE-2026-0002 High")
	must(t, r.ReleaseImage(t.Context(), scannerImage("app:1"), false))
	must(t, r.ReleaseImage(t.Context(), scannerImage("other"), false))
	r.running(t, "app:2", "r", vulnerable("CVE-2026-0002", "a"))
	r.expectChanges(t, "fixed", "Fixed r CVE-2026-0001 High")
	announced := func() int { return r.count(t, "announcements") }
	r.clock.pass(fixedFor - time.Minute)
	got[int](t)(r.Sweep(t.Context(), time.Time{}))
	equal(t, "what was announced, half a year later", announced(), 3)
	r.clock.pass(time.Hour)
	got[int](t)(r.Sweep(t.Context(), time.Time{}))
	equal(t, "what was announced, and an hour", announced(), 2)
	r.expectChanges(t, "after the sweep")
}

// testSweepDeletesRepositoriesThatStoppedRunning checks that half a year after a repository stops running, receivers no longer
// know it, unless it runs in between.
func (on suite) testSweepDeletesRepositoriesThatStoppedRunning(t *testing.T) {
	r := on.newReceiver(t)
	r.running(t, "app", "r", vulnerable("CVE-2026-0001", "a"))
	r.running(t, "other", "other", vulnerable("CVE-2026-0003", "a"))
	r.running(t, "clean", "clean")
	r.expectChanges(t, "first", "New other CVE-2026-0003 High", "New r CVE-2026-0001 High")
	must(t, r.RecordAnnouncement(t.Context(), "scanner", "slack", store.Announcement{Repositories: []string{"clean"}}))
	sweep := func() {
		t.Helper()
		got[int](t)(r.Sweep(t.Context(), time.Time{}))
	}
	known := func() []string {
		t.Helper()
		return got[[]string](t)(r.KnownRepositories(t.Context(), "scanner", "slack"))
	}
	for _, name := range []string{"app", "clean"} {
		must(t, r.ReleaseImage(t.Context(), scannerImage(name), false))
	}
	sweep()
	r.clock.pass(unusedFor - time.Minute)
	sweep()
	equal(t, "known, half a year later", known(), []string{"clean", "other", "r"})
	r.running(t, "app", "r", vulnerable("CVE-2026-0001", "a"))
	sweep()
	r.expectChanges(t, "when it runs again in time")
	must(t, r.ReleaseImage(t.Context(), scannerImage("app"), false))
	r.clock.pass(time.Hour)
	sweep()
	equal(t, "known, and an hour", known(), []string{"other", "r"})
	r.clock.pass(unusedFor + time.Hour)
	sweep()
	equal(t, "known, another half a year later", known(), []string{"other"})
	equal(t, "records left", r.count(t, "announcements")+r.count(t, "unused_repositories"), 1)
	r.running(t, "app", "r", vulnerable("CVE-2026-0001", "a"))
	r.expectChanges(t, "when it runs again later", "New r CVE-2026-0001 High")
}
