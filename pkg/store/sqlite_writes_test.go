package store

import (
	"fmt"
	"testing"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// TestRetainReceiversWritesOnlyDeletions checks that without a receiver to delete, RetainReceivers starts no write transaction and
// keeps the cache.
func TestRetainReceiversWritesOnlyDeletions(t *testing.T) {
	f := newStore(t)
	changes := func() (n int) {
		must(t, f.writer.QueryRow(`SELECT total_changes()`).Scan(&n))
		return n
	}
	for _, scanner := range []string{"one", "two"} {
		must(t, f.SaveReceiverState(t.Context(), scanner, "team", []byte("state")))
		f.unchanged.recordUnchanged(f.unchanged.key(scanner, "team"))
	}
	before := changes()
	must(t, f.RetainReceivers(t.Context(), "one", []string{"team"}))
	equal(t, "rows written", changes()-before, 0)
	equal(t, "still quiet for one", f.unchanged.isUnchanged(f.unchanged.key("one", "team")), true)
	must(t, f.RetainReceivers(t.Context(), "one", nil))
	equal(t, "quiet for one, whose receiver was forgotten", f.unchanged.isUnchanged(f.unchanged.key("one", "team")), false)
	must(t, f.DeleteScanners(t.Context(), []string{"one"}))
	equal(t, "still quiet for two", f.unchanged.isUnchanged(f.unchanged.key("two", "team")), true)
	must(t, f.DeleteScanners(t.Context(), []string{"two"}))
	equal(t, "Scanners that are still known", len(f.unchanged.rounds), 0)
	equal(t, "quiet for two, which was forgotten", f.unchanged.isUnchanged(f.unchanged.key("two", "team")), false)
}

// TestManyShortLivedPods checks that the end of one more pod, each a workload of its own, writes few rows and not all of them
// again.
func TestManyShortLivedPods(t *testing.T) {
	f := newStore(t)
	u := used("scanner", "app")
	changes := func(pods int) (n int) {
		before := 0
		must(t, f.writer.QueryRow(`SELECT total_changes()`).Scan(&before))
		for i := len(u.Ended); i < pods; i++ {
			u.Ended = append(u.Ended, EndedWorkload{nightly(fmt.Sprintf("job-%d", i), "r"), f.clock.Now()})
		}
		must(t, f.SetUsage(t.Context(), u))
		must(t, f.writer.QueryRow(`SELECT total_changes()`).Scan(&n))
		return n - before
	}
	if n := changes(200); n < 200 {
		t.Errorf("200 pods changed %d rows, want all", n)
	}
	if n := changes(201); n > 10 {
		t.Errorf("one more pod changed %d rows, want few", n)
	}
}

func aliases(ids ...string) func(*finding.Finding) {
	return func(f *finding.Finding) { f.Aliases = ids }
}

// TestAnUnchangedFindingCostsNoWrite checks that a report writes only what it changes.
func TestAnUnchangedFindingCostsNoWrite(t *testing.T) {
	f := newStore(t)
	changes := func() (n int) {
		must(t, f.writer.QueryRow(`SELECT total_changes()`).Scan(&n))
		return n
	}
	var findings []finding.Finding
	for i := range 100 {
		findings = append(findings, vulnerable(fmt.Sprintf("CVE-2026-%04d", i), "a", aliases(fmt.Sprintf("GHSA-%d", i))))
	}
	f.reportBy(t, "v1", "app", findings...)
	f.reportBy(t, "v2", "app", findings[:50]...)
	f.reportBy(t, "v3", "app", findings[:50]...)
	for _, data := range []string{"v4", "v5", "v5"} {
		before := changes()
		f.reportBy(t, data, "app", findings[:50]...)
		// The report has a row, and the revision.
		equal(t, "rows written by a report with "+data+" that says nothing new", changes()-before, 2)
	}
}
