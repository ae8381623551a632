package announce

import (
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/workerapi/text"
)

// This file plans the scheduled summaries of a receiver. A summary announces nothing: what it counts is announced by other messages, or waits for
// them. So it waits for no baseline. It goes through the outbox like any message, and is recorded as handled in the transaction that records its delivery.

// maxSummaryDelay is how late a summary is still sent, after the manager did not run or a message before it was in the way. The next one counts from
// the last one that was sent, so that nothing is left out.
const maxSummaryDelay = 12 * time.Hour

// SummaryState is what is known of a receiver's scheduled summaries.
type SummaryState struct {
	// Schedule is that of Settings, as text. Another schedule begins when it is first seen.
	Schedule string `json:"schedule"`
	// Handled is the time at which the last summary was due, or when the schedule began. After the clock was set back it may be in the future.
	Handled time.Time `json:"handled"`
	// Since is when the last summary was composed, or when the receiver first had a schedule. Totals are those of that summary; nil before the first.
	Since  time.Time       `json:"since"`
	Totals *finding.Counts `json:"totals,omitempty"`
	// Counted is the ID by which the store knows the findings that Totals counts, or that were present when the schedule began. An earlier version has
	// recorded none. Engine is whose findings they are; empty if that is not known.
	Counted string `json:"counted,omitempty"`
	Engine  string `json:"engine,omitempty"`
	// LastDelivery and LastMessage are those of the last summary. They are apart from those of State, since GroupInterval does not count summaries: a
	// summary each day could otherwise delay changes for ever.
	LastDelivery time.Time `json:"lastDelivery,omitzero"`
	LastMessage  string    `json:"lastMessage,omitempty"`
}

// Trend is, in a scheduled summary, what has happened since the one before.
type Trend struct {
	// Since is when that was composed, or when the receiver got its schedule.
	Since time.Time `json:"since"`
	// Opened is how many findings are in the totals now and were not then, and Fixed how many were then and are not now, whatever ended them: they are
	// fixed, an exception suppresses them, or nothing runs their images. Before, plus Opened, minus Fixed, is the total now. The name of Fixed is older.
	Opened int `json:"opened"`
	Fixed  int `json:"fixed"`
	// NotProven is how many of Fixed run still and are in no result, without proof that they have ended: only one version of the data lacks them, the data
	// has an anomaly, another engine has looked, or an image has no complete result or none of an announced source.
	NotProven int `json:"notProven,omitempty"`
	// Before are the totals of the summary before; nil in the first one.
	Before *finding.Counts `json:"before,omitempty"`
}

// sendScheduled sends the summary that is due. Of several that were missed, it is the last one.
func (p *planning) sendScheduled() (*Action, error) {
	schedule := p.settings.Schedule
	if schedule.IsZero() {
		p.state.Summary = nil
		return nil, nil
	}
	p.beginSchedule()
	if p.state.Summary.Counted == "" {
		return p.countFirst()
	}
	handled := p.state.Summary.Handled
	due := schedule.Latest(later(handled, p.now.Add(-maxSummaryDelay)), p.now)
	switch {
	case due.IsZero():
		p.summaryDue = schedule.Next(later(handled, p.now))
		return nil, nil
	case p.now.Before(p.mayAttempt()):
		return &Action{Until: p.mayAttempt()}, nil
	}
	return p.composeScheduled(due)
}

// beginSchedule makes the state that of the present schedule. After the clock was set back, the next time is left out, which may have been handled, and
// no further one.
func (p *planning) beginSchedule() {
	schedule, begun := p.settings.Schedule, SummaryState{Since: p.now}
	if p.state.Summary != nil {
		begun = *p.state.Summary
	}
	if begun.Schedule != schedule.String() {
		begun.Schedule, begun.Handled = schedule.String(), p.now
	}
	begun.Handled = earlier(begun.Handled, schedule.Next(p.now))
	p.state.Summary = &begun
}

// countFirst records what is present when the schedule begins, so that the first summary says what has happened since then.
func (p *planning) countFirst() (*Action, error) {
	begin, err := p.newMessage(KindScheduledSummary)
	if err != nil {
		return nil, err
	}
	counts, err := p.store.CountSummary(p.ctx, p.scanner, p.settings.Receiver, p.settings.Filter, "", nil)
	if err != nil {
		return nil, err
	}
	begun := *p.state.Summary
	begun.Counted, begun.Engine, begun.Since, begun.Totals = begin.ID, p.settings.Filter.Engine, p.now, nil
	p.state.Summary = &begun
	return p.recordCounts(begin.ID, "", counts), nil
}

// recordCounts returns the action that records which findings a summary counts. The store could not determine later what was present.
func (p *planning) recordCounts(id, keep string, counts store.SummaryCounts) *Action {
	return &Action{Mark: &store.Announcement{
		MessageID: id, At: p.now, Counted: &store.CountedFindings{Filter: p.settings.Filter, SnapshotID: counts.SnapshotID, Keep: keep},
	}}
}

// composeScheduled puts the summary that was due at a time into the outbox.
func (p *planning) composeScheduled(due time.Time) (*Action, error) {
	m, err := p.newMessage(KindScheduledSummary)
	if err != nil {
		return nil, err
	}
	filter, before := p.state.changeFilter(p.settings, p.coverage), p.state.Summary
	if before.Engine != "" && before.Engine != filter.Engine { // what another engine does not find is not fixed
		filter.AbsentIsFixedIn = nil
	}
	inUse := p.coverage.routedRepositories(filter.Route)
	for _, repository := range p.coverage.UnknownRepositories {
		inUse[repository] = true
	}
	counts, err := p.store.CountSummary(p.ctx, p.scanner, p.settings.Receiver, filter, before.Counted, inUse)
	if err != nil {
		return nil, err
	}
	m.Totals, m.Suppressed, m.Images, m.Remaining = counts.Counts, counts.Suppressed, len(p.coverage.scannedRepositories()), p.coverage.remaining()
	m.addNamespaces(store.Present{Namespaces: counts.Namespaces})
	m.Trend = &Trend{Since: before.Since, Before: before.Totals, Opened: counts.Opened, Fixed: counts.Ended, NotProven: counts.NotProven}
	oldest, err := p.store.OldestExploited(p.ctx, p.scanner, filter)
	if err != nil {
		return nil, err
	}
	if oldest != nil {
		item := newItem(*oldest)
		item.Repository = text.Truncate(oldest.Repository, maxText)
		item.Workloads, item.MoreWorkloads, item.WorkloadNamespaces = workloadsOf([]store.FindingChange{*oldest}, maxActionWorkloads)
		m.OldestExploited = &item
	}
	p.putInOutbox(Outbox{Message: m, Urgent: true, SummaryDue: due, SummaryEngine: filter.Engine})
	return p.recordCounts(m.ID, before.Counted, counts), nil
}

// recordSummary records that the summary in the outbox is handled.
func (s *State) recordSummary(outbox *Outbox) {
	if s.Summary == nil { // the receiver has no schedule any more
		return
	}
	handled := *s.Summary
	handled.Handled, handled.Since, handled.Totals = later(handled.Handled, outbox.SummaryDue), outbox.Message.CreatedAt, clone(&outbox.Message.Totals)
	handled.Counted, handled.Engine = outbox.Message.ID, outbox.SummaryEngine
	s.Summary = &handled
}

// LastDelivered returns when a message was last delivered, scheduled summaries included, and its title.
func (s State) LastDelivered() (at time.Time, title string) {
	if s.Summary != nil && s.Summary.LastDelivery.After(s.LastDelivery) {
		return s.Summary.LastDelivery, s.Summary.LastMessage
	}
	return s.LastDelivery, s.LastMessage
}
