package attestation

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	protobundle "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	protocommon "github.com/sigstore/protobuf-specs/gen/pb-go/common/v1"
	protodsse "github.com/sigstore/protobuf-specs/gen/pb-go/dsse"
	protorekor "github.com/sigstore/protobuf-specs/gen/pb-go/rekor/v1"
	"github.com/sigstore/sigstore-go/pkg/bundle"
)

// Media types of layers that cosign before version 3 writes, and the annotations of these layers
// (https://github.com/sigstore/cosign/blob/main/specs/SIGNATURE_SPEC.md and ATTESTATION_SPEC.md).
const (
	mediaTypeEnvelope  = "application/vnd.dsse.envelope.v1+json"
	mediaTypeSignature = "application/vnd.dev.cosign.simplesigning.v1+json"

	// artifactTypeSignature is that of signatures that cosign 2 attaches as referrers (--registry-referrers-mode=oci-1-1).
	artifactTypeSignature = "application/vnd.dev.cosign.artifact.sig.v1+json"

	annotationSignature   = "dev.cosignproject.cosign/signature"
	annotationCertificate = "dev.sigstore.cosign/certificate"
	annotationLogEntry    = "dev.sigstore.cosign/bundle"
	annotationTimestamp   = "dev.sigstore.cosign/rfc3161timestamp"
	// annotationLayerPredicate has the predicate type of a layer's statement.
	annotationLayerPredicate = "predicateType"

	// mediaTypeBundle01 is the version of bundles whose log entries have a promise instead of a proof, as cosign's annotations have.
	mediaTypeBundle01 = "application/vnd.dev.sigstore.bundle+json;version=0.1"
)

// envelopeBundle returns the bundle of an attestation that cosign attached as a layer.
func envelopeBundle(layer v1.Descriptor, blob []byte) (*bundle.Bundle, error) {
	var envelope struct {
		PayloadType string `json:"payloadType"`
		Payload     []byte `json:"payload"`
		Signatures  []struct {
			KeyID string `json:"keyid"`
			Sig   []byte `json:"sig"`
		} `json:"signatures"`
	}
	if err := json.Unmarshal(blob, &envelope); err != nil {
		return nil, fmt.Errorf("its envelope is not readable: %w", err)
	}
	content := &protodsse.Envelope{PayloadType: envelope.PayloadType, Payload: envelope.Payload}
	for _, s := range envelope.Signatures {
		content.Signatures = append(content.Signatures, &protodsse.Signature{Keyid: s.KeyID, Sig: s.Sig})
	}
	return newBundle(layer, &protobundle.Bundle{Content: &protobundle.Bundle_DsseEnvelope{DsseEnvelope: content}})
}

// signatureBundle returns the bundle of a signature of a payload that cosign attached as a layer.
func signatureBundle(layer v1.Descriptor, payload []byte) (*bundle.Bundle, error) {
	text, err := base64.StdEncoding.DecodeString(layer.Annotations[annotationSignature])
	if err != nil || len(text) == 0 {
		return nil, errors.New("it has no readable signature in its annotations")
	}
	sum := sha256.Sum256(payload)
	return newBundle(layer, &protobundle.Bundle{Content: &protobundle.Bundle_MessageSignature{MessageSignature: &protocommon.MessageSignature{
		MessageDigest: &protocommon.HashOutput{Algorithm: protocommon.HashAlgorithm_SHA2_256, Digest: sum[:]}, Signature: text,
	}}})
}

// newBundle completes a bundle by what cosign writes into a layer's annotations.
func newBundle(layer v1.Descriptor, b *protobundle.Bundle) (*bundle.Bundle, error) {
	b.MediaType, b.VerificationMaterial = mediaTypeBundle01, &protobundle.VerificationMaterial{}
	if text := layer.Annotations[annotationCertificate]; text != "" {
		block, _ := pem.Decode([]byte(text))
		if block == nil {
			return nil, errors.New("its certificate is not in PEM format")
		}
		b.VerificationMaterial.Content = &protobundle.VerificationMaterial_Certificate{Certificate: &protocommon.X509Certificate{RawBytes: block.Bytes}}
	} else {
		b.VerificationMaterial.Content = &protobundle.VerificationMaterial_PublicKey{PublicKey: &protocommon.PublicKeyIdentifier{}}
	}
	entry, err := logEntry(layer.Annotations[annotationLogEntry])
	if err != nil {
		return nil, fmt.Errorf("its log entry is not readable: %w", err)
	}
	if entry != nil {
		b.VerificationMaterial.TlogEntries = []*protorekor.TransparencyLogEntry{entry}
	}
	if b.VerificationMaterial.TimestampVerificationData, err = timestamp(layer.Annotations[annotationTimestamp]); err != nil {
		return nil, fmt.Errorf("its timestamp is not readable: %w", err)
	}
	return bundle.NewBundle(b)
}

// logEntry decodes cosign's annotation about the entry in the transparency log; nil if there is none.
func logEntry(text string) (*protorekor.TransparencyLogEntry, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // absence is a result
	}
	var annotation struct {
		SignedEntryTimestamp []byte
		Payload              struct {
			Body           []byte `json:"body"`
			IntegratedTime int64  `json:"integratedTime"`
			LogIndex       int64  `json:"logIndex"`
			LogID          string `json:"logID"` //nolint:tagliatelle // cosign's name
		}
	}
	if err := json.Unmarshal([]byte(text), &annotation); err != nil {
		return nil, err
	}
	var kind struct {
		Kind       string `json:"kind"`
		APIVersion string `json:"apiVersion"`
	}
	if err := json.Unmarshal(annotation.Payload.Body, &kind); err != nil {
		return nil, err
	}
	logID, err := hex.DecodeString(annotation.Payload.LogID)
	if err != nil {
		return nil, err
	}
	return &protorekor.TransparencyLogEntry{
		LogIndex: annotation.Payload.LogIndex, LogId: &protocommon.LogId{KeyId: logID},
		KindVersion:    &protorekor.KindVersion{Kind: kind.Kind, Version: kind.APIVersion},
		IntegratedTime: annotation.Payload.IntegratedTime, CanonicalizedBody: annotation.Payload.Body,
		InclusionPromise: &protorekor.InclusionPromise{SignedEntryTimestamp: annotation.SignedEntryTimestamp},
	}, nil
}

// timestamp decodes cosign's annotation with a timestamp (RFC 3161); nil if there is none.
func timestamp(text string) (*protobundle.TimestampVerificationData, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // absence is a result
	}
	var annotation struct{ SignedRFC3161Timestamp []byte }
	if err := json.Unmarshal([]byte(text), &annotation); err != nil {
		return nil, err
	}
	return &protobundle.TimestampVerificationData{
		Rfc3161Timestamps: []*protocommon.RFC3161SignedTimestamp{{SignedTimestamp: annotation.SignedRFC3161Timestamp}},
	}, nil
}

// signedDigest returns the manifest digest that a payload of cosign sign is about.
func signedDigest(payload []byte) (string, error) {
	var simple struct {
		Critical struct {
			Image struct {
				Digest string `json:"docker-manifest-digest"` //nolint:tagliatelle // the format's name
			} `json:"image"`
			Type string `json:"type"`
		} `json:"critical"`
	}
	if err := json.Unmarshal(payload, &simple); err != nil {
		return "", fmt.Errorf("its payload is not readable: %w", err)
	}
	if simple.Critical.Type != "cosign container image signature" {
		return "", fmt.Errorf("it is a %.80q instead of the signature of an image", simple.Critical.Type)
	}
	return simple.Critical.Image.Digest, nil
}
