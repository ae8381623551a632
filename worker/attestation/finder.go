package attestation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/anchore/syft/syft/format/cyclonedxjson"
	"github.com/anchore/syft/syft/format/syftjson"
	"github.com/anchore/syft/syft/sbom"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/sigstore/sigstore-go/pkg/bundle"

	"github.com/scanner-operator/scanner-operator/registry"
	"github.com/scanner-operator/scanner-operator/registry/document"
	"github.com/scanner-operator/scanner-operator/registry/failure"
	"github.com/scanner-operator/scanner-operator/workerapi"
	"github.com/scanner-operator/scanner-operator/workerapi/text"
)

// Bounds of what is read for one image.
const (
	// MaxBytes bounds one attestation, which is read into memory.
	MaxBytes = 64 << 20
	// maxArtifacts bounds how many artifacts, and maxLayers how many layers of all of them, are read. Each costs a request and a verification.
	maxArtifacts = 16
	maxLayers    = 32
	// maxSignatureBytes bounds the payload of a signature.
	maxSignatureBytes = 1 << 20
	// timeout bounds the whole search.
	timeout = 3 * time.Minute
)

// mediaTypeBundlePrefix begins the media types of Sigstore bundles, which end in their version. Both cosign from version 3 and GitHub attach
// bundles as referrers.
const mediaTypeBundlePrefix = "application/vnd.dev.sigstore.bundle"

// annotationPredicate has the predicate type of a bundle's statement, so that others need not be read.
const annotationPredicate = "dev.sigstore.bundle.predicateType"

// SBOM is a verified SBOM of an image.
type SBOM struct {
	Contents *sbom.SBOM
	// Signer names who signed it.
	Signer string
	// Where says where it was found, for logs.
	Where string
}

// Find returns the SBOM that one of the source's signers has attached to an image. Without one, problem is the reason, in one line of at most
// workerapi.MaxSBOMProblemBytes. Of several SBOMs it returns the one in the most precise format, and of those the latest.
//
// err is a *failure.Error if the registry throttles: then the image cannot be cataloged now either.
func Find(ctx context.Context, puller *registry.Puller, img *registry.Image, source workerapi.SBOMSource, log *slog.Logger) (found *SBOM, problem string, err error) {
	var best *candidate
	wanted := wanted{isSBOM, func(where string, s *statement, by signed) (err error) {
		best, err = better(best, where, s, by)
		return err
	}, MaxBytes}
	f, problem, err := search(ctx, puller, img, trust{source.Signers, source.TrustedRoot}, wanted, log)
	switch {
	case err != nil || problem != "":
		return nil, problem, err
	case best == nil:
		return nil, cmp.Or(f.problem(), describe(fmt.Sprintf("no SBOM of %s is attached in %s", img.Digest, f.from.Repository()))), nil
	}
	return &best.SBOM, "", nil
}

// trust is who is trusted.
type trust struct {
	signers     []workerapi.Signer
	trustedRoot string
}

// wanted is what is searched.
type wanted struct {
	// matches reports whether statements with a predicate type may hold it.
	matches func(predicateType string) bool
	// keep takes a statement by one of the signers about the image. It returns why the statement is not accepted.
	keep func(where string, s *statement, by signed) error
	// maxBytes bounds one attestation.
	maxBytes int64
}

// search reads what is attached to an image. problem is why nothing can be accepted. An error means that the registry throttles.
func search(
	ctx context.Context, puller *registry.Puller, img *registry.Image, trusted trust, wanted wanted, log *slog.Logger,
) (f *finder, problem string, err error) {
	accepts, err := newVerifier(trusted.signers, trusted.trustedRoot)
	if err != nil {
		return nil, describe(fmt.Sprintf("the configuration of %s cannot be used: %v", img.Reference.Context().RegistryStr(), err)), nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	from, err := puller.Attachments(ctx, img)
	if err != nil {
		return nil, "", err
	}
	f = &finder{wanted: wanted, from: from, accepts: accepts, image: img, subjects: subjectsOf(img), log: log}
	return f, "", f.search(ctx)
}

// finder searches attestations of one image.
type finder struct {
	wanted
	from    *registry.Attachments
	accepts *verifier
	image   *registry.Image
	// subjects are the digests that a statement may be about, the platform's own manifest first.
	subjects []v1.Hash
	log      *slog.Logger

	// artifacts and layers count what was read. beyond is how many artifacts were not read for their number, of which a further
	// page of a list counts as one.
	artifacts, layers, beyond int
	// problems are why statements that were found are not accepted. unread is true if one of them is not known to be a stranger's, or about another image.
	problems []string
	unread   bool
}

// irrelevant is why a statement that was read is none of a signer about the image.
type irrelevant struct{ error }

// errMissing is why an artifact is unread that a list or an index names.
var errMissing = errors.New("it is listed, and the registry does not have it")

// recoverAs ends a panic of a library, which must not end the Job: whoever may write to the repository could prevent that the image is scanned.
func recoverAs(err *error) {
	if cause := recover(); cause != nil {
		*err = fmt.Errorf("it cannot be verified: %v", cause)
	}
}

// candidate is an accepted SBOM.
type candidate struct {
	SBOM
	format sbom.FormatID
	// at is the verified time of the signature, and created the time that the document has; zero if there is none.
	at, created time.Time
}

// isBefore reports whether a candidate is older than the next one, by the times that both have. Of two without such times, the one that the registry
// lists later counts: cosign adds a new layer after those before.
func (c *candidate) isBefore(next *candidate) bool {
	switch {
	case !c.at.IsZero() && !next.at.IsZero():
		return c.at.Before(next.at)
	case !c.created.IsZero() && !next.created.IsZero():
		return !next.created.Before(c.created)
	}
	return true
}

// isThrottled reports whether the registry throttles, which ends the search.
func isThrottled(err error) bool {
	var known *failure.Error
	return errors.As(err, &known) && known.Reason == workerapi.ReasonRegistryThrottled
}

// subjectsOf returns the digest of the image's manifest and, if its index has images for no other platform, that of the index: build tools
// print only the digest of the index, and sign that. An SBOM of an index with several platforms does not say which of them it is about.
func subjectsOf(img *registry.Image) []v1.Hash {
	subjects := []v1.Hash{img.Digest}
	if img.Root == img.Digest || len(img.Documents) != 2 {
		return subjects
	}
	index, err := document.Index(img.Documents[0])
	if err != nil {
		return subjects
	}
	for _, child := range index.Manifests {
		if child.Digest != img.Digest && !isBuildKitAttestation(child) {
			return subjects
		}
	}
	return append(subjects, img.Root)
}

// search reads what is attached to the image. It returns an error only if the registry throttles.
func (f *finder) search(ctx context.Context) error {
	for _, subject := range f.subjects {
		if err := f.searchReferrers(ctx, subject); err != nil {
			return err
		}
		if err := f.searchTag(ctx, subject, "att"); err != nil {
			return err
		}
	}
	return f.searchIndex(ctx)
}

// searchReferrers reads the attestations that refer to a manifest, without those that hold something else according to an annotation.
func (f *finder) searchReferrers(ctx context.Context, subject v1.Hash) error {
	referrers, more, err := f.from.Referrers(subject)
	if more {
		f.beyond++
	}
	if err != nil {
		return f.note(fmt.Sprintf("what refers to %s in %s cannot be listed", subject, f.from.Repository()), err)
	}
	for _, referrer := range referrers {
		if !isAttestation(referrer.ArtifactType) || f.isOther(referrer.Annotations[annotationPredicate]) {
			continue
		}
		if f.artifacts == maxArtifacts {
			f.beyond++
			continue
		}
		f.artifacts++
		where := "attestation " + referrer.Digest.String()
		manifest, err := f.from.Manifest(ctx, referrer.Digest)
		if err == nil && manifest == nil {
			err = errMissing
		}
		if err == nil {
			err = f.readLayers(ctx, where, manifest)
		}
		if err := f.note(where, err); err != nil {
			return err
		}
	}
	return nil
}

// isOther reports whether an annotation names the type of another predicate, which need not be read.
func (f *finder) isOther(predicateType string) bool {
	return predicateType != "" && !f.matches(predicateType)
}

// isAttestation reports whether an artifact may hold an attestation. Some registries list artifacts without a type.
func isAttestation(artifactType string) bool {
	return artifactType == "" || artifactType == mediaTypeEnvelope || strings.HasPrefix(artifactType, mediaTypeBundlePrefix)
}

// searchTag reads what cosign before version 3 attached to a manifest by a tag.
func (f *finder) searchTag(ctx context.Context, subject v1.Hash, suffix string) error {
	tag := fmt.Sprintf("%s-%s.%s", subject.Algorithm, subject.Hex, suffix)
	manifest, err := f.from.Tagged(ctx, tag)
	if err == nil && manifest != nil {
		f.artifacts++
		err = f.readLayers(ctx, "tag "+tag, manifest)
	}
	return f.note("tag "+tag, err)
}

// readLayers reads the attestations of an artifact.
func (f *finder) readLayers(ctx context.Context, where string, manifest *v1.Manifest) error {
	if f.isOther(manifest.Annotations[annotationPredicate]) {
		return nil
	}
	for _, layer := range manifest.Layers {
		if f.isOther(layer.Annotations[annotationLayerPredicate]) {
			continue
		}
		if f.layers == maxLayers {
			f.beyond++
			return nil
		}
		f.layers++
		if err := f.note(where, f.readLayer(ctx, where, layer)); err != nil {
			return err
		}
	}
	return nil
}

// readLayer keeps the statement of a layer if it is accepted. A layer that holds something else is no error.
func (f *finder) readLayer(ctx context.Context, where string, layer v1.Descriptor) (err error) {
	defer recoverAs(&err)
	b, err := f.bundle(ctx, layer)
	if err != nil || b == nil {
		return err
	}
	content, err := payload(b)
	if err != nil {
		return err
	}
	s, invalid := decodeStatement(content)
	if invalid == nil && !f.matches(s.PredicateType) {
		return nil // whoever signed it
	}
	by, err := f.accepts.statement(b)
	if err = cmp.Or(err, invalid); err != nil {
		return err
	}
	if err := s.requireSubject(f.subjects); err != nil {
		return err
	}
	return f.keep(where, s, by)
}

// bundle returns the attestation in a layer; nil if the layer holds none.
func (f *finder) bundle(ctx context.Context, layer v1.Descriptor) (*bundle.Bundle, error) {
	isBundle := strings.HasPrefix(string(layer.MediaType), mediaTypeBundlePrefix)
	if !isBundle && layer.MediaType != mediaTypeEnvelope {
		return nil, nil //nolint:nilnil // absence is a result
	}
	blob, err := f.from.Blob(ctx, layer, f.maxBytes)
	if err != nil {
		return nil, err
	}
	b := &bundle.Bundle{}
	if isBundle {
		err = b.UnmarshalJSON(blob)
	} else {
		b, err = envelopeBundle(layer, blob)
	}
	if err == nil && b.GetDsseEnvelope() == nil {
		return nil, nil //nolint:nilnil // the signature of an image
	}
	return b, err
}

// better decodes an SBOM and returns it if it is better than the best one before, which may be nil.
func better(best *candidate, where string, s *statement, by signed) (*candidate, error) {
	contents, id, created, err := s.sbom()
	if err != nil {
		return best, err
	}
	next := &candidate{SBOM: SBOM{Contents: contents, Signer: by.signer, Where: where}, format: id, at: by.at, created: created}
	if best == nil || precision(best.format) < precision(next.format) || precision(best.format) == precision(next.format) && best.isBefore(next) {
		best = next
	}
	return best, nil
}

// precision orders formats by how much of what Grype reads they hold.
func precision(format sbom.FormatID) int {
	switch format {
	case syftjson.ID:
		return 2
	case cyclonedxjson.ID:
		return 1
	}
	return 0
}

// note records why a statement is not accepted. It returns the error if the registry throttles.
func (f *finder) note(where string, err error) error {
	if err == nil || isThrottled(err) {
		return err
	}
	f.unread = f.unread || !errors.As(err, new(irrelevant))
	f.log.Warn("an attestation is not accepted", "where", where, "error", failure.Line(err.Error()))
	if problem := where + ": " + err.Error(); !slices.Contains(f.problems, problem) {
		f.problems = append(f.problems, problem)
	}
	return nil
}

// isComplete reports whether everything that is attached was read, as far as it can be a signer's statement about the image.
func (f *finder) isComplete() bool { return !f.unread && f.beyond == 0 }

// problem says why statements are not accepted; empty if there are none.
func (f *finder) problem() string {
	if len(f.problems) == 0 && f.beyond == 0 {
		return ""
	}
	all := strings.Join(f.problems, "; ")
	if f.beyond > 0 {
		all = fmt.Sprintf("%d attestations are attached, and only %d are read for one image; ", f.beyond+f.artifacts, f.artifacts) + all
	}
	return describe(all)
}

// describe returns a problem as one line that fits into a result.
func describe(problem string) string {
	return text.Truncate(failure.Line(problem), workerapi.MaxSBOMProblemBytes)
}
