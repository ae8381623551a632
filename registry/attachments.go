package registry

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/scanner-operator/scanner-operator/registry/document"
	"github.com/scanner-operator/scanner-operator/registry/failure"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// Attachments reads what a repository has beside an image: the artifacts that refer to it (OCI 1.1), and those that tools find by a tag.
// Everything in it is untrusted.
type Attachments struct {
	repository name.Repository
	from       *remote.Puller
	guard      *guard
	puller     *Puller
}

// Attachments returns the attachments in the repository that an image was found in, which is the mirror's if a mirror has it. They are read
// with the image's own credential. ctx bounds all their reads.
func (p *Puller) Attachments(ctx context.Context, image *Image) (*Attachments, error) {
	of := image.guard
	// The layers that the image's guard lets through are no attachments, and the other way round.
	own := &guard{
		next: of.next, hosts: of.hosts, now: of.now, stallTimeout: p.stallTimeout(), registry: of.registry, credentials: of.credentials, sent: of.sent,
	}
	from, err := remote.NewPuller(remote.WithAuth(image.auth), remote.WithContext(ctx), remote.WithTransport(own),
		remote.WithUserAgent(userAgent), remote.WithRetryStatusCodes(retriedStatusCodes...))
	if err != nil {
		return nil, own.classify(err)
	}
	return &Attachments{repository: image.repository, from: from, guard: own, puller: p}, nil
}

// Repository names the repository that the attachments are in.
func (a *Attachments) Repository() string { return a.repository.Name() }

// Referrers lists the artifacts that refer to a manifest, by the referrers API or, where a registry does not have it, by the tag that replaces
// it (https://github.com/opencontainers/distribution-spec/blob/v1.1.1/spec.md#referrers-tag-schema). It returns the first page of long lists; more is
// true if there are others. Errors are *failure.Error.
func (a *Attachments) Referrers(subject v1.Hash) (all []v1.Descriptor, more bool, err error) {
	index, err := remote.Referrers(a.repository.Digest(subject.String()), remote.Reuse(a.from))
	if err != nil {
		return nil, false, a.guard.classify(err)
	}
	raw, err := index.RawManifest()
	if err != nil {
		return nil, false, a.guard.classify(err)
	}
	list, err := document.Index(raw)
	if err != nil {
		return nil, false, a.guard.classify(fmt.Errorf("the list of what refers to %s: %w", subject, err))
	}
	return list.Manifests, a.guard.hasMorePages(), nil
}

// Tagged returns the manifest that a tag leads to; nil if there is no such tag. Errors are *failure.Error.
func (a *Attachments) Tagged(ctx context.Context, tag string) (*v1.Manifest, error) {
	return a.manifest(ctx, a.repository.Tag(tag))
}

// Manifest returns the manifest of an artifact; nil if it is missing. Errors are *failure.Error.
func (a *Attachments) Manifest(ctx context.Context, digest v1.Hash) (*v1.Manifest, error) {
	return a.manifest(ctx, a.repository.Digest(digest.String()))
}

func (a *Attachments) manifest(ctx context.Context, ref name.Reference) (*v1.Manifest, error) {
	found, err := a.from.Get(ctx, ref)
	if err != nil {
		if err = a.guard.classify(err); reason(err) == workerapi.ReasonImageNotFound {
			return nil, nil //nolint:nilnil // absence is a result
		}
		return nil, err
	}
	manifest, err := document.Manifest(found.Manifest)
	if err != nil {
		return nil, failure.New(workerapi.ReasonNotAnImage, fmt.Errorf("the manifest %s is not readable: %w", ref.Identifier(), err))
	}
	return manifest, nil
}

// ErrAttachmentTooLarge is wrapped by the errors of Blob about too large blobs.
var ErrAttachmentTooLarge = errors.New("the attachment is too large")

// Blob reads a blob of an artifact into memory, at most limit bytes. Its digest is verified. Errors are *failure.Error, or wrap
// ErrAttachmentTooLarge.
func (a *Attachments) Blob(ctx context.Context, descriptor v1.Descriptor, limit int64) ([]byte, error) {
	if descriptor.Size < 0 || descriptor.Size > limit {
		return nil, fmt.Errorf("%w: %d MiB, more than the limit of %d MiB", ErrAttachmentTooLarge, descriptor.Size>>20, limit>>20)
	}
	a.guard.allowLayers(a.repository, []v1.Descriptor{descriptor}, a.puller.stallTimeout())
	layer, err := a.from.Layer(ctx, a.repository.Digest(descriptor.Digest.String()))
	if err != nil {
		return nil, a.guard.classify(err)
	}
	content, err := layer.Compressed()
	if err != nil {
		return nil, a.guard.classify(err)
	}
	defer content.Close()
	// The size in the manifest may be wrong.
	raw, err := io.ReadAll(io.LimitReader(content, limit+1))
	switch {
	case err != nil:
		return nil, a.guard.classify(err)
	case int64(len(raw)) > limit:
		return nil, fmt.Errorf("%w: more than the limit of %d MiB", ErrAttachmentTooLarge, limit>>20)
	}
	return raw, nil
}
