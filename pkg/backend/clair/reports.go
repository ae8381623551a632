package clair

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/quay/claircore"

	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/backend/clair/api"
	"github.com/scanner-operator/scanner-operator/pkg/backoff"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

const (
	// holder is the lease holder of images in the queue. It is no Job, and stays the same after a restart.
	holder = "manager"
	// leaseBatch is how many images are leased at a time, and leaseTime for how long. That many reports can be read in that time even with
	// a slow Clair.
	leaseBatch = 8
	leaseTime  = 10 * time.Minute
	// firstRetry and lastRetry bound the delay before an unusable report is read again.
	firstRetry = time.Minute
	lastRetry  = time.Hour
	// brokenRetry bounds that delay where Clair failed to produce the report: the problem may be temporary.
	brokenRetry = 5 * time.Minute
	// lostImageAge is how long a lost image is remembered, and maxLostImages how many of each Clair. An image takes less than 300 bytes. An
	// image that is not remembered is indexed again without a wait.
	lostImageAge  = 2 * lastRetry
	maxLostImages = 100_000
)

// errUnusableReport means that a report, or its image's digest, cannot be used.
var errUnusableReport = errors.New("Clair's report cannot be used") //nolint:staticcheck // Clair is a name

// readLoop reads the reports that are due, the oldest first.
func (i *instance) readLoop(ctx context.Context) {
	for i.awaitWake(ctx, i.reading, i.jitter(i.Config.Clair.PollInterval.Duration)) {
		if err := i.Loops.Run("clair-read", func() error { return i.readDue(ctx) }); err != nil && ctx.Err() == nil {
			i.Log.Error(err, "Reading reports", "clair", i.url)
		}
	}
}

// readDue reads reports until none is due, or until an error.
func (i *instance) readDue(ctx context.Context) error {
	// Images that were leased but not read, in an earlier run or before a restart, are due again.
	err := i.Store.ReturnLeases(ctx, i.engine, holder)
	for more := true; more && ctx.Err() == nil; {
		var readErr error
		more, readErr = i.readBatch(ctx)
		err, more = errors.Join(err, readErr), more && readErr == nil
	}
	return errors.Join(err, i.recordQueueLength(ctx))
}

// recordQueueLength updates the length of the match queue.
func (i *instance) recordQueueLength(ctx context.Context) error {
	queued, err := i.Store.QueueLength(ctx, i.engine)
	if err == nil {
		i.queued.Store(int64(queued))
	}
	return err
}

// readableLink returns the link to read reports over, or nil while reports cannot be read or would be incomplete.
func (i *instance) readableLink() *link {
	i.mu.Lock()
	ready := i.data.known && i.data.missing == ""
	i.mu.Unlock()
	if !ready {
		return nil
	}
	return i.workingLink()
}

// readBatch reads the reports that are due first. It reports whether more may be due.
func (i *instance) readBatch(ctx context.Context) (bool, error) {
	l := i.readableLink()
	if l == nil {
		return false, nil
	}
	now := i.Clock.Now()
	leases, err := i.Store.LeaseMatches(ctx, i.engine, holder, leaseBatch, now, now.Add(leaseTime))
	if err != nil {
		return false, err
	}
	// The data version is read after the lease and before any report. Before any report, because reports that are read later are made with
	// this data or newer. After the lease, because an image leased for changed data would otherwise be recorded with the old version and
	// read once more.
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
		if errs[n] = i.acquireReportSlot(ctx); errs[n] != nil {
			break
		}
		all.Go(func() {
			defer i.releaseReportSlot()
			errs[n] = i.readLeased(ctx, l, lease, version.Version)
		})
	}
	all.Wait()
	err = errors.Join(errs...)
	if errors.Is(err, errRetryLater) {
		return false, nil // the loop is woken when Clair works again
	}
	return len(leases) == leaseBatch, err
}

// acquireReportSlot waits for the rate limit and for a slot in memory. releaseReportSlot releases the slot.
func (i *instance) acquireReportSlot(ctx context.Context) error {
	// The rate limit comes first, so that a slow rate does not hold a slot.
	if err := i.reports.Wait(ctx); err != nil {
		return err
	}
	select {
	case i.reportSlots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (i *instance) releaseReportSlot() { <-i.reportSlots }

// readLeased reads and saves one report. Errors are errRetryLater, or those of the store.
func (i *instance) readLeased(ctx context.Context, l *link, lease store.Lease, version string) error {
	if i.problemOf(l) != nil {
		return errRetryLater
	}
	unlock := i.digests.try(lease.PlatformDigest)
	if unlock == nil {
		return nil // the image is being indexed: it keeps its lease until the next run
	}
	defer unlock()
	cataloged, err := i.Store.Catalog(ctx, i.engine, image.Key{Digest: lease.PlatformDigest}, lease.Scope)
	if err != nil {
		return ignoreMissing(err)
	}
	report, err := i.read(ctx, l, cataloged, version)
	if err != nil {
		return i.handleReadError(ctx, l, lease, err)
	}
	difference, err := i.Store.SaveReport(ctx, report, lease.ID)
	if errors.Is(err, store.ErrLeaseEnded) {
		return nil // reading took too long: the image is leased again
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

// read returns the report of a cataloged image, made with the given data version or newer. An image without layers is not known to Clair: its
// report is empty. Callers use read between acquireReportSlot and releaseReportSlot.
func (i *instance) read(ctx context.Context, l *link, cataloged store.Catalog, version string) (result store.Report, err error) {
	log := i.Log.WithValues("clair", i.url, "manifest", cataloged.PlatformDigest)
	defer recoverPanic(log, &err, fmt.Errorf("%w: the operator failed on it; its log has the cause", errUnusableReport))
	result = store.Report{
		Subject:     store.Subject{PlatformDigest: cataloged.PlatformDigest, Scope: cataloged.Scope, Engine: i.engine},
		DataVersion: version, MatchedAt: i.Clock.Now(), Distro: cataloged.Distro, NotCovered: NotCovered,
	}
	if cataloged.Tool == toolNone {
		return result, nil
	}
	digest, err := claircore.ParseDigest(cataloged.PlatformDigest)
	if err != nil {
		return result, fmt.Errorf("%w: %w", errUnusableReport, err)
	}
	// These are read before the report is made, so that its data is this or newer.
	ran, evidence := i.updatersRan(), i.evidence()
	report, err := l.client.VulnerabilityReport(ctx, digest)
	if err != nil {
		return result, err
	}
	result.MatchedAt, result.NotCovered, result.Evidence = i.Clock.Now(), notCovered(uncovered(report, ran)), evidence
	if result.Findings, err = Normalise(report); err != nil {
		return result, fmt.Errorf("%w: %w", errUnusableReport, err)
	}
	return result, nil
}

// independentAfter is how much later than the first report without a finding its updater must complete again, to prove that the finding is
// fixed. Sources that lost an advisory by mistake mostly have it back within a day, and updaters run every few hours.
const independentAfter = 24 * time.Hour

// evidence returns what reports made from now on prove about missing findings. Each advisory is as new as its updater's data. The delay of
// independentAfter also ensures that the later operation is not the one that removed the finding.
func (i *instance) evidence() store.Evidence {
	i.mu.Lock()
	defer i.mu.Unlock()
	ended := i.data.completed
	if ended == nil {
		ended = map[string]time.Time{}
	}
	return store.Evidence{After: i.Clock.Now().Add(independentAfter), BySource: ended}
}

// replaceReport replaces an existing report after its image was indexed again. The queue handles images without a report.
func (i *instance) replaceReport(ctx context.Context, l *link, catalog store.Catalog) error {
	subject := store.Subject{PlatformDigest: catalog.PlatformDigest, Scope: catalog.Scope, Engine: i.engine}
	if _, err := i.Store.Summary(ctx, subject, store.ImageExceptions{}); err != nil {
		return ignoreMissing(err)
	}
	version, err := i.Store.DataVersion(ctx, i.engine)
	if err != nil {
		return ignoreMissing(err)
	}
	if err := i.acquireReportSlot(ctx); err != nil {
		return err
	}
	defer i.releaseReportSlot()
	report, err := i.read(ctx, l, catalog, version.Version)
	switch {
	case errors.Is(err, errUnusableReport):
		return &backend.Failure{Reason: backend.ReasonClairReportFailed, Message: err.Error()}
	case api.KindOf(err) == api.NotIndexed && i.probe(ctx, l) == nil:
		return &backend.Failure{Reason: backend.ReasonClairImageLost, Message: err.Error() + ", although it has just indexed the image", RetryAfter: i.lostImageWait(catalog.PlatformDigest)}
	case err != nil:
		return i.classifyError(ctx, l, err)
	}
	_, err = i.Store.SaveReport(ctx, report, "")
	return err
}

// handleReadError handles a report that could not be read. While Clair has a problem, no conclusion is drawn about the image.
func (i *instance) handleReadError(ctx context.Context, l *link, lease store.Lease, err error) error {
	var refused *api.Error
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, errUnusableReport):
		return i.failMatch(ctx, lease, backend.ReasonClairReportFailed, err.Error(), 0, lastRetry)
	case !errors.As(err, &refused):
		i.recordFailure(ctx, l, err) // the problem is the Secret with the key
		return errRetryLater
	}
	switch refused.Kind {
	case api.Unauthorized:
		i.recordFailure(ctx, l, err)
		return errRetryLater
	case api.NoData:
		i.recordNoData(ctx)
		return errRetryLater
	case api.NotIndexed:
		return i.reindexLost(ctx, l, lease, refused)
	case api.Unavailable, api.Throttled:
		if i.probe(ctx, l) != nil {
			return errRetryLater
		}
		return i.failMatch(ctx, lease, backend.ReasonClairReportFailed, refused.Error(), refused.RetryAfter, brokenRetry)
	}
	return i.failMatch(ctx, lease, backend.ReasonClairReportFailed, refused.Error(), 0, lastRetry)
}

// recordNoData records that Clair has no vulnerability data, until the next poll.
func (i *instance) recordNoData(ctx context.Context) {
	i.mu.Lock()
	news := i.data.missing == ""
	i.data.missing = fmt.Sprintf("Clair at %s has no vulnerability data yet", i.host)
	i.data.etags = nil
	i.mu.Unlock()
	if news {
		i.DataChanged(ctx)
	}
}

// reindexLost handles an image that Clair does not know any more. It has the image indexed again, unless Clair's database was only
// unavailable or the image was lost repeatedly.
func (i *instance) reindexLost(ctx context.Context, l *link, lease store.Lease, refused *api.Error) error {
	if i.probe(ctx, l) != nil {
		return errRetryLater
	}
	if err := i.reports.Wait(ctx); err != nil {
		return err
	}
	// Only the error counts. The report of a catalog that has nothing but the digest must not be saved.
	if _, err := i.read(ctx, l, store.Catalog{PlatformDigest: lease.PlatformDigest}, ""); api.KindOf(err) != api.NotIndexed {
		// the image is known again, since the database is back
		return i.failMatch(ctx, lease, backend.ReasonClairReportFailed, refused.Error(), 0, brokenRetry)
	}
	if wait := i.lostImageWait(lease.PlatformDigest); wait > 0 {
		return i.failMatch(ctx, lease, backend.ReasonClairImageLost, refused.Error()+", although it indexed the image before", wait, lastRetry)
	}
	i.Log.Info("Clair does not know an image any more: it is indexed again", "clair", i.url, "manifest", lease.PlatformDigest)
	// The manifest is forgotten before the catalog. After an interruption, the next indexing then checks again whether Clair has the
	// manifest.
	if err := i.Store.DeleteManifest(ctx, i.engine, lease.PlatformDigest); err != nil {
		return err
	}
	if err := i.Store.DeleteCatalog(ctx, i.engine, lease.PlatformDigest); err != nil {
		return err
	}
	i.Wake(ctx, lease.PlatformDigest)
	return nil
}

// failMatch ends a lease without a report. The delay before the next attempt doubles each time, up to atMost, and is at least atLeast. If
// the two conflict, atLeast wins.
func (i *instance) failMatch(ctx context.Context, lease store.Lease, reason, message string, atLeast, atMost time.Duration) error {
	subject := store.Subject{PlatformDigest: lease.PlatformDigest, Scope: lease.Scope, Engine: i.engine}
	before, err := i.Store.MatchFailure(ctx, subject)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	now, wait := i.Clock.Now(), backoff.Next(before.RetryAt.Sub(before.FailedAt), firstRetry, atMost)
	wait = max(i.jitter(wait), atLeast)
	i.Log.Info("There is no usable report of an image", "clair", i.url, "manifest", lease.PlatformDigest, "reason", reason, "cause", message, "retry", wait.String())
	err = i.Store.FailMatch(ctx, lease.ID, holder, store.MatchFailure{Reason: reason, Message: message, FailedAt: now, RetryAt: now.Add(wait)})
	if err != nil && !errors.Is(err, store.ErrLeaseEnded) {
		return err
	}
	i.Wake(ctx, lease.PlatformDigest)
	return nil
}

// lostImage is when an image that Clair did not know any more was indexed again, and how long it is not indexed once more.
type lostImage struct {
	at   time.Time
	wait time.Duration
}

// lostImageWait returns how long to wait before an image is indexed again. If it returns 0, the image is to be indexed now, and the next wait
// is doubled.
func (i *instance) lostImageWait(digest string) time.Duration {
	known, _ := i.lostImages.Get(digest)
	lost, _ := known.(lostImage)
	now := i.Clock.Now()
	if left := lost.at.Add(lost.wait).Sub(now); left > 0 {
		return left
	}
	i.lostImages.Add(digest, lostImage{at: now, wait: backoff.Next(lost.wait, firstRetry, lastRetry)}, lostImageAge)
	return 0
}
