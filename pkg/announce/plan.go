package announce

import (
	"context"
	"io"
	"slices"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/announce/diff"
	"github.com/scanner-operator/scanner-operator/pkg/backoff"
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
	// attemptGap is the least time between two attempts, whatever triggers them.
	attemptGap = time.Second
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

// deliver handles the message in the outbox before anything else is planned. An unanswered message is sent again, however old it is, and
// given up after maxUnanswered attempts without an answer.
//
// A refused message can become too old. If the receiver certainly does not have it, it is discarded and composed again. If an earlier
// attempt is unanswered, it is given up, since a newly composed message could announce the same twice. If no attempt was made for hours,
// because no manager ran, it is sent again and its day of refusals starts anew.
func (l *planning) deliver() (*Action, error) {
	outbox := l.state.Outbox
	if outbox == nil {
		return nil, nil
	}
	tooOld := !outbox.LatestUnanswered && !l.now.Before(outbox.staleAt())
	// A running manager retries a refused message sooner than that.
	away := l.now.Sub(l.state.LastAttempt) > maxUnansweredBackoff
	switch {
	case outbox.LatestUnanswered && l.state.Unanswered >= maxUnanswered:
		announcement, err := giveUp(l.now, &l.state)
		return &Action{Mark: announcement}, err
	case tooOld && outbox.EarlierUnanswered && !away:
		announcement, err := giveUp(l.now, &l.state)
		return &Action{Mark: announcement}, err
	case tooOld && !outbox.EarlierUnanswered:
		l.state.Outbox = nil
		return &Action{Mark: &store.Announcement{At: l.now, Retract: outbox.Message.ID}}, nil
	case l.now.Before(l.mayAttempt()):
		return &Action{Until: l.mayAttempt()}, nil
	}
	l.state.LastAttempt = l.now
	l.state.Unanswered++
	// After a crash, the next process waits as after an unanswered attempt.
	l.state.NextAttempt = l.now.Add(backoff.After(l.state.Unanswered, minBackoff, maxUnansweredBackoff))
	sent := *outbox
	sent.LatestUnanswered, sent.EarlierUnanswered = true, outbox.LatestUnanswered || outbox.EarlierUnanswered
	if outbox.LatestUnanswered || tooOld {
		sent.RefusedSince = time.Time{}
	}
	l.state.Outbox = &sent
	if l.state.Stopped != nil {
		stopped := *l.state.Stopped
		stopped.Generation = l.settings.Generation
		l.state.Stopped = &stopped
	}
	return &Action{Send: &sent.Message}, nil
}

// mayAttempt returns the earliest time of the next attempt. A change of the Scanner ends the wait of a stopped receiver.
func (l *planning) mayAttempt() time.Time {
	earliest := l.state.LastAttempt.Add(attemptGap)
	if l.state.Stopped != nil && l.state.Stopped.Generation != l.settings.Generation {
		return earliest
	}
	return later(earliest, l.state.NextAttempt)
}

// maySend returns the earliest time to send a message that is not in the outbox yet.
func (l *planning) maySend() time.Time {
	if l.state.LastDelivery.IsZero() {
		return l.mayAttempt()
	}
	return later(l.mayAttempt(), l.state.LastDelivery.Add(l.settings.GroupInterval))
}

// putInOutbox stores a message in the outbox.
func (l *planning) putInOutbox(outbox Outbox) {
	l.state.Outbox = &outbox
	l.state.Pending = max(l.state.Pending, outbox.Findings)
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

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// earliestSet returns the earlier of two times. A zero time means never.
func earliestSet(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
