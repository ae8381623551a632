package registry

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"

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
	image, err := choose(descriptor, platform)
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

// Bounds of what is read to find a platform in indexes that hold others, as runtimes do.
const (
	// maxIndexDepth is how many indexes may lead to a manifest, the first one included.
	maxIndexDepth = 3
	// maxRead is how many indexes, and manifests that fit, are read for one image.
	maxRead = 16
)

// choose returns what runs on the platform: the first image that fits in an index, where those that it holds are looked
// through in their place, and artefacts are left out.
func choose(descriptor *remote.Descriptor, platform v1.Platform) (v1.Image, error) {
	if !descriptor.MediaType.IsIndex() {
		return descriptor.Image()
	}
	index, err := descriptor.ImageIndex()
	if err != nil {
		return nil, err
	}
	s := search{platform: platform}
	switch image, err := s.in(index, 1); {
	case image != nil || err != nil:
		return image, err
	case s.beyond:
		return nil, failure.New(workerapi.ReasonNotAnImage, fmt.Errorf("no manifest for %s was found within %d levels and %d documents; "+
			"push the image again as one index of manifests", platform.String(), maxIndexDepth, maxRead))
	case s.artefact != nil && len(s.offered) == 0:
		return nil, s.artefact
	}
	return nil, failure.New(workerapi.ReasonPlatformMismatch,
		fmt.Errorf("the image has no manifest for %s, only for %q", platform.String(), s.offered))
}

// search looks for the manifest of a platform.
type search struct {
	platform v1.Platform
	// read is how many documents were: indexes, and manifests that fit.
	read int
	// offered are the other platforms that were seen, and beyond says that there are documents that were not looked at.
	offered []string
	beyond  bool
	// artefact says what a manifest is that would fit and is no image.
	artefact error
}

// in looks through an index at a depth of at least 1. It returns nil if the platform is not in it.
func (s *search) in(index v1.ImageIndex, depth int) (v1.Image, error) {
	s.read++
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, failure.New(workerapi.ReasonNotAnImage, fmt.Errorf("the index is not readable: %w", err))
	}
	slices.SortStableFunc(manifest.Manifests, func(a, b v1.Descriptor) int { return likelihood(b) - likelihood(a) })
	for _, child := range manifest.Manifests {
		if !s.fits(child) {
			continue
		}
		if s.read == maxRead || child.MediaType.IsIndex() && depth == maxIndexDepth {
			s.beyond = true
			continue
		}
		if image, err := s.at(index, child, depth); image != nil || err != nil {
			return image, err
		}
	}
	return nil, nil
}

// at looks at one of those that an index at a depth holds. It returns nil if that is no image and has none.
func (s *search) at(index v1.ImageIndex, child v1.Descriptor, depth int) (v1.Image, error) {
	if child.MediaType.IsIndex() {
		nested, err := index.ImageIndex(child.Digest)
		if err != nil {
			return nil, err
		}
		return s.in(nested, depth+1)
	}
	s.read++
	image, err := index.Image(child.Digest)
	if err != nil {
		return nil, err
	}
	switch _, err := declaredPlatform(image); {
	case hasReason(err, workerapi.ReasonNotAnImage):
		s.artefact = cmp.Or(s.artefact, err)
		return nil, nil
	case err != nil:
		return nil, err
	}
	return image, nil
}

// likelihood is how much a descriptor looks like what runtimes run: those with a platform come before others, as they do
// there, and artefacts last. What it says decides no more than the order; its author may say anything.
func likelihood(child v1.Descriptor) int {
	switch {
	case child.ArtifactType != "" && !types.MediaType(child.ArtifactType).IsConfig():
		return 0
	case child.Platform == nil:
		return 1
	}
	return 2
}

// fits says whether what an index holds is for the platform, or may hold something that is.
func (s *search) fits(child v1.Descriptor) bool {
	// A manifest without a platform counts as one for linux/amd64, as for the client library and Grype.
	has := v1.Platform{OS: "linux", Architecture: "amd64"}
	switch {
	case child.Platform != nil:
		has = *child.Platform
	case child.MediaType.IsIndex():
		return true
	}
	if !has.Satisfies(s.platform) {
		s.offered = append(s.offered, has.String())
		return false
	}
	return true
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
