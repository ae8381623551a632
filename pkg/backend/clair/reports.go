package clair

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/quay/claircore"
	"k8s.io/utils/clock"

	"github.com/scanner-operator/scanner-operator/pkg/backend"
	api "github.com/scanner-operator/scanner-operator/pkg/clair"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

const (
	// holder is who leases images from the queue. It is no Job, and the same after a restart.
	holder = "manager"
	// leaseBatch is how many are leased at a time, and leaseTime for how long: that many can be read within, however slow
	// Clair is.
	leaseBatch = 8
	leaseTime  = 10 * time.Minute
	// firstRetry and lastRetry bound the time until a report that could not be used is read again.
	firstRetry = time.Minute
	lastRetry  = time.Hour
	// brokenRetry bounds it where Clair has failed to make the report: it may well be Clair that gets better.
	brokenRetry = 5 * time.Minute
)

// errUnreadable is an answer that Normalise has no use of.
type errUnreadable struct{ cause error }

// Error says what is wrong with it.
func (e errUnreadable) Error() string { return "Clair's report cannot be used: " + e.cause.Error() }

// readLoop reads what is due, the oldest reports first.
func (i *instance) readLoop(ctx context.Context) {
	for i.await(ctx, i.reading, i.around(i.Config.Clair.PollInterval.Duration)) {
		if err := i.Loops.Run("clair-read", func() error { return i.readDue(ctx) }); err != nil && ctx.Err() == nil {
			i.Log.Error(err, "Reading reports", "clair", i.url)
		}
	}
}

// readDue reads until nothing is due, or something goes wrong.
func (i *instance) readDue(ctx context.Context) error {
	// What was not read the last time, or before a restart, is due again.
	err := i.Store.ReturnLeases(ctx, i.engine, holder)
	for more := true; more && ctx.Err() == nil; {
		var readErr error
		more, readErr = i.readSome(ctx)
		err, more = errors.Join(err, readErr), more && readErr == nil
	}
	return errors.Join(err, i.noteQueue(ctx))
}

// noteQueue counts what waits for a report.
func (i *instance) noteQueue(ctx context.Context) error {
	queued, err := i.Store.QueueLength(ctx, i.engine)
	if err == nil {
		i.queued.Store(int64(queued))
	}
	return err
}

// mayRead says whether reports can be had, and are complete.
func (i *instance) mayRead() *link {
	i.mu.Lock()
	ready := i.data.known && i.data.missing == ""
	i.mu.Unlock()
	if !ready {
		return nil
	}
	return i.worker()
}

// readSome reads the reports that are due first, and says whether there may be more.
func (i *instance) readSome(ctx context.Context) (bool, error) {
	l := i.mayRead()
	if l == nil {
		return false, nil
	}
	now := i.Clock.Now()
	leases, err := i.Store.LeaseMatches(ctx, i.engine, holder, leaseBatch, now, now.Add(leaseTime))
	if err != nil {
		return false, err
	}
	// Before anything is read: what is read later is made with this data or newer. After the lease: what is leased because the data has
	// just changed would otherwise count as made with the data before, and be read once more.
	version, err := i.Store.DataVersion(ctx, i.engine)
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	var all sync.WaitGroup
	errs := make([]error, len(leases))
	for n, lease := range leases {
		if errs[n] = i.beginReading(ctx); errs[n] != nil {
			break
		}
		all.Go(func() {
			defer i.endReading()
			errs[n] = i.readLeased(ctx, l, lease, version.Version)
		})
	}
	all.Wait()
	err = errors.Join(errs...)
	if errors.Is(err, errLater) {
		return false, nil // whoever finds that Clair is well again wakes the loop
	}
	return len(leases) == leaseBatch, err
}

// beginReading waits until a report may be read, and has a place in memory; endReading gives that back.
func (i *instance) beginReading(ctx context.Context) error {
	// First this, so that a Clair that is to be asked slowly takes no place meanwhile.
	if err := i.reports.Wait(ctx); err != nil {
		return err
	}
	select {
	case i.readings <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (i *instance) endReading() { <-i.readings }

// readLeased replaces one report. Errors are errLater, or the store's.
func (i *instance) readLeased(ctx context.Context, l *link, lease store.Lease, version string) error {
	if i.troubleOf(l) != nil {
		return errLater
	}
	unlock := i.digests.try(lease.PlatformDigest)
	if unlock == nil {
		return nil // it is being indexed, and keeps its lease until the loop is woken
	}
	defer unlock()
	subject := store.Subject{PlatformDigest: lease.PlatformDigest, Scope: lease.Scope, Engine: i.engine}
	catalogued, err := i.Store.Catalogued(ctx, i.engine, image.Key{Digest: lease.PlatformDigest}, lease.Scope)
	if err != nil {
		return ignoreMissing(err)
	}
	var r reading
	if catalogued.Tool != toolNobody {
		if r, err = i.read(ctx, l, lease.PlatformDigest); err != nil {
			return i.notRead(ctx, l, lease, err)
		}
	}
	difference, err := i.Store.SaveReport(ctx, store.Report{
		Subject: subject, DataVersion: version, MatchedAt: i.Clock.Now(), Distro: catalogued.Distro,
		NotCovered: notCovered(r.held), Evidence: r.evidence, Findings: r.findings,
	}, lease.ID)
	if errors.Is(err, store.ErrLeaseEnded) {
		return nil // it took too long, and is lent again
	}
	if err != nil {
		return err
	}
	i.Log.V(1).Info("Read a report", "clair", i.url, "manifest", lease.PlatformDigest, "scope", lease.Scope,
		"new", difference.New, "still", difference.Still, "gone", difference.Gone)
	i.Wake(ctx, lease.PlatformDigest)
	return nil
}

func ignoreMissing(err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}

// reading is what is read of a report.
type reading struct {
	findings []finding.Finding
	// held is what the image holds that the report does not cover.
	held     []string
	evidence store.Evidence
}

// read gets one report. It comes after beginReading.
func (i *instance) read(ctx context.Context, l *link, platformDigest string) (r reading, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			i.Log.Error(fmt.Errorf("panic: %v", cause), "Reading a report", "clair", i.url, "manifest", platformDigest, "stack", string(debug.Stack()))
			err = errUnreadable{errors.New("the operator failed on it; its log has the cause")}
		}
	}()
	digest, err := claircore.ParseDigest(platformDigest)
	if err != nil {
		return reading{}, errUnreadable{err}
	}
	// Before the report is made: its data is this or newer.
	ran, evidence := i.ran(), i.evidence()
	report, err := l.client.VulnerabilityReport(ctx, digest)
	if err != nil {
		return reading{}, err
	}
	findings, err := Normalise(report)
	if err != nil {
		return reading{}, errUnreadable{err}
	}
	return reading{findings: findings, held: uncovered(report, ran), evidence: evidence}, nil
}

// independentAfter is how much later than a finding is first missing its updater must have come to an end, to prove that it is
// fixed. Sources of advisories that lost an entry mostly have it back within a day, and updaters run every few hours.
const independentAfter = 24 * time.Hour

// evidence is what reports prove that are made from now on: each advisory is as new as its updater's data. That an operation came
// to an end so much later also shows that it is another one than that with which the finding went.
func (i *instance) evidence() store.Evidence {
	i.mu.Lock()
	defer i.mu.Unlock()
	ended := i.data.ended
	if ended == nil {
		ended = map[string]time.Time{}
	}
	return store.Evidence{After: i.Clock.Now().Add(independentAfter), BySource: ended}
}

// refresh replaces a report that there is, after the image was listed in another way than when it was made. One that is
// missing, the queue knows of.
func (i *instance) refresh(ctx context.Context, l *link, catalogue store.Catalogued) error {
	subject := store.Subject{PlatformDigest: catalogue.PlatformDigest, Scope: catalogue.Scope, Engine: i.engine}
	if _, err := i.Store.Summary(ctx, subject, store.Excepting{}); err != nil {
		return ignoreMissing(err)
	}
	version, err := i.Store.DataVersion(ctx, i.engine)
	if err != nil {
		return ignoreMissing(err)
	}
	if err := i.beginReading(ctx); err != nil {
		return err
	}
	defer i.endReading()
	r, err := i.read(ctx, l, catalogue.PlatformDigest)
	var unreadable errUnreadable
	switch {
	case errors.As(err, &unreadable):
		return &backend.Failure{Reason: ReasonReportFailed, Message: unreadable.Error()}
	case api.KindOf(err) == api.NotIndexed && i.probe(ctx, l) == nil:
		return &backend.Failure{Reason: ReasonImageLost, Message: err.Error() + ", although it has just indexed the image", RetryAfter: i.lost.note(catalogue.PlatformDigest)}
	case err != nil:
		return i.explain(ctx, l, err)
	}
	_, err = i.Store.SaveReport(ctx, store.Report{
		Subject: subject, DataVersion: version.Version, MatchedAt: i.Clock.Now(), Distro: catalogue.Distro,
		NotCovered: notCovered(r.held), Evidence: r.evidence, Findings: r.findings,
	}, "")
	return err
}

// notRead finds out what it means that there is no report: nothing of an image is believed while Clair is in trouble.
func (i *instance) notRead(ctx context.Context, l *link, lease store.Lease, err error) error {
	var refused *api.Error
	var unreadable errUnreadable
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &unreadable):
		return i.failMatch(ctx, lease, ReasonReportFailed, err.Error(), 0, lastRetry)
	case !errors.As(err, &refused):
		i.tell(ctx, l, i.noteFailed(l, err)) // the Secret with the key
		return errLater
	}
	switch refused.Kind {
	case api.Unauthorized:
		i.tell(ctx, l, i.noteFailed(l, err))
		return errLater
	case api.NoData:
		i.noteNoData(ctx)
		return errLater
	case api.NotIndexed:
		return i.notKnown(ctx, l, lease, refused)
	case api.Unavailable, api.Throttled:
		if i.probe(ctx, l) != nil {
			return errLater
		}
		return i.failMatch(ctx, lease, ReasonReportFailed, refused.Error(), refused.RetryAfter, brokenRetry)
	}
	return i.failMatch(ctx, lease, ReasonReportFailed, refused.Error(), 0, lastRetry)
}

// noteNoData takes back that there is data, until the next poll.
func (i *instance) noteNoData(ctx context.Context) {
	i.mu.Lock()
	news := i.data.missing == ""
	i.data.missing = fmt.Sprintf("Clair at %s has no vulnerability data yet", i.host)
	i.data.etags = nil
	i.mu.Unlock()
	if news {
		i.DataChanged(ctx)
	}
}

// notKnown has an image indexed again that Clair does not know any more, but neither because its database was away nor
// over and over.
func (i *instance) notKnown(ctx context.Context, l *link, lease store.Lease, refused *api.Error) error {
	if i.probe(ctx, l) != nil {
		return errLater
	}
	if err := i.reports.Wait(ctx); err != nil {
		return err
	}
	if _, err := i.read(ctx, l, lease.PlatformDigest); api.KindOf(err) != api.NotIndexed {
		// It is there, now that the database is.
		return i.failMatch(ctx, lease, ReasonReportFailed, refused.Error(), 0, brokenRetry)
	}
	if wait := i.lost.note(lease.PlatformDigest); wait > 0 {
		return i.failMatch(ctx, lease, ReasonImageLost, refused.Error()+", although it indexed the image before", wait, lastRetry)
	}
	i.Log.Info("Clair does not know an image any more: it is indexed again", "clair", i.url, "manifest", lease.PlatformDigest)
	// Before the catalogue: who has given it to Clair is asked anew, whatever comes between.
	if err := i.Store.ForgetManifest(ctx, i.engine, lease.PlatformDigest); err != nil {
		return err
	}
	if err := i.Store.ForgetCatalogue(ctx, i.engine, lease.PlatformDigest); err != nil {
		return err
	}
	i.Wake(ctx, lease.PlatformDigest)
	return nil
}

// failMatch ends a lease without a report. The image waits for longer each time, at least and at most for so long; what
// is the least counts more.
func (i *instance) failMatch(ctx context.Context, lease store.Lease, reason, message string, atLeast, atMost time.Duration) error {
	now, wait := i.Clock.Now(), firstRetry
	subject := store.Subject{PlatformDigest: lease.PlatformDigest, Scope: lease.Scope, Engine: i.engine}
	switch before, err := i.Store.MatchFailure(ctx, subject); {
	case err == nil:
		wait = min(max(2*before.RetryAt.Sub(before.FailedAt), firstRetry), atMost)
	case !errors.Is(err, store.ErrNotFound):
		return err
	}
	wait = max(i.around(wait), atLeast)
	i.Log.Info("There is no usable report of an image", "clair", i.url, "manifest", lease.PlatformDigest, "reason", reason, "cause", message, "retry", wait.String())
	err := i.Store.FailMatch(ctx, lease.ID, holder, store.MatchFailure{Reason: reason, Message: message, FailedAt: now, RetryAt: now.Add(wait)})
	if err != nil && !errors.Is(err, store.ErrLeaseEnded) {
		return err
	}
	i.Wake(ctx, lease.PlatformDigest)
	return nil
}

// lostImages remembers which images Clair did not know any more, so that none is indexed over and over.
type lostImages struct {
	clock clock.PassiveClock
	mu    sync.Mutex
	known map[string]lostImage
}

type lostImage struct {
	at   time.Time
	wait time.Duration
}

// note says how long an image is still to be left alone before it is indexed once more; 0 if that is to be done now.
func (l *lostImages) note(digest string) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock.Now()
	for digest, lost := range l.known {
		if now.Sub(lost.at) > 2*lastRetry {
			delete(l.known, digest)
		}
	}
	lost, found := l.known[digest]
	if left := lost.at.Add(lost.wait).Sub(now); found && left > 0 {
		return left
	}
	if l.known == nil {
		l.known = map[string]lostImage{}
	}
	l.known[digest] = lostImage{at: now, wait: min(max(2*lost.wait, firstRetry), lastRetry)}
	return 0
}
