package registry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/scanner-operator/scanner-operator/worker/failure"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// Puller pulls images. It serves one image at a time.
type Puller struct {
	// Registries say which hosts may be spoken to over plain HTTP.
	Registries []workerapi.Registry
	// Credentials of all pull secrets.
	Credentials Credentials
	// Transport to registries; nil for the network.
	Transport http.RoundTripper
	// Patience is how long a registry may send nothing; 0 for one minute.
	Patience time.Duration
	// Log takes what is done and how far it is.
	Log *slog.Logger
	// Now tells the time, for registries that say until when to wait.
	Now func() time.Time
}

// Image is an image of one platform in a registry. Its layers are pulled when they are read.
type Image struct {
	// Content gives access to the manifest, the configuration and the layers.
	Content v1.Image
	// Reference that it was pulled by.
	Reference name.Reference
	// Root is the digest that the reference resolved to: of the index, or of the manifest itself.
	Root v1.Hash
	// Digest of the platform's own manifest.
	Digest v1.Hash
	// Platform that the image was asked for, which is the one that it runs on.
	Platform v1.Platform
	// Declared is the platform in the image's own configuration. It may be wrong or empty: for logs only.
	Declared v1.Platform
}

// Pull resolves the first of the references that the registry has to the image for the platform. Only
// "not found" leads to the next reference: any other failure says something about the first that
// must not be hidden by another one's success. Errors are *failure.Error.
func (p *Puller) Pull(ctx context.Context, references []string, platform v1.Platform) (*Image, error) {
	var firstErr error
	for _, reference := range references {
		image, err := p.pull(ctx, reference, platform)
		if err == nil {
			return image, nil
		}
		if firstErr == nil {
			firstErr = fmt.Errorf("pulling %s: %w", reference, err)
		}
		if !hasReason(err, workerapi.ReasonImageNotFound) {
			return nil, fmt.Errorf("pulling %s: %w", reference, err)
		}
		p.Log.Warn("image not found", "image", reference, "error", failure.Line(err.Error()))
	}
	return nil, firstErr
}

// pull tries each credential of the registry, and then none.
func (p *Puller) pull(ctx context.Context, reference string, platform v1.Platform) (*Image, error) {
	ref, err := p.parse(reference)
	if err != nil {
		return nil, failure.New(workerapi.ReasonCatalogFailed, err)
	}
	credentials := p.Credentials.For(ref.Context())
	p.Log.Info("asking the registry", "image", ref.Name(), "platform", platform.String(), "credentials", len(credentials))

	// Anonymous last: an image may be public although the secret for its registry has expired.
	var firstErr error
	for i, auth := range append(credentials, authn.Anonymous) {
		image, err := p.resolve(ctx, ref, platform, auth)
		if err == nil {
			return image, nil
		}
		// Registries answer 404 instead of 401 where a credential may not even know that the image exists.
		if !hasReason(err, workerapi.ReasonUnauthorized) && !hasReason(err, workerapi.ReasonImageNotFound) {
			return nil, err
		}
		if i < len(credentials) {
			p.Log.Warn("credential refused", "registry", ref.Context().RegistryStr(), "number", i+1, "of", len(credentials))
		}
		// What a credential was told says more than what everybody is told.
		if firstErr == nil || hasReason(err, workerapi.ReasonImageNotFound) && i < len(credentials) {
			firstErr = err
		}
	}
	return nil, firstErr
}

// parse reads a reference. A host is marked for plain HTTP only if it is listed for it.
func (p *Puller) parse(reference string) (name.Reference, error) {
	ref, err := name.ParseReference(reference)
	if err != nil {
		return nil, fmt.Errorf("%q is not an image reference: %w", reference, err)
	}
	if p.plainHTTP()[ref.Context().RegistryStr()] {
		return name.ParseReference(reference, name.Insecure)
	}
	return ref, nil
}

// plainHTTP are the hosts, with their ports, that may be spoken to without TLS.
func (p *Puller) plainHTTP() map[string]bool {
	hosts := make(map[string]bool)
	for _, registry := range p.Registries {
		if registry.PlainHTTP {
			hosts[registry.Host] = true
		}
	}
	return hosts
}

// resolve asks the registry with one credential. Its layers are pulled with the same one.
func (p *Puller) resolve(ctx context.Context, ref name.Reference, platform v1.Platform, auth authn.Authenticator) (*Image, error) {
	next := p.Transport
	if next == nil {
		next = newTransport()
	}
	// A guard for each attempt: how long to wait belongs to the answer that asked for it.
	guard := &guard{next: next, plainHTTP: p.plainHTTP(), now: p.Now, patience: p.Patience}
	image, err := resolve(ref, platform,
		remote.WithContext(ctx), remote.WithAuth(auth), remote.WithTransport(guard),
		remote.WithPlatform(platform), remote.WithUserAgent("scanner-grype"))
	if err != nil {
		return nil, classify(err, guard.wait())
	}
	manifest, err := image.Content.Manifest()
	if err != nil {
		return nil, classify(err, guard.wait())
	}
	// Only now is it known what may be large; until here everything is a document.
	guard.allowLayers(ref.Context(), manifest.Layers)
	image.Content = &loggedImage{Image: image.Content, log: p.Log, wait: guard.wait}
	return image, nil
}

// hasReason looks for a reason anywhere in the chain of an error.
func hasReason(err error, reason string) bool {
	var known *failure.Error
	return errors.As(err, &known) && known.Reason == reason
}
