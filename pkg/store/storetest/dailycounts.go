package storetest

import (
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// testHistory checks that a day has what was recorded last, and that only what differs is written.
func (on suite) testHistory(t *testing.T) {
	f := on.newStore(t)
	const day = 24 * time.Hour
	began := f.clock.Now().UTC().Truncate(day)
	record := func(all store.DailyCounts, counts map[string]store.DailyCounts) {
		t.Helper()
		must(t, f.RecordDay(t.Context(), all, counts))
	}
	require := func(what string, seen store.Sight, days int, want ...store.DayOfHistory) {
		t.Helper()
		equal(t, what, got[[]store.DayOfHistory](t)(f.History(t.Context(), seen, days)), want)
	}
	after := func(days int, counts store.DailyCounts) store.DayOfHistory {
		return store.DayOfHistory{Day: began.Add(time.Duration(days) * day), DailyCounts: counts}
	}
	all, shop := store.Sight{All: true}, store.Sight{Namespaces: []string{"shop", "new"}}
	record(store.DailyCounts{}, nil)
	require("without namespaces", all, 90)
	counts := store.DailyCounts{ToActOn: 3, KnownExploited: 1, Critical: 2, High: 4, Images: 6, Scanned: 5}
	twice := store.DailyCounts{ToActOn: 6, KnownExploited: 2, Critical: 4, High: 8, Images: 12, Scanned: 10}
	record(counts, map[string]store.DailyCounts{"shop": {ToActOn: 9}, "bank": counts, "gone": counts})
	record(twice, map[string]store.DailyCounts{"shop": counts, "bank": counts})
	require("the last of the day", all, 90, after(0, twice))
	require("of one namespace", shop, 90, after(0, counts))

	before := got[int64](t)(f.Revision(t.Context()))
	record(twice, map[string]store.DailyCounts{"shop": counts, "bank": counts})
	equal(t, "revision after what is recorded already", got[int64](t)(f.Revision(t.Context())), before)

	f.clock.pass(2 * day)
	record(store.DailyCounts{ToActOn: 1}, map[string]store.DailyCounts{"shop": {}, "new": {ToActOn: 1}})
	require("after a day without a record", all, 90, after(0, twice), after(2, store.DailyCounts{ToActOn: 1}))
	require("of two namespaces", shop, 90, after(0, counts), after(2, store.DailyCounts{ToActOn: 1}))
	require("of today", all, 1, after(2, store.DailyCounts{ToActOn: 1}))

	f.clock.pass(-day)
	require("while the clock is set back", all, 90, after(0, twice))
	f.clock.pass(88 * day)
	record(store.DailyCounts{}, map[string]store.DailyCounts{"shop": {}})
	require("after 89 days", store.Sight{Namespaces: []string{"bank"}}, 90, after(0, counts))
	equal(t, "rows after 89 days", f.count(t, "daily_counts"), 8)
	f.clock.pass(day)
	record(store.DailyCounts{}, nil)
	require("after 90 days", all, 90, after(2, store.DailyCounts{ToActOn: 1}), after(89, store.DailyCounts{}))
	equal(t, "rows after 90 days", f.count(t, "daily_counts"), 5)
}
