package storetest

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/announce/diff"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// maxHeap is what a call may need, whatever a repository's images hold.
const maxHeap = 48 << 20

// peak is how many bytes of heap a function needs beyond what there was before, without garbage: how much of that there is depends on when the
// collector gets a processor.
func peak(run func()) uint64 {
	defer debug.SetGCPercent(debug.SetGCPercent(10))
	runtime.GC()
	var most atomic.Uint64
	before, done, ended := liveHeap(), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			now := liveHeap()
			most.Store(max(most.Load(), now-min(now, before)))
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

// liveHeap returns the bytes that the last garbage collection has found in use.
func liveHeap() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
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
func (on suite) hostile(t *testing.T, images, findings, nameBytes int) (f fixture, total int) {
	t.Helper()
	f = on.newStore(t)
	for n := range images {
		var all []finding.Finding
		for i := range findings {
			all = append(all, vulnerable(fmt.Sprintf("CVE-2024-%05d", i), fmt.Sprintf("p%d-%s", n, strings.Repeat("x", nameBytes))))
		}
		f.running(t, fmt.Sprint("image", n), "evil", all...)
	}
	return f, images * findings
}

// testChangesOfAHostileRepository: whatever the images of one repository hold, only a part of it is in memory, and all of it is announced once.
func (on suite) testChangesOfAHostileRepository(t *testing.T) {
	measuresMemory(t)
	f, want := on.hostile(t, 3, 500, 30<<10)
	withinHeap(t, "Present", func() {
		present := got[store.Present](t)(f.Present(t.Context(), "scanner", "slack", store.ChangeFilter{}, 4))
		equal(t, "news of Present", present.NotAnnounced, want)
		equal(t, "the worst", ids(present.NoFix), []string{"CVE-2024-00000", "CVE-2024-00000", "CVE-2024-00000", "CVE-2024-00001"})
	})
	announced := make(map[store.AnnouncementKey]bool)
	for len(announced) < want {
		var changes []store.FindingChange
		withinHeap(t, "changes", func() {
			var total int
			var err error
			changes, total, err = f.PendingChanges(t.Context(), "scanner", "slack", store.ChangeFilter{}, 10_000)
			must(t, err)
			equal(t, "total", total, want-len(announced))
		})
		if len(changes) == 0 || !slices.IsSortedFunc(changes, func(a, b store.FindingChange) int { return finding.Worse(a.Finding, b.Finding) }) {
			t.Fatalf("there are %d news, not the worst first", len(changes))
		}
		var announcement []store.AnnouncedFinding
		for _, n := range changes {
			s := announcedFinding(n)
			if announced[s.AnnouncementKey] {
				t.Fatalf("%s comes twice", s.ID)
			}
			announced[s.AnnouncementKey] = true
			announcement = append(announcement, s)
		}
		must(t, f.RecordAnnouncement(t.Context(), "scanner", "slack", store.Announcement{Findings: announcement}))
	}
}

// testUpdatesOfAHostileRepository: what is recorded without a message is read and recorded in parts, until nothing is left.
func (on suite) testUpdatesOfAHostileRepository(t *testing.T) {
	measuresMemory(t)
	f, want := on.hostile(t, 3, 500, 30<<10)
	filter := store.ChangeFilter{Changes: []diff.Change{diff.ChangeFixed}, AbsentIsFixedIn: []string{"evil"}}
	withinHeap(t, "FollowUp of what is present", func() {
		must(t, f.UpdateAnnouncements(t.Context(), "scanner", "slack", filter, store.UpdateAll))
	})
	for n := range 3 {
		f.reportBy(t, "v2", fmt.Sprint("image", n))
		f.reportBy(t, "v3", fmt.Sprint("image", n))
	}
	fixed := func() (total int) {
		var changes []store.FindingChange
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
	f.exec(t, `DELETE FROM loss_counts`)
	equal(t, "what is fixed", fixed(), want)
	filter.Changes = []diff.Change{diff.ChangeNew}
	withinHeap(t, "FollowUp of what is fixed", func() {
		must(t, f.UpdateAnnouncements(t.Context(), "scanner", "slack", filter, store.UpdateAll))
	})
	filter.Changes = []diff.Change{diff.ChangeFixed}
	equal(t, "what is fixed after it was recorded", fixed(), 0)
}

// testChangesOfManyFindings: of many findings only as many are in memory as are asked for.
func (on suite) testChangesOfManyFindings(t *testing.T) {
	measuresMemory(t)
	f, want := on.hostile(t, 4, 10_000, 16)
	withinHeap(t, "Present", func() {
		equal(t, "news of Present", got[store.Present](t)(f.Present(t.Context(), "scanner", "slack", store.ChangeFilter{}, 5)).NotAnnounced, want)
	})
	withinHeap(t, "changes", func() {
		changes, total, err := f.PendingChanges(t.Context(), "scanner", "slack", store.ChangeFilter{}, 100)
		must(t, err)
		equal(t, "news and their number", []int{len(changes), total}, []int{100, want})
	})
}

// testChangesOfAnyPackageName: a package may have any name, and is announced by it.
func (on suite) testChangesOfAnyPackageName(t *testing.T) {
	for _, name := range []string{"a\tb", "\x02", "", "\"\\", "\x01\x7f", "ü\u2028\U0010ffff", "\uffff", "<&>", "1", "1.0", "null"} {
		f := on.newStore(t)
		f.running(t, "app", "r", vulnerable("CVE-2024-0001", name))
		changes, total, err := f.PendingChanges(t.Context(), "scanner", "slack", store.ChangeFilter{}, 1)
		must(t, err)
		if total != 1 || len(changes) != 1 || changes[0].Finding.Package.Name != name {
			t.Fatalf("of a package called %q there are %d changes, of which %d are listed", name, total, len(changes))
		}
		must(t, f.RecordAnnouncement(t.Context(), "scanner", "slack", store.Announcement{Findings: []store.AnnouncedFinding{announcedFinding(changes[0])}}))
		_, total, err = f.PendingChanges(t.Context(), "scanner", "slack", store.ChangeFilter{}, 1)
		must(t, err)
		equal(t, fmt.Sprintf("news of the package %q after it was announced", name), total, 0)
	}
}
