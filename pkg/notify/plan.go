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
	// News lists what the receiver has not been told, ordered by repository and then finding.Worse: at most
	// limit entries, and how many there are in all.
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
// The order is fixed: a message on its way comes first, then the baseline, then news; so there is never more
// than one message on its way to a receiver, and none before its baseline.
func (p Planner) Plan(ctx context.Context, now time.Time, settings Settings, state State, coverage Coverage, source Source) (State, Action, error) {
	state = state.settled(now)
	coverage.DataSince = earlier(coverage.DataSince, now)
	l := &look{ctx: ctx, now: now, settings: settings, coverage: coverage, source: source, random: p.Random, state: state}
	for _, step := range []func(*look) (*Action, error){
		(*look).begin,
		(*look).deliver,
		(*look).finishBaseline,
		(*look).hearOfCleanRepositories,
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
	// loaded is what loadNews read, for the steps that follow.
	loaded *loadedNews
}

type loadedNews struct {
	news  []store.News
	total int
	// cut says that some were left out.
	cut bool
}

// begin takes the snapshot of the images at the receiver's first sight. The snapshot stays open for the time
// that messages are grouped, since a Scanner's images are noticed one after the other.
func (l *look) begin() (*Action, error) {
	if !l.coverage.Known {
		return &Action{}, nil
	}
	b := &l.state.Baseline
	if b.Phase == BaselineNone {
		*b = Baseline{Phase: BaselineOpen, Renewed: l.settings.StoreRenewed, Started: l.now}
		// A receiver that wants everything needs no baseline, unless all that it was told would be told again.
		if l.settings.FirstScan == FirstScanAll && !b.Renewed {
			b.Phase = BaselineDone
		}
	}
	l.followEngine()
	if b.Phase == BaselineOpen && l.snapshotOpen() {
		for _, img := range l.coverage.Images {
			if !slices.Contains(b.Images, img.Key) {
				b.Images = append(slices.Clone(b.Images), img.Key)
			}
		}
	}
	b.Pulling = b.Phase == BaselineOpen && l.coverage.Others.Pending > 0
	return nil, nil
}

// followEngine begins a baseline when the Scanner has got another engine: what that one finds differs in much that is not
// new. Repositories that do not run now are new to it too, when they do. A message on its way is of the engine before, and is
// brought to its end first. A receiver that wants everything is told of the difference instead.
func (l *look) followEngine() {
	before, now := l.state.Engine, l.settings.Filter.Engine
	if now == "" || before == now || l.state.Outbox != nil {
		return
	}
	l.state.Engine = now
	b := &l.state.Baseline
	switch {
	case before == "":
		// New here, or from before engines were remembered.
	case b.Phase == BaselineOpen && b.EngineBefore == now:
		// Back before anything was said of the other one.
		b.finish()
	case b.Phase == BaselineOpen:
		b.Started, b.Images = l.now, nil
	case l.settings.FirstScan != FirstScanAll:
		*b = Baseline{Phase: BaselineOpen, EngineBefore: before, Started: l.now}
	}
}

// snapshotOpen says whether images still join the snapshot: those that were being pulled when it was last
// looked at belong to it as well.
func (l *look) snapshotOpen() bool {
	return !l.now.After(l.snapshotEnd()) || l.state.Baseline.Pulling && !l.now.After(l.pullEnd())
}

func (l *look) snapshotEnd() time.Time { return l.state.Baseline.Started.Add(l.settings.GroupWait) }

func (l *look) pullEnd() time.Time { return l.state.Baseline.Started.Add(pullPatience) }

// deliver brings the message on its way to its end before anything else happens, however long ago it was composed
// if the receiver may have it. One that it certainly does not have is too old after outboxAge.
func (l *look) deliver() (*Action, error) {
	outbox := l.state.Outbox
	switch {
	case outbox == nil:
		return nil, nil
	case !outbox.InDoubt && !l.now.Before(outbox.Digest.CreatedAt.Add(outboxAge)):
		l.state.Outbox = nil
		return &Action{Mark: &store.Announced{At: l.now, Retract: outbox.Digest.ID}}, nil
	case l.now.Before(l.mayAttempt()):
		return &Action{Until: l.mayAttempt()}, nil
	}
	l.state.LastAttempt = l.now
	sent := *outbox
	sent.InDoubt = true
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

// put puts a message into the outbox.
func (l *look) put(outbox Outbox) {
	l.state.Outbox = &outbox
	l.state.Pending = max(l.state.Pending, outbox.Findings)
}

// finishBaseline ends the baseline when its images have results, or when waiting has become pointless.
func (l *look) finishBaseline() (*Action, error) {
	b := &l.state.Baseline
	if b.Phase == BaselineDone {
		return nil, nil
	}
	if wait := l.baselineWait(); wait != nil {
		return wait, nil
	}
	others := l.coverage.Others
	nothingElse := others.Pending+others.Excluded+len(others.Failed) == 0
	if nothingElse && (len(b.Images) == 0 || len(l.coverage.Images) == 0) {
		// There was nothing to sum up. What comes later is new here, and is said to be.
		b.finish()
		return nil, nil
	}
	silent := l.settings.FirstScan == FirstScanSilent && !b.Renewed
	if !silent && l.now.Before(l.mayAttempt()) {
		return &Action{Until: l.mayAttempt()}, nil
	}
	present, err := l.source.Present(l.ctx, l.settings.Filter, maxWorst)
	if err != nil {
		return nil, err
	}
	if silent {
		return l.passOver(present), nil
	}
	return l.sumUp(present)
}

// sumUp puts the summary into the outbox. What it covers is recorded as told at once, by the message's id, since
// later nobody could say what was there when it was composed; if it never arrives, that is taken back.
func (l *look) sumUp(present store.Present) (*Action, error) {
	outbox, err := l.summary(present)
	if err != nil {
		return nil, err
	}
	l.put(outbox)
	return &Action{Mark: &store.Announced{
		DigestID: outbox.Digest.ID, At: l.now, All: l.everything(present), ForgetRepositories: l.state.Baseline.EngineBefore != "",
	}}, nil
}

// everything is what a baseline covers.
func (l *look) everything(present store.Present) *store.All {
	return &store.All{Filter: l.settings.Filter, Moment: present.Moment}
}

// baselineWait says until when the baseline has to wait; nil when it need not.
func (l *look) baselineWait() *Action {
	b := l.state.Baseline
	if l.now.Before(l.snapshotEnd()) {
		return &Action{Until: l.snapshotEnd()}
	}
	if b.Pulling && l.now.Before(l.pullEnd()) {
		return &Action{Until: earlier(l.now.Add(pullCheck), l.pullEnd())}
	}
	waiting := slices.ContainsFunc(l.coverage.Images, func(img Image) bool {
		return img.State == ImagePending && slices.Contains(b.Images, img.Key)
	})
	switch deadline := later(l.coverage.DataSince, b.Started).Add(baselinePatience); {
	case !waiting:
		return nil
	case l.coverage.DataSince.IsZero():
		// Nothing can be matched. The Scanner says so; a summary of nothing would not help.
		return &Action{}
	case l.now.Before(deadline):
		return &Action{Until: deadline}
	}
	return nil
}

// passOver ends the baseline without a message.
func (l *look) passOver(present store.Present) *Action {
	forget := l.state.Baseline.EngineBefore != ""
	l.state.Baseline.finish()
	return &Action{Mark: &store.Announced{At: l.now, All: l.everything(present), ForgetRepositories: forget, Repositories: l.heardOf(present)}}
}

// hearOfCleanRepositories records repositories that have nothing to tell of. When something is found in them
// later, that is news in a known repository, and not the first scan of a new one.
func (l *look) hearOfCleanRepositories() (*Action, error) {
	loaded, err := l.loadNews()
	if err != nil || loaded.cut {
		return nil, err
	}
	known, err := l.source.KnownRepositories(l.ctx)
	if err != nil {
		return nil, err
	}
	heard := slices.DeleteFunc(l.coverage.settledRepositories(), func(repository string) bool {
		return slices.Contains(known, repository) ||
			slices.ContainsFunc(loaded.news, func(n store.News) bool { return n.Repository == repository })
	})
	if len(heard) == 0 {
		return nil, nil
	}
	return &Action{Mark: &store.Announced{At: l.now, Repositories: heard}}, nil
}

// announce sends what is new, when enough time has passed since it was noticed and since the message before.
func (l *look) announce() (*Action, error) {
	loaded, err := l.loadNews()
	if err != nil {
		return nil, err
	}
	l.state.Pending = loaded.total
	if len(loaded.news) == 0 {
		l.state.PendingSince = time.Time{}
		return &Action{}, nil
	}
	if l.state.PendingSince.IsZero() {
		l.state.PendingSince = l.now
	}
	due := later(l.state.PendingSince.Add(l.settings.GroupWait), l.mayAttempt())
	if !l.state.LastDelivery.IsZero() {
		due = later(due, l.state.LastDelivery.Add(l.settings.GroupInterval))
	}
	if l.now.Before(due) {
		return &Action{Until: due}, nil
	}
	outbox, err := l.digest()
	if err != nil {
		return nil, err
	}
	l.put(outbox)
	return l.deliver()
}

// loadNews reads what the receiver has not been told. When there is too much, the last repository, of which
// some may be missing, is left for the next message, unless it is the only one.
func (l *look) loadNews() (*loadedNews, error) {
	if l.loaded != nil {
		return l.loaded, nil
	}
	news, total, err := l.source.News(l.ctx, l.settings.Filter, newsLimit)
	if err != nil {
		return nil, err
	}
	cut := total > len(news)
	if cut && len(news) > 0 && news[0].Repository != news[len(news)-1].Repository {
		last := news[len(news)-1].Repository
		news = slices.DeleteFunc(news, func(n store.News) bool { return n.Repository == last })
	}
	l.loaded = &loadedNews{news: news, total: total, cut: cut}
	return l.loaded, nil
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
