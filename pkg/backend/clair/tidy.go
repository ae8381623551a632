package clair

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/quay/claircore"

	api "github.com/scanner-operator/scanner-operator/pkg/clair"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

const (
	// tidyInterval is how often unused manifests are searched for. It is also how long a manifest must be unused before it is deleted,
	// since pods that are replaced are gone for moments.
	tidyInterval = time.Minute
	// tidyBatch is how many manifests are read from the store at a time.
	tidyBatch = 500
	// releaseMemory is how long a Scanner counts as being released after its last call of Release.
	releaseMemory = 2 * time.Minute
	// releaseAgain is the delay before Release is called again. troubledAgain is that delay while Clair cannot be used.
	releaseAgain  = 2 * time.Second
	troubledAgain = 30 * time.Second
)

// tidyLoop deletes unused manifests, and wakes all outdated images when Clair's indexer has changed.
func (i *instance) tidyLoop(ctx context.Context) {
	for i.await(ctx, i.tidying, tidyInterval) {
		i.line.keep(i.scanners())
		for _, work := range []func(context.Context) error{i.revisit, i.forgetUnused, i.forgetReleased} {
			if err := i.Loops.Run("clair-tidy", func() error { return orLater(work(ctx)) }); err != nil && ctx.Err() == nil {
				i.Log.Error(err, "Tidying", "clair", i.url)
			}
		}
	}
}

// orLater drops errLater: another loop reports that Clair cannot be used.
func orLater(err error) error {
	if errors.Is(err, errLater) {
		return nil
	}
	return err
}

// revisit wakes all images that were indexed in another state of the indexer. Their next Index call has them indexed again.
func (i *instance) revisit(ctx context.Context) error {
	i.mu.Lock()
	state := i.state
	due := state != "" && state != i.revisited
	i.mu.Unlock()
	if !due {
		return nil
	}
	for _, scanner := range i.scanners() {
		reported, err := i.Store.Reported(ctx, scanner, i.engine)
		if err != nil {
			return err
		}
		for key := range reported {
			scopes, err := i.Store.CataloguedScopes(ctx, i.engine, key)
			if err != nil {
				return err
			}
			for _, scope := range scopes {
				catalogued, err := i.Store.Catalogued(ctx, i.engine, key, scope)
				if err != nil || !i.isOutdated(catalogued) {
					continue
				}
				i.Wake(ctx, key.Digest)
				break
			}
		}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.revisited = state
	return ctx.Err()
}

// forgetUnused deletes manifests that no Scanner has used for tidyInterval.
func (i *instance) forgetUnused(ctx context.Context) error {
	unused, err := i.allUnused(ctx, "")
	if err != nil {
		return err
	}
	return i.forgetAll(ctx, i.longUnused(unused), "")
}

// allUnused returns the manifests that no Scanner uses, except the given one (by UID; empty for none).
func (i *instance) allUnused(ctx context.Context, scanner string) (all []store.Manifest, err error) {
	for from := ""; ; {
		some, err := i.Store.UnusedManifests(ctx, i.engine, scanner, from, tidyBatch)
		all = append(all, some...)
		if err != nil || len(some) < tidyBatch {
			return all, err
		}
		from = some[len(some)-1].PlatformDigest + "0" // the smallest string greater than the last digest
	}
}

// forgetAll forgets manifests. It continues after a manifest that cannot be deleted, but stops when Clair cannot be used.
func (i *instance) forgetAll(ctx context.Context, manifests []store.Manifest, scanner string) error {
	var errs []error
	for _, manifest := range manifests {
		err := i.forget(ctx, manifest, scanner)
		if errors.Is(err, errLater) || ctx.Err() != nil {
			return err
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// longUnused returns the manifests that have been unused for tidyInterval, and remembers since when each one is.
func (i *instance) longUnused(unused []store.Manifest) (long []store.Manifest) {
	i.mu.Lock()
	defer i.mu.Unlock()
	now, since := i.Clock.Now(), map[string]time.Time{}
	for _, manifest := range unused {
		at, found := i.unused[manifest.PlatformDigest]
		if !found {
			at = now
		}
		since[manifest.PlatformDigest] = at
		if now.Sub(at) >= tidyInterval {
			long = append(long, manifest)
		}
	}
	i.unused = since
	return long
}

// forgetReleased deletes the manifests that only Scanners being released use.
func (i *instance) forgetReleased(ctx context.Context) error {
	for _, scanner := range i.released() {
		manifests, err := i.allUnused(ctx, scanner)
		if err != nil {
			return err
		}
		if err := i.forgetAll(ctx, manifests, scanner); err != nil {
			return err
		}
	}
	return nil
}

func (i *instance) released() (scanners []string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for scanner, at := range i.releasing {
		if i.Clock.Since(at) > releaseMemory {
			delete(i.releasing, scanner)
			continue
		}
		scanners = append(scanners, scanner)
	}
	return scanners
}

// forget deletes a manifest and its catalogs, if no Scanner but the given one uses it. An interruption leaves either work that is
// repeated, or an image that Clair does not know. The latter is detected when its report is read.
func (i *instance) forget(ctx context.Context, manifest store.Manifest, scanner string) error {
	unlock := i.digests.try(manifest.PlatformDigest)
	if unlock == nil {
		return nil // it is being indexed
	}
	defer unlock()
	unused, err := i.Store.UnusedManifests(ctx, i.engine, scanner, manifest.PlatformDigest, 1)
	if err != nil || !slices.Contains(unused, manifest) {
		return err
	}
	if err := i.Store.ForgetCatalogue(ctx, i.engine, manifest.PlatformDigest); err != nil {
		return err
	}
	if manifest.Ours {
		if err := i.delete(ctx, manifest.PlatformDigest); err != nil {
			return err
		}
	}
	i.Log.Info("No pod uses an image any more", "clair", i.url, "manifest", manifest.PlatformDigest, "deleted", manifest.Ours)
	return i.Store.ForgetManifest(ctx, i.engine, manifest.PlatformDigest)
}

// delete deletes a manifest from Clair.
func (i *instance) delete(ctx context.Context, platformDigest string) error {
	digest, err := claircore.ParseDigest(platformDigest)
	if err != nil {
		return fmt.Errorf("manifest %q: %w", platformDigest, err)
	}
	l := i.worker()
	if l == nil {
		return errLater
	}
	switch err := l.client.Delete(ctx, digest); {
	case err == nil, api.KindOf(err) == api.NotIndexed:
		return nil
	default:
		return i.explain(ctx, l, err)
	}
}

// Release implements backend.Holder. It does not wait: the tidyLoop deletes the manifests.
func (b *Backend) Release(ctx context.Context, scanner string) (time.Duration, string, error) {
	if b.unusable != nil {
		return 0, "", nil // such a Clair may not be contacted: manifests from before it was removed from the configuration stay there
	}
	i := b.instance
	held, err := i.Store.UnusedManifests(ctx, b.engine, scanner, "", tidyBatch)
	i.mu.Lock()
	defer i.mu.Unlock()
	if err != nil || len(held) == 0 {
		delete(i.releasing, scanner)
		return 0, "", err
	}
	i.releasing[scanner] = i.Clock.Now()
	if trouble := b.link.trouble(); trouble != nil {
		return troubledAgain, fmt.Sprintf("%d images are to be deleted in Clair at %s: %s", len(held), i.host, trouble.Message), nil
	}
	kick(i.tidying)
	return releaseAgain, fmt.Sprintf("%d images are being deleted in Clair at %s", len(held), i.host), nil
}

// Holds implements backend.Holder.
func (b *Backend) Holds(ctx context.Context, scanner string) (bool, error) {
	if b.unusable != nil {
		return false, nil //nolint:nilerr // as in Release, there is nothing that could be undone
	}
	return b.instance.Store.HoldsManifests(ctx, b.engine, scanner)
}
