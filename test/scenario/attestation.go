package scenario

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/scanner-operator/scanner-operator/hack/images/build"
)

// attestedHost is a registry for which the operator prefers attested SBOMs. It exists by name only: nodes of the local cluster pull its images from
// the local registry, and the operator does so by a mirror.
const attestedHost = "attested.example.com"

// mediaTypeBundle is that of a Sigstore bundle (https://github.com/sigstore/protobuf-specs/blob/main/protos/sigstore_bundle.proto).
const mediaTypeBundle = "application/vnd.dev.sigstore.bundle.v0.3+json"

// HasAttestedHost reports whether pods can have images of the registry for which the operator prefers attested SBOMs.
func (e *Environment) HasAttestedHost() bool {
	host, _, _ := strings.Cut(e.Registry, "/")
	return host == build.LocalRegistry
}

// AttestedReference returns the reference, in the registry for which attested SBOMs are preferred, of an image in the local registry.
func (e *Environment) AttestedReference(open string) (string, error) {
	_, path, found := strings.Cut(open, "/")
	if !found {
		return "", errors.New(open + " names no registry")
	}
	return attestedHost + "/" + path, nil
}

func (e *Environment) makeSBOMKey(context.Context) (string, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", err
	}
	e.sbomKey = key
	return e.SBOMSigner()
}

// SBOMSigner returns the name of the key that signs SBOMs, as ImageScans have it.
func (e *Environment) SBOMSigner() (string, error) {
	public, err := x509.MarshalPKIXPublicKey(e.sbomKey.Public())
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(public)
	return "key sha256:" + hex.EncodeToString(sum[:8]), nil
}

// sbomPublicKey returns the public key in PEM format, as a JSON string, which is also a YAML string.
func (e *Environment) sbomPublicKey() (string, error) {
	public, err := x509.MarshalPKIXPublicKey(e.sbomKey.Public())
	if err != nil {
		return "", err
	}
	encoded, err := json.Marshal(string(inPEM("PUBLIC KEY", public)))
	return string(encoded), err
}

// AttachSBOM attaches a signed CycloneDX document to an image, as a referrer with a Sigstore bundle. The signed statement is about a digest, which
// should be that of the image.
func (e *Environment) AttachSBOM(ctx context.Context, reference string, about v1.Hash, document []byte) error {
	bundle, err := e.signedBundle(about, document)
	if err != nil {
		return err
	}
	to, err := name.NewDigest(reference, name.Insecure)
	if err != nil {
		return err
	}
	subject, err := remote.Head(to, remote.WithContext(ctx))
	if err != nil {
		return err
	}
	artifact, err := mutate.AppendLayers(
		mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), mediaTypeBundle), static.NewLayer(bundle, mediaTypeBundle))
	if err != nil {
		return err
	}
	referrer, isImage := mutate.Subject(artifact, *subject).(v1.Image)
	if !isImage {
		return fmt.Errorf("%T is no image", referrer)
	}
	digest, err := referrer.Digest()
	if err != nil {
		return err
	}
	return remote.Write(to.Context().Digest(digest.String()), referrer, remote.WithContext(ctx))
}

// signedBundle returns a bundle with an in-toto statement, whose DSSE envelope (https://github.com/secure-systems-lab/dsse/blob/master/protocol.md)
// the key has signed.
func (e *Environment) signedBundle(about v1.Hash, document []byte) ([]byte, error) {
	const payloadType = "application/vnd.in-toto+json"
	statement, err := json.Marshal(map[string]any{
		"_type": "https://in-toto.io/Statement/v1", "predicateType": "https://cyclonedx.org/bom", "predicate": json.RawMessage(document),
		"subject": []any{map[string]any{"name": "image", "digest": map[string]string{about.Algorithm: about.Hex}}},
	})
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(payloadType), payloadType, len(statement), statement))
	signature, err := ecdsa.SignASN1(rand.Reader, e.sbomKey, sum[:])
	if err != nil {
		return nil, err
	}
	return json.Marshal(map[string]any{
		"mediaType":            mediaTypeBundle,
		"verificationMaterial": map[string]any{"publicKey": map[string]string{"hint": ""}},
		"dsseEnvelope":         map[string]any{"payloadType": payloadType, "payload": statement, "signatures": []any{map[string]any{"sig": signature}}},
	})
}
