package storetest

import (
	"database/sql"
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/store"
)

func (on suite) testReceiverState(t *testing.T) {
	f := on.newStore(t)
	state := func(receiver string) []byte { return got[[]byte](t)(f.ReceiverState(t.Context(), "scanner", receiver)) }
	if s := state("slack"); s != nil {
		t.Errorf("the state before there is one is %q, want nil", s)
	}
	must(t, f.SaveReceiverState(t.Context(), "scanner", "slack", []byte("one")))
	equal(t, "saved state", string(state("slack")), "one")
	must(t, f.RecordAnnouncement(t.Context(), "scanner", "slack", store.Announcement{MessageID: "1", State: []byte("two")}))
	equal(t, "state with an announcement", string(state("slack")), "two")
	must(t, f.RecordAnnouncement(t.Context(), "scanner", "slack", store.Announcement{MessageID: "2"}))
	equal(t, "state after an announcement without one", string(state("slack")), "two")
	if s := state("other"); s != nil {
		t.Errorf("the state of another receiver is %q, want nil", s)
	}
	must(t, f.SaveReceiverState(t.Context(), "scanner", "slack", nil))
	if s := state("slack"); s != nil {
		t.Errorf("the state that was taken back is %q, want nil", s)
	}
}

func (on suite) testKnownRepositories(t *testing.T) {
	f := on.newStore(t)
	must(t, f.RecordAnnouncement(t.Context(), "scanner", "slack", store.Announcement{Repositories: []string{"quiet"}}))
	must(t, f.RecordAnnouncement(t.Context(), "scanner", "slack", store.Announcement{
		Findings:     announcedFindings(announcementKey("announced", "CVE-2026-0001", "a"), announcementKey("announced", "CVE-2026-0002", "a")),
		Repositories: []string{"quiet", "announced"},
	}))
	equal(t, "repositories that the receiver knows",
		got[[]string](t)(f.KnownRepositories(t.Context(), "scanner", "slack")), []string{"announced", "quiet"})
	equal(t, "those of another receiver", got[[]string](t)(f.KnownRepositories(t.Context(), "scanner", "mail")), []string(nil))
}

func (on suite) testRecordingAnnouncementTwice(t *testing.T) {
	f := on.newStore(t)
	announcement := store.Announcement{MessageID: "1", At: f.clock.Now(), Findings: announcedFindings(announcementKey("r", "CVE-2026-0001", "a")), Repositories: []string{"r"}, State: []byte("state")}
	must(t, f.RecordAnnouncement(t.Context(), "scanner", "slack", announcement))
	announcement.MessageID, announcement.At = "2", announcement.At.Add(time.Hour)
	for range 2 {
		must(t, f.RecordAnnouncement(t.Context(), "scanner", "slack", announcement))
	}
	equal(t, "announcements", f.count(t, "announcements"), 1)
	var digestID string
	var at sql.NullInt64
	f.queryRow(t, `SELECT digest_id, announced_at FROM announcements`, nil, &digestID, &at)
	if digestID != "1" || !timeOf(at).Equal(f.clock.Now()) {
		t.Errorf("announced by message %s at %s, want message 1 at %s", digestID, timeOf(at), f.clock.Now())
	}
}

func (on suite) testAReceiverBelongsToAScanner(t *testing.T) {
	f := on.newStore(t)
	if err := f.SaveReceiverState(t.Context(), "", "slack", nil); err == nil {
		t.Error("no scanner: got no error")
	}
}

func (on suite) testRetainReceiversDeletesOthers(t *testing.T) {
	f := on.newStore(t)
	f.running(t, "app", "r", vulnerable("CVE-2026-0001", "a"))
	announcement := store.Announcement{Findings: announcedFindings(announcementKey("r", "CVE-2026-0001", "a")), State: []byte("state")}
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
		_, total, err := f.PendingChanges(t.Context(), "scanner", receiver, store.ChangeFilter{}, 0)
		must(t, err)
		equal(t, "news for "+receiver, total, want)
	}
	must(t, f.RetainReceivers(t.Context(), "scanner", nil))
	check("scanner", "kept", "")
}
