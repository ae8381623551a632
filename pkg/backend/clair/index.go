package clair

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/quay/claircore"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
	api "github.com/scanner-operator/scanner-operator/pkg/clair"
	"github.com/scanner-operator/scanner-operator/pkg/grant"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/registry"
	"github.com/scanner-operator/scanner-operator/registry/failure"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

const (
	// toolPrefix begins what a catalogue says of who made it; the state of Clair's indexer follows.
	toolPrefix = "clair "
	// toolNobody is that of images without layers: Clair has nothing to do with them.
	toolNobody = "nothing to list"
)

const (
	// resolveTimeout bounds finding out where an image's layers are.
	resolveTimeout = 2 * time.Minute
	// authorizationReserve is how long an authorization must still be good when Clair is told.
	authorizationReserve = 15 * time.Second
	// troublePause is how long nothing is begun after trouble of the operator's own.
	troublePause = 10 * time.Second
)

// errLater says that an image could not be indexed now for no reason of its own.
var errLater = errors.New("to be tried again when Clair can be asked")

// isOutdated says that an image was listed in another state of Clair's indexer than it has now.
func (i *instance) isOutdated(c store.Catalogued) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.state != "" && c.Tool != toolPrefix+i.state && c.Tool != toolNobody
}

// enter has an image indexed, and says whether that is being done.
func (i *instance) enter(img backend.Image, l *link) bool {
	running := i.line.enter(img, l)
	if !running {
		kick(i.indexing)
	}
	return running
}

// indexLoop gives places to images that wait.
func (i *instance) indexLoop(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	places := make(chan struct{}, i.Config.Clair.MaxIndexing)
	for i.await(ctx, i.indexing, i.untilIndexing()) {
		for len(places) < cap(places) {
			t := i.line.take(i.Config.Clair.MaxIndexingPerNamespace, i.mayIndex)
			if t == nil {
				break
			}
			places <- struct{}{}
			all.Go(func() {
				defer func() { <-places; kick(i.indexing) }()
				i.indexTask(ctx, t)
			})
		}
	}
}

// untilIndexing is how long to wait unless somebody wakes the loop.
func (i *instance) untilIndexing() time.Duration {
	i.mu.Lock()
	defer i.mu.Unlock()
	if pause := i.pausedUntil.Sub(i.Clock.Now()); pause > 0 {
		return pause
	}
	return checkAgain
}

// mayIndex says whether Clair can be given an image now.
func (i *instance) mayIndex(t *task) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.state != "" && t.link.checked && t.link.trouble() == nil && !i.Clock.Now().Before(i.pausedUntil)
}

// indexTask indexes an image and tells whoever waits for it.
func (i *instance) indexTask(ctx context.Context, t *task) {
	log := i.Log.WithValues("clair", i.url, "image", t.img.Key.String(), "scope", t.img.Scope)
	wanted, err := i.Store.Wanted(ctx, i.engine, t.img.Key, t.img.Scope)
	if err == nil && !wanted {
		i.line.leave(t, false)
		return
	}
	if err == nil {
		i.Wake(ctx, t.img.Key.Digest) // to show that it began
		err = i.index(ctx, log, t)
	}
	var failed *backend.Failure
	switch {
	case ctx.Err() != nil:
		i.line.leave(t, false)
		return
	case errors.Is(err, errLater):
		i.line.leave(t, true)
		return
	case errors.As(err, &failed):
		log.Info("An image could not be indexed", "references", t.img.PullReferences, "reason", failed.Reason, "cause", failed.Message)
		i.failures.note(idOf(t.img), failed)
	case err != nil:
		log.Error(err, "Indexing an image")
		i.pause(troublePause)
		i.line.leave(t, true)
		return
	}
	i.line.leave(t, false)
	i.Wake(ctx, t.img.Key.Digest)
}

// pause gives Clair no work for a while.
func (i *instance) pause(wait time.Duration) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if until := i.Clock.Now().Add(wait); until.After(i.pausedUntil) {
		i.pausedUntil = until
	}
}

// index does all that has to be done for an image once.
func (i *instance) index(ctx context.Context, log logr.Logger, t *task) (err error) {
	defer recovered(log, &err)
	i.mu.Lock()
	state := i.state
	i.mu.Unlock()
	switch done, err := i.Store.Catalogued(ctx, i.engine, t.img.Key, t.img.Scope); {
	case err == nil && (done.Tool == toolPrefix+state || done.Tool == toolNobody):
		return nil // for another Scanner, meanwhile
	case err != nil && !errors.Is(err, store.ErrNotFound):
		return err
	case err != nil:
		if err := i.requireRoom(ctx, t.img); err != nil {
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
	catalogue := store.Catalogued{Engine: i.engine, Key: t.img.Key, Scope: t.img.Scope, PlatformDigest: digest, CataloguedAt: i.Clock.Now(), Namespace: t.img.Namespace}
	if len(located.Layers) == 0 {
		log.Info("The image has no layers: there is nothing to scan")
		catalogue.Tool = toolNobody
		return i.Store.SaveCatalogue(ctx, catalogue, nil)
	}
	catalogue.Tool = toolPrefix + state
	if err := i.list(ctx, log, t, located, &catalogue); err != nil {
		return err
	}
	// Before the catalogue: should this process end between the two, both are done again.
	if err := i.refresh(ctx, t.link, catalogue); err != nil {
		return err
	}
	return i.Store.SaveCatalogue(ctx, catalogue, nil)
}

// requireRoom fails for a new image of a namespace that has used up its budget. An image that has a report is not new: its catalog was forgotten
// when Clair lost it, and its findings count already.
func (i *instance) requireRoom(ctx context.Context, img backend.Image) error {
	full, err := i.room.Exceeded(ctx, img.Namespace)
	if err != nil || full == nil {
		return err
	}
	if reported, err := i.Store.HasReport(ctx, i.engine, img.Key, img.Scope); err != nil || reported {
		return err
	}
	return full
}

// recovered makes an image's failure of a panic: what registries and Clair send is read by many libraries.
func recovered(log logr.Logger, err *error) {
	if cause := recover(); cause != nil {
		log.Error(fmt.Errorf("panic: %v", cause), "Handling an image", "stack", string(debug.Stack()))
		*err = &backend.Failure{Reason: v1alpha1.ReasonBackendError, Message: "the operator failed on this image; its log has the cause"}
	}
}

// list completes a catalogue by what Clair says, unless it has said so for another scope.
func (i *instance) list(ctx context.Context, log logr.Logger, t *task, located *registry.Location, catalogue *store.Catalogued) error {
	// That this image may be had with these references and credentials is known by now.
	same, found, err := i.elsewhere(ctx, t.img, *catalogue)
	if err != nil {
		return err
	}
	if found {
		log.Info("The image was indexed before", "manifest", catalogue.PlatformDigest)
		catalogue.Distro, catalogue.Packages = same.Distro, same.Packages
		return nil
	}
	digest, err := claircore.ParseDigest(catalogue.PlatformDigest)
	if err != nil {
		return &backend.Failure{Reason: workerapi.ReasonNotAnImage, Message: "its digest is none that Clair knows: " + err.Error()}
	}
	if err := i.remember(ctx, t.link, digest); err != nil {
		return i.explain(ctx, t.link, err)
	}
	report, err := i.post(ctx, log, t, located, digest)
	if err != nil {
		return err
	}
	catalogue.Packages, catalogue.Distro = len(report.Packages), distroOf(report)
	log.Info("Clair has indexed an image", "manifest", catalogue.PlatformDigest, "packages", catalogue.Packages)
	return nil
}

// elsewhere returns what was listed of a platform manifest for another scope, in the same state of the indexer.
func (i *instance) elsewhere(ctx context.Context, img backend.Image, wanted store.Catalogued) (store.Catalogued, bool, error) {
	key := img.Key
	key.Digest = wanted.PlatformDigest
	scopes, err := i.Store.CataloguedScopes(ctx, i.engine, key)
	if err != nil {
		return store.Catalogued{}, false, err
	}
	for _, scope := range scopes {
		same, err := i.Store.Catalogued(ctx, i.engine, key, scope)
		switch {
		case err != nil && !errors.Is(err, store.ErrNotFound):
			return store.Catalogued{}, false, err
		case err == nil && same.Tool == wanted.Tool && same.PlatformDigest == wanted.PlatformDigest:
			return same, true, nil
		}
	}
	return store.Catalogued{}, false, nil
}

// remember notes, before Clair is given a manifest, whether it had it already: only then is it ever deleted there that
// nobody else gave it.
func (i *instance) remember(ctx context.Context, l *link, digest claircore.Digest) error {
	switch _, err := i.Store.Manifest(ctx, i.engine, digest.String()); {
	case err == nil:
		return nil
	case !errors.Is(err, store.ErrNotFound):
		return err
	}
	_, err := l.client.IndexReport(ctx, digest)
	if api.KindOf(err) == api.NotIndexed {
		// Without its database Clair says so of every image: asked again once that is known to be there.
		if err := i.probe(ctx, l); err != nil {
			return err
		}
		_, err = l.client.IndexReport(ctx, digest)
	}
	ours := api.KindOf(err) == api.NotIndexed
	if err != nil && !ours {
		return err
	}
	return i.Store.SaveManifest(ctx, store.Manifest{Engine: i.engine, PlatformDigest: digest.String(), Ours: ours})
}

// post has Clair index a manifest, with credentials that are good for a while. Where a registry does not take them, it is
// tried once more with new ones.
func (i *instance) post(ctx context.Context, log logr.Logger, t *task, located *registry.Location, digest claircore.Digest) (*claircore.IndexReport, error) {
	var err error
	for attempt := range 2 {
		if expires := located.Authorization.Expires; attempt > 0 || !expires.IsZero() && expires.Before(i.Clock.Now().Add(authorizationReserve)) {
			if located, err = i.locateAgain(ctx, t, digest); err != nil {
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
			return nil, &backend.Failure{Reason: ReasonIndexFailed, Message: fmt.Sprintf("Clair at %s ended in state %q without saying why", i.host, report.State)}
		}
		var refused *api.Error
		if !errors.As(err, &refused) || refused.Layer != api.LayerRefused || ctx.Err() != nil {
			break
		}
		log.V(1).Info("Indexing once more", "cause", err.Error())
	}
	return nil, i.explain(ctx, t.link, err)
}

// locateAgain gets new credentials. The image stays the same.
func (i *instance) locateAgain(ctx context.Context, t *task, digest claircore.Digest) (*registry.Location, error) {
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
			continue // not reached: a registry's digest is one
		}
		manifest.Layers = append(manifest.Layers, &claircore.Layer{Hash: hash, URI: layer.URL, Headers: located.Authorization.Header()})
	}
	return manifest
}

// distroOf names the distribution, if there is one.
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

// locate finds out in the registry where the image's layers are and how they are had. Errors are *backend.Failure.
func (i *instance) locate(ctx context.Context, t *task) (*registry.Location, error) {
	if len(t.img.PullReferences) == 0 {
		return nil, &backend.Failure{Reason: workerapi.ReasonImageNotFound, Message: "it is not known from where the image could be pulled"}
	}
	secrets, err := i.pullSecrets(ctx, t.img)
	if err != nil {
		return nil, err
	}
	log := slog.New(logr.ToSlogHandler(i.Log.WithValues("image", t.img.Key.String()).V(1)))
	puller := &registry.Puller{
		Registries: i.Config.RegistrySettings(), Spared: i.throttles.Spared(i.Clock.Now(), t.img.Scope),
		Credentials: registry.ParseCredentials(secrets.data, log), Transport: i.Registries, Log: log, Now: i.Clock.Now,
	}
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	platform := t.img.Key.Platform
	located, err := puller.Locate(ctx, t.img.PullReferences, v1.Platform{OS: platform.OS, Architecture: platform.Architecture, Variant: platform.Variant})
	if err == nil {
		return located, nil
	}
	return nil, i.notLocated(t.img, secrets, err)
}

// notLocated is why an image cannot be had. Pull secrets that the operator may not read matter only then: many images
// need none, whatever their pods name.
func (i *instance) notLocated(img backend.Image, secrets pullSecrets, err error) error {
	said := failure.Describe(err, workerapi.ReasonCatalogFailed)
	failed := &backend.Failure{
		Reason: said.Reason, Message: said.Message, Registry: said.Registry, RetryAfter: time.Duration(said.RetryAfterSeconds) * time.Second,
	}
	i.throttles.Note(i.Clock.Now(), img.Scope, failed)
	switch failed.Reason {
	case workerapi.ReasonUnauthorized, workerapi.ReasonPullSecretMissing, workerapi.ReasonNodeCredentials,
		workerapi.ReasonImageNotFound, workerapi.ReasonRegistryThrottled:
		if len(secrets.forbidden) > 0 {
			// What the registry said without them leads astray.
			i.Log.Info("Pull secrets may not be read", "image", img.Key.String(), "namespace", img.Namespace, "secrets", secrets.forbidden, "without", failed.Message)
			failed.Reason = ReasonPullSecretForbidden
			failed.Message = "the operator may not read pull secrets of the image's pods; to allow it: " + i.howToGrant(img.Namespace, grant.Secrets, secrets.forbidden...)
			break
		}
		failed.Message = i.aboutAccounts(img, secrets, failed.Reason) + failed.Message
	}
	return failed
}

// aboutAccounts says what is not known of pull secrets that the ServiceAccounts of an image's pods may have by now; empty
// if it matters not for a reason. It comes first, since what registries say is long.
func (i *instance) aboutAccounts(img backend.Image, secrets pullSecrets, reason string) string {
	switch {
	case len(secrets.accounts) > 0:
		return fmt.Sprintf("pull secrets that ServiceAccount %s was given after the pods were made are not used, since the operator may not read it; to allow it: %s; ",
			strings.Join(secrets.accounts, ", "), i.howToGrant(img.Namespace, grant.ServiceAccounts, secrets.accounts...))
	case len(img.ServiceAccounts) > 0 && img.Scope == store.Cluster && (reason == workerapi.ReasonUnauthorized || reason == workerapi.ReasonNodeCredentials):
		return fmt.Sprintf("pull secrets of ServiceAccount %s in namespace %s count for pods that are made after it was given them; ",
			strings.Join(img.ServiceAccounts[:min(len(img.ServiceAccounts), maxServiceAccounts)], ", "), img.Namespace)
	}
	return ""
}

// explain tells an image's own failure from trouble with Clair, after which the image is tried again.
func (i *instance) explain(ctx context.Context, l *link, err error) error {
	var refused *api.Error
	var failed *backend.Failure
	switch {
	case ctx.Err() != nil, errors.Is(err, errLater):
		return err
	case errors.As(err, &failed):
		if i.troubleOf(l) != nil {
			return errLater
		}
		i.tell(ctx, l, i.noteFailed(l, err)) // the Secret with the key
		return errLater
	case !errors.As(err, &refused):
		return err
	}
	switch refused.Kind {
	case api.Throttled:
		i.throttled(refused)
		return errLater
	case api.Unauthorized:
		i.tell(ctx, l, i.noteFailed(l, err))
		return errLater
	case api.LayerFailed, api.BadManifest:
		return &backend.Failure{Reason: layerReasons[refused.Layer], Message: refused.Error()}
	}
	// Is it Clair, or this image?
	if i.probe(ctx, l) != nil {
		return errLater
	}
	return &backend.Failure{Reason: ReasonIndexFailed, Message: refused.Error()}
}

// layerReasons are those for what Clair says of a layer. A manifest that it cannot read comes without.
var layerReasons = map[api.LayerCause]string{
	"":                   workerapi.ReasonNotAnImage,
	api.LayerRefused:     workerapi.ReasonUnauthorized,
	api.LayerUnreachable: workerapi.ReasonRegistryUnavail,
	api.LayerMissing:     workerapi.ReasonImageNotFound,
	api.LayerCorrupt:     workerapi.ReasonNotAnImage,
	api.LayerUnsupported: workerapi.ReasonNotAnImage,
	api.LayerUnscannable: ReasonIndexFailed,
}

// throttled leaves Clair alone for as long as it wants, or for longer each time.
func (i *instance) throttled(refused *api.Error) {
	i.mu.Lock()
	i.pauses++
	wait := max(refused.RetryAfter, i.backOff(i.pauses))
	i.mu.Unlock()
	i.pause(wait)
	i.Log.Info("Clair wants no more work for a while", "clair", i.url, "wait", wait.String())
}
