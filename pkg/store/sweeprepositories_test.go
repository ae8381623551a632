package store

import "testing"

// TestRepositoryOfEndedPodsIsKnown checks that a repository that is about to be deleted stays known if pods have used it and
// ended meanwhile, as if pods still ran it.
func TestRepositoryOfEndedPodsIsKnown(t *testing.T) {
	eachDatabase(t, func(t *testing.T, f fixture) {
		pending := func() int {
			_, total, err := f.PendingChanges(t.Context(), "scanner", "slack", ChangeFilter{}, 0)
			must(t, err)
			return total
		}
		f.running(t, "app", "r", vulnerable("CVE-2026-0001", "a"))
		equal(t, "changes at first", pending(), 1)
		must(t, f.RecordAnnouncement(t.Context(), "scanner", "slack", Announcement{Findings: announcedFindings(AnnouncementKey{"r", "CVE-2026-0001", "a"})}))
		unused := knownRepository{repository: "r", scanner: "scanner", name: "slack"}
		must(t, f.reading().QueryRowContext(t.Context(), `SELECT id FROM receivers`).Scan(&unused.receiver))
		ended := used("scanner", "app")
		ended.Ended = []EndedWorkload{{nightly("job", "r"), f.clock.Now()}}
		must(t, f.SetUsage(t.Context(), ended))
		must(t, f.deleteRepository(t.Context(), unused))
		equal(t, "changes while the image is in use", pending(), 0)
		must(t, f.ReleaseImage(t.Context(), ScannerImage{"scanner", "shop", key("app")}, false))
		must(t, f.deleteRepository(t.Context(), unused))
		f.running(t, "app", "r", vulnerable("CVE-2026-0001", "a"))
		equal(t, "changes after the repository was deleted", pending(), 1)
	})
}
