package store

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"
)

func TestReceiverState(t *testing.T) {
	f := newStore(t)
	state := func(receiver string) []byte { return got[[]byte](t)(f.ReceiverState(t.Context(), "scanner", receiver)) }
	if s := state("slack"); s != nil {
		t.Errorf("the state before there is one is %q, want nil", s)
	}
	must(t, f.SaveReceiverState(t.Context(), "scanner", "slack", []byte("one")))
	equal(t, "saved state", string(state("slack")), "one")
	must(t, f.RecordAnnouncement(t.Context(), "scanner", "slack", Announcement{MessageID: "1", State: []byte("two")}))
	equal(t, "state with an announcement", string(state("slack")), "two")
	must(t, f.RecordAnnouncement(t.Context(), "scanner", "slack", Announcement{MessageID: "2"}))
	equal(t, "state after an announcement without one", string(state("slack")), "two")
	if s := state("other"); s != nil {
		t.Errorf("the state of another receiver is %q, want nil", s)
	}
	must(t, f.SaveReceiverState(t.Context(), "scanner", "slack", nil))
	if s := state("slack"); s != nil {
		t.Errorf("the state that was taken back is %q, want nil", s)
	}
}

func TestKnownRepositories(t *testing.T) {
	f := newStore(t)
	must(t, f.RecordAnnouncement(t.Context(), "scanner", "slack", Announcement{Repositories: []string{"quiet"}}))
	must(t, f.RecordAnnouncement(t.Context(), "scanner", "slack", Announcement{
		Findings:     announcedFindings(AnnouncementKey{"announced", "CVE-2026-0001", "a"}, AnnouncementKey{"announced", "CVE-2026-0002", "a"}),
		Repositories: []string{"quiet", "announced"},
	}))
	equal(t, "repositories that the receiver knows",
		got[[]string](t)(f.KnownRepositories(t.Context(), "scanner", "slack")), []string{"announced", "quiet"})
	equal(t, "those of another receiver", got[[]string](t)(f.KnownRepositories(t.Context(), "scanner", "mail")), []string(nil))
}

func TestRecordingAnnouncementTwice(t *testing.T) {
	f := newStore(t)
	announcement := Announcement{MessageID: "1", At: f.clock.Now(), Findings: announcedFindings(AnnouncementKey{"r", "CVE-2026-0001", "a"}), Repositories: []string{"r"}, State: []byte("state")}
	must(t, f.RecordAnnouncement(t.Context(), "scanner", "slack", announcement))
	announcement.MessageID, announcement.At = "2", announcement.At.Add(time.Hour)
	for range 2 {
		must(t, f.RecordAnnouncement(t.Context(), "scanner", "slack", announcement))
	}
	var n int
	var digestID string
	var at millis
	must(t, f.reader.QueryRow(`SELECT count(*), digest_id, announced_at FROM announcements`).Scan(&n, &digestID, &at))
	if n != 1 || digestID != "1" || !at.Equal(f.clock.Now()) {
		t.Errorf("there are %d announcements, by message %s at %s, want one by message 1 at %s", n, digestID, at, f.clock.Now())
	}
}

func TestAReceiverBelongsToAScanner(t *testing.T) {
	f := newStore(t)
	if err := f.SaveReceiverState(t.Context(), "", "slack", nil); err == nil {
		t.Error("no scanner: got no error")
	}
}

func TestRetainReceiversDeletesOthers(t *testing.T) {
	f := newStore(t)
	f.running(t, "app", "r", vulnerable("CVE-2026-0001", "a"))
	announcement := Announcement{Findings: announcedFindings(AnnouncementKey{"r", "CVE-2026-0001", "a"}), State: []byte("state")}
	for _, receiver := range [][2]string{{"scanner", "kept"}, {"scanner", "removed"}, {"other", "removed"}} {
		must(t, f.RecordAnnouncement(t.Context(), receiver[0], receiver[1], announcement))
	}
	check := func(scanner, receiver, wantState string, wantRepositories ...string) {
		t.Helper()
		what := scanner + "/" + receiver
		equal(t, what+": state", string(got[[]byte](t)(f.ReceiverState(t.Context(), scanner, receiver))), wantState)
		equal(t, what+": repositories", got[[]string](t)(f.KnownRepositories(t.Context(), scanner, receiver)), wantRepositories)
	}
	must(t, f.RetainReceivers(t.Context(), "scanner", []string{"kept", "new"}))
	check("scanner", "kept", "state", "r")
	check("scanner", "removed", "")
	check("other", "removed", "state", "r")
	for receiver, want := range map[string]int{"kept": 0, "removed": 1} {
		_, total, err := f.PendingChanges(t.Context(), "scanner", receiver, ChangeFilter{}, 0)
		must(t, err)
		equal(t, "news for "+receiver, total, want)
	}
	must(t, f.RetainReceivers(t.Context(), "scanner", nil))
	check("scanner", "kept", "")
}

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

// TestRecentDropsTheOldest checks that entries that are read again stay when the limit is reached.
func TestRecentDropsTheOldest(t *testing.T) {
	r := recent[int]{limit: 4}
	for i := range 10 {
		r.put(fmt.Sprint(i), i)
		if n, found := r.get("0"); !found || n != 0 {
			t.Fatalf("after %d entries the first, which is asked for again and again, is gone", i+1)
		}
	}
	if _, found := r.get("1"); found {
		t.Error("an entry that nobody asked for stays for ever")
	}
	if n, found := r.get("9"); !found || n != 9 {
		t.Error("the latest entry is gone")
	}
}

// TestNoticesOfOlderStores checks that a receiver that was notified of a data anomaly under the notice's former name still knows
// it after an upgrade. Texts stay as they are.
func TestNoticesOfOlderStores(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	const (
		before = `{"notices":{"DataSuspect":{"notice":{"id":"DataSuspect","kind":"DataSuspect","detail":"\"id\":\"DataSuspect\", DataSuspect"}}}}`
		after  = `{"notices":{"DataAnomaly":{"notice":{"id":"DataAnomaly","kind":"DataAnomaly","detail":"\"id\":\"DataSuspect\", DataSuspect"}}}}`
	)
	olderStore(t, path, 16,
		`INSERT INTO meta (name, value) VALUES ('id', 'older')`,
		`INSERT INTO receivers (scanner, name, state) VALUES ('s', 'slack', CAST('`+before+`' AS BLOB)), ('s', 'mail', CAST('{}' AS BLOB)), ('s', 'new', NULL)`,
	)
	f := openStore(t, path)
	for receiver, want := range map[string]string{"slack": after, "mail": "{}", "new": ""} {
		equal(t, "state of "+receiver, string(got[[]byte](t)(f.ReceiverState(t.Context(), "s", receiver))), want)
	}
}
