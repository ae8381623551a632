package clair

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/quay/claircore"

	"github.com/scanner-operator/scanner-operator/pkg/backend/clair/api"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

const (
	// sweepInterval is how often unused manifests are searched for. It is also how long a manifest must be unused before it is deleted,
	// since pods that are replaced are gone for moments.
	sweepInterval = time.Minute
	// sweepBatch is how many manifests are read from the store at a time.
	sweepBatch = 500
	// releaseTTL is how long a Scanner counts as being released after its last call of Release.
	releaseTTL = 2 * time.Minute
	// releaseInterval is the delay before Release is called again. outageInterval is that delay while Clair cannot be used.
	releaseInterval = 2 * time.Second
	outageInterval  = 30 * time.Second
)

// sweepLoop deletes unused manifests, and wakes all outdated images when Clair's indexer has changed.
func (i *instance) sweepLoop(ctx context.Context) {
	for i.awaitWake(ctx, i.sweeping, sweepInterval) {
		i.queue.keepScanners(i.scanners())
		for _, work := range []func(context.Context) error{i.wakeOutdated, i.deleteUnused, i.deleteReleased} {
			err := i.Loops.Run("clair-tidy", func() error {
				if err := work(ctx); !errors.Is(err, errRetryLater) {
					return err
				}
				return nil // another loop reports that Clair cannot be used
			})
			if err != nil && ctx.Err() == nil {
				i.Log.Error(err, "Sweeping", "clair", i.url)
			}
		}
	}
}

// wakeOutdated wakes all images that were indexed in another state of the indexer. Their ImageScans then call RefreshCatalog. It skips an
// image whose catalog was deleted in the meantime. After any other error of the store it goes on with the other images, and the next run
// wakes all images again.
func (i *instance) wakeOutdated(ctx context.Context) error {
	i.mu.Lock()
	state := i.state
	due := state != "" && state != i.wokenForState
	i.mu.Unlock()
	if !due {
		return nil
	}
	var errs []error
	for _, scanner := range i.scanners() {
		reported, err := i.Store.ReportAges(ctx, scanner, i.engine)
		errs = append(errs, err)
		for img := range reported {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			outdated, err := i.hasOutdatedCatalog(ctx, img.Key)
			errs = append(errs, err)
			if outdated {
				i.Wake(ctx, img.Key.Digest)
			}
		}
	}
	if err := errors.Join(append(errs, ctx.Err())...); err != nil {
		return err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.wokenForState = state
	return nil
}

// hasOutdatedCatalog reports whether an image was indexed in another state of the indexer, in any scope.
func (i *instance) hasOutdatedCatalog(ctx context.Context, key image.Key) (bool, error) {
	scopes, err := i.Store.CatalogScopes(ctx, i.engine, key, "")
	if err != nil {
		return false, err
	}
	for _, scope := range scopes {
		cataloged, err := i.Store.Catalog(ctx, i.engine, key, scope)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return false, err
		}
		if err == nil && i.isOutdated(cataloged) {
			return true, nil
		}
	}
	return false, nil
}

// deleteUnused deletes manifests that no Scanner has used for sweepInterval.
func (i *instance) deleteUnused(ctx context.Context) error {
	unused, err := i.unusedManifests(ctx, "")
	if err != nil {
		return err
	}
	return i.deleteManifests(ctx, i.unusedForInterval(unused), "")
}

// unusedManifests returns the manifests that no Scanner uses, except the given one (by UID; empty for none).
func (i *instance) unusedManifests(ctx context.Context, scanner string) (all []store.Manifest, err error) {
	for from := ""; ; {
		some, err := i.Store.UnusedManifests(ctx, i.engine, scanner, from, sweepBatch)
		all = append(all, some...)
		if err != nil || len(some) < sweepBatch {
			return all, err
		}
		from = some[len(some)-1].PlatformDigest + "0" // the smallest string greater than the last digest
	}
}

// deleteManifests forgets manifests. It continues after a manifest that cannot be deleted, but stops when Clair cannot be used.
func (i *instance) deleteManifests(ctx context.Context, manifests []store.Manifest, scanner string) error {
	var errs []error
	for _, manifest := range manifests {
		err := i.deleteManifest(ctx, manifest, scanner)
		if errors.Is(err, errRetryLater) || ctx.Err() != nil {
			return err
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// unusedForInterval returns the manifests that have been unused for sweepInterval, and remembers since when each one is.
func (i *instance) unusedForInterval(unused []store.Manifest) (long []store.Manifest) {
	i.mu.Lock()
	defer i.mu.Unlock()
	now, since := i.Clock.Now(), map[string]time.Time{}
	for _, manifest := range unused {
		at, found := i.unused[manifest.PlatformDigest]
		if !found {
			at = now
		}
		since[manifest.PlatformDigest] = at
		if now.Sub(at) >= sweepInterval {
			long = append(long, manifest)
		}
	}
	i.unused = since
	return long
}

// deleteReleased deletes the manifests that only Scanners being released use.
func (i *instance) deleteReleased(ctx context.Context) error {
	for _, scanner := range i.releasingScanners() {
		manifests, err := i.unusedManifests(ctx, scanner)
		if err != nil {
			return err
		}
		if err := i.deleteManifests(ctx, manifests, scanner); err != nil {
			return err
		}
	}
	return nil
}

func (i *instance) releasingScanners() (scanners []string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for scanner, at := range i.releasing {
		if i.Clock.Since(at) > releaseTTL {
			delete(i.releasing, scanner)
			continue
		}
		scanners = append(scanners, scanner)
	}
	return scanners
}

// deleteManifest deletes a manifest and its catalogs, if no Scanner but the given one uses it. An interruption leaves either work that is
// repeated, or an image that Clair does not know. The latter is detected when its report is read.
func (i *instance) deleteManifest(ctx context.Context, manifest store.Manifest, scanner string) error {
	unlock := i.digests.try(manifest.PlatformDigest)
	if unlock == nil {
		return nil // it is being indexed
	}
	defer unlock()
	unused, err := i.Store.UnusedManifests(ctx, i.engine, scanner, manifest.PlatformDigest, 1)
	if err != nil || !slices.Contains(unused, manifest) {
		return err
	}
	if err := i.Store.DeleteCatalog(ctx, i.engine, manifest.PlatformDigest); err != nil {
		return err
	}
	if manifest.AddedByOperator {
		if err := i.deleteFromClair(ctx, manifest.PlatformDigest); err != nil {
			return err
		}
	}
	i.Log.Info("No pod uses an image any more", "clair", i.url, "manifest", manifest.PlatformDigest, "deleted", manifest.AddedByOperator)
	return i.Store.DeleteManifest(ctx, i.engine, manifest.PlatformDigest)
}

// deleteFromClair deletes a manifest from Clair.
func (i *instance) deleteFromClair(ctx context.Context, platformDigest string) error {
	digest, err := claircore.ParseDigest(platformDigest)
	if err != nil {
		return fmt.Errorf("manifest %q: %w", platformDigest, err)
	}
	l := i.workingLink()
	if l == nil {
		return errRetryLater
	}
	switch err := l.client.Delete(ctx, digest); {
	case err == nil, api.KindOf(err) == api.NotIndexed:
		return nil
	default:
		return i.classifyError(ctx, l, err)
	}
}

// Release implements backend.ExternalStateHolder. It does not wait: the sweepLoop deletes the manifests.
func (b *Backend) Release(ctx context.Context, scanner string) (time.Duration, string, error) {
	if b.settingsFailure != nil {
		return 0, "", nil // such a Clair may not be contacted: manifests from before it was removed from the configuration stay there
	}
	i := b.instance
	held, err := i.Store.UnusedManifests(ctx, b.engine, scanner, "", sweepBatch)
	i.mu.Lock()
	defer i.mu.Unlock()
	if err != nil || len(held) == 0 {
		delete(i.releasing, scanner)
		return 0, "", err
	}
	i.releasing[scanner] = i.Clock.Now()
	if problem := b.link.problem(); problem != nil {
		return outageInterval, fmt.Sprintf("%d images are to be deleted in Clair at %s: %s", len(held), i.host, problem.Message), nil
	}
	wake(i.sweeping)
	return releaseInterval, fmt.Sprintf("%d images are being deleted in Clair at %s", len(held), i.host), nil
}

// Holds implements backend.ExternalStateHolder.
func (b *Backend) Holds(ctx context.Context, scanner string) (bool, error) {
	if b.settingsFailure != nil {
		return false, nil //nolint:nilerr // as in Release, there is nothing that could be undone
	}
	return b.instance.Store.HoldsManifests(ctx, b.engine, scanner)
}
