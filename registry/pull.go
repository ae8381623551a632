package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/scanner-operator/scanner-operator/registry/failure"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// retriedStatusCodes are the status codes after which a request is retried at once. A throttling registry (429) is not retried.
var retriedStatusCodes = []int{
	http.StatusRequestTimeout, http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout,
}

// userAgent identifies the operator to registries.
const userAgent = "scanner-operator"

// Puller pulls images, or locates their layers for other clients. It serves one image at a time.
type Puller struct {
	// Registries configures the registries that need more than the defaults. It must be valid (see Validate).
	Registries []workerapi.Registry
	// ThrottledHosts are the hosts of throttling registries. They are used neither as registry nor as mirror; their mirrors are used.
	ThrottledHosts []string
	// Credentials of all pull secrets.
	Credentials Credentials
	// Identity pulls from the registries with a provider, after the credentials; nil if the process has none.
	Identity Identity
	// Transport to registries, such as that of NewTransport. If it is nil, the first pull creates one.
	Transport http.RoundTripper
	// StallTimeout is how long a registry may send nothing; 0 for one minute.
	StallTimeout time.Duration
	// Log receives the steps and the progress of a pull.
	Log *slog.Logger
	// Now returns the current time. It is needed for a Retry-After header with a date, and for the expiry of tokens.
	Now func() time.Time
	// ExcludedMirrors are mirrors that have failed, as they are configured. They are not used.
	ExcludedMirrors []string

	// sent is shared by all attempts: a registry may quote the secrets of one attempt in its answer to the next.
	sent sentSecrets
}

// Image is an image of one platform in a registry. Its layers are pulled when they are read.
type Image struct {
	// Content gives access to the manifest, the configuration and the layers.
	Content v1.Image
	// Reference is the one that the image was requested by.
	Reference name.Reference
	// Mirror that it is pulled from instead, as it is configured; empty for the registry itself.
	Mirror string
	// Root is the digest that the reference resolved to: that of the index, or of the manifest itself.
	Root v1.Hash
	// Digest of the platform's own manifest.
	Digest v1.Hash
	// Documents lead from Root to Digest, as document.Verify requires it: the indexes, if any, the manifests that were skipped with
	// their configurations, and the platform's manifest, each as the registry sent it.
	Documents [][]byte
	// Platform is the one that the image was requested for, and that it runs on.
	Platform v1.Platform
	// Declared is the platform in the image's own configuration. It may be wrong or empty: for logs only.
	Declared v1.Platform

	// repository that the image was found in, which is the mirror's if a mirror has it. auth and guard are those of that request.
	repository name.Repository
	auth       authn.Authenticator
	guard      *guard
}

// Pull resolves the first of the references that the registry has to the image for the platform. Which reference the runtime used is not known, so
// that a registry which does not have the image, refuses or throttles leads to the next reference. Any other failure ends the search: the image may be
// there. Of several failures, the error is the most telling one. Errors are *failure.Error.
func (p *Puller) Pull(ctx context.Context, references []string, platform v1.Platform) (*Image, error) {
	if len(references) == 0 {
		return nil, failure.New(workerapi.ReasonImageNotFound, errors.New("there is no reference from which the image could be pulled"))
	}
	var failed error
	most := 0
	for _, reference := range references {
		image, err := p.pull(ctx, reference, platform)
		if err == nil {
			return image, nil
		}
		err = fmt.Errorf("pulling %s: %w", reference, err)
		rank := p.telling(reference, err)
		if rank == 0 {
			return nil, err
		}
		if rank > most {
			failed, most = err, rank
		}
		p.Log.Warn("image not found or not available now", "image", reference, "error", failure.Line(err.Error()))
	}
	return nil, failed
}

// pull tries the mirrors of a reference's registry, and then the registry itself.
func (p *Puller) pull(ctx context.Context, reference string, platform v1.Platform) (*Image, error) {
	ref, err := p.parse(reference)
	if err != nil {
		return nil, failure.New(workerapi.ReasonCatalogFailed, err)
	}
	image, mirrors := p.pullFromMirrors(ctx, ref, platform)
	if image != nil {
		return image, nil
	}
	host := ref.Context().RegistryStr()
	if p.isThrottled(host) {
		return nil, &failure.Error{
			Reason: workerapi.ReasonRegistryThrottled, Registry: workerapi.CanonicalHost(host),
			Err: fmt.Errorf("%s throttles, and gets no request before its time is over%s", workerapi.CanonicalHost(host), mirrors),
		}
	}
	if image, err = p.resolveWithCredentials(ctx, ref, platform, p.stallTimeout()); err != nil && mirrors != "" {
		err = fmt.Errorf("%w%s", err, mirrors)
	}
	return image, err
}

// isThrottled reports whether a host throttles.
func (p *Puller) isThrottled(host string) bool {
	return slices.ContainsFunc(p.ThrottledHosts, func(spared string) bool { return workerapi.CanonicalHost(spared) == workerapi.CanonicalHost(host) })
}

// parse parses a reference. It allows plain HTTP only for a host that is listed for it.
func (p *Puller) parse(reference string) (name.Reference, error) {
	ref, err := name.ParseReference(reference)
	if err != nil {
		return nil, fmt.Errorf("%q is not an image reference: %w", reference, err)
	}
	if hostsOf(p.Registries).configFor(ref.Context().RegistryStr()).PlainHTTP {
		return name.ParseReference(reference, name.Insecure)
	}
	return ref, nil
}

// resolveWithCredentials tries each credential for a repository, then the identity for its registry, and then an anonymous request.
func (p *Puller) resolveWithCredentials(ctx context.Context, ref name.Reference, platform v1.Platform, stallTimeout time.Duration, options ...remote.Option) (*Image, error) {
	credentials, identity := p.Credentials.For(ref.Context()), p.identityLogin(ref.Context())
	p.Log.Info("asking the registry", "image", ref.Name(), "platform", platform.String(), "credentials", len(credentials), "identity", identity != nil)
	var auths []authn.Authenticator
	for _, credential := range credentials {
		auths = append(auths, credential)
	}
	if identity != nil {
		auths = append(auths, identity)
	}
	var firstErr error
	var refused refusals
	// Anonymous last: an image may be public although the secret for its registry has expired.
	for i, auth := range append(auths, authn.Anonymous) {
		if _, err := authn.Authorization(ctx, auth); err != nil {
			p.Log.Warn("the identity gets no credential", "identity", identity.String(), "error", failure.Line(err.Error()))
			refused.noCredential = err
			continue
		}
		image, err := p.resolve(ctx, ref, platform, auth, stallTimeout, options)
		if err == nil {
			return image, nil
		}
		// Registries answer 404 instead of 401 where a credential may not even know that the image exists.
		unauthorized, notFound := reason(err) == workerapi.ReasonUnauthorized, reason(err) == workerapi.ReasonImageNotFound
		if !unauthorized && !notFound {
			return nil, err
		}
		if i < len(auths) {
			p.Log.Warn("the registry refuses a credential", "credential", fmt.Sprint(auth))
			if unauthorized {
				refused.logins = append(refused.logins, auth)
			}
		}
		// The answer to a credential is more informative than the answer to an anonymous request.
		if firstErr == nil || notFound && i < len(auths) {
			firstErr = err
		}
	}
	provider := hostsOf(p.Registries).configFor(ref.Context().RegistryStr()).Provider
	return nil, p.Credentials.explainRefusal(ref, provider, refused, firstErr)
}

// stallTimeout returns how long a registry may send nothing.
func (p *Puller) stallTimeout() time.Duration { return cmp.Or(p.StallTimeout, defaultStallTimeout) }

// resolve resolves a reference with one credential. stallTimeout bounds how long the registry may send nothing before the layers. The
// layers are pulled later with the same credential, and with the Puller's own bound.
func (p *Puller) resolve(ctx context.Context, ref name.Reference, platform v1.Platform, auth authn.Authenticator, stallTimeout time.Duration,
	options []remote.Option) (*Image, error) {
	configured := hostsOf(p.Registries)
	transport, err := p.transport()
	if err != nil {
		return nil, failure.New(workerapi.ReasonCatalogFailed, err)
	}
	// Each attempt has its own guard, since a Retry-After belongs to the answer that it came with.
	guard := &guard{
		next: transport, hosts: configured, now: p.Now, stallTimeout: stallTimeout,
		registry: workerapi.CanonicalHost(ref.Context().RegistryStr()), credentials: p.Credentials, sent: &p.sent,
	}
	from, err := remote.NewPuller(append(slices.Clone(options),
		remote.WithAuth(auth), remote.WithContext(ctx), remote.WithTransport(guard),
		remote.WithUserAgent(userAgent), remote.WithRetryStatusCodes(retriedStatusCodes...))...)
	if err != nil {
		return nil, guard.classify(err)
	}
	image, err := resolve(ctx, from, ref, platform)
	if err != nil {
		return nil, guard.classify(err)
	}
	manifest, err := image.Content.Manifest()
	if err != nil {
		return nil, guard.classify(err)
	}
	// Only the manifest shows which blobs may be large. Before it, every answer is a document.
	guard.allowLayers(ref.Context(), manifest.Layers, p.stallTimeout())
	own := withoutForeignURLs(image.Content, manifest, guard, func(digest v1.Hash) (v1.Layer, error) {
		return from.Layer(ctx, ref.Context().Digest(digest.String()))
	})
	image.Content = &loggedImage{Image: own, log: p.Log, guard: guard}
	image.repository, image.auth, image.guard = ref.Context(), auth, guard
	return image, nil
}

// transport creates the network once, so that its connections are reused.
func (p *Puller) transport() (http.RoundTripper, error) {
	if p.Transport != nil {
		return p.Transport, nil
	}
	network, err := NewTransport(p.Registries)
	if err != nil {
		return nil, err
	}
	p.Transport = network
	return network, nil
}
