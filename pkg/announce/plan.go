package announce

import (
	"context"
	"io"
	"slices"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/announce/diff"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// maxChanges bounds the changes that one plan reads. The rest waits for the next message.
const maxChanges = 10_000

// Action is the next step for a receiver. At most one of Send and Mark is set.
type Action struct {
	// Send is the message to send. The caller must first store the state, which holds the message.
	Send *Message
	// Mark is what to record as announced without sending a message. The caller sets its State from the one that Plan returned. If the
	// store returns store.ErrChanged, Mark and state are outdated: plan again.
	Mark *store.Announcement
	// Until is when to plan again if nothing changes before; zero for never.
	Until time.Time
}

// plan returns the receiver's next state and the action that goes with it. It only reads from the store. The returned state is valid only
// without an error.
//
// The order is fixed: first the message in the outbox, then the baseline, then changes. So there is never more than one message in the
// outbox, and no change is announced before the baseline. Health notices do not wait for the baseline.
func (v *dispatch) plan(ctx context.Context) (State, Action, error) {
	now, coverage := v.Now(), v.coverage
	coverage.DataSince = earlier(coverage.DataSince, now)
	l := &planning{
		ctx: ctx, now: now, store: v.Store, scanner: v.scanner, settings: v.settings, coverage: coverage, random: v.Random,
		state: v.state.withoutFutureTimes(now),
	}
	steps := []func(*planning) (*Action, error){
		(*planning).begin,
		(*planning).deliver,
		(*planning).deleteAbsent,
		(*planning).finishBaseline,
		(*planning).recordCleanRepositories,
		(*planning).announceChanges,
	}
	if v.full {
		steps = []func(*planning) (*Action, error){(*planning).begin, (*planning).deliver, (*planning).deleteAbsent, (*planning).replaceEngine}
	} else {
		l.state.hasRoom()
	}
	for _, step := range steps {
		action, err := step(l)
		if err != nil {
			return State{}, Action{}, err
		}
		if action != nil {
			return l.state, *action, nil
		}
	}
	return l.state, Action{}, nil
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
	// state becomes the result of plan.
	state State
	// loaded is true once pending was read. total is the number of changes in the store. truncated is true if pending does not hold all of them.
	loaded    bool
	pending   []store.FindingChange
	total     int
	truncated bool
	// newImages are repositories that are not known to the receiver and have no changes to announce.
	newImages []string
}

// recordCleanRepositories records repositories without changes as known to the receiver. A later finding in them is then a change in a known
// repository, not the first scan of a new one. If the receiver wants new images, those that are routed to it are announced first.
func (l *planning) recordCleanRepositories() (*Action, error) {
	if err := l.loadChanges(); err != nil || l.truncated {
		return nil, err
	}
	known, err := l.store.KnownRepositories(l.ctx, l.scanner, l.settings.Receiver)
	if err != nil {
		return nil, err
	}
	routed := l.coverage.routedRepositories(l.settings.Filter.Route)
	var clean []string
	for _, repository := range l.coverage.completeRepositories() {
		decision := diff.Repository(diff.RepositoryState{
			Known: slices.Contains(known, repository), IsRouted: routed[repository],
			HasChanges: slices.ContainsFunc(l.pending, func(n store.FindingChange) bool { return n.Repository == repository }),
		}, diff.Policy{Changes: l.settings.Filter.Changes})
		switch {
		case decision.Announce != "":
			l.newImages = append(l.newImages, repository)
		case decision.Record != nil:
			clean = append(clean, repository)
		}
	}
	if len(clean) == 0 {
		return nil, nil
	}
	return &Action{Mark: &store.Announcement{At: l.now, Repositories: clean}}, nil
}

// announceChanges plans the message about changes.
func (l *planning) announceChanges() (*Action, error) {
	if err := l.loadChanges(); err != nil {
		return nil, err
	}
	l.state.Pending = l.total
	return l.sendPending(time.Time{})
}

// sendPending sends changes, new images and notices, once GroupWait has passed since the first was noticed and GroupInterval since the last
// delivery. Until is when to plan again in any case; zero for never.
func (l *planning) sendPending(until time.Time) (*Action, error) {
	notices, next := l.pendingNotices()
	until = earliestSet(until, next)
	if len(l.pending)+len(l.newImages)+len(notices) == 0 {
		waits, err := l.stillPending()
		if err == nil && !waits {
			l.state.PendingSince = time.Time{}
		}
		return &Action{Until: until}, err
	}
	if l.state.PendingSince.IsZero() {
		l.state.PendingSince = l.now
	}
	if due := later(l.state.PendingSince.Add(l.settings.GroupWait), l.maySend()); l.now.Before(due) {
		return &Action{Until: earliestSet(until, due)}, nil
	}
	outbox, err := l.composeChanges(notices)
	if err != nil {
		return nil, err
	}
	l.putInOutbox(outbox)
	return l.deliver()
}

// stillPending reports whether there are changes in images that no pod runs now and that the Scanner still has. PendingSince then stays, so
// that the next run of such an image announces them without another GroupWait. Pods that live shorter than GroupWait would otherwise never
// be announced.
func (l *planning) stillPending() (bool, error) {
	if !l.loaded || l.state.PendingSince.IsZero() {
		return false, nil
	}
	_, total, err := l.store.PendingChanges(l.ctx, l.scanner, l.settings.Receiver, l.state.idleFilter(l.settings, l.coverage), 1)
	return total > 0, err
}

// loadChanges reads the changes that were not announced. If they exceed maxChanges, the last repository may be incomplete. It is then left for
// the next message, unless it is the only one.
func (l *planning) loadChanges() error {
	if l.loaded {
		return nil
	}
	changes, total, err := l.store.PendingChanges(l.ctx, l.scanner, l.settings.Receiver, l.state.changeFilter(l.settings, l.coverage), maxChanges)
	if err != nil {
		return err
	}
	l.truncated = total > len(changes)
	if l.truncated && len(changes) > 0 && changes[0].Repository != changes[len(changes)-1].Repository {
		last := changes[len(changes)-1].Repository
		changes = slices.DeleteFunc(changes, func(n store.FindingChange) bool { return n.Repository == last })
	}
	l.loaded, l.pending, l.total = true, changes, total
	return nil
}
