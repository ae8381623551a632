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

// resolve returns the image for the platform that a reference leads to. In an index, the platforms of its children
// decide. A plain manifest runs on the requesting node, whatever its configuration declares.
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

// maxDocumentsRead bounds how many indexes, and manifests that fit, are read for one image.
const maxDocumentsRead = 16

// candidate is an image, the documents that led to it, and the platform in its configuration.
type candidate struct {
	image     v1.Image
	documents [][]byte
	declared  v1.Platform
}

// choose returns the image that runs on the platform. In an index, that is the first in containerd's order.
func (s *search) choose(descriptor *remote.Descriptor) (*candidate, error) {
	// Runtimes compare media types without parameters, such as a charset.
	descriptor.MediaType = document.Essence(descriptor.MediaType)
	// Like containerd, refuse a document that the registry calls by the other kind: different clients would see different images in it.
	isIndex, err := document.IsIndex(descriptor.Manifest)
	switch {
	case err != nil:
		return nil, failure.New(workerapi.ReasonNotAnImage, fmt.Errorf("the manifest is not readable: %w", err))
	case isIndex && !descriptor.MediaType.IsIndex():
		return nil, failure.New(workerapi.ReasonNotAnImage, fmt.Errorf("the registry names the media type %q, but the document is an index", descriptor.MediaType))
	case !isIndex && descriptor.MediaType.IsIndex():
		return nil, failure.New(workerapi.ReasonNotAnImage, fmt.Errorf("the registry names the media type %q, but the document is not an index", descriptor.MediaType))
	}
	if !descriptor.MediaType.IsIndex() {
		return readCandidate(descriptor)
	}
	switch found, err := s.searchIndex(descriptor.Manifest, 1); {
	case found != nil || err != nil:
		return found, err
	case s.incomplete:
		return nil, failure.New(workerapi.ReasonNotAnImage, fmt.Errorf("no manifest for %s was found within %d levels and %d documents; "+
			"push the image again as one index of manifests", s.platform.String(), document.MaxIndexDepth, maxDocumentsRead))
	case s.artifact != nil && len(s.offered) == 0:
		return nil, s.artifact
	}
	return nil, failure.New(workerapi.ReasonPlatformMismatch,
		fmt.Errorf("the image has no manifest for %s, only for %q", s.platform.String(), s.offered[:min(len(s.offered), maxOffered)]))
}

// maxOffered bounds how many of an image's platforms a message names.
const maxOffered = 20

// errArtifact is wrapped by the errors about manifests that no runtime runs. The search skips such a manifest in an index. It does
// not skip an unreadable manifest, which may run.
var errArtifact = errors.New("it is not a container image")

// search finds the manifest of a platform.
type search struct {
	platform v1.Platform
	// get fetches a document by its digest from the image's repository.
	get func(v1.Hash) (*remote.Descriptor, error)
	// read is how many documents were read: indexes, and manifests that fit.
	read int
	// documents are the indexes that were read and the proofs of skipped manifests, in the order that document.Verify requires.
	documents [][]byte
	// documentBytes is the size of documents in bytes.
	documentBytes int
	// offered are the platforms that were found and do not run on the node. beyond is true if a bound kept documents from being read.
	offered    []string
	incomplete bool
	// artifact is the error about the first manifest that would fit, but is not an image.
	artifact error
}

// searchIndex searches an index. depth is how many indexes led here, this one included. It returns nil if the index has no image for the platform.
func (s *search) searchIndex(raw []byte, depth int) (*candidate, error) {
	s.read++
	if err := s.keepDocument(raw); err != nil {
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
		if s.read == maxDocumentsRead || document.Essence(child.MediaType).IsIndex() && depth == document.MaxIndexDepth {
			s.incomplete = true
			continue
		}
		if found, err := s.searchChild(child, depth); found != nil || err != nil {
			return found, err
		}
	}
	return nil, nil
}

// searchChild examines one child of an index. It returns nil if the child is no image for the platform, and no index with one.
func (s *search) searchChild(child v1.Descriptor, depth int) (*candidate, error) {
	descriptor, err := s.get(child.Digest)
	if err != nil {
		return nil, err
	}
	// Runtimes use the media type in the index.
	descriptor.MediaType = document.Essence(child.MediaType)
	if descriptor.MediaType.IsIndex() {
		return s.searchIndex(descriptor.Manifest, depth+1)
	}
	s.read++
	found, err := readCandidate(descriptor)
	switch {
	case errors.Is(err, errArtifact):
		s.artifact = cmp.Or(s.artifact, err)
	case err != nil:
		return nil, err
	case child.Platform == nil && !document.Runs(s.platform, found.declared):
		s.offered = append(s.offered, found.declared.String())
	default:
		found.documents = append(slices.Clip(s.documents), descriptor.Manifest)
		return found, nil
	}
	return nil, s.keepSkipProof(descriptor)
}

// keepSkipProof keeps the proof that a manifest of an index does not run: the manifest, and its configuration if it names one.
func (s *search) keepSkipProof(descriptor *remote.Descriptor) error {
	if err := s.keepDocument(descriptor.Manifest); err != nil {
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
	return s.keepDocument(config)
}

// keepDocument adds a document to the proof of which manifest runs. It returns an error if the proof exceeds MaxManifestsBytes.
func (s *search) keepDocument(raw []byte) error {
	if s.documentBytes += len(raw); s.documentBytes > workerapi.MaxManifestsBytes {
		return failure.New(workerapi.ReasonNotAnImage, fmt.Errorf("the indexes of the image, and what they hold before the manifest for %s, have more than %d MiB; "+
			"push the image again as one index of manifests", s.platform.String(), workerapi.MaxManifestsBytes>>20))
	}
	s.documents = append(s.documents, raw)
	return nil
}

// readCandidate fetches the manifest and the configuration of an image, and rejects manifests that are no images. The platform in the
// configuration matters only if the index names none. Builds for several platforms often leave a wrong or no architecture
// there, and runtimes run such images, since the index decides.
func readCandidate(descriptor *remote.Descriptor) (*candidate, error) {
	image, err := descriptor.Image()
	if err != nil {
		return nil, err
	}
	manifest, err := document.Manifest(descriptor.Manifest)
	if err != nil {
		return nil, failure.New(workerapi.ReasonNotAnImage, fmt.Errorf("the manifest is not readable: %w", err))
	}
	if len(manifest.Layers) == 0 && manifest.Config.Digest == (v1.Hash{}) {
		return nil, failure.New(workerapi.ReasonNotAnImage, fmt.Errorf("%w: the manifest (%s) has neither configuration nor layers", errArtifact, manifest.MediaType))
	}
	// Artifacts (charts, signatures, SBOMs) are manifests, too. Their configuration has another type.
	notImage := failure.New(workerapi.ReasonNotAnImage,
		fmt.Errorf("%w: its configuration is of type %q", errArtifact, manifest.Config.MediaType))
	// Fetched separately from decoding, since a failed fetch is the registry's fault.
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
