package store

import (
	"testing"
	"time"
)

// What was told and has been fixed for long is forgotten as the findings are; what is still there, or does not run, is not.
func TestSweepForgetsWhatWasToldAndFixedLongAgo(t *testing.T) {
	r := newReceiver(t)
	r.filter.Settled = []string{"r", "other"}
	r.running(t, "app:1", "r", vulnerable("CVE-2026-0001", "a"), vulnerable("CVE-2026-0002", "a"))
	r.running(t, "other", "other", vulnerable("CVE-2026-0003", "a"))
	r.tells(t, "first", "New other CVE-2026-0003 High", "New r CVE-2026-0001 High", "New r CVE-2026-0002 High")
	must(t, r.Release(t.Context(), "scanner", key("app:1")))
	must(t, r.Release(t.Context(), "scanner", key("other")))
	r.running(t, "app:2", "r", vulnerable("CVE-2026-0002", "a"))
	r.tells(t, "fixed", "Fixed r CVE-2026-0001 High")
	told := func() (n int) {
		must(t, r.reader.QueryRow(`SELECT count(*) FROM announcements`).Scan(&n))
		return n
	}
	r.clock.pass(fixedFor - time.Minute)
	got[int](t)(r.Sweep(t.Context(), time.Time{}))
	equal(t, "what was told, half a year later", told(), 3)
	r.clock.pass(time.Hour)
	got[int](t)(r.Sweep(t.Context(), time.Time{}))
	equal(t, "what was told, and an hour", told(), 2)
	r.tells(t, "after the sweep")
	r.searched(t, deleteFixedRecords, []any{1, 2}, "announcements_fixed (fixed_at<?)", "SEARCH announcements USING PRIMARY KEY")
}
