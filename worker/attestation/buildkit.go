package attestation

import (
	"context"
	"errors"
	"fmt"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/sigstore/sigstore-go/pkg/bundle"

	"github.com/scanner-operator/scanner-operator/registry/document"
)

// BuildKit puts the attestations of a platform's manifest into a manifest beside it in the index
// (https://github.com/moby/buildkit/blob/master/docs/attestations/attestation-storage.md).
const (
	annotationReferenceType   = "vnd.docker.reference.type"
	annotationReferenceDigest = "vnd.docker.reference.digest"
	attestationManifest       = "attestation-manifest"

	mediaTypeStatement      = "application/vnd.in-toto+json"
	annotationPredicateType = "in-toto.io/predicate-type"
)

func isBuildKitAttestation(child v1.Descriptor) bool {
	return child.Annotations[annotationReferenceType] == attestationManifest
}

// searchIndex reads the statement that BuildKit put into the index. It is not signed itself: the signature of the index covers it.
func (f *finder) searchIndex(ctx context.Context) error {
	if f.image.Root == f.image.Digest {
		return nil
	}
	index, err := document.Index(f.image.Documents[0])
	if err != nil {
		return f.note("index", err)
	}
	for _, child := range index.Manifests {
		if !isBuildKitAttestation(child) || child.Annotations[annotationReferenceDigest] != f.image.Digest.String() {
			continue
		}
		where := "BuildKit's attestation " + child.Digest.String()
		return f.note(where, f.readBuildKit(ctx, where, child.Digest))
	}
	return nil
}

// readBuildKit keeps the wanted statements of an attestation manifest if the index is signed. Of SBOMs, it keeps only the first: others are those of
// build stages.
func (f *finder) readBuildKit(ctx context.Context, where string, digest v1.Hash) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("it cannot be verified: %v", cause)
		}
	}()
	manifest, err := f.from.Manifest(ctx, digest)
	if err != nil || manifest == nil {
		return err
	}
	for _, layer := range manifest.Layers {
		if layer.MediaType != mediaTypeStatement || !f.matches(layer.Annotations[annotationPredicateType]) {
			continue
		}
		by, err := f.signatureOf(ctx, f.image.Root)
		if err != nil {
			return err
		}
		raw, err := f.from.Blob(ctx, layer, f.maxBytes)
		if err != nil {
			return err
		}
		s, err := decodeStatement(raw)
		if err != nil {
			return err
		}
		if !f.matches(s.PredicateType) {
			continue
		}
		// The index, which is signed, says that the statement is about the manifest. The statement must not say otherwise.
		if err := s.requireSubject([]v1.Hash{f.image.Digest}); err != nil {
			return err
		}
		if err := f.keep(where, s, by); err != nil || isSBOM(s.PredicateType) {
			return err
		}
	}
	return nil
}

// signatureOf returns who signed a manifest. It returns an error unless that is one of the signers.
func (f *finder) signatureOf(ctx context.Context, digest v1.Hash) (signed, error) {
	manifests, err := f.signaturesOf(ctx, digest)
	if err != nil {
		return signed{}, err
	}
	var problem error = irrelevant{errors.New("the index is not signed (cosign sign), and BuildKit does not sign its attestations")}
	for _, manifest := range manifests {
		for _, layer := range manifest.Layers[:min(len(manifest.Layers), maxLayers)] {
			by, err := f.signature(ctx, layer, digest)
			switch {
			case isThrottled(err):
				return signed{}, err
			case err != nil:
				problem = fmt.Errorf("the signature of the index: %w", err)
			case by != nil:
				return *by, nil
			}
		}
	}
	return signed{}, problem
}

// signaturesOf returns the artifacts that may hold signatures of a manifest.
func (f *finder) signaturesOf(ctx context.Context, digest v1.Hash) (manifests []*v1.Manifest, err error) {
	tagged, err := f.from.Tagged(ctx, fmt.Sprintf("%s-%s.sig", digest.Algorithm, digest.Hex))
	if err != nil {
		return nil, err
	}
	if tagged != nil {
		manifests = append(manifests, tagged)
	}
	referrers, _, err := f.from.Referrers(digest)
	if err != nil {
		return nil, err
	}
	for _, referrer := range referrers {
		predicate := referrer.Annotations[annotationPredicate]
		if len(manifests) == maxArtifacts || !strings.HasPrefix(referrer.ArtifactType, mediaTypeBundlePrefix) || predicate != "" && predicate != predicateSignature {
			continue
		}
		manifest, err := f.from.Manifest(ctx, referrer.Digest)
		if err != nil {
			return nil, err
		}
		if manifest != nil {
			manifests = append(manifests, manifest)
		}
	}
	return manifests, nil
}

// signature returns who signed a digest by a layer of a signature; nil if the layer is of another kind.
func (f *finder) signature(ctx context.Context, layer v1.Descriptor, digest v1.Hash) (*signed, error) {
	isBundle := strings.HasPrefix(string(layer.MediaType), mediaTypeBundlePrefix)
	if !isBundle && layer.MediaType != mediaTypeSignature {
		return nil, nil //nolint:nilnil // absence is a result
	}
	blob, err := f.from.Blob(ctx, layer, maxSignatureBytes)
	if err != nil {
		return nil, err
	}
	if !isBundle {
		return f.simpleSignature(layer, blob, digest)
	}
	b := &bundle.Bundle{}
	if err := b.UnmarshalJSON(blob); err != nil {
		return nil, err
	}
	content, err := payload(b)
	if err != nil {
		return nil, err
	}
	by, err := f.accepts.statement(b)
	if err != nil {
		return nil, err
	}
	s, err := decodeStatement(content)
	if err != nil {
		return nil, err
	}
	if s.PredicateType != predicateSignature {
		return nil, nil //nolint:nilnil // a statement about something else
	}
	return &by, s.requireSubject([]v1.Hash{digest})
}

// simpleSignature returns who signed a digest as cosign before version 3 does.
func (f *finder) simpleSignature(layer v1.Descriptor, payload []byte, digest v1.Hash) (*signed, error) {
	b, err := signatureBundle(layer, payload)
	if err != nil {
		return nil, err
	}
	by, err := f.accepts.message(b, payload)
	if err != nil {
		return nil, err
	}
	named, err := signedDigest(payload)
	if err == nil && named != digest.String() {
		err = fmt.Errorf("it is about %.80s, and not about %s", named, digest)
	}
	return &by, err
}
