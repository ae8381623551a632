package store

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/announce/diff"
	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// maxHeap is what a call may need, whatever a repository's images hold: the garbage collector runs late where there is much to do.
const maxHeap = 48 << 20

// peak is how many bytes of heap a function needs beyond what there was before.
func peak(run func()) uint64 {
	defer debug.SetGCPercent(debug.SetGCPercent(10))
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	var most atomic.Uint64
	before, done, ended := m.HeapAlloc, make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			var now runtime.MemStats
			runtime.ReadMemStats(&now)
			most.Store(max(most.Load(), now.HeapAlloc-min(now.HeapAlloc, before)))
			select {
			case <-done:
				return
			case <-time.After(2 * time.Millisecond):
			}
		}
	}()
	run()
	close(done)
	<-ended
	return most.Load()
}

func withinHeap(t *testing.T, what string, run func()) {
	t.Helper()
	if used := peak(run); used > maxHeap {
		t.Errorf("%s needs %d MiB", what, used>>20)
	}
}

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

// TestChangesOfAHostileRepository: whatever the images of one repository hold, only a part of it is in memory, and all of it is announced once.
func TestChangesOfAHostileRepository(t *testing.T) {
	measuresMemory(t)
	f, want := hostile(t, 3, 500, 30<<10)
	withinHeap(t, "Present", func() {
		present := got[Present](t)(f.Present(t.Context(), "scanner", "slack", ChangeFilter{}, 4))
		equal(t, "news of Present", present.NotAnnounced, want)
		equal(t, "the worst", ids(present.NoFix), []string{"CVE-2024-00000", "CVE-2024-00000", "CVE-2024-00000", "CVE-2024-00001"})
	})
	announced := make(map[AnnouncementKey]bool)
	for len(announced) < want {
		var changes []FindingChange
		withinHeap(t, "changes", func() {
			var total int
			var err error
			changes, total, err = f.PendingChanges(t.Context(), "scanner", "slack", ChangeFilter{}, 10_000)
			must(t, err)
			equal(t, "total", total, want-len(announced))
		})
		if len(changes) == 0 || !slices.IsSortedFunc(changes, func(a, b FindingChange) int { return finding.Worse(a.Finding, b.Finding) }) {
			t.Fatalf("there are %d news, not the worst first", len(changes))
		}
		var announcement []AnnouncedFinding
		for _, n := range changes {
			s := announcedFinding(n)
			if announced[s.AnnouncementKey] {
				t.Fatalf("%s comes twice", s.ID)
			}
			announced[s.AnnouncementKey] = true
			announcement = append(announcement, s)
		}
		must(t, f.RecordAnnouncement(t.Context(), "scanner", "slack", Announcement{Findings: announcement}))
	}
}

// TestUpdatesOfAHostileRepository: what is recorded without a message is read and recorded in parts, until nothing is left.
func TestUpdatesOfAHostileRepository(t *testing.T) {
	measuresMemory(t)
	f, want := hostile(t, 3, 500, 30<<10)
	filter := ChangeFilter{Changes: []diff.Change{diff.ChangeFixed}, AbsentIsFixedIn: []string{"evil"}}
	withinHeap(t, "FollowUp of what is present", func() {
		must(t, f.UpdateAnnouncements(t.Context(), "scanner", "slack", filter, UpdateAll))
	})
	for n := range 3 {
		f.reportBy(t, "v2", fmt.Sprint("image", n))
		f.reportBy(t, "v3", fmt.Sprint("image", n))
	}
	fixed := func() (total int) {
		var changes []FindingChange
		withinHeap(t, "fixed findings", func() {
			var err error
			changes, total, err = f.PendingChanges(t.Context(), "scanner", "slack", filter, 10_000)
			must(t, err)
		})
		if (len(changes) > 0) != (total > 0) {
			t.Errorf("of %d news %d are listed", total, len(changes))
		}
		return total
	}
	// A loss of all findings is an anomaly, during which nothing is fixed.
	_, err := f.writer.ExecContext(t.Context(), `DELETE FROM loss_counts`)
	must(t, err)
	equal(t, "what is fixed", fixed(), want)
	filter.Changes = []diff.Change{diff.ChangeNew}
	withinHeap(t, "FollowUp of what is fixed", func() {
		must(t, f.UpdateAnnouncements(t.Context(), "scanner", "slack", filter, UpdateAll))
	})
	filter.Changes = []diff.Change{diff.ChangeFixed}
	equal(t, "what is fixed after it was recorded", fixed(), 0)
}

// TestChangesOfManyFindings: of many findings only as many are in memory as are asked for.
func TestChangesOfManyFindings(t *testing.T) {
	measuresMemory(t)
	f, want := hostile(t, 4, 10_000, 16)
	withinHeap(t, "Present", func() {
		equal(t, "news of Present", got[Present](t)(f.Present(t.Context(), "scanner", "slack", ChangeFilter{}, 5)).NotAnnounced, want)
	})
	withinHeap(t, "changes", func() {
		changes, total, err := f.PendingChanges(t.Context(), "scanner", "slack", ChangeFilter{}, 100)
		must(t, err)
		equal(t, "news and their number", []int{len(changes), total}, []int{100, want})
	})
}

// TestChangesOfAnyPackageName: a package may have any name, and is announced by it.
func TestChangesOfAnyPackageName(t *testing.T) {
	for _, name := range []string{"a\tb", "\x02", "", "\"\\", "\x01\x7f", "ü\u2028\U0010ffff", "\uffff", "<&>", "1", "1.0", "null"} {
		f := newStore(t)
		f.running(t, "app", "r", vulnerable("CVE-2024-0001", name))
		changes, total, err := f.PendingChanges(t.Context(), "scanner", "slack", ChangeFilter{}, 1)
		must(t, err)
		if total != 1 || len(changes) != 1 || changes[0].Finding.Package.Name != name {
			t.Fatalf("of a package called %q there are %d changes, of which %d are listed", name, total, len(changes))
		}
		must(t, f.RecordAnnouncement(t.Context(), "scanner", "slack", Announcement{Findings: []AnnouncedFinding{announcedFinding(changes[0])}}))
		_, total, err = f.PendingChanges(t.Context(), "scanner", "slack", ChangeFilter{}, 1)
		must(t, err)
		equal(t, fmt.Sprintf("news of the package %q after it was announced", name), total, 0)
	}
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

// TestUpdatesGoOnWhereTheyStopped checks that an update with more edits than are held at a time goes on with the repository where it
// stopped, and looks at those before it no more.
func TestUpdatesGoOnWhereTheyStopped(t *testing.T) {
	f := newStore(t)
	long := strings.Repeat("x", 30<<10)
	for _, name := range []string{"a", "b", "c"} {
		var all []finding.Finding
		for i := range 200 {
			all = append(all, vulnerable(fmt.Sprintf("CVE-2024-%05d", i), fmt.Sprintf("%s-%s", name, long)))
		}
		f.running(t, "image-"+name, name, all...)
	}
	filter := ChangeFilter{Changes: []diff.Change{diff.ChangeFixed}}
	from := func(repository string) string {
		return got[string](t)(f.updateFrom(t.Context(), "scanner", "slack", filter, UpdateAll, repository))
	}
	recordedIn := func(repository string) (n int) {
		must(t, f.reader.QueryRowContext(t.Context(), `SELECT count(*) FROM announcements WHERE repository = ?`, repository).Scan(&n))
		return n
	}
	equal(t, "the second part", from("b"), "c")
	equal(t, "records of the repository before", recordedIn("a"), 0)
	equal(t, "the last part", from("c"), "")
	equal(t, "records of the last repository", recordedIn("c"), 200)
	must(t, f.UpdateAnnouncements(t.Context(), "scanner", "slack", filter, UpdateAll))
	equal(t, "records of the first repository", recordedIn("a"), 200)
}
