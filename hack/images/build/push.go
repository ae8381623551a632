package build

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// LocalRegistry is the registry of the local cluster (hack/cluster). It uses plain HTTP, which is safe because its address (RFC 5737)
// exists only inside that cluster's network.
const LocalRegistry = "198.51.100.10:5000"

// Pushable is an image or an index.
type Pushable interface {
	remote.Taggable
	Digest() (v1.Hash, error)
}

// Push uploads an image or an index to a reference such as host/path:tag and returns the reference by digest. Layers that the registry
// already has are not uploaded again. Credentials are those of "docker login". Plain HTTP is used for LocalRegistry, for the registries
// in insecure, and where the registry client does so by default, as for loopback addresses.
func Push(ctx context.Context, reference string, image Pushable, insecure ...string) (name.Digest, error) {
	tag, err := ParseReference(reference, insecure...)
	if err != nil {
		return name.Digest{}, err
	}
	options := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
	switch pushed := image.(type) {
	case v1.ImageIndex:
		err = remote.WriteIndex(tag, pushed, options...)
	case v1.Image:
		err = remote.Write(tag, pushed, options...)
	default:
		err = fmt.Errorf("%T is neither an image nor an index", image)
	}
	if err != nil {
		return name.Digest{}, fmt.Errorf("push %s: %w", reference, err)
	}
	digest, err := image.Digest()
	if err != nil {
		return name.Digest{}, err
	}
	return tag.Context().Digest(digest.String()), nil
}

// ParseReference parses a reference, with plain HTTP for the same registries as Push.
func ParseReference(reference string, insecure ...string) (name.Reference, error) {
	parsed, err := name.ParseReference(reference, name.StrictValidation)
	if err != nil {
		return nil, fmt.Errorf("image reference %q: %w", reference, err)
	}
	if !slices.Contains(append(insecure, LocalRegistry), parsed.Context().RegistryStr()) {
		return parsed, nil
	}
	return name.ParseReference(reference, name.StrictValidation, name.Insecure)
}
