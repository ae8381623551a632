package registry

import (
	"fmt"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/scanner-operator/scanner-operator/registry/failure"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// resolve finds the image for the platform behind a reference. An index decides by what it says of its
// children; a plain manifest is what runs on the asking node, whatever its configuration says.
func resolve(ref name.Reference, platform v1.Platform, options ...remote.Option) (*Image, error) {
	descriptor, err := remote.Get(ref, options...)
	if err != nil {
		return nil, err
	}
	// Which child is taken is the library's choice, as in Grype: the first that fits.
	if descriptor.MediaType.IsIndex() {
		if err := requirePlatform(descriptor, platform); err != nil {
			return nil, err
		}
	}
	image, err := descriptor.Image()
	if err != nil {
		return nil, err
	}
	declared, err := declaredPlatform(image)
	if err != nil {
		return nil, err
	}
	digest, err := image.Digest()
	if err != nil {
		return nil, err
	}
	return &Image{
		Content: image, Reference: ref, Root: descriptor.Digest, Digest: digest,
		Platform: platform, Declared: declared,
	}, nil
}

// requirePlatform says what an index offers if it does not have the platform: the client library's own
// error cannot be told from others.
func requirePlatform(descriptor *remote.Descriptor, platform v1.Platform) error {
	index, err := descriptor.ImageIndex()
	if err != nil {
		return err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return failure.New(workerapi.ReasonNotAnImage, fmt.Errorf("the index is not readable: %w", err))
	}
	var offered []string
	for _, child := range manifest.Manifests {
		// The library takes a child without a platform for linux/amd64.
		has := v1.Platform{OS: "linux", Architecture: "amd64"}
		if child.Platform != nil {
			has = *child.Platform
		}
		if has.Satisfies(platform) && child.MediaType.IsIndex() {
			return failure.New(workerapi.ReasonNotAnImage,
				fmt.Errorf("what the index has for %s is another index; push the image again as one index of manifests", platform.String()))
		}
		if has.Satisfies(platform) {
			return nil
		}
		offered = append(offered, has.String())
	}
	return failure.New(workerapi.ReasonPlatformMismatch,
		fmt.Errorf("the image has no manifest for %s, only for %q", platform.String(), offered))
}

// declaredPlatform returns what the image's configuration says it is for, and refuses what is no image.
// Nothing depends on what it says: builds for several platforms often leave a wrong or no architecture
// there, and runtimes run such images, since they go by the index alone, or by nothing at all.
func declaredPlatform(image v1.Image) (v1.Platform, error) {
	manifest, err := image.Manifest()
	if err != nil {
		return v1.Platform{}, failure.New(workerapi.ReasonNotAnImage, fmt.Errorf("the manifest is not readable: %w", err))
	}
	if len(manifest.Layers) == 0 && manifest.Config.Digest == (v1.Hash{}) {
		return v1.Platform{}, failure.New(workerapi.ReasonNotAnImage, fmt.Errorf("the manifest (%s) has neither configuration nor layers", manifest.MediaType))
	}
	// Artefacts (charts, signatures, SBOMs) are manifests too: they carry a configuration of another type.
	notImage := failure.New(workerapi.ReasonNotAnImage,
		fmt.Errorf("it is not a container image: its configuration is of type %q", manifest.Config.MediaType))
	// Fetched apart from being understood: that it cannot be fetched is the registry's fault.
	raw, err := image.RawConfigFile()
	if err != nil {
		return v1.Platform{}, err
	}
	config, err := image.ConfigFile()
	if err != nil || len(raw) == 0 {
		return v1.Platform{}, notImage
	}
	// Old builders use other types for configurations, too, but those say what they are for.
	if (config.OS == "" || config.Architecture == "") && !manifest.Config.MediaType.IsConfig() {
		return v1.Platform{}, notImage
	}
	return v1.Platform{OS: config.OS, Architecture: config.Architecture, Variant: config.Variant}, nil
}
