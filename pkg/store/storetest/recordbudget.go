package storetest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/announce/diff"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

const (
	selectRecordSums = `SELECT count(*), coalesce(sum(bytes), 0), coalesce(sum((
		SELECT sum(100 + octet_length(repository) + octet_length(canonical_id) + octet_length(package)) FROM announcements a
		WHERE a.receiver_id = b.receiver_id)), 0) FROM receiver_records b`
	selectRecordCount = `SELECT count(*) FROM announcements`
)

// recorded is how many announcement records there are, whose bytes are counted as they are.
func (f fixture) recorded(t *testing.T) (records int) {
	t.Helper()
	var receivers, counted, actual int64
	f.queryRow(t, selectRecordSums, nil, &receivers, &counted, &actual)
	records = f.count(t, "announcements")
	if counted != actual {
		t.Errorf("%d records of %d receivers count as %d bytes, want %d", records, receivers, counted, actual)
	}
	return records
}

// distinctFindings are findings that differ.
func distinctFindings(n int) (all []finding.Finding) {
	for i := range n {
		all = append(all, vulnerable(fmt.Sprintf("CVE-2026-%05d", i), "openssl"))
	}
	return all
}

// announceAll records all that is present as announced to a receiver of the Scanner.
func (f fixture) announceAll(t *testing.T, scanner, receiver string) {
	t.Helper()
	present := got[store.Present](t)(f.Present(t.Context(), scanner, receiver, store.ChangeFilter{}, 1))
	must(t, f.RecordAnnouncement(t.Context(), scanner, receiver, store.Announcement{MessageID: receiver, Snapshot: &store.FilteredSnapshot{SnapshotID: present.SnapshotID}}))
}

// testRecordsOfReceiversAreBounded: what is recorded for the receivers of a namespace has a bound, of all its Scanners together.
func (on suite) testRecordsOfReceiversAreBounded(t *testing.T) {
	f := on.newStore(t)
	const findings, budget = 200, 100_000
	f.LimitRecords(budget)
	for _, name := range []string{"a", "b"} {
		f.saveCatalogs(t, name)
		f.report(t, name, distinctFindings(findings)...)
		f.inNamespace(t, "shop", "one", name, name)
		f.inNamespace(t, "shop", "two", name, name)
	}
	f.inNamespace(t, "bank", "other", "a", "a")
	for n := range 8 {
		f.announceAll(t, "one", fmt.Sprintf("r%d", n))
		f.announceAll(t, "two", fmt.Sprintf("r%d", n))
	}
	records := f.recorded(t)
	// The last one may go beyond it by one repository.
	if limit := budget/100 + 2*findings; records == 0 || records > limit {
		t.Errorf("%d records, want at most %d", records, limit)
	}
	for scanner, want := range map[string]bool{"one": true, "two": true, "other": false, "unknown": false} {
		equal(t, "no room for "+scanner, got[bool](t)(f.RecordsFull(t.Context(), scanner)), want)
	}
	f.announceAll(t, "other", "slack")
	must(t, f.UpdateAnnouncements(t.Context(), "two", "late", store.ChangeFilter{Changes: []diff.Change{diff.ChangeFixed}}, store.UpdateAll))
	if more := f.recorded(t) - records; more != findings {
		t.Errorf("%d more records, want the %d of another namespace", more, findings)
	}

	// What a message that was delivered says is recorded in any case: it would be sent again.
	announcement := []store.AnnouncedFinding{{AnnouncementKey: store.AnnouncementKey{Repository: "a", ID: "CVE-2025-0001", Package: "openssl"}}}
	must(t, f.RecordAnnouncement(t.Context(), "two", "late", store.Announcement{MessageID: "late", Findings: announcement}))
	equal(t, "records after a delivery", f.recorded(t), records+findings+1)

	must(t, f.RecordAnnouncement(t.Context(), "one", "r0", store.Announcement{Retract: "r0"}))
	must(t, f.RetainReceivers(t.Context(), "one", []string{"r0"}))
	must(t, f.DeleteScanners(t.Context(), []string{"two"}))
	equal(t, "records of receivers that are left", f.recorded(t), findings)
	equal(t, "no room when they are gone", got[bool](t)(f.RecordsFull(t.Context(), "one")), false)
}

// testStatesOfReceiversAreBounded: a message with many findings is not put into an outbox without room. The state that says so is.
func (on suite) testStatesOfReceiversAreBounded(t *testing.T) {
	f := on.newStore(t)
	f.LimitRecords(1_000_000)
	f.use(t, "scanner", "web", workload("web", "web"))
	large := make([]byte, 600_000)
	must(t, f.SaveReceiverState(t.Context(), "scanner", "a", large))
	must(t, f.SaveReceiverState(t.Context(), "scanner", "b", large))
	if err := f.SaveReceiverState(t.Context(), "scanner", "c", large); !errors.Is(err, store.ErrOverBudget) {
		t.Errorf("a third large state: got %v, want ErrOverBudget", err)
	}
	if _, err := f.BeginDelivery(t.Context(), "scanner", "c", large); !errors.Is(err, store.ErrOverBudget) {
		t.Errorf("a delivery without room: got %v, want ErrOverBudget", err)
	}
	must(t, f.SaveReceiverState(t.Context(), "scanner", "c", []byte("no room")))
	must(t, f.SaveReceiverState(t.Context(), "scanner", "b", large))
	got[int64](t)(f.BeginDelivery(t.Context(), "scanner", "b", large))
}

// testReceiversFromBeforeTheFirstImage: they count in the namespace of their Scanner as soon as it has an image.
func (on suite) testReceiversFromBeforeTheFirstImage(t *testing.T) {
	f := on.newStore(t)
	f.LimitRecords(500)
	must(t, f.SaveReceiverState(t.Context(), "scanner", "recorded", []byte("before")))
	must(t, f.SaveReceiverState(t.Context(), "scanner", "stated", []byte("before")))
	f.running(t, "web", "web", distinctFindings(3)...)
	equal(t, "no room when nothing is recorded", got[bool](t)(f.RecordsFull(t.Context(), "scanner")), false)
	f.announceAll(t, "scanner", "recorded")
	equal(t, "no room with 3 records", got[bool](t)(f.RecordsFull(t.Context(), "scanner")), false)
	must(t, f.SaveReceiverState(t.Context(), "scanner", "stated", make([]byte, 200)))
	equal(t, "no room with a larger state", got[bool](t)(f.RecordsFull(t.Context(), "scanner")), true)
}

// testRoomBecomesFree checks that without room, what is fixed or suppressed is still recorded, and that sweeps make room a day later of what
// is fixed and of repositories that no longer run. Namespaces with room keep both.
func (on suite) testRoomBecomesFree(t *testing.T) {
	for namespace, full := range map[string]bool{"shop": true, "bank": false} {
		t.Run(namespace, func(t *testing.T) {
			f := on.newStore(t)
			filter := store.ChangeFilter{AbsentIsFixedIn: []string{"r/app"}}
			update := func() { must(t, f.UpdateAnnouncements(t.Context(), "scanner", "slack", filter, store.UpdateAll)) }
			states := func(which string) int { return f.count(t, "announcements WHERE "+which) }
			for _, name := range []string{"app", "other"} {
				f.saveCatalogs(t, name)
				f.report(t, name, distinctFindings(20)...)
				f.inNamespace(t, namespace, "scanner", name, name)
			}
			f.announceAll(t, "scanner", "slack")
			equal(t, "records", f.recorded(t), 40)
			if full {
				f.LimitRecords(1000)
			}
			must(t, f.ReleaseImage(t.Context(), store.ScannerImage{Scanner: "scanner", Namespace: namespace, Key: key("other")}, false))
			for _, version := range []string{"v2", "v3"} {
				f.reportBy(t, version, "app", append(distinctFindings(17), vulnerable("CVE-2026-90000", "zlib"))...)
			}
			filter.Changes = []diff.Change{diff.ChangeNew, diff.ChangeFixed}
			filter.Exceptions = except("CVE-2026-00003")
			update()
			equal(t, "marked as fixed without a message", states("fixed_at IS NOT NULL"), map[bool]int{true: 3}[full])
			equal(t, "marked as suppressed", states("excepted = 1"), 1)
			equal(t, "records of what is new", states("canonical_id = 'CVE-2026-90000'"), 0)

			got[int](t)(f.Sweep(t.Context(), time.Time{})) // notes that nothing runs the other repository
			f.clock.pass(keptWithoutRoom - time.Minute)
			got[int](t)(f.Sweep(t.Context(), time.Time{}))
			equal(t, "records before a day is over", f.recorded(t), 40)
			f.clock.pass(2 * time.Minute)
			got[int](t)(f.Sweep(t.Context(), time.Time{}))
			equal(t, "records after a day", f.recorded(t), map[bool]int{true: 17, false: 40}[full])
		})
	}
}
