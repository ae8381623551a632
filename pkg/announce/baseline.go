package announce

import (
	"slices"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// Times that no setting changes.
const (
	// baselineTimeout is how long a baseline waits for the results of its images, once there is vulnerability data. The summary counts the
	// images without a result. Their findings are announced as changes later.
	baselineTimeout = 30 * time.Minute
	// pullTimeout is how long the snapshot waits for images that nodes are still pulling. They have no key yet.
	pullTimeout = 5 * time.Minute
	// pullCheck is how often to check such images. If a node gives up pulling, no image changes and no event may trigger a plan.
	pullCheck = 10 * time.Second
)

// Phase is the progress of a baseline.
type Phase string

// Phases of a baseline.
const (
	// BaselineNone is the zero value: nothing was planned for the receiver yet.
	BaselineNone Phase = ""
	// BaselineOpen means that images still join the snapshot, that their results are awaited, or that the summary is not delivered.
	BaselineOpen Phase = "Open"
	// BaselineDone means that the baseline was announced or recorded silently. From here on, differences are announced.
	BaselineDone Phase = "Done"
)

// Baseline is what is present before anything counts as new.
type Baseline struct {
	Phase Phase `json:"phase,omitempty"`
	// Renewed is true if an earlier store was lost.
	Renewed bool `json:"renewed,omitempty"`
	// EngineBefore is set while the baseline is open because the Scanner's engine was changed. It is the engine whose findings were
	// announced before.
	EngineBefore string `json:"engineBefore,omitempty"`
	// ToolBefore is set while the baseline is open because the engine has another version. It is the previous version. FilterBefore is set
	// while the baseline is open because the receiver's filter was widened. It is the previous breadth.
	ToolBefore   string   `json:"toolBefore,omitempty"`
	FilterBefore *Breadth `json:"filterBefore,omitempty"`
	// RestoredFrom is set while the baseline is open because the store was restored. It is the time of the backup. Any of these reasons may hold
	// together with EngineBefore.
	RestoredFrom time.Time `json:"restoredFrom,omitzero"`
	Started      time.Time `json:"started,omitzero"`
	// Waited is true once the baseline waited because nothing ran. Restarted is true once it has started again with the next image, which it
	// does only once: pods that live for less than GroupWait would keep it open for ever otherwise.
	Waited    bool `json:"waited,omitempty"`
	Restarted bool `json:"restarted,omitempty"`
	// Images are the keys of the images in the snapshot, until the baseline is done.
	Images []string `json:"images,omitempty"`
	// Pulling is true if some images had no key yet at the last plan, because nodes were still pulling them.
	Pulling bool `json:"pulling,omitempty"`
}

// finish marks the baseline as done and clears why it was open.
func (b *Baseline) finish() {
	b.Phase, b.Images, b.Waited, b.Restarted = BaselineDone, nil, false, false
	b.EngineBefore, b.ToolBefore, b.FilterBefore, b.RestoredFrom = "", "", nil, time.Time{}
}

// revertEngine removes the change of the engine from the reasons for the baseline, and finishes a baseline without another reason.
func (b *Baseline) revertEngine(now time.Time) {
	b.EngineBefore = ""
	if b.isFirst() {
		b.finish()
		return
	}
	b.Started, b.Images = now, nil
}

// onlyIfNotAnnounced reports whether the summary is sent only if it contains findings that were not announced before.
func (b *Baseline) onlyIfNotAnnounced() bool {
	return b.EngineBefore == "" && (b.ToolBefore != "" || b.FilterBefore != nil || b.isRestore())
}

// isFirst reports whether nothing was announced to the receiver before this baseline.
func (b *Baseline) isFirst() bool {
	return b.EngineBefore == "" && !b.onlyIfNotAnnounced() && !b.Renewed
}

// isRestore reports whether the store was restored.
func (b *Baseline) isRestore() bool {
	return !b.RestoredFrom.IsZero()
}

// summarizesAll reports whether a summary of everything present is still to be delivered. Until then nothing becomes known without a message.
func (b *Baseline) summarizesAll() bool { return b.Phase != BaselineDone && !b.onlyIfNotAnnounced() }

// begin opens the baseline of a new receiver and takes the snapshot of images. The snapshot stays open for GroupWait, since a Scanner's
// images appear one after the other.
func (l *planning) begin() (*Action, error) {
	if action := l.handleRestore(); action != nil {
		return action, nil
	}
	b := &l.state.Baseline
	if b.Phase == BaselineNone {
		*b = Baseline{Phase: BaselineOpen, Renewed: l.settings.StoreRenewed, Started: l.now}
		// With FirstScanAll there is no baseline, unless the store was lost: everything would be announced a second time.
		if l.settings.FirstScan == FirstScanAll && !b.Renewed {
			b.Phase = BaselineDone
		}
	}
	if err := l.handleSettingsChange(); err != nil {
		return nil, err
	}
	l.updateNotices()
	l.takeSnapshot()
	return nil, nil
}

// takeSnapshot adds the images in use to the baseline's snapshot while the snapshot is open. A baseline that waits while nothing runs
// starts again with the first image, once.
func (l *planning) takeSnapshot() {
	b := &l.state.Baseline
	switch {
	case b.Phase != BaselineOpen:
		b.Pulling = false
		return
	case l.waitsForImages():
		if !b.Restarted {
			b.Images, b.Waited = nil, true
		}
	case len(b.Images) == 0 && !b.isFirst():
		b.Started, b.Restarted = l.now, b.Waited
	}
	if l.isSnapshotOpen() {
		for _, img := range l.coverage.Images {
			if !slices.Contains(b.Images, img.Key) {
				b.Images = append(slices.Clone(b.Images), img.Key)
			}
		}
	}
	b.Pulling = l.coverage.Others.Pending > 0
}

// waitsForImages reports whether no image of the receiver's workloads is in use and the baseline stays open until one is. Ended without a
// result, the baseline would have everything that the receiver already knows, or was there before, announced as new or fixed.
func (l *planning) waitsForImages() bool {
	return !l.state.Baseline.isFirst() && !slices.ContainsFunc(l.coverage.Images, func(img Image) bool {
		return isRoutedTo(l.settings.Filter.Route, img.Receivers)
	})
}

// isSnapshotOpen reports whether images still join the snapshot: those that were being pulled when it was last
// looked at belong to it as well.
func (l *planning) isSnapshotOpen() bool {
	return !l.now.After(l.snapshotEnd()) || l.state.Baseline.Pulling && !l.now.After(l.pullEnd())
}

func (l *planning) snapshotEnd() time.Time { return l.state.Baseline.Started.Add(l.settings.GroupWait) }

func (l *planning) pullEnd() time.Time { return l.state.Baseline.Started.Add(pullTimeout) }

// finishBaseline ends the baseline when its images have results, or when the time to wait for them is over.
func (l *planning) finishBaseline() (*Action, error) {
	b := &l.state.Baseline
	if b.Phase == BaselineDone {
		return nil, nil
	}
	if until, waits := l.baselineWait(); waits {
		return l.sendPending(until)
	}
	others := l.coverage.Others
	nothingElse := others.Pending+others.Excluded+len(others.Failed) == 0
	switch {
	case l.isReverted(), b.isFirst() && nothingElse && (len(b.Images) == 0 || len(l.coverage.Images) == 0):
		// There is nothing to summarize. Later findings are new here, and announced as such.
		b.finish()
		return nil, nil
	case l.waitsForImages():
		l.state.Pending = 0
		return l.sendPending(time.Time{})
	}
	silent := l.settings.FirstScan == FirstScanSilent && !b.Renewed && !b.isRestore()
	if !silent && l.now.Before(l.maySend()) {
		return &Action{Until: l.maySend()}, nil
	}
	present, err := l.store.Present(l.ctx, l.scanner, l.settings.Receiver, l.settings.Filter, maxWorst)
	if err != nil {
		return nil, err
	}
	switch {
	case b.onlyIfNotAnnounced() && present.NotAnnounced == 0:
		b.finish()
		return nil, nil
	case silent:
		return l.recordSilently(present), nil
	}
	return l.putSummary(present)
}

// putSummary puts the summary into the outbox. The store records its findings as announced at once, under the message's ID, since it could not
// determine later what was present when the summary was composed. If the summary is never delivered, that record is retracted.
func (l *planning) putSummary(present store.Present) (*Action, error) {
	outbox, err := l.composeSummary(present)
	if err != nil {
		return nil, err
	}
	l.putInOutbox(outbox)
	l.forgetEarlierEngine()
	return &Action{Mark: &store.Announcement{
		MessageID: outbox.Message.ID, At: l.now, Snapshot: l.snapshotOf(present), ResetRepositories: l.state.Baseline.EngineBefore != "",
	}}, nil
}

// snapshotOf returns the findings that a baseline records as announced.
func (l *planning) snapshotOf(present store.Present) *store.FilteredSnapshot {
	return &store.FilteredSnapshot{Filter: l.settings.Filter, SnapshotID: present.SnapshotID}
}

// baselineWait reports whether the baseline has to wait. until is when to plan again; zero means when something changes.
func (l *planning) baselineWait() (until time.Time, waits bool) {
	b := &l.state.Baseline
	if l.now.Before(l.snapshotEnd()) {
		return l.snapshotEnd(), true
	}
	if b.onlyIfNotAnnounced() && b.ToolBefore == "" && !b.isRestore() && !b.Waited {
		// What a widened filter lets pass was present before: there is no result to wait for, unless nothing ran for a time.
		return time.Time{}, false
	}
	if b.Pulling && l.now.Before(l.pullEnd()) {
		return earlier(l.now.Add(pullCheck), l.pullEnd()), true
	}
	deadline := later(l.coverage.DataSince, b.Started).Add(baselineTimeout)
	switch {
	case !slices.ContainsFunc(l.coverage.Images, l.awaitsResult):
		return time.Time{}, false
	case l.coverage.DataSince.IsZero():
		// Nothing can be matched without data. The Scanner's status shows that, and an empty summary would not help.
		return time.Time{}, true
	}
	return deadline, l.now.Before(deadline)
}

// awaitsResult reports whether the baseline needs a result for an image, or one with current data.
func (l *planning) awaitsResult(img Image) bool {
	b := &l.state.Baseline
	outdated := (b.ToolBefore != "" || b.isRestore()) && img.State == ImageScanned && !img.Current
	return (img.State == ImagePending || outdated) && slices.Contains(b.Images, img.Key)
}

// recordSilently ends the baseline and records everything as announced, without a message.
func (l *planning) recordSilently(present store.Present) *Action {
	forget := l.state.Baseline.EngineBefore != ""
	l.forgetEarlierEngine()
	l.state.Baseline.finish()
	return &Action{Mark: &store.Announcement{At: l.now, Snapshot: l.snapshotOf(present), ResetRepositories: forget, Repositories: l.knownRepositories(present)}}
}
