package attestation_test

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/anchore/syft/syft/format"
	"github.com/anchore/syft/syft/format/cyclonedxjson"
	"github.com/anchore/syft/syft/format/spdxjson"
	"github.com/anchore/syft/syft/format/syftjson"
	"github.com/anchore/syft/syft/linux"
	"github.com/anchore/syft/syft/pkg"
	"github.com/anchore/syft/syft/sbom"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	protobundle "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	protocommon "github.com/sigstore/protobuf-specs/gen/pb-go/common/v1"
	protodsse "github.com/sigstore/protobuf-specs/gen/pb-go/dsse"
	protorekor "github.com/sigstore/protobuf-specs/gen/pb-go/rekor/v1"
	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/testing/ca"
	"github.com/sigstore/sigstore-go/pkg/tlog"
	"github.com/sigstore/sigstore-go/pkg/verify"
	"github.com/sigstore/sigstore/pkg/signature"
	sigdsse "github.com/sigstore/sigstore/pkg/signature/dsse"
	"google.golang.org/protobuf/encoding/protojson"

	ours "github.com/scanner-operator/scanner-operator/registry"
	"github.com/scanner-operator/scanner-operator/registry/registrytest"
	"github.com/scanner-operator/scanner-operator/worker/attestation"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// Identities in these tests.
const (
	issuer   = "https://token.actions.example.com"
	workflow = "https://github.example.com/acme/shop/.github/workflows/release.yaml@refs/heads/main"
	stranger = "https://github.example.com/stranger/shop/.github/workflows/release.yaml@refs/heads/main"

	bundleType = "application/vnd.dev.sigstore.bundle.v0.3+json"
)

// publisher has an image in a registry, attaches attestations to it, and signs them by a Sigstore of its own or by a key.
type publisher struct {
	*registrytest.Registry
	sigstore *ca.VirtualSigstore
	key      *ecdsa.PrivateKey
	// reference and digest of the image that Find is called for.
	reference string
	digest    v1.Hash
	// answerReferrers answers requests for what refers to a manifest, unless it is nil.
	answerReferrers http.HandlerFunc
}

// newPublisher starts a registry, with the referrers API or without it, and pushes an image.
func newPublisher(t *testing.T, referrersAPI bool) *publisher {
	t.Helper()
	sigstore, err := ca.NewVirtualSigstore()
	if err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p := &publisher{sigstore: sigstore, key: key}
	p.Registry = registrytest.NewRegistry(t, func(http.Handler) http.Handler {
		whole := registry.New(registry.Logger(slog.NewLogLogger(slog.DiscardHandler, 0)), registry.WithReferrersSupport(referrersAPI))
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if p.answerReferrers != nil && strings.Contains(r.URL.Path, "/referrers/") {
				p.answerReferrers(w, r)
				return
			}
			whole.ServeHTTP(w, r)
		})
	})
	image := registrytest.Image(t, registrytest.Files{"etc/motd": "hello"})
	p.reference, p.digest = p.Push(t, "shop/web:1", image), hash(t, image)
	return p
}

func hash(t *testing.T, of interface{ Digest() (v1.Hash, error) }) v1.Hash {
	t.Helper()
	digest, err := of.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return digest
}

// trustedRoot returns the publisher's Sigstore as an administrator configures it.
func (p *publisher) trustedRoot(t *testing.T, ctLogs map[string]*root.TransparencyLog) string {
	t.Helper()
	logs := p.sigstore.RekorLogs()
	for id, log := range logs {
		raw, err := hex.DecodeString(id)
		if err != nil {
			t.Fatal(err)
		}
		log.ID = raw
	}
	trusted, err := root.NewTrustedRoot(root.TrustedRootMediaType01, p.sigstore.FulcioCertificateAuthorities(), ctLogs, p.sigstore.TimestampingAuthorities(), logs)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(trusted)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// source trusts the publisher's workflow.
func (p *publisher) source(t *testing.T) workerapi.SBOMSource {
	t.Helper()
	return workerapi.SBOMSource{
		Prefer: workerapi.PreferAttestation, Signers: []workerapi.Signer{{Issuer: issuer, Identity: workflow}}, TrustedRoot: p.trustedRoot(t, nil),
	}
}

// keySource trusts the publisher's key.
func (p *publisher) keySource(t *testing.T) workerapi.SBOMSource {
	t.Helper()
	return workerapi.SBOMSource{Prefer: workerapi.PreferAttestation, Signers: []workerapi.Signer{{PublicKey: publicKey(t, p.key)}}}
}

func publicKey(t *testing.T, key *ecdsa.PrivateKey) string {
	t.Helper()
	raw, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: raw}))
}

// find pulls the image and searches its SBOM.
func (p *publisher) find(t *testing.T, source workerapi.SBOMSource) (*attestation.SBOM, string) {
	t.Helper()
	found, problem, err := p.tryFind(t, source)
	if err != nil {
		t.Fatal(err)
	}
	return found, problem
}

func (p *publisher) tryFind(t *testing.T, source workerapi.SBOMSource) (*attestation.SBOM, string, error) {
	t.Helper()
	puller := &ours.Puller{Registries: []workerapi.Registry{{Host: p.Host, PlainHTTP: true}}, Log: slog.New(slog.DiscardHandler), Now: time.Now}
	img, err := puller.Pull(t.Context(), []string{p.reference}, v1.Platform{OS: "linux", Architecture: "amd64"})
	if err != nil {
		t.Fatal(err)
	}
	return attestation.Find(t.Context(), puller, img, source, slog.New(slog.DiscardHandler))
}

// document returns an SBOM with one package of Debian, in a format, as a predicate with its type.
func document(t *testing.T, id sbom.FormatID, packageName string) (predicateType string, predicate []byte) {
	t.Helper()
	p := pkg.Package{
		Name: packageName, Version: "1.2.3-4", Type: pkg.DebPkg, PURL: "pkg:deb/debian/" + packageName + "@1.2.3-4?arch=amd64&distro=debian-12&upstream=" + packageName + "-source",
		Metadata: pkg.DpkgDBEntry{Package: packageName, Source: packageName + "-source", Version: "1.2.3-4", Architecture: "amd64"},
	}
	p.SetID()
	contents := sbom.SBOM{
		Artifacts:  sbom.Artifacts{Packages: pkg.NewCollection(p), LinuxDistribution: &linux.Release{ID: "debian", VersionID: "12", PrettyName: "Debian 12"}},
		Descriptor: sbom.Descriptor{Name: "syft", Version: "1.57.0"},
	}
	contents.Source.Name, contents.Source.ID = "shop/web", "web"
	predicateTypes := map[sbom.FormatID]string{
		syftjson.ID: "https://cosign.sigstore.dev/attestation/v1", cyclonedxjson.ID: "https://cyclonedx.org/bom", spdxjson.ID: "https://spdx.dev/Document/v2.3",
	}
	encoders := map[sbom.FormatID]func() (sbom.FormatEncoder, error){
		syftjson.ID: func() (sbom.FormatEncoder, error) { return syftjson.NewFormatEncoder(), nil },
		cyclonedxjson.ID: func() (sbom.FormatEncoder, error) {
			return cyclonedxjson.NewFormatEncoderWithConfig(cyclonedxjson.DefaultEncoderConfig())
		},
		spdxjson.ID: func() (sbom.FormatEncoder, error) {
			return spdxjson.NewFormatEncoderWithConfig(spdxjson.DefaultEncoderConfig())
		},
	}
	encoder, err := encoders[id]()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := format.Encode(contents, encoder)
	if err != nil {
		t.Fatal(err)
	}
	if id == syftjson.ID {
		raw = marshal(t, map[string]string{"Data": string(raw), "Timestamp": "2026-11-28T14:00:00Z"})
	}
	return predicateTypes[id], raw
}

func marshal(t *testing.T, value any) []byte {
	t.Helper()
	raw, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// statement returns an in-toto statement about a digest.
func statement(t *testing.T, about v1.Hash, predicateType string, predicate []byte) []byte {
	t.Helper()
	return marshal(t, map[string]any{
		"_type": "https://in-toto.io/Statement/v1", "predicateType": predicateType, "predicate": json.RawMessage(predicate),
		"subject": []any{map[string]any{"name": "web", "digest": map[string]string{about.Algorithm: about.Hex}}},
	})
}

// sbomStatement returns a statement with an SBOM of one package about the image.
func (p *publisher) sbomStatement(t *testing.T, packageName string) []byte {
	t.Helper()
	predicateType, predicate := document(t, spdxjson.ID, packageName)
	return statement(t, p.digest, predicateType, predicate)
}

// attest returns a bundle in which an identity has signed a statement at a time. The certificate expires ten minutes from now.
func (p *publisher) attest(t *testing.T, identity, issuer string, at time.Time, content []byte) []byte {
	t.Helper()
	entity, err := p.sigstore.AttestAtTime(identity, issuer, content, at, true)
	if err != nil {
		t.Fatal(err)
	}
	b, _ := p.bundleOf(t, entity)
	return marshalBundle(t, b)
}

func marshalBundle(t *testing.T, b *protobundle.Bundle) []byte {
	t.Helper()
	raw, err := protojson.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// bundleOf returns an entity as a bundle, and its certificate.
func (p *publisher) bundleOf(t *testing.T, entity verify.SignedEntity) (*protobundle.Bundle, *x509.Certificate) {
	t.Helper()
	content, err := entity.SignatureContent()
	if err != nil {
		t.Fatal(err)
	}
	material, err := entity.VerificationContent()
	if err != nil {
		t.Fatal(err)
	}
	entries, err := entity.TlogEntries()
	if err != nil {
		t.Fatal(err)
	}
	leaf := material.Certificate()
	b := &protobundle.Bundle{
		MediaType: bundleType,
		VerificationMaterial: &protobundle.VerificationMaterial{
			Content: &protobundle.VerificationMaterial_Certificate{Certificate: &protocommon.X509Certificate{RawBytes: leaf.Raw}},
		},
	}
	for _, entry := range entries {
		proto := entry.TransparencyLogEntry()
		var kind struct{ Kind, APIVersion string }
		if err := json.Unmarshal(proto.CanonicalizedBody, &kind); err != nil {
			t.Fatal(err)
		}
		proto.KindVersion = &protorekor.KindVersion{Kind: kind.Kind, Version: kind.APIVersion}
		promise, err := p.sigstore.RekorSignPayload(tlog.RekorPayload{
			Body: base64.StdEncoding.EncodeToString(proto.CanonicalizedBody), IntegratedTime: proto.IntegratedTime, LogIndex: proto.LogIndex,
			LogID: hex.EncodeToString(proto.LogId.KeyId),
		})
		if err != nil {
			t.Fatal(err)
		}
		proto.InclusionPromise = &protorekor.InclusionPromise{SignedEntryTimestamp: promise}
		b.VerificationMaterial.TlogEntries = append(b.VerificationMaterial.TlogEntries, proto)
	}
	if envelope := content.EnvelopeContent(); envelope != nil {
		b.Content = &protobundle.Bundle_DsseEnvelope{DsseEnvelope: envelopeOf(t, envelope.RawEnvelope())}
	}
	return b, leaf
}

func envelopeOf(t *testing.T, envelope *dsse.Envelope) *protodsse.Envelope {
	t.Helper()
	payload, err := envelope.DecodeB64Payload()
	if err != nil {
		t.Fatal(err)
	}
	sig, err := base64.StdEncoding.DecodeString(envelope.Signatures[0].Sig)
	if err != nil {
		t.Fatal(err)
	}
	return &protodsse.Envelope{PayloadType: envelope.PayloadType, Payload: payload, Signatures: []*protodsse.Signature{{Sig: sig}}}
}

// signEnvelope returns a DSSE envelope that a key has signed.
func signEnvelope(t *testing.T, key *ecdsa.PrivateKey, content []byte) *dsse.Envelope {
	t.Helper()
	signer, err := signature.LoadECDSASigner(key, crypto.SHA256)
	if err != nil {
		t.Fatal(err)
	}
	envelopes, err := dsse.NewEnvelopeSigner(&sigdsse.SignerAdapter{SignatureSigner: signer, Pub: key.Public()})
	if err != nil {
		t.Fatal(err)
	}
	envelope, err := envelopes.SignPayload(context.Background(), "application/vnd.in-toto+json", content)
	if err != nil {
		t.Fatal(err)
	}
	return envelope
}

// keyBundle returns a bundle in which the key has signed a statement.
func keyBundle(t *testing.T, key *ecdsa.PrivateKey, content []byte) []byte {
	t.Helper()
	return marshalBundle(t, &protobundle.Bundle{
		MediaType: bundleType,
		VerificationMaterial: &protobundle.VerificationMaterial{
			Content: &protobundle.VerificationMaterial_PublicKey{PublicKey: &protocommon.PublicKeyIdentifier{}},
		},
		Content: &protobundle.Bundle_DsseEnvelope{DsseEnvelope: envelopeOf(t, signEnvelope(t, key, content))},
	})
}

// artifact returns an artifact of one layer.
func artifact(t *testing.T, artifactType string, layer []byte, layerType string, annotations map[string]string) v1.Image {
	t.Helper()
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.MediaType(artifactType))
	img, err := mutate.Append(img, mutate.Addendum{Layer: static.NewLayer(layer, types.MediaType(layerType)), MediaType: types.MediaType(layerType), Annotations: annotations})
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// refer attaches an artifact to a manifest as a referrer. Without the referrers API, the client library writes the tag that replaces it.
func (p *publisher) refer(t *testing.T, to v1.Hash, img v1.Image) {
	t.Helper()
	subject := v1.Descriptor{MediaType: types.OCIManifestSchema1, Digest: to, Size: 1}
	referrer, isImage := mutate.Subject(img, subject).(v1.Image)
	if !isImage {
		t.Fatal("the referrer is no image")
	}
	ref, err := name.NewDigest(p.Host+"/shop/web@"+hash(t, referrer).String(), name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, referrer); err != nil {
		t.Fatal(err)
	}
}

// referBundle attaches a bundle as cosign from version 3 and GitHub do.
func (p *publisher) referBundle(t *testing.T, to v1.Hash, raw []byte) {
	t.Helper()
	p.refer(t, to, artifact(t, bundleType, raw, bundleType, nil))
}

// tag attaches an artifact as cosign before version 3 does.
func (p *publisher) tag(t *testing.T, to v1.Hash, suffix string, img v1.Image) {
	t.Helper()
	p.Push(t, fmt.Sprintf("shop/web:%s-%s.%s", to.Algorithm, to.Hex, suffix), img)
}

// legacyAnnotations returns the annotations in which cosign before version 3 writes how an entity was signed.
func (p *publisher) legacyAnnotations(t *testing.T, entity verify.SignedEntity) map[string]string {
	t.Helper()
	b, leaf := p.bundleOf(t, entity)
	entry := b.VerificationMaterial.TlogEntries[0]
	return map[string]string{
		"dev.cosignproject.cosign/signature": "",
		"dev.sigstore.cosign/certificate":    string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leaf.Raw})),
		"dev.sigstore.cosign/bundle": string(marshal(t, map[string]any{
			"SignedEntryTimestamp": entry.GetInclusionPromise().GetSignedEntryTimestamp(),
			"Payload": map[string]any{
				"body": entry.CanonicalizedBody, "integratedTime": entry.IntegratedTime, "logIndex": entry.LogIndex, "logID": hex.EncodeToString(entry.LogId.KeyId),
			},
		})),
	}
}

// packages returns the names and sources of an SBOM's packages, and its distribution.
func packages(found *attestation.SBOM) string {
	if found == nil {
		return ""
	}
	var out bytes.Buffer
	for p := range found.Contents.Artifacts.Packages.Enumerate() {
		source := ""
		if entry, isDeb := p.Metadata.(pkg.DpkgDBEntry); isDeb {
			source = entry.Source
		}
		fmt.Fprintf(&out, "%s %s of %s, ", p.Name, p.Version, source)
	}
	if release := found.Contents.Artifacts.LinuxDistribution; release != nil {
		fmt.Fprintf(&out, "%s %s", release.ID, release.VersionID)
	}
	return strings.TrimSuffix(out.String(), ", ")
}

// withLogIDs returns logs with the IDs that a trusted root has.
func withLogIDs(t *testing.T, logs map[string]*root.TransparencyLog) map[string]*root.TransparencyLog {
	t.Helper()
	for id, log := range logs {
		raw, err := hex.DecodeString(id)
		if err != nil {
			t.Fatal(err)
		}
		log.ID, log.BaseURL, log.SignatureHashFunc = raw, "https://ct.example.com", crypto.SHA256
	}
	return logs
}

// list makes the registry list a thousand referrers of a type, which it does not have, and more.
func (p *publisher) list(t *testing.T, artifactType string, more ...v1.Descriptor) {
	t.Helper()
	var all []v1.Descriptor
	for n := range 1000 {
		all = append(all, v1.Descriptor{
			MediaType: types.OCIManifestSchema1, ArtifactType: artifactType, Size: 7, Digest: v1.Hash{Algorithm: "sha256", Hex: fmt.Sprintf("%064x", n)},
		})
	}
	p.answerReferrers = referrersOf(t, append(all, more...)...)
}

// referrersOf answers with a list of referrers.
func referrersOf(t *testing.T, all ...v1.Descriptor) http.HandlerFunc {
	t.Helper()
	raw := marshal(t, v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex, Manifests: all})
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", string(types.OCIImageIndex))
		_, _ = w.Write(raw)
	}
}
