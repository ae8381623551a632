package attestation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
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

// searchIndex reads the statements that BuildKit put into the index, or one in it. They are not signed themselves: the signature of the index covers
// them.
func (f *finder) searchIndex(ctx context.Context) error {
	if f.image.Root == f.image.Digest {
		return nil
	}
	read := 0
	for _, digest := range f.buildKitAttestations() {
		if read == maxArtifacts {
			f.beyond++
			continue
		}
		read++
		f.artifacts++
		where := "BuildKit's attestation " + digest.String()
		if err := f.note(where, f.readBuildKit(ctx, where, digest)); err != nil {
			return err
		}
	}
	return nil
}

// buildKitAttestations returns the attestation manifests beside the image's.
func (f *finder) buildKitAttestations() (digests []v1.Hash) {
	for _, raw := range f.image.Documents {
		// Documents that are no index are the manifest, and those that runtimes skip. An index was decoded when the image was resolved.
		index, err := document.Index(raw)
		if err != nil {
			continue
		}
		for _, child := range index.Manifests {
			if isBuildKitAttestation(child) && child.Annotations[annotationReferenceDigest] == f.image.Digest.String() && !slices.Contains(digests, child.Digest) {
				digests = append(digests, child.Digest)
			}
		}
	}
	return digests
}

// readBuildKit keeps the wanted statements of an attestation manifest if the index is signed. Of SBOMs, it keeps only the first: others are those of
// build stages.
func (f *finder) readBuildKit(ctx context.Context, where string, digest v1.Hash) error {
	manifest, err := f.from.Manifest(ctx, digest)
	if err == nil && manifest == nil {
		err = errMissing
	}
	if isThrottled(err) {
		return err
	}
	var layers []v1.Descriptor
	if err == nil {
		layers = slices.DeleteFunc(manifest.Layers, func(layer v1.Descriptor) bool {
			return layer.MediaType != mediaTypeStatement || f.isOther(layer.Annotations[annotationPredicateType])
		})
		if len(layers) == 0 {
			return nil
		}
	}
	// What cannot be read in an index that no signer has signed is missed by nobody.
	by, unsigned := f.signatureOf(ctx, f.image.Root)
	if err := cmp.Or(unsigned, err); err != nil {
		return err
	}
	f.beyond += max(len(layers)-maxLayers, 0)
	for _, layer := range layers[:min(len(layers), maxLayers)] {
		kept, err := f.readBuildKitLayer(ctx, where, layer, by)
		if err := f.note(where, err); err != nil || kept != "" && isSBOM(kept) {
			return err
		}
	}
	return nil
}

// readBuildKitLayer keeps the statement of a layer in a signed index, and returns its predicate type; empty if it is not kept.
func (f *finder) readBuildKitLayer(ctx context.Context, where string, layer v1.Descriptor, by signed) (kept string, err error) {
	defer recoverAs(&err)
	raw, err := f.from.Blob(ctx, layer, f.maxBytes)
	if err != nil {
		return "", err
	}
	s, err := decodeStatement(raw)
	if err != nil || !f.matches(s.PredicateType) {
		return "", err
	}
	// The index, which is signed, says that the statement is about the manifest. The statement must not say otherwise.
	if err := s.requireSubject([]v1.Hash{f.image.Digest}); err != nil {
		return "", err
	}
	return s.PredicateType, f.keep(where, s, by)
}

// signatureOf returns who signed a manifest. It returns an error unless that is one of the signers; the error is irrelevant only if every signature
// was read.
func (f *finder) signatureOf(ctx context.Context, digest v1.Hash) (signed, error) {
	var problem error = irrelevant{errors.New("the index is not signed (cosign sign), and BuildKit does not sign its attestations")}
	note := func(err error) {
		if err != nil && (errors.As(problem, new(irrelevant)) || !errors.As(err, new(irrelevant))) {
			problem = fmt.Errorf("the signature of the index: %w", err)
		}
	}
	manifests, unread, err := f.signaturesOf(ctx, digest)
	if err != nil {
		return signed{}, err
	}
	note(unread)
	for _, manifest := range manifests {
		for i, layer := range manifest.Layers {
			if i == maxLayers {
				note(fmt.Errorf("of %d, only %d are read", len(manifest.Layers), maxLayers))
				break
			}
			by, err := f.signature(ctx, layer, digest)
			switch {
			case isThrottled(err):
				return signed{}, err
			case by != nil && err == nil:
				return *by, nil
			}
			note(err)
		}
	}
	return signed{}, problem
}

// signaturesOf returns the artifacts that may hold signatures of a manifest. unread is why others are not among them. err means that the registry
// throttles.
func (f *finder) signaturesOf(ctx context.Context, digest v1.Hash) (manifests []*v1.Manifest, unread, err error) {
	add := func(manifest *v1.Manifest, err error) error {
		switch {
		case isThrottled(err):
			return err
		case err != nil:
			unread = err
		case manifest != nil:
			manifests = append(manifests, manifest)
		}
		return nil
	}
	if err := add(f.from.Tagged(ctx, fmt.Sprintf("%s-%s.sig", digest.Algorithm, digest.Hex))); err != nil {
		return nil, nil, err
	}
	referrers, more, err := f.from.Referrers(digest)
	if err := add(nil, err); err != nil {
		return nil, nil, err
	}
	if more {
		unread = errors.New("the registry has more pages of what refers to it, and only the first is read")
	}
	for _, referrer := range referrers {
		predicate := referrer.Annotations[annotationPredicate]
		if !isSignature(referrer.ArtifactType) || predicate != "" && predicate != predicateSignature {
			continue
		}
		if len(manifests) >= maxArtifacts {
			unread = fmt.Errorf("more than %d artifacts may hold it, and only these are read", maxArtifacts)
			break
		}
		manifest, err := f.from.Manifest(ctx, referrer.Digest)
		if err == nil && manifest == nil {
			err = errMissing
		}
		if err := add(manifest, err); err != nil {
			return nil, nil, err
		}
	}
	return manifests, unread, nil
}

// isSignature reports whether an artifact may hold a signature. Some registries list artifacts without a type.
func isSignature(artifactType string) bool {
	return artifactType == "" || artifactType == artifactTypeSignature || strings.HasPrefix(artifactType, mediaTypeBundlePrefix)
}

// signature returns who signed a digest by a layer of a signature; nil if the layer is of another kind.
func (f *finder) signature(ctx context.Context, layer v1.Descriptor, digest v1.Hash) (signer *signed, err error) {
	defer recoverAs(&err)
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
	s, invalid := decodeStatement(content)
	if invalid == nil && s.PredicateType != predicateSignature {
		return nil, nil //nolint:nilnil // a statement about something else, whoever signed it
	}
	by, err := f.accepts.statement(b)
	if err = cmp.Or(err, invalid); err != nil {
		return nil, err
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
		err = irrelevant{fmt.Errorf("it is about %.80s, and not about %s", named, digest)}
	}
	return &by, err
}
