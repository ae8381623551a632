package announce

import (
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// handleRestore opens a baseline when the store was restored from a backup. The store does not know what was announced since the backup.
// Announcing it as changes would repeat a flood of messages, and recording it silently could leave findings unannounced. So everything that
// was not announced by the time of the backup is summarized once, without a claim that it is new. A message that was in the outbox of the
// backup is discarded: its delivery ended before the restore.
func (p *planning) handleRestore() *Action {
	from := p.settings.RestoredFrom
	if from.IsZero() || p.state.RestoredFrom.Equal(from) {
		return nil
	}
	p.state.RestoredFrom = from
	switch b := &p.state.Baseline; {
	case b.Phase == BaselineNone:
		return nil
	case b.summarizesAll() && b.EngineBefore == "":
		// The summary may have been delivered since the backup. It is sent again.
		b.Started, b.Images, b.Renewed = p.now, nil, true
	default:
		*b = Baseline{Phase: BaselineOpen, EngineBefore: b.EngineBefore, RestoredFrom: from, Started: p.now}
	}
	if p.state.Outbox == nil {
		return nil
	}
	stale := p.state.Outbox.Message.ID
	p.state.Outbox = nil
	return &Action{Mark: &store.Announcement{At: p.now, Retract: stale}}
}

// handleSettingsChange begins a baseline when the findings to announce change by a decision, and not because others are found. A message
// in the outbox is of the earlier settings, and is delivered or given up first. A receiver that wants everything gets the difference as
// changes instead.
func (p *planning) handleSettingsChange() error {
	if p.state.Outbox != nil {
		return nil
	}
	p.handleEngineChange()
	if err := p.keepRecords(); err != nil {
		return err
	}
	p.handleEngineUpdate()
	p.handleFilterChange()
	return nil
}

// handleEngineChange opens a baseline when the Scanner's engine was changed, since the engines' findings differ although nothing is new. A
// repository that does not run now counts as new when it runs again. Another reason for a baseline that is open stays with it, and holds on if
// the engine is changed back before the summary.
func (p *planning) handleEngineChange() {
	before, now := p.state.Engine, p.settings.Filter.Engine
	if now == "" || before == now {
		return
	}
	p.state.Engine, p.state.Tool = now, p.settings.Tool
	b := &p.state.Baseline
	switch {
	case before == "":
		// The receiver is new, or its state was stored without an engine.
	case b.Phase == BaselineOpen && b.EngineBefore == now:
		// The engine was changed back before the other one was announced.
		b.revertEngine(p.now)
	case b.Phase == BaselineOpen && !b.onlyIfNotAnnounced():
		b.Started, b.Images = p.now, nil
	default:
		*b = Baseline{
			Phase: BaselineOpen, EngineBefore: before, ToolBefore: b.ToolBefore, FilterBefore: b.FilterBefore, RestoredFrom: b.RestoredFrom, Started: p.now,
		}
	}
}

// handleEngineUpdate opens a baseline when the engine has another version: some of its findings are new to that version only. A baseline that is
// open for another reason is finished first.
func (p *planning) handleEngineUpdate() {
	before, now := p.state.Tool, p.settings.Tool
	b := &p.state.Baseline
	switch {
	case now == "" || before == now:
	case before == "" || p.settings.FirstScan == FirstScanAll:
		p.state.Tool = now
	case b.Phase == BaselineDone:
		p.state.Tool = now
		*b = Baseline{Phase: BaselineOpen, ToolBefore: before, Started: p.now}
	case b.onlyIfNotAnnounced():
		p.state.Tool = now
		b.Started, b.Images = p.now, nil
		if b.ToolBefore == "" {
			b.ToolBefore = before
		}
	}
}

// handleFilterChange opens a baseline when the receiver's filter was widened, since what passes now was present before. A baseline that is
// already open includes it.
func (p *planning) handleFilterChange() {
	now := breadthOf(p.settings.Filter)
	before := p.state.Filter
	p.state.Filter = &now
	b := &p.state.Baseline
	if before == nil || !now.widerThan(*before) || p.settings.FirstScan == FirstScanAll {
		return
	}
	switch {
	case b.Phase == BaselineDone:
		*b = Baseline{Phase: BaselineOpen, FilterBefore: before, Started: p.now}
	case (b.EngineBefore != "" || b.onlyIfNotAnnounced()) && b.FilterBefore == nil:
		b.FilterBefore = before
	}
}

// Breadth describes how much a filter lets pass, regardless of the kinds of changes.
type Breadth struct {
	MinSeverity finding.Severity    `json:"minSeverity"`
	Unknown     store.UnknownPolicy `json:"unknown"`
	OnlyFixable bool                `json:"onlyFixable,omitempty"`
	// Reach is greater the more workloads are routed to the receiver: those that name it, also those that name none, or all.
	Reach int `json:"reach"`
}

// Values of Breadth.Reach.
const (
	reachOwn = iota
	reachUnassigned
	reachAll
)

// breadthOf returns the breadth of a filter.
func breadthOf(f store.ChangeFilter) Breadth {
	b := Breadth{MinSeverity: f.MinSeverity, Unknown: f.Unknown, OnlyFixable: f.OnlyFixable, Reach: reachAll}
	if f.Route != nil && !f.Route.All {
		b.Reach = reachOwn
		if f.Route.Unassigned {
			b.Reach = reachUnassigned
		}
	}
	return b
}

// unknownRank ranks the policies for unknown severities by how much they let pass.
var unknownRank = map[store.UnknownPolicy]int{store.UnknownNever: 0, "": 1, store.UnknownIfFixable: 1, store.UnknownAlways: 2}

// widerThan reports whether b lets something pass that before did not.
func (b Breadth) widerThan(before Breadth) bool {
	return b.MinSeverity < before.MinSeverity || unknownRank[b.Unknown] > unknownRank[before.Unknown] ||
		!b.OnlyFixable && before.OnlyFixable || b.Reach > before.Reach
}

// isReverted reports whether the reason for the baseline was reverted before the summary was composed.
func (p *planning) isReverted() bool {
	b := &p.state.Baseline
	return b.onlyIfNotAnnounced() && !b.isRestore() && !p.isEngineUpdate() && (b.FilterBefore == nil || !p.state.Filter.widerThan(*b.FilterBefore))
}

// isEngineUpdate reports whether the baseline is open because the engine has another version.
func (p *planning) isEngineUpdate() bool {
	before := p.state.Baseline.ToolBefore
	return before != "" && before != p.state.Tool
}
