package notify

import (
	"context"
	"io"
	"slices"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// Times that no setting changes.
const (
	// baselinePatience is how long a baseline waits for its images once there is vulnerability data. What is
	// missing then is named in the summary and becomes news later.
	baselinePatience = 30 * time.Minute
	// pullPatience is how long the snapshot waits for images that nodes are still pulling, which have no key yet.
	pullPatience = 5 * time.Minute
	// pullCheck is how often to look at them: that a node gives up changes no image, and may go unnoticed.
	pullCheck = 10 * time.Second
	// attemptGap is the least time between two attempts, whatever else asks for one.
	attemptGap = time.Second
)

// newsLimit bounds how many findings are looked at together. Beyond it the rest waits for the next message.
const newsLimit = 10_000

// Source is what the planner asks of the store about one receiver. FromStore makes one.
type Source interface {
	// News lists what the receiver has not been told, ordered by repository: at most limit entries, and how many there are in all.
	News(ctx context.Context, f store.NewsFilter, limit int) ([]store.News, int, error)
	// Present looks at everything that is there at one moment, with the worst of what the receiver was not told.
	Present(ctx context.Context, f store.NewsFilter, worst int) (store.Present, error)
	// KnownRepositories lists the repositories that the receiver has heard of.
	KnownRepositories(ctx context.Context) ([]string, error)
}

// Action is what to do now. At most one of Send and Mark is set.
type Action struct {
	// Send is the message to deliver, after the state, which holds it, has been stored.
	Send *Digest
	// Mark is to be recorded without a message. Its State is that which Plan returned. When the store says
	// store.ErrChanged, neither is right any more: plan again.
	Mark *store.Announced
	// Until is when to plan again if nothing changes before; zero if there is no such time.
	Until time.Time
}

// Planner decides. It has no state and no clock of its own.
type Planner struct {
	// Random gives message ids and jitter; crypto/rand.Reader outside of tests.
	Random io.Reader
}

// Plan says what to do about one receiver now, and how its state changes by that. It only reads from source.
//
// The order is fixed: a message on its way comes first, then the baseline, then news; so there is never more than one
// message on its way to a receiver, and no news before its baseline. What the Scanner says about itself does not wait for that.
func (p Planner) Plan(ctx context.Context, now time.Time, settings Settings, state State, coverage Coverage, source Source) (State, Action, error) {
	state = state.settled(now)
	coverage.DataSince = earlier(coverage.DataSince, now)
	l := &look{ctx: ctx, now: now, settings: settings, coverage: coverage, source: source, random: p.Random, state: state}
	for _, step := range []func(*look) (*Action, error){
		(*look).begin,
		(*look).deliver,
		(*look).finishBaseline,
		(*look).hearOfRepositories,
		(*look).announce,
	} {
		action, err := step(l)
		if err != nil {
			return state, Action{}, err
		}
		if action != nil {
			return l.state, *action, nil
		}
	}
	return l.state, Action{}, nil
}

// look is one look at one receiver. A step returns an action when it has decided, and nil to pass on.
type look struct {
	ctx      context.Context
	now      time.Time
	settings Settings
	coverage Coverage
	source   Source
	random   io.Reader
	// state is what changes.
	state State
	// loaded says that news were read; total is how many there are, and cut that some of them were left out.
	loaded bool
	news   []store.News
	total  int
	cut    bool
	// newImages are repositories that the receiver has never heard of, with nothing else to tell of them.
	newImages []string
}

// begin takes the snapshot of the images at the receiver's first sight. The snapshot stays open for the time
// that messages are grouped, since a Scanner's images are noticed one after the other.
func (l *look) begin() (*Action, error) {
	if !l.coverage.Known {
		return &Action{}, nil
	}
	if action := l.followRestore(); action != nil {
		return action, nil
	}
	b := &l.state.Baseline
	if b.Phase == BaselineNone {
		*b = Baseline{Phase: BaselineOpen, Renewed: l.settings.StoreRenewed, Started: l.now}
		// A receiver that wants everything needs no baseline, unless all that it was told would be told again.
		if l.settings.FirstScan == FirstScanAll && !b.Renewed {
			b.Phase = BaselineDone
		}
	}
	l.followSettings()
	l.followNotices()
	l.takeSnapshot()
	return nil, nil
}

// deliver brings the message on its way to its end before anything else happens, however long ago it was composed
// if the receiver may have it. A message that is refused becomes too old: it is composed anew if the receiver certainly does not have it,
// and given up if an earlier attempt had no answer, since composed anew it would arrive twice. If no attempt was made for hours, since no manager
// ran, it is sent again instead, and its day of refusals begins anew. One that was never answered is given up.
func (l *look) deliver() (*Action, error) {
	outbox := l.state.Outbox
	if outbox == nil {
		return nil, nil
	}
	tooOld := !outbox.InDoubt && !l.now.Before(outbox.keptUntil())
	// A manager that runs tries a refused message again sooner than that.
	away := l.now.Sub(l.state.LastAttempt) > maxUnansweredBackoff
	switch {
	case outbox.InDoubt && l.state.Unanswered >= maxUnanswered:
		said, err := giveUp(l.now, &l.state)
		return &Action{Mark: said}, err
	case tooOld && outbox.EarlierInDoubt && !away:
		said, err := giveUp(l.now, &l.state)
		return &Action{Mark: said}, err
	case tooOld && !outbox.EarlierInDoubt:
		l.state.Outbox = nil
		return &Action{Mark: &store.Announced{At: l.now, Retract: outbox.Digest.ID}}, nil
	case l.now.Before(l.mayAttempt()):
		return &Action{Until: l.mayAttempt()}, nil
	}
	l.state.LastAttempt = l.now
	l.state.Unanswered++
	// Whoever comes after a crash waits as after an attempt that was not answered.
	l.state.NextAttempt = l.now.Add(doubled(l.state.Unanswered, maxUnansweredBackoff))
	sent := *outbox
	sent.InDoubt, sent.EarlierInDoubt = true, outbox.InDoubt || outbox.EarlierInDoubt
	if outbox.InDoubt || tooOld {
		sent.RefusedSince = time.Time{}
	}
	l.state.Outbox = &sent
	if l.state.Stopped != nil {
		stopped := *l.state.Stopped
		stopped.Generation = l.settings.Generation
		l.state.Stopped = &stopped
	}
	return &Action{Send: &sent.Digest}, nil
}

// mayAttempt is when the notifier may be asked next. A change of the Scanner ends the wait of a stopped receiver.
func (l *look) mayAttempt() time.Time {
	earliest := l.state.LastAttempt.Add(attemptGap)
	if l.state.Stopped != nil && l.state.Stopped.Generation != l.settings.Generation {
		return earliest
	}
	return later(earliest, l.state.NextAttempt)
}

// mayTell is when the receiver may be told of something that is not on its way yet.
func (l *look) mayTell() time.Time {
	if l.state.LastDelivery.IsZero() {
		return l.mayAttempt()
	}
	return later(l.mayAttempt(), l.state.LastDelivery.Add(l.settings.GroupInterval))
}

// put puts a message into the outbox.
func (l *look) put(outbox Outbox) {
	l.state.Outbox = &outbox
	l.state.Pending = max(l.state.Pending, outbox.Findings)
}

// hearOfRepositories records repositories that have nothing to tell of. When something is found in them later, that is
// news in a known repository, and not the first scan of a new one. A receiver that is told of new images is told of them first.
func (l *look) hearOfRepositories() (*Action, error) {
	if err := l.loadNews(); err != nil || l.cut {
		return nil, err
	}
	known, err := l.source.KnownRepositories(l.ctx)
	if err != nil {
		return nil, err
	}
	concerning := l.coverage.concerning(l.settings.Filter.Route)
	var heard []string
	for _, repository := range l.coverage.resolvedRepositories() {
		switch {
		case slices.Contains(known, repository),
			slices.ContainsFunc(l.news, func(n store.News) bool { return n.Repository == repository }):
		case l.settings.NewImages && concerning[repository]:
			l.newImages = append(l.newImages, repository)
		default:
			heard = append(heard, repository)
		}
	}
	if len(heard) == 0 {
		return nil, nil
	}
	return &Action{Mark: &store.Announced{At: l.now, Repositories: heard}}, nil
}

// announce sends what is new.
func (l *look) announce() (*Action, error) {
	if err := l.loadNews(); err != nil {
		return nil, err
	}
	l.state.Pending = l.total
	return l.speak(time.Time{})
}

// speak sends what there is to say, when enough time has passed since it was noticed and since the message before. Until is when
// to look again anyway; zero for never.
func (l *look) speak(until time.Time) (*Action, error) {
	notices, next := l.untoldNotices()
	until = soonest(until, next)
	if len(l.news)+len(l.newImages)+len(notices) == 0 {
		waits, err := l.stillPending()
		if err == nil && !waits {
			l.state.PendingSince = time.Time{}
		}
		return &Action{Until: until}, err
	}
	if l.state.PendingSince.IsZero() {
		l.state.PendingSince = l.now
	}
	if due := later(l.state.PendingSince.Add(l.settings.GroupWait), l.mayTell()); l.now.Before(due) {
		return &Action{Until: soonest(until, due)}, nil
	}
	outbox, err := l.digest(notices)
	if err != nil {
		return nil, err
	}
	l.put(outbox)
	return l.deliver()
}

// stillPending says whether there is something to announce of images that nothing runs for now and that the Scanner still has. It waits for
// their next run, and then for nothing more: pods that live for less than GroupWait would never be announced otherwise.
func (l *look) stillPending() (bool, error) {
	if !l.loaded || l.state.PendingSince.IsZero() {
		return false, nil
	}
	filter := l.settings.Filter
	filter.Kept, filter.Settled = true, l.coverage.resolvedRepositories()
	_, total, err := l.source.News(l.ctx, filter, 1)
	return total > 0, err
}

// loadNews reads what the receiver has not been told. When there is too much, the last repository, of which
// some may be missing, is left for the next message, unless it is the only one.
func (l *look) loadNews() error {
	if l.loaded {
		return nil
	}
	news, total, err := l.source.News(l.ctx, l.settings.Filter, newsLimit)
	if err != nil {
		return err
	}
	l.cut = total > len(news)
	if l.cut && len(news) > 0 && news[0].Repository != news[len(news)-1].Repository {
		last := news[len(news)-1].Repository
		news = slices.DeleteFunc(news, func(n store.News) bool { return n.Repository == last })
	}
	l.loaded, l.news, l.total = true, news, total
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

// soonest is the first of two times, of which zero means never.
func soonest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
