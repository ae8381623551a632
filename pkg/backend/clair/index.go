package clair

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/quay/claircore"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/backend/clair/api"
	"github.com/scanner-operator/scanner-operator/pkg/preflight"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/registry"
	"github.com/scanner-operator/scanner-operator/registry/failure"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

const (
	// toolPrefix begins the tool of a catalog by Clair. The state of Clair's indexer follows.
	toolPrefix = "clair "
	// toolNone is the tool of images without layers, which Clair cannot index.
	toolNone = "nothing to list"
)

const (
	// resolveTimeout bounds the lookup of an image's layers in its registry.
	resolveTimeout = 2 * time.Minute
	// authorizationReserve is how long an authorization must still be valid when it is sent to Clair.
	authorizationReserve = 15 * time.Second
	// errorPause is how long no image is started after an error of the operator itself.
	errorPause = 10 * time.Second
)

// errRetryLater means that Clair cannot be used now, so the image is to be tried again later.
var errRetryLater = errors.New("to be tried again when Clair can be asked")

// isOutdated reports whether an image was indexed in another state of Clair's indexer than the current one.
func (i *instance) isOutdated(c store.Catalog) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.state != "" && c.Tool != toolPrefix+i.state && c.Tool != toolNone
}

// enqueue queues an image for indexing, and reports whether it is being indexed.
func (i *instance) enqueue(img backend.Image, l *link) bool {
	running := i.queue.enqueue(img, l)
	if !running {
		wake(i.indexing)
	}
	return running
}

// indexLoop indexes the queued images, up to MaxIndexing at once.
func (i *instance) indexLoop(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	places := make(chan struct{}, i.Config.Clair.MaxIndexing)
	for i.awaitWake(ctx, i.indexing, i.untilIndexing()) {
		for len(places) < cap(places) {
			t := i.queue.dequeue(i.Config.Clair.MaxIndexingPerNamespace, i.mayIndex)
			if t == nil {
				break
			}
			places <- struct{}{}
			all.Go(func() {
				defer func() { <-places; wake(i.indexing) }()
				i.indexTask(ctx, t)
			})
		}
	}
}

// untilIndexing returns the time until the next check if nothing wakes the loop.
func (i *instance) untilIndexing() time.Duration {
	i.mu.Lock()
	defer i.mu.Unlock()
	if pause := i.pausedUntil.Sub(i.Clock.Now()); pause > 0 {
		return pause
	}
	return requeueAfter
}

// mayIndex reports whether an image can be sent to Clair now.
func (i *instance) mayIndex(t *task) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.state != "" && t.link.isWorking() && !i.Clock.Now().Before(i.pausedUntil)
}

// indexTask indexes an image and wakes its ImageScans.
func (i *instance) indexTask(ctx context.Context, t *task) {
	log := i.Log.WithValues("clair", i.url, "image", t.img.Key.String(), "scope", t.img.Scope)
	wanted, err := i.Store.IsNeeded(ctx, i.engine, t.img.Key, t.img.Scope)
	if err == nil && !wanted {
		i.queue.release(t, false)
		return
	}
	if err == nil {
		i.Wake(ctx, t.img.Key.Digest) // the ImageScan shows that indexing began
		err = i.index(ctx, log, t)
	}
	var failed *backend.Failure
	switch {
	case ctx.Err() != nil:
		i.queue.release(t, false)
		return
	case errors.Is(err, errRetryLater):
		i.queue.release(t, true)
		return
	case errors.As(err, &failed):
		log.Info("An image could not be indexed", "references", t.img.PullReferences, "reason", failed.Reason, "cause", failed.Message)
		i.failures.Set(idOf(t.img), failed, undeliveredTTL)
	case err != nil:
		log.Error(err, "Indexing an image")
		i.pause(errorPause)
		i.queue.release(t, true)
		return
	}
	i.queue.release(t, false)
	i.Wake(ctx, t.img.Key.Digest)
}

// pause stops sending work to Clair for a while.
func (i *instance) pause(wait time.Duration) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if until := i.Clock.Now().Add(wait); until.After(i.pausedUntil) {
		i.pausedUntil = until
	}
}

// index indexes one image and saves its catalog, unless that was done meanwhile.
func (i *instance) index(ctx context.Context, log logr.Logger, t *task) (err error) {
	defer recoverPanic(log, &err, &backend.Failure{Reason: v1alpha1.ReasonBackendError, Message: "the operator failed on this image; its log has the cause"})
	i.mu.Lock()
	state := i.state
	i.mu.Unlock()
	requested := false
	switch done, err := i.Store.Catalog(ctx, i.engine, t.img.Key, t.img.Scope); {
	case err == nil && !i.isOutdated(done):
		if requested, err = i.Store.RescanRequested(ctx, t.img.OfScanner()); err != nil || !requested {
			return err // another Scanner had it indexed meanwhile
		}
	case err != nil && !errors.Is(err, store.ErrNotFound):
		return err
	case err != nil:
		if err := i.requireBudget(ctx, t.img); err != nil {
			return err
		}
	}
	located, err := i.locate(ctx, t)
	if err != nil {
		return err
	}
	digest := located.Digest.String()
	unlock, err := i.digests.lock(ctx, digest)
	if err != nil {
		return err
	}
	defer unlock()
	catalog := store.Catalog{Engine: i.engine, Key: t.img.Key, Scope: t.img.Scope, PlatformDigest: digest, CatalogedAt: i.Clock.Now(), Namespace: t.img.Namespace}
	if len(located.Layers) == 0 {
		log.Info("The image has no layers: there is nothing to scan")
		catalog.Tool = toolNone
		return i.Store.SaveCatalog(ctx, catalog, nil)
	}
	catalog.Tool = toolPrefix + state
	if err := i.indexManifest(ctx, log, t, located, requested, &catalog); err != nil {
		return err
	}
	// The report is replaced before the catalog is saved. If the process ends in between, both steps are repeated.
	if err := i.replaceReport(ctx, t.link, catalog); err != nil {
		return err
	}
	return i.Store.SaveCatalog(ctx, catalog, nil)
}

// requireBudget fails for a new image of a namespace that has used up its storage budget. An image with a report is not new: its catalog was
// deleted when Clair lost it, and its findings count already.
func (i *instance) requireBudget(ctx context.Context, img backend.Image) error {
	full, err := i.budget.Exceeded(ctx, img.Namespace)
	if err != nil || full == nil {
		return err
	}
	if reported, err := i.Store.HasReport(ctx, i.engine, img.Key, img.Scope); err != nil || reported {
		return err
	}
	return full
}

// recoverPanic turns a panic into the given error. Answers of registries and Clair pass through many libraries, any of which may panic.
func recoverPanic(log logr.Logger, err *error, result error) {
	if cause := recover(); cause != nil {
		log.Error(fmt.Errorf("panic: %v", cause), "Handling an image", "stack", string(debug.Stack()))
		*err = result
	}
}

// indexManifest fills in the catalog from Clair's index report, or copies one of the same manifest unless a new one is requested.
func (i *instance) indexManifest(ctx context.Context, log logr.Logger, t *task, located *registry.Location, requested bool, catalog *store.Catalog) error {
	// Reusing the catalog of another scope is safe here: the registry accepted this Scanner's own references and credentials.
	same, found, err := i.sameCatalog(ctx, t.img, *catalog)
	if err != nil {
		return err
	}
	if found && !requested {
		log.Info("The image was indexed before", "manifest", catalog.PlatformDigest)
		catalog.Distro, catalog.Packages = same.Distro, same.Packages
		return nil
	}
	digest, err := claircore.ParseDigest(catalog.PlatformDigest)
	if err != nil {
		return &backend.Failure{Reason: workerapi.ReasonNotAnImage, Message: "its digest is none that Clair knows: " + err.Error()}
	}
	if err := i.recordManifest(ctx, t.link, digest); err != nil {
		return i.classifyError(ctx, t.link, err)
	}
	report, err := i.requestIndex(ctx, log, t, located, digest)
	if err != nil {
		return err
	}
	catalog.Packages, catalog.Distro = len(report.Packages), distroOf(report)
	log.Info("Clair has indexed an image", "manifest", catalog.PlatformDigest, "packages", catalog.Packages)
	return nil
}

// sameCatalog returns the catalog of a platform manifest in any credential scope, made in the same state of the indexer.
func (i *instance) sameCatalog(ctx context.Context, img backend.Image, wanted store.Catalog) (store.Catalog, bool, error) {
	key := img.Key
	key.Digest = wanted.PlatformDigest
	scopes, err := i.Store.CatalogScopes(ctx, i.engine, key, "")
	if err != nil {
		return store.Catalog{}, false, err
	}
	for _, scope := range scopes {
		same, err := i.Store.Catalog(ctx, i.engine, key, scope)
		switch {
		case err != nil && !errors.Is(err, store.ErrNotFound):
			return store.Catalog{}, false, err
		case err == nil && same.Tool == wanted.Tool && same.PlatformDigest == wanted.PlatformDigest:
			return same, true, nil
		}
	}
	return store.Catalog{}, false, nil
}

// recordManifest records, before a manifest is sent to Clair, whether Clair has it already. Only manifests that Clair got from the operator
// first are ever deleted there.
func (i *instance) recordManifest(ctx context.Context, l *link, digest claircore.Digest) error {
	switch _, err := i.Store.Manifest(ctx, i.engine, digest.String()); {
	case err == nil:
		return nil
	case !errors.Is(err, store.ErrNotFound):
		return err
	}
	_, err := l.client.IndexReport(ctx, digest)
	if api.KindOf(err) == api.NotIndexed {
		// Without its database Clair gives this answer for every image. The request is repeated once the database is known to work.
		if err := i.probe(ctx, l); err != nil {
			return err
		}
		_, err = l.client.IndexReport(ctx, digest)
	}
	ours := api.KindOf(err) == api.NotIndexed
	if err != nil && !ours {
		return err
	}
	return i.Store.SaveManifest(ctx, store.Manifest{Engine: i.engine, PlatformDigest: digest.String(), AddedByOperator: ours})
}

// requestIndex has Clair index a manifest, with credentials that stay valid for a while. If a registry rejects them, it tries once more with new
// ones.
func (i *instance) requestIndex(ctx context.Context, log logr.Logger, t *task, located *registry.Location, digest claircore.Digest) (*claircore.IndexReport, error) {
	var err error
	for attempt := range 2 {
		if expires := located.Authorization.Expires; attempt > 0 || !expires.IsZero() && expires.Before(i.Clock.Now().Add(authorizationReserve)) {
			if located, err = i.renewAuthorization(ctx, t, digest); err != nil {
				return nil, err
			}
		}
		var report *claircore.IndexReport
		manifest := manifestOf(located, digest)
		report, err = t.link.client.Index(ctx, manifest)
		if err == nil && api.Finished(report) {
			i.mu.Lock()
			i.pauses = 0
			i.mu.Unlock()
			return report, nil
		}
		if err == nil {
			err = t.link.client.Failure(report, manifest)
		}
		if err == nil {
			return nil, &backend.Failure{Reason: backend.ReasonClairIndexFailed, Message: fmt.Sprintf("Clair at %s ended in state %q without saying why", i.host, report.State)}
		}
		var refused *api.Error
		if !errors.As(err, &refused) || refused.Layer != api.LayerRefused || ctx.Err() != nil {
			break
		}
		log.V(1).Info("Indexing once more", "cause", err.Error())
	}
	return nil, i.classifyError(ctx, t.link, err)
}

// renewAuthorization gets new credentials for the same image. It fails if the registry now returns another digest.
func (i *instance) renewAuthorization(ctx context.Context, t *task, digest claircore.Digest) (*registry.Location, error) {
	located, err := i.locate(ctx, t)
	if err == nil && located.Digest.String() != digest.String() {
		err = &backend.Failure{
			Reason:  workerapi.ReasonNotAnImage,
			Message: fmt.Sprintf("the registry has two images for one digest: %s and %s", digest, located.Digest),
		}
	}
	return located, err
}

func manifestOf(located *registry.Location, digest claircore.Digest) claircore.Manifest {
	manifest := claircore.Manifest{Hash: digest}
	for _, layer := range located.Layers {
		hash, err := claircore.ParseDigest(layer.Digest.String())
		if err != nil {
			continue // not reached: the digests of a registry are valid
		}
		manifest.Layers = append(manifest.Layers, &claircore.Layer{Hash: hash, URI: layer.URL, Headers: located.Authorization.Header()})
	}
	return manifest
}

// distroOf returns the name of the distribution, or "" unless there is exactly one.
func distroOf(report *claircore.IndexReport) string {
	if len(report.Distributions) != 1 {
		return ""
	}
	for _, distribution := range report.Distributions {
		if distribution.PrettyName != "" {
			return distribution.PrettyName
		}
		return distribution.Name
	}
	return ""
}

// locate resolves the image in its registry: where its layers are, and which credentials fetch them. Errors are *backend.Failure.
func (i *instance) locate(ctx context.Context, t *task) (*registry.Location, error) {
	if len(t.img.PullReferences) == 0 {
		return nil, &backend.Failure{Reason: workerapi.ReasonImageNotFound, Message: "there is no reference from which the image could be pulled"}
	}
	secrets, err := i.pullSecrets(ctx, t.img)
	if err != nil {
		return nil, err
	}
	log := slog.New(logr.ToSlogHandler(i.Log.WithValues("image", t.img.Key.String()).V(1)))
	puller := &registry.Puller{
		Registries: i.Config.RegistrySettings(), ThrottledHosts: slices.Sorted(maps.Keys(i.throttles.Throttled(i.Clock.Now(), t.img.Scope))),
		Credentials: registry.ParseCredentials(secrets.data, log), Transport: i.Registries, Log: log, Now: i.Clock.Now,
	}
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	platform := t.img.Key.Platform
	located, err := puller.Locate(ctx, t.img.PullReferences, v1.Platform{OS: platform.OS, Architecture: platform.Architecture, Variant: platform.Variant, OSVersion: platform.OSVersion})
	if err == nil {
		return located, nil
	}
	return nil, i.locateFailure(t.img, secrets, err)
}

// locateFailure returns the failure of an image that could not be resolved. Pull secrets that the operator may not read are mentioned only in
// this case: many images need none, whatever their pods name.
func (i *instance) locateFailure(img backend.Image, secrets pullSecrets, err error) error {
	described := failure.Describe(err, workerapi.ReasonCatalogFailed)
	failed := &backend.Failure{
		Reason: described.Reason, Message: described.Message, Registry: described.Registry, RetryAfter: time.Duration(described.RetryAfterSeconds) * time.Second,
	}
	i.throttles.Record(i.Clock.Now(), img.Scope, failed)
	switch failed.Reason {
	case workerapi.ReasonUnauthorized, workerapi.ReasonPullSecretMissing, workerapi.ReasonNodeCredentials,
		workerapi.ReasonImageNotFound, workerapi.ReasonRegistryThrottled:
		if len(secrets.forbidden) > 0 {
			// The registry's answer to a request without these pull secrets would be misleading.
			i.Log.Info("Pull secrets may not be read", "image", img.Key.String(), "namespace", img.Namespace, "secrets", secrets.forbidden, "without", failed.Message)
			failed.Reason = backend.ReasonPullSecretForbidden
			failed.Message = "the operator may not read pull secrets of the image's pods; to allow it: " + i.grantCommands(img.Namespace, preflight.Secrets, secrets.forbidden...)
			break
		}
		failed.Message = i.serviceAccountAdvice(img, secrets, failed.Reason) + failed.Message
	}
	return failed
}

// serviceAccountAdvice describes pull secrets of ServiceAccounts that were not used, or "" if that is irrelevant for the reason. The text is a
// prefix because registries' messages are long.
func (i *instance) serviceAccountAdvice(img backend.Image, secrets pullSecrets, reason string) string {
	switch {
	case len(secrets.accounts) > 0:
		return fmt.Sprintf("pull secrets that ServiceAccount %s was given after the pods were made are not used, since the operator may not read it; to allow it: %s; ",
			strings.Join(secrets.accounts, ", "), i.grantCommands(img.Namespace, preflight.ServiceAccounts, secrets.accounts...))
	case len(img.ServiceAccounts) > 0 && img.Scope == store.Cluster && (reason == workerapi.ReasonUnauthorized || reason == workerapi.ReasonNodeCredentials):
		return fmt.Sprintf("pull secrets of ServiceAccount %s in namespace %s count for pods that are made after it was given them; ",
			strings.Join(img.ServiceAccounts[:min(len(img.ServiceAccounts), maxServiceAccounts)], ", "), img.Namespace)
	}
	return ""
}

// classifyError returns the image's own failure, or errRetryLater for a problem with Clair. It records a problem with Clair. After errRetryLater the image
// is tried again.
func (i *instance) classifyError(ctx context.Context, l *link, err error) error {
	var refused *api.Error
	var failed *backend.Failure
	switch {
	case ctx.Err() != nil, errors.Is(err, errRetryLater):
		return err
	case errors.As(err, &failed):
		if i.problemOf(l) != nil {
			return errRetryLater
		}
		i.recordFailure(ctx, l, err) // the problem is the Secret with the key
		return errRetryLater
	case !errors.As(err, &refused):
		return err
	}
	switch refused.Kind {
	case api.Throttled:
		i.recordThrottled(refused)
		return errRetryLater
	case api.Unauthorized:
		i.recordFailure(ctx, l, err)
		return errRetryLater
	case api.LayerFailed, api.BadManifest:
		return &backend.Failure{Reason: layerReasons[refused.Layer], Message: refused.Error()}
	}
	// Clair may be broken, or only unable to index this image.
	if i.probe(ctx, l) != nil {
		return errRetryLater
	}
	return &backend.Failure{Reason: backend.ReasonClairIndexFailed, Message: refused.Error()}
}

// layerReasons maps Clair's errors about layers to reasons. The empty cause is a manifest that Clair cannot read.
var layerReasons = map[api.LayerCause]string{
	"":                   workerapi.ReasonNotAnImage,
	api.LayerRefused:     workerapi.ReasonUnauthorized,
	api.LayerUnreachable: workerapi.ReasonRegistryUnavail,
	api.LayerMissing:     workerapi.ReasonImageNotFound,
	api.LayerCorrupt:     workerapi.ReasonNotAnImage,
	api.LayerUnsupported: workerapi.ReasonNotAnImage,
	api.LayerUnscannable: backend.ReasonClairIndexFailed,
}

// recordThrottled stops sending work to Clair for the time that it requests, or longer after each refusal in a row.
func (i *instance) recordThrottled(refused *api.Error) {
	i.mu.Lock()
	i.pauses++
	wait := max(refused.RetryAfter, i.backoff(i.pauses))
	i.mu.Unlock()
	i.pause(wait)
	i.Log.Info("Clair wants no more work for a while", "clair", i.url, "wait", wait.String())
}
