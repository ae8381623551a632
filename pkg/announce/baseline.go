package announce

import (
	"slices"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// handleSettingsChange begins a baseline when the findings to announce change by a decision, and not because others are found. A message
// in the outbox is of the earlier settings, and is delivered or given up first. A receiver that wants everything gets the difference as
// changes instead.
func (l *planning) handleSettingsChange() error {
	if l.state.Outbox != nil {
		return nil
	}
	l.handleEngineChange()
	if err := l.keepRecords(); err != nil {
		return err
	}
	l.handleEngineUpdate()
	l.handleFilterChange()
	return nil
}

// keepRecords ends the baseline of another engine for a receiver that gets all findings as changes. The records of each repository stay as they
// are until deleteAbsent finds that the repository has all results by the present engine.
func (l *planning) keepRecords() error {
	b := &l.state.Baseline
	if l.settings.FirstScan != FirstScanAll || b.EngineBefore == "" {
		return nil
	}
	recorded, err := l.store.RecordedRepositories(l.ctx, l.scanner, l.settings.Receiver)
	if err != nil {
		return err
	}
	latest, err := l.store.LatestRecord(l.ctx, l.scanner, l.settings.Receiver)
	if err != nil {
		return err
	}
	// All records so far are of the earlier engine, also those that were made before the clock was set back.
	l.state.EarlierEngine, l.state.EarlierEngineUntil = recorded, later(l.now, latest)
	b.ToolBefore = "" // of the earlier engine
	b.revertEngine(l.now)
	return nil
}

// handleRestore opens a baseline when the store was restored from a backup. The store does not know what was announced since the backup.
// Announcing it as changes would repeat a flood of messages, and recording it silently could leave findings unannounced. So everything that
// was not announced by the time of the backup is summarized once, without a claim that it is new. A message that was in the outbox of the
// backup is discarded: its delivery ended before the restore.
func (l *planning) handleRestore() *Action {
	from := l.settings.RestoredFrom
	if from.IsZero() || l.state.RestoredFrom.Equal(from) {
		return nil
	}
	l.state.RestoredFrom = from
	switch b := &l.state.Baseline; {
	case b.Phase == BaselineNone:
		return nil
	case b.summarizesAll() && b.EngineBefore == "":
		// The summary may have been delivered since the backup. It is sent again.
		b.Started, b.Images, b.Renewed = l.now, nil, true
	default:
		*b = Baseline{Phase: BaselineOpen, EngineBefore: b.EngineBefore, RestoredFrom: from, Started: l.now}
	}
	if l.state.Outbox == nil {
		return nil
	}
	stale := l.state.Outbox.Message.ID
	l.state.Outbox = nil
	return &Action{Mark: &store.Announcement{At: l.now, Retract: stale}}
}

// handleEngineChange opens a baseline when the Scanner's engine was changed, since the engines' findings differ although nothing is new. A
// repository that does not run now counts as new when it runs again. Another reason for a baseline that is open stays with it, and holds on if
// the engine is changed back before the summary.
func (l *planning) handleEngineChange() {
	before, now := l.state.Engine, l.settings.Filter.Engine
	if now == "" || before == now {
		return
	}
	l.state.Engine, l.state.Tool = now, l.settings.Tool
	b := &l.state.Baseline
	switch {
	case before == "":
		// The receiver is new, or its state was stored without an engine.
	case b.Phase == BaselineOpen && b.EngineBefore == now:
		// The engine was changed back before the other one was announced.
		b.revertEngine(l.now)
	case b.Phase == BaselineOpen && !b.onlyIfNotAnnounced():
		b.Started, b.Images = l.now, nil
	default:
		*b = Baseline{
			Phase: BaselineOpen, EngineBefore: before, ToolBefore: b.ToolBefore, FilterBefore: b.FilterBefore, RestoredFrom: b.RestoredFrom, Started: l.now,
		}
	}
}

// handleEngineUpdate opens a baseline when the engine has another version: some of its findings are new to that version only. A baseline that is
// open for another reason is finished first.
func (l *planning) handleEngineUpdate() {
	before, now := l.state.Tool, l.settings.Tool
	b := &l.state.Baseline
	switch {
	case now == "" || before == now:
	case before == "" || l.settings.FirstScan == FirstScanAll:
		l.state.Tool = now
	case b.Phase == BaselineDone:
		l.state.Tool = now
		*b = Baseline{Phase: BaselineOpen, ToolBefore: before, Started: l.now}
	case b.onlyIfNotAnnounced():
		l.state.Tool = now
		b.Started, b.Images = l.now, nil
		if b.ToolBefore == "" {
			b.ToolBefore = before
		}
	}
}

// handleFilterChange opens a baseline when the receiver's filter was widened, since what passes now was present before. A baseline that is
// already open includes it.
func (l *planning) handleFilterChange() {
	now := breadthOf(l.settings.Filter)
	before := l.state.Filter
	l.state.Filter = &now
	b := &l.state.Baseline
	if before == nil || !now.widerThan(*before) || l.settings.FirstScan == FirstScanAll {
		return
	}
	switch {
	case b.Phase == BaselineDone:
		*b = Baseline{Phase: BaselineOpen, FilterBefore: before, Started: l.now}
	case (b.EngineBefore != "" || b.onlyIfNotAnnounced()) && b.FilterBefore == nil:
		b.FilterBefore = before
	}
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

// isReverted reports whether the reason for the baseline was reverted before the summary was composed.
func (l *planning) isReverted() bool {
	b := &l.state.Baseline
	return b.onlyIfNotAnnounced() && !b.isRestore() && !l.isEngineUpdate() && (b.FilterBefore == nil || !l.state.Filter.widerThan(*b.FilterBefore))
}

// isEngineUpdate reports whether the baseline is open because the engine has another version.
func (l *planning) isEngineUpdate() bool {
	before := l.state.Baseline.ToolBefore
	return before != "" && before != l.state.Tool
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

// forgetEarlierEngine clears State.EarlierEngine when a baseline of another engine replaces the records of all repositories.
func (l *planning) forgetEarlierEngine() {
	if l.state.Baseline.EngineBefore != "" {
		l.state.EarlierEngine, l.state.EarlierEngineUntil = nil, time.Time{}
	}
}

// deleteAbsent deletes the records of what only an earlier engine found and announced, in each repository that has all results by the present engine. Without
// that, they would be announced as fixed, and as back after a return to the earlier engine. Repositories without a record any more are left out.
func (l *planning) deleteAbsent() (*Action, error) {
	if len(l.state.EarlierEngine) == 0 {
		return nil, nil
	}
	recorded, err := l.store.RecordedRepositories(l.ctx, l.scanner, l.settings.Receiver)
	if err != nil {
		return nil, err
	}
	complete, routed := l.coverage.runningCompleteRepositories(), l.coverage.routedRepositories(l.settings.Filter.Route)
	var settled, left []string
	for _, repository := range l.state.EarlierEngine {
		switch {
		case !slices.Contains(recorded, repository):
		case routed[repository] && slices.Contains(complete, repository):
			settled = append(settled, repository)
		default:
			left = append(left, repository)
		}
	}
	l.state.EarlierEngine = left
	if len(settled) == 0 {
		return nil, nil
	}
	return &Action{Mark: &store.Announcement{At: l.now, DeleteAbsent: &store.AbsentFindings{
		Filter: l.settings.Filter, Repositories: settled, Until: l.state.EarlierEngineUntil,
	}}}, nil
}

// replaceEngine finishes the baseline of another engine, which deletes the records of the earlier one. It is the only baseline that makes room.
func (l *planning) replaceEngine() (*Action, error) {
	if l.state.Baseline.EngineBefore == "" {
		return nil, nil
	}
	return l.finishBaseline()
}
