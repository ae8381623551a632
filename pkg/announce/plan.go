package announce

import (
	"context"
	"io"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/announce/calendar"
	"github.com/scanner-operator/scanner-operator/pkg/announce/diff"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// maxChanges bounds the changes that one plan reads. The rest waits for the next message.
const maxChanges = 10_000

// Action is the next step for a receiver. At most one of Send and Mark is set.
type Action struct {
	// Send is the message to send. The caller must first store the state, which holds the message.
	Send *Message
	// Mark is what to record as announced without sending a message. The caller sets its State from the one that plan returned. If the
	// store returns store.ErrChanged, Mark and state are outdated: plan again.
	Mark *store.Announcement
	// Until is when to plan again if nothing changes before; zero for never.
	Until time.Time
}

// plan returns the receiver's next state and the action that goes with it. It only reads from the store. The returned state is valid only
// without an error.
//
// The order is fixed: first the message in the outbox, then the scheduled summary, then the baseline, then changes. So there is never more than one
// message in the outbox, and no change is announced before the baseline. Health notices and scheduled summaries do not wait for the baseline.
func (d *dispatch) plan(ctx context.Context) (State, Action, error) {
	now, coverage, state := d.Now(), d.coverage, d.state
	coverage.DataSince = earlier(coverage.DataSince, now)
	if !d.full {
		state.hasRoom() // first: the time of an error that ends moves no other time
	}
	p := &planning{
		quietUntil: calendar.Until(d.settings.QuietHours, now),
		ctx:        ctx, now: now, store: d.Store, scanner: d.scanner, settings: d.settings, coverage: coverage, random: d.Random,
		state: state.withoutFutureTimes(now),
	}
	steps := []func(*planning) (*Action, error){
		(*planning).begin,
		(*planning).deliver,
		(*planning).deleteAbsent,
		(*planning).sendScheduled,
		(*planning).finishBaseline,
		(*planning).holdJoining,
		(*planning).readChanges,
		(*planning).finishJoining,
		(*planning).recordCleanRepositories,
		(*planning).announceChanges,
	}
	if d.full {
		steps = []func(*planning) (*Action, error){(*planning).begin, (*planning).deliver, (*planning).deleteAbsent, (*planning).replaceEngine}
	}
	for _, step := range steps {
		action, err := step(p)
		if err != nil {
			return State{}, Action{}, err
		}
		if action != nil {
			if action.Send == nil && action.Mark == nil {
				action.Until = earliestSet(action.Until, p.summaryDue)
			}
			return p.state, *action, nil
		}
	}
	return p.state, Action{Until: p.summaryDue}, nil
}

// planning is one call of plan. A step returns an action if it has decided, and nil to go on with the next step.
type planning struct {
	ctx      context.Context
	now      time.Time
	store    Store
	scanner  string
	settings Settings
	coverage Coverage
	random   io.Reader
	// quietUntil is when the quiet hours end; zero outside of them.
	quietUntil time.Time
	// summaryDue is when the next scheduled summary is due; zero if none is.
	summaryDue time.Time
	// state becomes the result of plan.
	state State
	// loaded is true once readChanges has set known and pending. known are the repositories that are known to the receiver. pending are the
	// changes that were not announced. truncated is true if pending does not hold all of them.
	loaded    bool
	known     map[string]bool
	pending   []store.FindingChange
	truncated bool
	// held are the joining namespaces whose changes are not read yet. joinsUntil is when the first of them has waited long enough; zero if none
	// does.
	held       map[string]bool
	joinsUntil time.Time
	// newImages are repositories that are not known to the receiver and have no changes to announce.
	newImages []string
}

// readChanges reads the repositories that the receiver knows, and the changes that were not announced, without namespaces that are held. If the
// changes exceed maxChanges, the repositories with the worst come first, and the next message has the others.
func (p *planning) readChanges() (_ *Action, err error) {
	known, err := p.store.KnownRepositories(p.ctx, p.scanner, p.settings.Receiver)
	if err != nil {
		return nil, err
	}
	filter := p.state.changeFilter(p.settings, p.coverage)
	filter.Route, filter.WholeRepositories = p.routeWithoutHeld(), true
	changes, total, err := p.store.PendingChanges(p.ctx, p.scanner, p.settings.Receiver, filter, maxChanges)
	if err != nil {
		return nil, err
	}
	p.truncated = total > len(changes)
	p.loaded, p.known, p.pending, p.state.Pending = true, setOf(known), changes, total
	return nil, nil
}

// recordCleanRepositories records repositories without changes as known to the receiver. A later finding in them is then a change in a known
// repository, not the first scan of a new one. If the receiver wants new images, those that are routed to it are announced first.
func (p *planning) recordCleanRepositories() (*Action, error) {
	if p.truncated {
		return nil, nil
	}
	routed, held := p.coverage.routedRepositories(p.settings.Filter.Route), p.heldRepositories()
	hasChanges := make(map[string]bool)
	for _, change := range p.pending {
		hasChanges[change.Repository] = true
	}
	var clean []string
	for _, repository := range p.coverage.completeRepositories() {
		if held[repository] {
			continue
		}
		decision := diff.Repository(diff.RepositoryState{
			Known: p.known[repository], IsRouted: routed[repository], HasChanges: hasChanges[repository],
		}, diff.Policy{Changes: p.settings.Filter.Changes})
		switch {
		case decision.Announce != "":
			p.newImages = append(p.newImages, repository)
		case decision.Record != nil:
			clean = append(clean, repository)
		}
	}
	if len(clean) == 0 {
		return nil, nil
	}
	return &Action{Mark: &store.Announcement{At: p.now, Repositories: clean}}, nil
}

// announceChanges plans the message about changes.
func (p *planning) announceChanges() (*Action, error) { return p.sendPending(p.joinsUntil) }

// sendPending sends changes, new images and notices, once GroupWait has passed since the first was noticed and GroupInterval since the last
// delivery. Replies that belong to the last delivery follow at once. Until is when to plan again in any case; zero for never. In quiet hours only
// what is urgent is sent. The rest has waited long enough when they end.
func (p *planning) sendPending(until time.Time) (*Action, error) {
	notices, next := p.pendingNotices()
	until = earliestSet(until, next)
	waits := len(p.pending)+len(p.newImages)+len(notices) > 0
	if p.isQuiet() {
		if err := p.holdBack(); err != nil {
			return nil, err
		}
		notices, until = nil, earliestSet(until, p.quietUntil)
	}
	if action, err := p.continueBatch(); action != nil || err != nil {
		return action, err
	}
	if !waits {
		waits, err := p.stillPending()
		if err == nil && !waits {
			p.state.PendingSince = time.Time{}
		}
		return &Action{Until: until}, err
	}
	if p.state.PendingSince.IsZero() {
		p.state.PendingSince = p.now
	}
	if len(p.pending)+len(p.newImages)+len(notices) == 0 {
		return &Action{Until: until}, nil
	}
	if due := later(p.state.PendingSince.Add(p.settings.GroupWait), p.maySend()); p.now.Before(due) {
		return &Action{Until: earliestSet(until, due)}, nil
	}
	return p.sendBatch(notices)
}

// stillPending reports whether there are changes in images that no pod runs now and that the Scanner still has. PendingSince then stays, so
// that the next run of such an image announces them without another GroupWait. Pods that live shorter than GroupWait would otherwise never
// be announced.
func (p *planning) stillPending() (bool, error) {
	if !p.loaded || p.state.PendingSince.IsZero() {
		return false, nil
	}
	_, total, err := p.store.PendingChanges(p.ctx, p.scanner, p.settings.Receiver, p.state.idleFilter(p.settings, p.coverage), 1)
	return total > 0, err
}
