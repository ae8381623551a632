package attestation

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/scanner-operator/scanner-operator/workerapi"
)

// FuzzEnvelope: whatever is attached to an image, with whatever annotations, counts as signed only by a key. Nothing is signed with the key of this test.
func FuzzEnvelope(f *testing.F) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		f.Fatal(err)
	}
	by, err := newVerifier([]workerapi.Signer{{PublicKey: string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))}}, "")
	if err != nil {
		f.Fatal(err)
	}
	const envelope = `{"payloadType":"application/vnd.in-toto+json","payload":"e30=","signatures":[{"keyid":"","sig":"MEUCIQ=="}]}`
	f.Add([]byte(envelope), "MEUCIQ==", "", "", "")
	f.Add([]byte(envelope), "", "-----BEGIN CERTIFICATE-----\nMII=\n-----END CERTIFICATE-----\n", "", `{"SignedRFC3161Timestamp":"MII="}`)
	f.Add([]byte(`{"signatures":[{}]}`), "", "", `{"SignedEntryTimestamp":"MEUCIQ==","Payload":{"body":"eyJraW5kIjoiZHNzZSJ9","integratedTime":1,"logIndex":-1,"logID":"00"}}`, "")
	f.Add([]byte(`{"critical":{"image":{"docker-manifest-digest":"sha256:0"},"type":"cosign container image signature"}}`), "AA==", "", "", "")
	f.Fuzz(func(t *testing.T, blob []byte, signature, certificate, entry, time string) {
		layer := v1.Descriptor{Annotations: map[string]string{
			annotationSignature: signature, annotationCertificate: certificate, annotationLogEntry: entry, annotationTimestamp: time,
		}}
		if b, err := envelopeBundle(layer, blob); err == nil {
			if signed, err := by.statement(b); err == nil {
				t.Errorf("an envelope counts as signed by %s", signed.signer)
			}
		}
		if b, err := signatureBundle(layer, blob); err == nil {
			if signed, err := by.message(b, blob); err == nil {
				t.Errorf("a payload counts as signed by %s", signed.signer)
			}
		}
		_, _ = signedDigest(blob) // it must not panic
	})
}

// FuzzStatement: a statement counts for an image only if a subject has its digest, and an SBOM has a bounded number of packages. A refusal is a bounded text.
func FuzzStatement(f *testing.F) {
	const hex = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	const subject = `"subject":[{"digest":{"sha256":"` + hex + `"}}]`
	for _, seed := range []string{
		`{"_type":"https://in-toto.io/Statement/v1",` + subject + `,"predicateType":"https://spdx.dev/Document","predicate":{"spdxVersion":"SPDX-2.3","packages":[{"name":"a","versionInfo":"1"}]}}`,
		`{"_type":"https://in-toto.io/Statement/v0.1",` + subject + `,"predicateType":"https://cyclonedx.org/bom","predicate":{"bomFormat":"CycloneDX","specVersion":"1.6","components":[{"type":"library","name":"a","version":"1","purl":"pkg:npm/a@1"}]}}`,
		`{"_type":"https://in-toto.io/Statement/v1",` + subject + `,"predicateType":"https://cosign.sigstore.dev/attestation/v1","predicate":{"Data":"{\"schema\":{\"version\":\"16.0.0\"},\"artifacts\":[]}"}}`,
		`{"_type":"https://in-toto.io/Statement/v1","subject":[{"digest":{"sha512":"` + hex + `"}}],"predicate":"text"}`, `{"_type":1}`, ``,
	} {
		f.Add([]byte(seed))
	}
	image := v1.Hash{Algorithm: "sha256", Hex: hex}
	f.Fuzz(func(t *testing.T, raw []byte) {
		s, err := decodeStatement(raw)
		if err != nil {
			return
		}
		named := false
		for _, subject := range s.Subject {
			named = named || subject.Digest["sha256"] == hex
		}
		if err := s.requireSubject([]v1.Hash{image}); (err == nil) != named || err != nil && len(err.Error()) > 512 {
			t.Errorf("%q: %v, and it names the digest: %t", raw, err, named)
		}
		contents, _, _, err := s.sbom()
		if err != nil {
			return
		}
		if n := contents.Artifacts.Packages.PackageCount(); n == 0 || n > workerapi.MaxPackages {
			t.Errorf("%q gives %d packages", raw, n)
		}
	})
}
