package attestation

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"time"

	intoto "github.com/in-toto/attestation/go/v1"
	"github.com/sigstore/sigstore-go/pkg/bundle"
	"github.com/sigstore/sigstore-go/pkg/fulcio/certificate"
	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/verify"

	"github.com/scanner-operator/scanner-operator/workerapi"
)

// verifier accepts the signatures of the signers of one registry.
type verifier struct {
	// keyless verifies signatures by certificate; nil if no signer has an identity. identities are those of the signers.
	keyless    *verify.Verifier
	identities verify.CertificateIdentities
	keys       []keyVerifier
}

// keyVerifier accepts the signatures of one key.
type keyVerifier struct {
	name string
	// algorithms says which ones were tried, for messages.
	algorithms string
	*verify.Verifier
}

// signed is who has signed something, and when.
type signed struct {
	// signer names who signed it.
	signer string
	// at is when it was signed; zero if unknown, as with a key.
	at time.Time
}

func newVerifier(signers []workerapi.Signer, trustedRoot string) (*verifier, error) {
	v := &verifier{}
	for i, signer := range signers {
		err := v.add(signer)
		if err != nil {
			return nil, fmt.Errorf("signers[%d]: %w", i, err)
		}
	}
	if len(v.identities) == 0 {
		return v, nil
	}
	trusted, err := root.NewTrustedRootFromJSON([]byte(trustedRoot))
	if err != nil {
		return nil, fmt.Errorf("trustedRoot: %w", err)
	}
	v.keyless, err = verify.NewVerifier(trusted, evidenceOf(trusted)...)
	return v, err
}

// evidenceOf returns what a signature by certificate must come with: a time, and an entry in each kind of log that the trusted root has. A
// Sigstore of one's own may have no logs.
func evidenceOf(trusted root.TrustedMaterial) []verify.VerifierOption {
	required := []verify.VerifierOption{verify.WithObserverTimestamps(1)}
	if len(trusted.RekorLogs()) > 0 {
		required = append(required, verify.WithTransparencyLog(1))
	}
	if len(trusted.CTLogs()) > 0 {
		required = append(required, verify.WithSignedCertificateTimestamps(1))
	}
	return required
}

func (v *verifier) add(signer workerapi.Signer) error {
	if signer.PublicKey != "" {
		return v.addKey(signer.PublicKey)
	}
	pattern, err := signer.IdentityPattern()
	if err != nil {
		return err
	}
	identity, err := verify.NewShortCertificateIdentity(signer.Issuer, "", signer.Identity, pattern)
	if err != nil {
		return err
	}
	v.identities = append(v.identities, identity)
	return nil
}

func (v *verifier) addKey(text string) error {
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return errors.New("publicKey is not in PEM format")
	}
	key, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return err
	}
	accepts, algorithms, err := newAnyAlgorithm(key)
	if err != nil {
		return err
	}
	// Signatures with a key need no entry in a log: cosign can sign without one, and the key does not expire.
	trusted := root.NewTrustedPublicKeyMaterial(func(string) (root.TimeConstrainedVerifier, error) {
		return root.NewExpiringKey(accepts, time.Time{}, time.Time{}), nil
	})
	of, err := verify.NewVerifier(trusted, verify.WithNoObserverTimestamps())
	if err != nil {
		return err
	}
	sum := sha256.Sum256(block.Bytes)
	v.keys = append(v.keys, keyVerifier{"key sha256:" + hex.EncodeToString(sum[:8]), algorithms, of})
	return nil
}

// payload returns the statement in the envelope of a bundle. It is not verified.
func payload(b *bundle.Bundle) ([]byte, error) {
	raw, err := (&envelopeEntity{Bundle: b}).envelope()
	if err != nil {
		return nil, err
	}
	content, err := raw.DecodeB64Payload()
	if err != nil {
		return nil, fmt.Errorf("its envelope is not readable: %w", err)
	}
	return content, nil
}

// statement verifies an in-toto statement in a DSSE envelope.
func (v *verifier) statement(b *bundle.Bundle) (signed, error) {
	return v.verify(&envelopeEntity{Bundle: b}, verify.WithoutArtifactUnsafe()) // the caller compares the subject
}

// message verifies a signature of content.
func (v *verifier) message(b *bundle.Bundle, content []byte) (signed, error) {
	return v.verify(b, verify.WithArtifact(bytes.NewReader(content)))
}

// verify returns who signed an entity. It returns an error unless that is one of the signers.
func (v *verifier) verify(entity verify.SignedEntity, artifact verify.ArtifactPolicyOption) (signed, error) {
	material, err := entity.VerificationContent()
	if err != nil {
		return signed{}, err
	}
	if leaf := material.Certificate(); leaf != nil {
		return v.verifyKeyless(entity, leaf, artifact)
	}
	if len(v.keys) == 0 {
		return signed{}, irrelevant{errors.New("it is signed with a key, and no signer has a publicKey")}
	}
	for _, key := range v.keys {
		if _, err = key.Verify(entity, verify.NewPolicy(artifact, verify.WithKey())); err == nil {
			return signed{signer: key.name}, nil
		}
	}
	if len(v.keys) > 1 {
		return signed{}, irrelevant{fmt.Errorf("its signature is not by the publicKey of a signer: %s", v.describeKeys())}
	}
	return signed{}, irrelevant{fmt.Errorf("its signature is not by %s: %w", v.describeKeys(), err)}
}

// maxNamedKeys bounds how many keys a message names.
const maxNamedKeys = 3

// describeKeys names the keys, and the algorithms that were tried with each.
func (v *verifier) describeKeys() string {
	var names []string
	for _, key := range v.keys[:min(len(v.keys), maxNamedKeys)] {
		names = append(names, fmt.Sprintf("%s (%s)", key.name, key.algorithms))
	}
	if more := len(v.keys) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}

func (v *verifier) verifyKeyless(entity verify.SignedEntity, leaf *x509.Certificate, artifact verify.ArtifactPolicyOption) (signed, error) {
	about, err := certificate.SummarizeCertificate(leaf)
	if err != nil {
		return signed{}, fmt.Errorf("its certificate is not readable: %w", err)
	}
	name := fmt.Sprintf("%s (%s)", about.SubjectAlternativeName, about.Issuer)
	if v.keyless == nil {
		return signed{}, irrelevant{fmt.Errorf("it is signed by %s, and no signer has an identity", name)}
	}
	if _, err := v.identities.Verify(about); err != nil {
		return signed{}, irrelevant{fmt.Errorf("it is signed by %s, which is none of the signers", name)}
	}
	options := make([]verify.PolicyOption, len(v.identities))
	for i, identity := range v.identities {
		options[i] = verify.WithCertificateIdentity(identity)
	}
	result, err := v.keyless.Verify(entity, verify.NewPolicy(artifact, options...))
	if err != nil {
		// The library formats a missing cause.
		return signed{}, fmt.Errorf("its signature by %s is not accepted: %s", name, strings.ReplaceAll(err.Error(), "; error: %!w(<nil>)", ""))
	}
	by := signed{signer: name}
	for _, stamp := range result.VerifiedTimestamps {
		if by.at.IsZero() || stamp.Timestamp.Before(by.at) {
			by.at = stamp.Timestamp
		}
	}
	return by, nil
}

// envelopeEntity is a bundle whose statement is not decoded by the library: decoding a large SBOM to its generic type takes
// many times its size.
type envelopeEntity struct{ *bundle.Bundle }

// SignatureContent implements verify.SignedEntity.
func (e *envelopeEntity) SignatureContent() (verify.SignatureContent, error) {
	envelope, err := e.envelope()
	if err != nil {
		return nil, err
	}
	return envelopeContent{envelope}, nil
}

func (e *envelopeEntity) envelope() (*bundle.Envelope, error) {
	envelope, err := e.Envelope()
	if err != nil {
		return nil, fmt.Errorf("it has no DSSE envelope: %w", err)
	}
	if envelope.PayloadType != bundle.IntotoMediaType {
		return nil, irrelevant{fmt.Errorf("its envelope holds %.80q instead of an in-toto statement", envelope.PayloadType)}
	}
	return envelope, nil
}

// envelopeContent is an envelope whose statement appears empty. The library reads it only to compare subjects, which the finder does.
type envelopeContent struct{ *bundle.Envelope }

// EnvelopeContent implements verify.SignatureContent.
func (c envelopeContent) EnvelopeContent() verify.EnvelopeContent { return c }

// Statement implements verify.EnvelopeContent.
func (c envelopeContent) Statement() (*intoto.Statement, error) { return &intoto.Statement{}, nil }
