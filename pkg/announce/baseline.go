package announce

import (
	"slices"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/image"
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
func (p *planning) begin() (*Action, error) {
	if action := p.handleRestore(); action != nil {
		return action, nil
	}
	b := &p.state.Baseline
	if b.Phase == BaselineNone {
		*b = Baseline{Phase: BaselineOpen, Renewed: p.settings.StoreRenewed, Started: p.now}
		// With FirstScanAll there is no baseline, unless the store was lost: everything would be announced a second time.
		if p.settings.FirstScan == FirstScanAll && !b.Renewed {
			b.Phase = BaselineDone
		}
	}
	if err := p.handleSettingsChange(); err != nil {
		return nil, err
	}
	// What joins after the summary was composed is not part of it, however long its delivery takes.
	if b.Phase != BaselineDone && p.state.Outbox == nil || p.settings.FirstScan == FirstScanAll {
		p.knowAllNamespaces()
	}
	p.updateNotices()
	p.takeSnapshot()
	return nil, nil
}

// takeSnapshot adds the images in use to the baseline's snapshot while the snapshot is open. A baseline that waits while nothing runs
// starts again with the first image, once.
func (p *planning) takeSnapshot() {
	b := &p.state.Baseline
	switch {
	case b.Phase != BaselineOpen:
		b.Pulling = false
		return
	case p.waitsForImages():
		if !b.Restarted {
			b.Images, b.Waited = nil, true
		}
	case len(b.Images) == 0 && !b.isFirst():
		b.Started, b.Restarted = p.now, b.Waited
	}
	if p.isSnapshotOpen() {
		b.Images = slices.Clone(b.Images)
		known := setOf(b.Images)
		for _, img := range p.coverage.Images {
			if !known[img.Key] {
				known[img.Key] = true
				b.Images = append(b.Images, img.Key)
			}
		}
	}
	b.Pulling = p.coverage.Others.Pending > 0
}

// waitsForImages reports whether no image of the receiver's workloads is in use and the baseline stays open until one is. Ended without a
// result, the baseline would have everything that the receiver already knows, or was there before, announced as new or fixed.
func (p *planning) waitsForImages() bool { return !p.state.Baseline.isFirst() && !p.hasRoutedImages() }

// hasRoutedImages reports whether an image of the receiver's workloads is in use.
func (p *planning) hasRoutedImages() bool {
	return slices.ContainsFunc(p.coverage.Images, func(img Image) bool { return isRoutedTo(p.settings.Filter.Route, img.Receivers) })
}

// isSnapshotOpen reports whether images still join the snapshot. Images that nodes were pulling at the last plan belong to it as well.
func (p *planning) isSnapshotOpen() bool {
	return !p.now.After(p.snapshotEnd()) || p.state.Baseline.Pulling && !p.now.After(p.pullEnd())
}

func (p *planning) snapshotEnd() time.Time { return p.state.Baseline.Started.Add(p.settings.GroupWait) }

func (p *planning) pullEnd() time.Time { return p.state.Baseline.Started.Add(pullTimeout) }

// finishBaseline ends the baseline when its images have results, or when the time to wait for them is over.
func (p *planning) finishBaseline() (*Action, error) {
	b := &p.state.Baseline
	if b.Phase == BaselineDone {
		return nil, nil
	}
	if until, waits := p.baselineWait(); waits {
		return p.sendPending(until)
	}
	others := p.coverage.Others
	nothingElse := others.Pending+others.Excluded+len(others.Failed) == 0
	switch {
	case p.isReverted(), b.isFirst() && nothingElse && (len(b.Images) == 0 || !p.hasRoutedImages()):
		// There is nothing to summarize for the receiver. Later findings are new here, and announced as such.
		b.finish()
		return nil, nil
	case p.waitsForImages():
		p.state.Pending = 0
		return p.sendPending(time.Time{})
	}
	silent := p.settings.FirstScan == FirstScanSilent && !b.Renewed && !b.isRestore()
	if !silent && p.now.Before(p.maySend()) {
		return &Action{Until: p.maySend()}, nil
	}
	present, err := p.store.Present(p.ctx, p.scanner, p.settings.Receiver, p.settings.Filter, maxSummaryActions)
	if err != nil {
		return nil, err
	}
	switch {
	case b.onlyIfNotAnnounced() && present.NotAnnounced == 0:
		b.finish()
		return nil, nil
	case silent:
		return p.recordSilently(present), nil
	case p.isQuiet():
		urgent, err := p.urgentChanges(p.settings.Filter, 1)
		if err != nil || len(urgent) == 0 {
			return &Action{Until: p.quietUntil}, err
		}
		return p.putSummary(present, true)
	}
	return p.putSummary(present, false)
}

// putSummary puts the summary into the outbox. The store records its findings as announced at once, under the message's ID, since it could not
// determine later what was present when the summary was composed. If the summary is never delivered, that record is retracted. urgent means that
// the summary may be sent in quiet hours.
func (p *planning) putSummary(present store.Present, urgent bool) (*Action, error) {
	outbox, err := p.composeSummary(present)
	if err != nil {
		return nil, err
	}
	outbox.Urgent = urgent
	p.putInOutbox(outbox)
	p.forgetEarlierEngine()
	return &Action{Mark: &store.Announcement{
		MessageID: outbox.Message.ID, At: p.now, Snapshot: p.snapshotOf(present), ResetRepositories: p.state.Baseline.EngineBefore != "",
	}}, nil
}

// snapshotOf returns the findings that a baseline records as announced.
func (p *planning) snapshotOf(present store.Present) *store.FilteredSnapshot {
	return &store.FilteredSnapshot{Filter: p.settings.Filter, SnapshotID: present.SnapshotID}
}

// baselineWait reports whether the baseline has to wait. until is when to plan again; zero means when something changes.
func (p *planning) baselineWait() (until time.Time, waits bool) {
	b := &p.state.Baseline
	if p.now.Before(p.snapshotEnd()) {
		return p.snapshotEnd(), true
	}
	if b.onlyIfNotAnnounced() && b.ToolBefore == "" && !b.isRestore() && !b.Waited {
		// What a widened filter lets pass was present before: there is no result to wait for, unless nothing ran for a time.
		return time.Time{}, false
	}
	if b.Pulling && p.now.Before(p.pullEnd()) {
		return earlier(p.now.Add(pullCheck), p.pullEnd()), true
	}
	deadline := later(p.coverage.DataSince, b.Started).Add(baselineTimeout)
	switch {
	case !p.awaitsResults():
		return time.Time{}, false
	case p.coverage.DataSince.IsZero():
		// Nothing can be matched without data. The Scanner's status shows that, and an empty summary would not help.
		return time.Time{}, true
	}
	return deadline, p.now.Before(deadline)
}

// awaitsResults reports whether the baseline needs a result for any image of the snapshot, or one with current data.
func (p *planning) awaitsResults() bool {
	b := &p.state.Baseline
	inSnapshot := setOf(b.Images)
	return slices.ContainsFunc(p.coverage.Images, func(img Image) bool {
		outdated := (b.ToolBefore != "" || b.isRestore()) && img.State == image.Scanned && !img.Current
		return (img.State == image.Pending || outdated) && inSnapshot[img.Key]
	})
}

// setOf returns the set of all elements of a list.
func setOf(list []string) map[string]bool {
	set := make(map[string]bool, len(list))
	for _, element := range list {
		set[element] = true
	}
	return set
}

// recordSilently ends the baseline and records everything as announced, without a message.
func (p *planning) recordSilently(present store.Present) *Action {
	forget := p.state.Baseline.EngineBefore != ""
	p.forgetEarlierEngine()
	p.state.Baseline.finish()
	return &Action{Mark: &store.Announcement{At: p.now, Snapshot: p.snapshotOf(present), ResetRepositories: forget, Repositories: p.knownRepositories(present)}}
}
