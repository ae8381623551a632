package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/scanner-operator/scanner-operator/registry/document"
	"github.com/scanner-operator/scanner-operator/registry/failure"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// Location tells another program where to fetch the layers of an image of one platform.
type Location struct {
	// Reference is the one that the image was requested by.
	Reference name.Reference
	// Mirror that the layers are in, as it is configured; empty for the registry itself.
	Mirror string
	// Root is the digest that the reference resolved to: that of the index, or of the manifest itself.
	Root v1.Hash
	// Digest of the platform's own manifest.
	Digest v1.Hash
	// Layers from the base to the top, as in the manifest. The same layer may occur several times. An image without layers is
	// valid: some images consist of their configuration only.
	Layers []Layer
	// Authorization for all layers.
	Authorization Authorization
}

// Layer is one layer in a registry. A client that fetches it must follow redirects, and must have the host's CA in its
// own configuration.
type Layer struct {
	Digest    v1.Hash
	MediaType types.MediaType
	// Size in bytes as the registry has it, which is compressed in most cases; above 0.
	Size int64
	// URL is absolute, and http only for a host that is listed for plain HTTP.
	URL string
}

// Locate resolves the first of the references that the registry has to the image for the platform, as Pull does, and
// returns where its layers are. It requests only the foreign layers, since a registry may lack them. Errors are *failure.Error.
func (p *Puller) Locate(ctx context.Context, references []string, platform v1.Platform) (*Location, error) {
	for {
		image, err := p.Pull(ctx, references, platform)
		if err != nil {
			return nil, err
		}
		location, err := p.locate(ctx, image)
		if err == nil {
			return location, nil
		}
		err = fmt.Errorf("locating the layers of %s: %w", image.Reference, err)
		if !p.ExcludeMirror(image, err) {
			return nil, err
		}
		p.Log.Warn("a mirror does not describe how to get layers, continuing without it", "mirror", image.Mirror, "error", failure.Line(err.Error()))
	}
}

// locate returns the location of the layers of a resolved image.
func (p *Puller) locate(ctx context.Context, image *Image) (*Location, error) {
	manifest, err := image.Content.Manifest()
	if err != nil {
		return nil, image.guard.classify(err)
	}
	location := &Location{Reference: image.Reference, Mirror: image.Mirror, Root: image.Root, Digest: image.Digest}
	for i, layer := range manifest.Layers {
		if err := checkLayer(layer); err != nil {
			return nil, failure.New(workerapi.ReasonNotAnImage, fmt.Errorf("layer %d of %d (%s): %w", i+1, len(manifest.Layers), layer.Digest, err))
		}
	}
	if err := requireForeign(image, manifest.Layers); err != nil {
		return nil, image.guard.classify(err)
	}
	if len(manifest.Layers) == 0 {
		return location, nil
	}
	access, err := p.requestAccess(ctx, image)
	if err != nil {
		return nil, image.guard.classify(err)
	}
	location.Authorization = access.authorization
	for _, layer := range manifest.Layers {
		location.Layers = append(location.Layers, Layer{
			Digest: layer.Digest, MediaType: layer.MediaType, Size: layer.Size,
			URL: fmt.Sprintf("%s://%s/v2/%s/blobs/%s", access.scheme, image.repository.RegistryStr(), image.repository.RepositoryStr(), layer.Digest),
		})
	}
	return location, nil
}

// maxForeign bounds the number of different foreign layers of an image, each of which costs a request. Windows images have two or
// three, which belong to their base image. Other images have none.
const maxForeign = 20

// requireForeign returns an error if the registry lacks a foreign layer, or if the image has too many of them. A client that
// fetches the layers would see only that one is missing. Each layer is requested once, however often the manifest lists it.
func requireForeign(image *Image, layers []v1.Descriptor) error {
	var foreign []v1.Hash
	for _, descriptor := range layers {
		if !isForeign(descriptor) || slices.Contains(foreign, descriptor.Digest) {
			continue
		}
		if len(foreign) == maxForeign {
			return failure.New(workerapi.ReasonForeignLayer, fmt.Errorf("more than %d different layers are foreign: "+
				"build the image with layers that are in its registry", maxForeign))
		}
		foreign = append(foreign, descriptor.Digest)
	}
	for _, digest := range foreign {
		layer, err := image.Content.LayerByDigest(digest)
		if err != nil {
			return err
		}
		content, err := layer.Compressed()
		if err != nil {
			return err
		}
		_ = content.Close()
	}
	return nil
}

// checkLayer rejects a layer that has no digest, no size, or no archive type. It ignores the URLs of the descriptor, since the
// author of the manifest chooses them.
func checkLayer(layer v1.Descriptor) error {
	switch {
	case layer.Digest == v1.Hash{}:
		return errors.New("it has no digest")
	case layer.Size <= 0:
		return errors.New("it has no size")
	case !isArchive(document.Essence(layer.MediaType)):
		return fmt.Errorf("unsupported layer media type %q", layer.MediaType)
	}
	return nil
}

// isArchive reports whether a layer is an archive of files, compressed in one of the ways that runtimes and engines unpack
// (https://github.com/opencontainers/image-spec/blob/v1.1.1/media-types.md,
// https://github.com/distribution/distribution/blob/v3.0.0/docs/content/spec/manifest-v2-2.md#media-types).
func isArchive(mediaType types.MediaType) bool {
	switch mediaType {
	case types.DockerLayer, types.DockerForeignLayer, "application/gzip", "application/x-gzip", "application/zstd", "application/x-tar":
		return true
	}
	return slices.ContainsFunc([]string{".tar", ".tar+gzip", ".tar+zstd"}, func(suffix string) bool {
		return strings.HasSuffix(string(mediaType), suffix)
	})
}

// access describes how to fetch the layers of a repository.
type access struct {
	// scheme is http or https.
	scheme        string
	authorization Authorization
}

// requestAccess pings the registry for its authentication challenge, as the client library does, and obtains the authorization.
func (p *Puller) requestAccess(ctx context.Context, image *Image) (access, error) {
	way := transport.NewUserAgent(transport.NewRetry(image.guard, transport.WithRetryStatusCodes(retriedStatusCodes...)), userAgent)
	registry := image.repository.Registry
	challenge, err := transport.Ping(ctx, registry, way)
	if err != nil {
		return access{}, err
	}
	found := access{scheme: "https"}
	if challenge.Insecure && hostsOf(p.Registries).configFor(registry.RegistryStr()).PlainHTTP {
		found.scheme = "http"
	}
	config, err := image.auth.Authorization()
	if err != nil {
		return access{}, err
	}
	if config.RegistryToken != "" || !strings.EqualFold(challenge.Scheme, "bearer") {
		found.authorization = credentialAuthorization(*config)
		return found, nil
	}
	requestedAt := p.Now()
	token, err := transport.Exchange(ctx, registry, image.auth, way, []string{image.repository.Scope(transport.PullScope)}, challenge)
	if err != nil {
		return access{}, err
	}
	found.authorization = tokenAuthorization(*token, requestedAt)
	// This pull does not send the token, but a client of the Location will: the bound on sent secrets applies to it, too.
	return found, p.sent.keepFrom(&http.Request{Header: found.authorization.Header()})
}

// Bounds of a token's lifetime.
const (
	// defaultTokenLife applies when a token server names no lifetime
	// (https://distribution.github.io/distribution/spec/auth/token/#token-response-fields).
	defaultTokenLife = time.Minute
	maxTokenLife     = 24 * time.Hour
)

// tokenAuthorization returns the authorization by a token. The token's lifetime starts at asked, the time before the request for it.
func tokenAuthorization(token transport.Token, requestedAt time.Time) Authorization {
	life := defaultTokenLife
	if token.ExpiresIn > 0 {
		// Bounded before the conversion, since a large number of seconds overflows a Duration.
		life = time.Duration(min(token.ExpiresIn, int(maxTokenLife/time.Second))) * time.Second
	}
	return Authorization{header: "Bearer " + cmp.Or(token.AccessToken, token.Token), Expires: requestedAt.Add(life)}
}
