package announce

import (
	"errors"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/announce/diff"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/workerapi/text"
)

// This file plans the scheduled summaries of a receiver. A summary announces nothing: what it counts is announced by other messages, or waits for
// them. It goes through the outbox like any message, and is recorded as handled in the transaction that records its delivery.

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
	// LastDelivery and LastMessage are those of the last summary. They are apart from those of State, since GroupInterval does not count summaries: a
	// summary each day could otherwise delay changes for ever.
	LastDelivery time.Time `json:"lastDelivery,omitzero"`
	LastMessage  string    `json:"lastMessage,omitempty"`
}

// Trend is, in a scheduled summary, what has happened since the one before.
type Trend struct {
	// Since is when that was composed, or when the receiver got its schedule.
	Since time.Time `json:"since"`
	// Opened and Fixed are numbers of findings of any severity, once for each vulnerability, package and image repository, and without suppressed
	// ones. They are incomplete if there were too many changes to count them.
	Opened     int  `json:"opened"`
	Fixed      int  `json:"fixed"`
	Incomplete bool `json:"incomplete,omitempty"`
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
	handled := p.state.Summary.Handled
	due := schedule.Latest(later(handled, p.now.Add(-maxSummaryDelay)), p.now)
	switch {
	case due.IsZero():
		p.summaryDue = schedule.Next(later(handled, p.now))
		return nil, nil
	case p.now.Before(p.mayAttempt()):
		return &Action{Until: p.mayAttempt()}, nil
	}
	outbox, err := p.composeScheduled(due)
	if err != nil {
		return nil, err
	}
	p.putInOutbox(outbox)
	return p.deliver()
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

// composeScheduled composes the summary that was due at a time.
func (p *planning) composeScheduled(due time.Time) (Outbox, error) {
	m, err := p.newMessage(KindScheduledSummary)
	if err != nil {
		return Outbox{}, err
	}
	filter := p.settings.Filter
	present, err := p.store.Present(p.ctx, p.scanner, p.settings.Receiver, filter, 0)
	if err != nil {
		return Outbox{}, err
	}
	m.Totals, m.Suppressed, m.Images, m.Remaining = present.Counts, present.Suppressed, len(p.coverage.scannedRepositories()), p.coverage.remaining()
	m.addNamespaces(present)
	if m.Trend, err = p.trend(); err != nil {
		return Outbox{}, err
	}
	oldest, err := p.store.OldestExploited(p.ctx, p.scanner, filter)
	if err != nil {
		return Outbox{}, err
	}
	if oldest != nil {
		item := newItem(*oldest)
		item.Repository = text.Truncate(oldest.Repository, maxText)
		item.Workloads, item.MoreWorkloads, item.WorkloadNamespaces = workloadsOf([]store.FindingChange{*oldest}, maxActionWorkloads)
		m.OldestExploited = &item
	}
	return Outbox{Message: m, Urgent: true, SummaryDue: due}, nil
}

// trend counts what has happened in the receiver's namespaces since the summary before.
func (p *planning) trend() (*Trend, error) {
	trend := &Trend{Since: p.state.Summary.Since, Before: p.state.Summary.Totals}
	namespaces := []string{p.settings.Namespace}
	if p.settings.scannerKind() == ClusterScannerKind {
		namespaces = nil
		for _, n := range p.coverage.Namespaces {
			namespaces = append(namespaces, n.Name)
		}
	}
	route := p.settings.Filter.Route
	for _, namespace := range namespaces {
		if route != nil && route.Namespaces != nil && !route.Namespaces[namespace] {
			continue
		}
		changes, err := p.store.NamespaceChanges(p.ctx, store.ChangesQuery{
			Namespace: namespace, Since: trend.Since, Exceptions: p.settings.Filter.Exceptions, Route: route,
		}, 0)
		if errors.Is(err, store.ErrTooManyCandidates) {
			trend.Incomplete = true
			continue
		}
		if err != nil {
			return nil, err
		}
		trend.Opened += changes.Totals[diff.ChangeNew] - changes.SuppressedNew
		trend.Fixed += changes.Totals[diff.ChangeFixed]
	}
	return trend, nil
}

// recordSummary records that the summary in the outbox is handled.
func (s *State) recordSummary(outbox *Outbox) {
	if s.Summary == nil { // the receiver has no schedule any more
		return
	}
	handled := *s.Summary
	handled.Handled, handled.Since, handled.Totals = later(handled.Handled, outbox.SummaryDue), outbox.Message.CreatedAt, clone(&outbox.Message.Totals)
	s.Summary = &handled
}

// LastDelivered returns when a message was last delivered, scheduled summaries included, and its title.
func (s State) LastDelivered() (at time.Time, title string) {
	if s.Summary != nil && s.Summary.LastDelivery.After(s.LastDelivery) {
		return s.Summary.LastDelivery, s.Summary.LastMessage
	}
	return s.LastDelivery, s.LastMessage
}
