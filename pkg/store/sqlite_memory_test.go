package store

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// maxHeap is what a call may need, whatever a repository's images hold: the garbage collector runs late where there is much to do.
const maxHeap = 48 << 20

// measuresMemory skips a test under -short. The race detector, with which -short is used, changes how much memory is needed, and these tests
// have no goroutines of their own.
func measuresMemory(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("memory is measured in the run without -short")
	}
}

// hostile sets up images of one repository whose packages have long names; each finding is news of its own.
func hostile(t *testing.T, images, findings, nameBytes int) (f fixture, total int) {
	t.Helper()
	f = newStore(t)
	for n := range images {
		var all []finding.Finding
		for i := range findings {
			all = append(all, vulnerable(fmt.Sprintf("CVE-2024-%05d", i), fmt.Sprintf("p%d-%s", n, strings.Repeat("x", nameBytes))))
		}
		f.running(t, fmt.Sprint("image", n), "evil", all...)
	}
	return f, images * findings
}

// peakResident returns the bytes of resident memory that a function needs beyond what there was before, SQLite's memory included.
func peakResident(t *testing.T, run func()) int {
	t.Helper()
	read := func(field string) (kib int) {
		status, err := os.ReadFile("/proc/self/status")
		must(t, err)
		_, after, _ := strings.Cut(string(status), field)
		_, err = fmt.Sscanf(after, "%d", &kib)
		must(t, err)
		return kib
	}
	defer debug.SetGCPercent(debug.SetGCPercent(10))
	debug.FreeOSMemory()
	before := read("VmRSS:")
	must(t, os.WriteFile("/proc/self/clear_refs", []byte("5"), 0)) // resets VmHWM, see proc(5)
	run()
	return (read("VmHWM:") - before) << 10
}

// TestSortsOfAHostileRepository: SQLite sorts and groups findings without their texts. Its memory is not part of Go's heap.
func TestSortsOfAHostileRepository(t *testing.T) {
	measuresMemory(t)
	if runtime.GOOS != "linux" {
		t.Skip("resident memory is read from /proc")
	}
	f, want := hostile(t, 2, 500, 60<<10)
	present := got[Present](t)(f.Present(t.Context(), "scanner", "slack", ChangeFilter{}, 4))
	announce := func(receiver string) {
		must(t, f.RecordAnnouncement(t.Context(), "scanner", receiver, Announcement{MessageID: "1", Snapshot: &FilteredSnapshot{SnapshotID: present.SnapshotID}}))
	}
	for _, receiver := range []string{"retracted", "removed", "other", "absent", "swept", "fixed"} {
		announce(receiver)
		equal(t, "records of "+receiver, f.recordsOf(t, receiver), want)
	}
	_, err := f.writer.ExecContext(t.Context(), `UPDATE announcements SET repository = 'gone' WHERE receiver_id = (SELECT id FROM receivers WHERE name IN ('other'))`)
	must(t, err)
	_, err = f.writer.ExecContext(t.Context(), `UPDATE announcements SET canonical_id = 'gone' || canonical_id WHERE receiver_id = (SELECT id FROM receivers WHERE name = 'absent')`)
	must(t, err)
	_, err = f.writer.ExecContext(t.Context(), `UPDATE announcements SET fixed_at = 1 WHERE receiver_id = (SELECT id FROM receivers WHERE name = 'fixed')`)
	must(t, err)
	swept := knownRepository{repository: "evil", scanner: "unknown", name: "swept"}
	must(t, f.reader.QueryRowContext(t.Context(), `SELECT id FROM receivers WHERE name = 'swept'`).Scan(&swept.receiver))
	for _, step := range []struct {
		name string
		run  func()
	}{
		{"ScannerTotals", func() {
			totals := got[Totals](t)(f.ScannerTotals(t.Context(), "scanner", exception.Set{}))
			equal(t, "findings", totals.Counts.High, want)
		}},
		{"RecordAnnouncement", func() { announce("slack") }},
		{"a retraction", func() {
			must(t, f.RecordAnnouncement(t.Context(), "scanner", "retracted", Announcement{Retract: "1"}))
			equal(t, "records of a retracted message", f.recordsOf(t, "retracted"), 0)
		}},
		{"what is absent", func() {
			must(t, f.RecordAnnouncement(t.Context(), "scanner", "absent", Announcement{DeleteAbsent: &AbsentFindings{Repositories: []string{"evil"}, Until: f.clock.Now()}}))
			equal(t, "records of what is absent", f.recordsOf(t, "absent"), 0)
		}},
		{"a baseline without other repositories", func() {
			reset := Announcement{MessageID: "2", ResetRepositories: true, Snapshot: &FilteredSnapshot{SnapshotID: present.SnapshotID}}
			must(t, f.RecordAnnouncement(t.Context(), "scanner", "other", reset))
			equal(t, "records of a new baseline", f.recordsOf(t, "other"), want)
		}},
		{"a sweep of a repository", func() {
			must(t, f.deleteRepository(t.Context(), swept))
			equal(t, "records of a repository that was swept", f.recordsOf(t, "swept"), 0)
		}},
		{"a sweep of what is fixed", func() {
			must(t, f.sweepFixedRecords(t.Context(), nil))
			equal(t, "records of what was fixed", f.recordsOf(t, "fixed"), 0)
		}},
		{"RetainReceivers", func() {
			must(t, f.RetainReceivers(t.Context(), "scanner", []string{"slack"}))
			equal(t, "records of a receiver that was removed", f.recordsOf(t, "removed"), 0)
		}},
		{"DeleteScanners", func() {
			equal(t, "records before", f.recordsOf(t, "slack"), want)
			must(t, f.DeleteScanners(t.Context(), []string{"scanner"}))
			equal(t, "records of a deleted Scanner", f.recordsOf(t, "slack"), 0)
		}},
	} {
		if used := peakResident(t, step.run); used > maxHeap {
			t.Errorf("%s needs %d MiB", step.name, used>>20)
		} else {
			t.Logf("%s needs %d MiB", step.name, used>>20)
		}
	}
}

// recordsOf is how many records there are of what was announced to a receiver.
func (f fixture) recordsOf(t *testing.T, receiver string) (n int) {
	t.Helper()
	must(t, f.reader.QueryRowContext(t.Context(), `SELECT count(*) FROM announcements a JOIN receivers r ON r.id = a.receiver_id WHERE r.name = ?`, receiver).Scan(&n))
	return n
}
