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

	"github.com/scanner-operator/scanner-operator/registry/failure"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// Location says where the layers of an image of one platform are, for somebody else to get them.
type Location struct {
	// Reference that the image was asked for by.
	Reference name.Reference
	// Mirror that has it instead, as it is configured; empty for the registry itself.
	Mirror string
	// Root is the digest that the reference resolved to: of the index, or of the manifest itself.
	Root v1.Hash
	// Digest of the platform's own manifest.
	Digest v1.Hash
	// Layers from the base to the top, as in the manifest: the same one may be there several times. None is no error:
	// some images consist of their configuration.
	Layers []Layer
	// Authorization for all layers.
	Authorization Authorization
}

// Layer is one layer in a registry. Whoever gets it must follow redirects, and trust the authority of the host by its
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
// says where its layers are. It asks only for those that do not have to be in the registry. Errors are *failure.Error.
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
		if !p.Avoid(image, err) {
			return nil, err
		}
		p.Log.Warn("a mirror does not say how to get layers, going on without it", "mirror", image.Mirror, "error", failure.Line(err.Error()))
	}
}

// locate goes from an image to its layers.
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
	access, err := p.access(ctx, image)
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

// maxForeign bounds the different foreign layers of an image, each of which costs a request. Images of Windows have two or three: those of their
// base, which other images do not have.
const maxForeign = 20

// requireForeign fails for a foreign layer that the registry does not have, and for too many of them. Whoever gets the layers would only see that
// one is missing. It asks for each once, however often the manifest lists it.
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

// checkLayer refuses what is no archive of files. The addresses that a descriptor may have are dropped: who wrote them
// decides where they lead.
func checkLayer(layer v1.Descriptor) error {
	switch {
	case layer.Digest == v1.Hash{}:
		return errors.New("it has no digest")
	case layer.Size <= 0:
		return errors.New("it has no size")
	case !isArchive(layer.MediaType):
		return fmt.Errorf("unsupported layer media type %q", layer.MediaType)
	}
	return nil
}

// isArchive says that a layer is an archive of files, compressed in one of the ways that runtimes and engines unpack
// (https://github.com/opencontainers/image-spec/blob/v1.1.1/media-types.md,
// https://github.com/distribution/distribution/blob/v3.0.0/docs/content/spec/manifest-v2-2.md#media-types).
func isArchive(mediaType types.MediaType) bool {
	switch mediaType {
	case types.DockerLayer, types.DockerForeignLayer, "application/gzip", "application/x-gzip", "application/zstd", "application/x-tar":
		return true
	}
	for _, suffix := range []string{".tar", ".tar+gzip", ".tar+zstd"} {
		if strings.HasSuffix(string(mediaType), suffix) {
			return true
		}
	}
	return false
}

// access is how the layers of a repository are reached.
type access struct {
	// scheme is http or https.
	scheme        string
	authorization Authorization
}

// access asks the registry, as the client library does before each conversation, what it wants to see, and gets it.
func (p *Puller) access(ctx context.Context, image *Image) (access, error) {
	way := transport.NewUserAgent(transport.NewRetry(image.guard, transport.WithRetryStatusCodes(retried...)), userAgent)
	registry := image.repository.Registry
	challenge, err := transport.Ping(ctx, registry, way)
	if err != nil {
		return access{}, err
	}
	found := access{scheme: "https"}
	if challenge.Insecure && hostsOf(p.Registries).of(registry.RegistryStr()).PlainHTTP {
		found.scheme = "http"
	}
	config, err := image.auth.Authorization()
	if err != nil {
		return access{}, err
	}
	if config.RegistryToken != "" || !strings.EqualFold(challenge.Scheme, "bearer") {
		found.authorization = presented(*config)
		return found, nil
	}
	asked := p.Now()
	token, err := transport.Exchange(ctx, registry, image.auth, way, []string{image.repository.Scope(transport.PullScope)}, challenge)
	if err != nil {
		return access{}, err
	}
	found.authorization = granted(*token, asked)
	// Nothing is sent with it here, but it is bounded as what is: it will be said with every layer.
	return found, p.sent.remember(&http.Request{Header: found.authorization.Header()})
}

// Bounds of how long a token is good.
const (
	// defaultTokenLife is for token servers that do not say it
	// (https://distribution.github.io/distribution/spec/auth/token/#token-response-fields).
	defaultTokenLife = time.Minute
	maxTokenLife     = 24 * time.Hour
)

// granted is the authorization by a token. Its life is counted from before it was asked for.
func granted(token transport.Token, asked time.Time) Authorization {
	life := defaultTokenLife
	if token.ExpiresIn > 0 {
		// Bounded before it is a Duration, in which not every number of seconds has a place.
		life = time.Duration(min(token.ExpiresIn, int(maxTokenLife/time.Second))) * time.Second
	}
	return Authorization{header: "Bearer " + cmp.Or(token.AccessToken, token.Token), Expires: asked.Add(life)}
}
