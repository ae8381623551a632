package storetest

import (
	"errors"
	"fmt"
	"testing"

	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

var highOnly = store.ChangeFilter{MinSeverity: finding.High, Unknown: store.UnknownNever}

// present returns what the receiver "slack" has not been notified of, of high severity or worse.
func (f fixture) present(t *testing.T, worst int) store.Present {
	t.Helper()
	return got[store.Present](t)(f.Present(t.Context(), "scanner", "slack", highOnly, worst))
}

// notAnnounced counts the changes for the receiver "slack" of high severity or worse.
func (f fixture) notAnnounced(t *testing.T) int {
	t.Helper()
	_, total, err := f.PendingChanges(t.Context(), "scanner", "slack", highOnly, 1)
	must(t, err)
	return total
}

// testPresentIsEverything checks that all findings count, however many there are, and that the worst may be in the last
// repository.
func (on suite) testPresentIsEverything(t *testing.T) {
	f := on.newStore(t)
	f.running(t, "a", "a", vulnerable("CVE-2026-0001", "a"), vulnerable("CVE-2026-0002", "a", severity(finding.Low)))
	f.running(t, "b", "b", vulnerable("CVE-2026-0002", "a", severity(finding.Low)))
	f.running(t, "c", "c", vulnerable("CVE-2026-0003", "a", severity(finding.Critical)), vulnerable("CVE-2026-0001", "a"))
	present := f.present(t, 2)
	equal(t, "counts", present.Counts, got[store.Totals](t)(f.ScannerTotals(t.Context(), "scanner", exception.Set{})).Counts)
	equal(t, "number of news", present.NotAnnounced, 3)
	equal(t, "the worst without a fix", ids(present.NoFix), []string{"CVE-2026-0003", "CVE-2026-0001"})
	equal(t, "the repository of the second", present.NoFix[1].Repository, "a")
	equal(t, "repositories with news", present.Repositories, []string{"a", "c"})
}

// testPresentUpdates checks that the updates that end most come first, that each counts what it ends, and that the others are counted.
func (on suite) testPresentUpdates(t *testing.T) {
	f := on.newStore(t)
	fixedIn := func(version string) func(*finding.Finding) {
		return func(f *finding.Finding) { f.FixState, f.FixVersions = finding.FixStateFixed, []string{version} }
	}
	f.running(t, "a", "a", vulnerable("CVE-2026-0001", "one", fixedIn("2")), vulnerable("CVE-2026-0002", "two", fixedIn("2")),
		vulnerable("CVE-2026-0003", "two", fixedIn("3")), vulnerable("CVE-2026-0004", "two", fixedIn("2"), severity(finding.Low)))
	f.running(t, "b", "b", vulnerable("CVE-2026-0005", "one", fixedIn("2"), severity(finding.Critical)), vulnerable("CVE-2026-0006", "one"))
	present := f.present(t, 2)
	var updates []string
	for _, u := range present.Updates {
		text := fmt.Sprintf("%s: %s ends %d", u.Actions[0].Repository, u.Actions[0].PackageName, u.Counts.Total())
		for _, a := range u.Actions {
			text += fmt.Sprintf(", %v %v", a.FixVersions, ids(a.Ends))
		}
		updates = append(updates, text)
	}
	equal(t, "updates", updates, []string{"b: one ends 1, [2] [CVE-2026-0005]", "a: two ends 2, [2] [CVE-2026-0002], [3] [CVE-2026-0003]"})
	equal(t, "further updates", present.MoreUpdates, 1)
	equal(t, "findings without a fix", ids(present.NoFix), []string{"CVE-2026-0006"})

	var many []finding.Finding
	for i := range maxGrouped + 1 {
		many = append(many, vulnerable(fmt.Sprintf("CVE-2025-%04d", i), "many", fixedIn("2")))
	}
	f.running(t, "c", "c", many...)
	worst := f.present(t, 2).Updates[1]
	if worst.Counts.High != maxGrouped || !worst.Truncated || f.present(t, 2).Updates[0].Truncated {
		t.Errorf("the update ends %d, truncated %t; want %d, and no other update truncated", worst.Counts.High, worst.Truncated, maxGrouped)
	}
}

func (on suite) testSnapshotIsAnnounced(t *testing.T) {
	f := on.newStore(t)
	var many []finding.Finding
	for i := range 1500 {
		many = append(many, vulnerable(fmt.Sprintf("CVE-2026-%04d", i), "a"))
	}
	for _, name := range []string{"a", "b", "c"} {
		f.running(t, name, name, append(many, vulnerable("CVE-2025-0001", "a", severity(finding.Low)))...)
	}
	all := &store.FilteredSnapshot{Filter: highOnly, SnapshotID: f.present(t, 0).SnapshotID}
	must(t, f.RecordAnnouncement(t.Context(), "scanner", "slack", store.Announcement{MessageID: "1", Snapshot: all, Repositories: []string{"a"}, State: []byte("sent")}))
	equal(t, "news after all was announced", f.notAnnounced(t), 0)
	equal(t, "state", string(got[[]byte](t)(f.ReceiverState(t.Context(), "scanner", "slack"))), "sent")
	equal(t, "repositories known", got[[]string](t)(f.KnownRepositories(t.Context(), "scanner", "slack")), []string{"a"})
	_, total, err := f.PendingChanges(t.Context(), "scanner", "slack", store.ChangeFilter{}, 1)
	must(t, err)
	equal(t, "news of those that did not pass", total, 3)
	_, total, err = f.PendingChanges(t.Context(), "scanner", "mail", highOnly, 1)
	must(t, err)
	equal(t, "news for another receiver", total, 4500)
}

// testOutdatedSnapshotIsRefused checks that nothing is recorded as announced that was not in the snapshot.
func (on suite) testOutdatedSnapshotIsRefused(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, f fixture){
		"a new finding":             func(t *testing.T, f fixture) { f.report(t, "app", vulnerable("CVE-2026-0002", "a")) },
		"a finding gone":            func(t *testing.T, f fixture) { f.report(t, "app") },
		"another image":             func(t *testing.T, f fixture) { f.running(t, "other", "r") },
		"an image in two places":    func(t *testing.T, f fixture) { f.use(t, "scanner", "app", workload("a", "r"), workload("a", "mirror")) },
		"an image no longer runs":   func(t *testing.T, f fixture) { f.use(t, "scanner", "app") },
		"exploited, says another's": func(t *testing.T, f fixture) { f.report(t, "elsewhere", vulnerable("CVE-2026-0001", "b", exploited)) },
	} {
		t.Run(name, func(t *testing.T) {
			f := on.newStore(t)
			f.running(t, "app", "r", vulnerable("CVE-2026-0001", "a"))
			all := &store.FilteredSnapshot{Filter: highOnly, SnapshotID: f.present(t, 1).SnapshotID}
			change(t, f)
			before := f.notAnnounced(t)
			err := f.RecordAnnouncement(t.Context(), "scanner", "slack", store.Announcement{MessageID: "1", Snapshot: all, Repositories: []string{"r"}, State: []byte("sent")})
			if !errors.Is(err, store.ErrChanged) {
				t.Errorf("got %v, want ErrChanged", err)
			}
			equal(t, "news after the refusal", f.notAnnounced(t), before)
			equal(t, "state after the refusal", got[[]byte](t)(f.ReceiverState(t.Context(), "scanner", "slack")), []byte(nil))
		})
	}
}

// testRetract checks that a message that was never delivered takes back its announcements, and nothing else.
func (on suite) testRetract(t *testing.T) {
	f := on.newStore(t)
	f.running(t, "app", "r", vulnerable("CVE-2026-0001", "a"), vulnerable("CVE-2026-0002", "a"))
	must(t, f.RecordAnnouncement(t.Context(), "scanner", "slack", store.Announcement{MessageID: "1", Findings: announcedFindings(announcementKey("r", "CVE-2026-0001", "a"))}))
	all := &store.FilteredSnapshot{Filter: highOnly, SnapshotID: f.present(t, 1).SnapshotID}
	for _, receiver := range []string{"slack", "mail"} {
		must(t, f.RecordAnnouncement(t.Context(), "scanner", receiver, store.Announcement{MessageID: "2", Snapshot: all}))
	}
	must(t, f.RecordAnnouncement(t.Context(), "scanner", "slack", store.Announcement{Retract: "2", State: []byte("again")}))
	changes, _, err := f.PendingChanges(t.Context(), "scanner", "slack", highOnly, 0)
	must(t, err)
	equal(t, "news once the message is taken back", ids(changes), []string{"CVE-2026-0002"})
	must(t, f.RecordAnnouncement(t.Context(), "scanner", "slack", store.Announcement{Snapshot: &store.FilteredSnapshot{Filter: highOnly, SnapshotID: f.present(t, 1).SnapshotID}}))
	must(t, f.RecordAnnouncement(t.Context(), "scanner", "slack", store.Announcement{State: []byte("on")}))
	_, total, err := f.PendingChanges(t.Context(), "scanner", "slack", highOnly, 0)
	must(t, err)
	equal(t, "news once the rest is passed over without a message", total, 0)
	_, total, err = f.PendingChanges(t.Context(), "scanner", "mail", highOnly, 0)
	must(t, err)
	equal(t, "news of another receiver", total, 0)
}
