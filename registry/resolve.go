package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/scanner-operator/scanner-operator/registry/document"
	"github.com/scanner-operator/scanner-operator/registry/failure"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// resolve finds the image for the platform behind a reference. An index decides by what it says of its
// children; a plain manifest is what runs on the asking node, whatever its configuration says.
func resolve(ctx context.Context, from *remote.Puller, ref name.Reference, platform v1.Platform) (*Image, error) {
	descriptor, err := from.Get(ctx, ref)
	if err != nil {
		return nil, err
	}
	s := search{platform: platform, get: func(digest v1.Hash) (*remote.Descriptor, error) {
		return from.Get(ctx, ref.Context().Digest(digest.String()))
	}}
	found, err := s.choose(descriptor)
	if err != nil {
		return nil, err
	}
	digest, err := found.image.Digest()
	if err != nil {
		return nil, err
	}
	return &Image{
		Content: found.image, Reference: ref, Root: descriptor.Digest, Digest: digest, Documents: found.documents,
		Platform: platform, Declared: found.declared,
	}, nil
}

// maxRead is how many indexes, and manifests that fit, are read for one image.
const maxRead = 16

// candidate is an image, the documents that led to it, and what its configuration says it is for.
type candidate struct {
	image     v1.Image
	documents [][]byte
	declared  v1.Platform
}

// choose returns what runs on the platform: of an index, the first image in the order of containerd.
func (s *search) choose(descriptor *remote.Descriptor) (*candidate, error) {
	if !descriptor.MediaType.IsIndex() {
		return read(descriptor)
	}
	switch found, err := s.in(descriptor.Manifest, 1); {
	case found != nil || err != nil:
		return found, err
	case s.beyond:
		return nil, failure.New(workerapi.ReasonNotAnImage, fmt.Errorf("no manifest for %s was found within %d levels and %d documents; "+
			"push the image again as one index of manifests", s.platform.String(), document.MaxIndexDepth, maxRead))
	case s.artefact != nil && len(s.offered) == 0:
		return nil, s.artefact
	}
	return nil, failure.New(workerapi.ReasonPlatformMismatch,
		fmt.Errorf("the image has no manifest for %s, only for %q", s.platform.String(), s.offered[:min(len(s.offered), maxOffered)]))
}

// maxOffered is how many of the platforms that an image has a message names.
const maxOffered = 20

// errArtefact is beneath the errors about what no runtime runs. It is passed over in an index. What cannot be read is not: it may run.
var errArtefact = errors.New("it is not a container image")

// search looks for the manifest of a platform.
type search struct {
	platform v1.Platform
	// get fetches a document of the image's repository, which has that digest.
	get func(v1.Hash) (*remote.Descriptor, error)
	// read is how many documents were: indexes, and manifests that fit.
	read int
	// documents are the indexes that were read, and what proves of other manifests that they are passed over, as document.Verify wants it.
	documents [][]byte
	// kept is how many bytes these have.
	kept int
	// offered are the other platforms that were seen, and beyond says that there are documents that were not looked at.
	offered []string
	beyond  bool
	// artefact says what a manifest is that would fit and is no image.
	artefact error
}

// in looks through an index. depth is how many indexes led here, this one included. It returns nil if the platform is not in it.
func (s *search) in(raw []byte, depth int) (*candidate, error) {
	s.read++
	if err := s.keep(raw); err != nil {
		return nil, err
	}
	index, err := document.Index(raw)
	if err != nil {
		return nil, failure.New(workerapi.ReasonNotAnImage, fmt.Errorf("the index is not readable: %w", err))
	}
	children, offered := document.Children(index, s.platform)
	for _, other := range offered {
		s.offered = append(s.offered, other.String())
	}
	for _, child := range children {
		if s.read == maxRead || child.MediaType.IsIndex() && depth == document.MaxIndexDepth {
			s.beyond = true
			continue
		}
		if found, err := s.at(child, depth); found != nil || err != nil {
			return found, err
		}
	}
	return nil, nil
}

// at looks at one of those that an index holds. It returns nil if that is no image for the platform and has none.
func (s *search) at(child v1.Descriptor, depth int) (*candidate, error) {
	descriptor, err := s.get(child.Digest)
	if err != nil {
		return nil, err
	}
	// Runtimes go by the type that the index says.
	descriptor.MediaType = child.MediaType
	if child.MediaType.IsIndex() {
		return s.in(descriptor.Manifest, depth+1)
	}
	s.read++
	found, err := read(descriptor)
	switch {
	case errors.Is(err, errArtefact):
		s.artefact = cmp.Or(s.artefact, err)
	case err != nil:
		return nil, err
	case child.Platform == nil && !document.Runs(s.platform, found.declared):
		s.offered = append(s.offered, found.declared.String())
	default:
		found.documents = append(slices.Clip(s.documents), descriptor.Manifest)
		return found, nil
	}
	return nil, s.passOver(descriptor)
}

// passOver keeps what proves that a manifest of an index is not what runs: the manifest, and its configuration if it names one.
func (s *search) passOver(descriptor *remote.Descriptor) error {
	if err := s.keep(descriptor.Manifest); err != nil {
		return err
	}
	manifest, err := document.Manifest(descriptor.Manifest)
	if err != nil || manifest.Config.Digest == (v1.Hash{}) {
		return err
	}
	image, err := descriptor.Image()
	if err != nil {
		return err
	}
	config, err := image.RawConfigFile()
	if err != nil {
		return err
	}
	return s.keep(config)
}

// keep adds a document to those that prove what runs.
func (s *search) keep(raw []byte) error {
	if s.kept += len(raw); s.kept > workerapi.MaxManifestsBytes {
		return failure.New(workerapi.ReasonNotAnImage, fmt.Errorf("the indexes of the image, and what they hold before the manifest for %s, have more than %d MiB; "+
			"push the image again as one index of manifests", s.platform.String(), workerapi.MaxManifestsBytes>>20))
	}
	s.documents = append(s.documents, raw)
	return nil
}

// read gets the manifest and the configuration of an image, and refuses what is no image. Nothing depends on the platform that
// the configuration names, unless an index names none: builds for several platforms often leave a wrong or no architecture
// there, and runtimes run such images, since they go by the index.
func read(descriptor *remote.Descriptor) (*candidate, error) {
	image, err := descriptor.Image()
	if err != nil {
		return nil, err
	}
	manifest, err := document.Manifest(descriptor.Manifest)
	if err != nil {
		return nil, failure.New(workerapi.ReasonNotAnImage, fmt.Errorf("the manifest is not readable: %w", err))
	}
	if len(manifest.Layers) == 0 && manifest.Config.Digest == (v1.Hash{}) {
		return nil, failure.New(workerapi.ReasonNotAnImage, fmt.Errorf("%w: the manifest (%s) has neither configuration nor layers", errArtefact, manifest.MediaType))
	}
	// Artefacts (charts, signatures, SBOMs) are manifests too: they carry a configuration of another type.
	notImage := failure.New(workerapi.ReasonNotAnImage,
		fmt.Errorf("%w: its configuration is of type %q", errArtefact, manifest.Config.MediaType))
	// Fetched apart from being understood: that it cannot be fetched is the registry's fault.
	rawConfig, err := image.RawConfigFile()
	if err != nil {
		return nil, err
	}
	declared, isImage, err := document.Declared(manifest, rawConfig)
	switch {
	case errors.Is(err, document.ErrTooLarge):
		return nil, err
	case err != nil:
		return nil, failure.New(workerapi.ReasonNotAnImage, fmt.Errorf("the configuration is not readable: %w", err))
	case !isImage:
		return nil, notImage
	}
	return &candidate{image: image, documents: [][]byte{descriptor.Manifest}, declared: declared}, nil
}
