package attestation_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anchore/syft/syft/format/cyclonedxjson"
	"github.com/anchore/syft/syft/format/spdxjson"
	"github.com/anchore/syft/syft/format/syftjson"
	"github.com/anchore/syft/syft/sbom"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/sigstore/sigstore/pkg/signature"

	"github.com/scanner-operator/scanner-operator/registry/failure"
	"github.com/scanner-operator/scanner-operator/registry/registrytest"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

const wantPackages = "web 1.2.3-4 of web-source, debian 12"

// soon is a time at which the certificates in these tests are valid.
func soon() time.Time { return time.Now().Add(5 * time.Minute) }

// TestFind: an SBOM is found wherever tools attach it, in each format, and with each kind of signer.
func TestFind(t *testing.T) {
	for what, attach := range map[string]func(t *testing.T, p *publisher) workerapi.SBOMSource{
		"a referrer with a bundle": func(t *testing.T, p *publisher) workerapi.SBOMSource {
			p.referBundle(t, p.digest, p.attest(t, workflow, issuer, soon(), p.sbomStatement(t, "web")))
			return p.source(t)
		},
		"a bundle signed with a key": func(t *testing.T, p *publisher) workerapi.SBOMSource {
			p.referBundle(t, p.digest, keyBundle(t, p.key, p.sbomStatement(t, "web")))
			return p.keySource(t)
		},
		"an identity of a pattern": func(t *testing.T, p *publisher) workerapi.SBOMSource {
			p.referBundle(t, p.digest, p.attest(t, workflow, issuer, soon(), p.sbomStatement(t, "web")))
			source := p.source(t)
			source.Signers[0] = workerapi.Signer{Issuer: issuer, IdentityRegExp: `https://github\.example\.com/acme/.*`}
			return source
		},
		"the second of several signers": func(t *testing.T, p *publisher) workerapi.SBOMSource {
			p.referBundle(t, p.digest, keyBundle(t, p.key, p.sbomStatement(t, "web")))
			source := p.source(t)
			source.Signers = append(source.Signers, p.keySource(t).Signers...)
			return source
		},
		"cosign's tag": func(t *testing.T, p *publisher) workerapi.SBOMSource {
			entity, err := p.sigstore.AttestAtTime(workflow, issuer, p.sbomStatement(t, "web"), soon(), false)
			if err != nil {
				t.Fatal(err)
			}
			content, err := entity.SignatureContent()
			if err != nil {
				t.Fatal(err)
			}
			layer := marshal(t, content.EnvelopeContent().RawEnvelope())
			p.tag(t, p.digest, "att", artifact(t, "application/vnd.oci.image.config.v1+json", layer, "application/vnd.dsse.envelope.v1+json", p.legacyAnnotations(t, entity)))
			return p.source(t)
		},
		"cosign's tag, signed with a key": func(t *testing.T, p *publisher) workerapi.SBOMSource {
			layer := marshal(t, signEnvelope(t, p.key, p.sbomStatement(t, "web")))
			p.tag(t, p.digest, "att", artifact(t, "application/vnd.oci.image.config.v1+json", layer, "application/vnd.dsse.envelope.v1+json", nil))
			return p.keySource(t)
		},
		"an SBOM beside one that nobody trusts": func(t *testing.T, p *publisher) workerapi.SBOMSource {
			p.referBundle(t, p.digest, p.attest(t, stranger, issuer, soon(), p.sbomStatement(t, "hidden")))
			p.referBundle(t, p.digest, p.attest(t, workflow, issuer, soon(), p.sbomStatement(t, "web")))
			return p.source(t)
		},
		"the most precise of several formats": func(t *testing.T, p *publisher) workerapi.SBOMSource {
			for _, f := range []struct {
				id   sbom.FormatID
				name string
			}{{spdxjson.ID, "spdx"}, {syftjson.ID, "web"}, {cyclonedxjson.ID, "cyclonedx"}} {
				predicateType, predicate := document(t, f.id, f.name)
				p.referBundle(t, p.digest, keyBundle(t, p.key, statement(t, p.digest, predicateType, predicate)))
			}
			return p.keySource(t)
		},
		"the latest of several": func(t *testing.T, p *publisher) workerapi.SBOMSource {
			p.referBundle(t, p.digest, p.attest(t, workflow, issuer, time.Now(), p.sbomStatement(t, "web")))
			p.referBundle(t, p.digest, p.attest(t, workflow, issuer, time.Now().Add(-2*time.Minute), p.sbomStatement(t, "earlier")))
			return p.source(t)
		},
		"one among a thousand referrers of other kinds": func(t *testing.T, p *publisher) workerapi.SBOMSource {
			attached := artifact(t, bundleType, p.attest(t, workflow, issuer, soon(), p.sbomStatement(t, "web")), bundleType, nil)
			p.Push(t, "shop/web:attached", attached)
			p.list(t, "application/vnd.example.scan", v1.Descriptor{MediaType: types.OCIManifestSchema1, ArtifactType: bundleType, Size: 7, Digest: hash(t, attached)})
			return p.source(t)
		},
	} {
		for api, supported := range map[string]bool{"referrers API": true, "fallback tag": false} {
			t.Run(what+"/"+api, func(t *testing.T) {
				p := newPublisher(t, supported)
				found, problem := p.find(t, attach(t, p))
				if got := packages(found); got != wantPackages {
					t.Errorf("found %q (%s), want %q", got, problem, wantPackages)
				}
			})
		}
	}
}

// TestFormats: the parts that Grype matches by are the same in each format: the source of the package and the distribution.
func TestFormats(t *testing.T) {
	for _, id := range []sbom.FormatID{syftjson.ID, cyclonedxjson.ID, spdxjson.ID} {
		t.Run(id.String(), func(t *testing.T) {
			p := newPublisher(t, true)
			predicateType, predicate := document(t, id, "web")
			p.referBundle(t, p.digest, p.attest(t, workflow, issuer, soon(), statement(t, p.digest, predicateType, predicate)))
			found, problem := p.find(t, p.source(t))
			if got := packages(found); got != wantPackages {
				t.Fatalf("found %q (%s), want %q", got, problem, wantPackages)
			}
			if want := workflow + " (" + issuer + ")"; found.Signer != want {
				t.Errorf("the signer is %q, want %q", found.Signer, want)
			}
		})
	}
}

// TestRefusals: an SBOM that may not be used is not, and the reason says why.
func TestRefusals(t *testing.T) {
	other := v1.Hash{Algorithm: "sha256", Hex: strings.Repeat("ab", 32)}
	keyless := func(content func(t *testing.T, p *publisher) []byte, identity, issuer string, at time.Time) func(t *testing.T, p *publisher) workerapi.SBOMSource {
		return func(t *testing.T, p *publisher) workerapi.SBOMSource {
			p.referBundle(t, p.digest, p.attest(t, identity, issuer, at, content(t, p)))
			return p.source(t)
		}
	}
	web := func(t *testing.T, p *publisher) []byte { return p.sbomStatement(t, "web") }
	for what, c := range map[string]struct {
		attach func(t *testing.T, p *publisher) workerapi.SBOMSource
		want   string
	}{
		"nothing attached": {func(t *testing.T, p *publisher) workerapi.SBOMSource { return p.source(t) }, "no SBOM of sha256:"},
		"another digest": {keyless(func(t *testing.T, _ *publisher) []byte {
			predicateType, predicate := document(t, spdxjson.ID, "web")
			return statement(t, other, predicateType, predicate)
		}, workflow, issuer, soon()), "it is about sha256:abab"},
		"no subject": {keyless(func(*testing.T, *publisher) []byte {
			return []byte(`{"_type":"https://in-toto.io/Statement/v1","predicateType":"https://spdx.dev/Document","predicate":{}}`)
		}, workflow, issuer, soon()), "it is about nothing"},
		"another identity":       {keyless(web, stranger, issuer, soon()), "it is signed by " + stranger + " (" + issuer + "), which is none of the signers"},
		"an unknown issuer":      {keyless(web, workflow, "https://issuer.stranger.example", soon()), "(https://issuer.stranger.example), which is none of the signers"},
		"an expired certificate": {keyless(web, workflow, issuer, time.Now().Add(40*time.Minute)), "outside certificate validity"},
		"a certificate of another Sigstore": {func(t *testing.T, p *publisher) workerapi.SBOMSource {
			source := newPublisher(t, true).source(t)
			p.referBundle(t, p.digest, p.attest(t, workflow, issuer, soon(), web(t, p)))
			return source
		}, "is not accepted"},
		"a certificate in no log": {func(t *testing.T, p *publisher) workerapi.SBOMSource {
			p.referBundle(t, p.digest, p.attest(t, workflow, issuer, soon(), web(t, p)))
			source := p.source(t)
			source.TrustedRoot = p.trustedRoot(t, withLogIDs(t, p.sigstore.CTLogs()))
			return source
		}, "signed certificate timestamp"},
		"another key": {func(t *testing.T, p *publisher) workerapi.SBOMSource {
			key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
			if err != nil {
				t.Fatal(err)
			}
			p.referBundle(t, p.digest, keyBundle(t, key, web(t, p)))
			return p.keySource(t)
		}, "its signature is not by key sha256:"},
		"a key instead of an identity": {func(t *testing.T, p *publisher) workerapi.SBOMSource {
			p.referBundle(t, p.digest, keyBundle(t, p.key, web(t, p)))
			return p.source(t)
		}, "it is signed with a key, and no signer has a publicKey"},
		"an identity instead of a key": {func(t *testing.T, p *publisher) workerapi.SBOMSource {
			p.referBundle(t, p.digest, p.attest(t, workflow, issuer, soon(), web(t, p)))
			return p.keySource(t)
		}, "and no signer has an identity"},
		"a changed statement": {func(t *testing.T, p *publisher) workerapi.SBOMSource {
			// The payload of one bundle with the signature of another.
			_, signatures, _ := bytes.Cut(keyBundle(t, p.key, web(t, p)), []byte(`"signatures"`))
			payload, _, _ := bytes.Cut(keyBundle(t, p.key, p.sbomStatement(t, "wet")), []byte(`"signatures"`))
			p.referBundle(t, p.digest, slices.Concat(payload, []byte(`"signatures"`), signatures))
			return p.keySource(t)
		}, "its signature is not by key"},
		"an empty SBOM": {keyless(func(t *testing.T, p *publisher) []byte {
			return statement(t, p.digest, "https://cyclonedx.org/bom", []byte(`{"bomFormat":"CycloneDX","specVersion":"1.6","version":1,"components":[]}`))
		}, workflow, issuer, soon()), "lists no packages"},
		"a predicate that is no SBOM": {keyless(func(t *testing.T, p *publisher) []byte {
			return statement(t, p.digest, "https://spdx.dev/Document", []byte(`{"hello":"world"}`))
		}, workflow, issuer, soon()), "SBOM"},
		"what is no bundle": {func(t *testing.T, p *publisher) workerapi.SBOMSource {
			p.referBundle(t, p.digest, []byte(`{"mediaType": 7`))
			return p.source(t)
		}, "attestation sha256:"},
		"an attestation of 200 MB": {func(t *testing.T, p *publisher) workerapi.SBOMSource {
			attached := artifact(t, bundleType, []byte("{}"), "application/vnd.dsse.envelope.v1+json", nil)
			p.PushModified(t, fmt.Sprintf("shop/web:%s-%s.att", p.digest.Algorithm, p.digest.Hex), attached, func(m *v1.Manifest) { m.Layers[0].Size = 200 << 20 })
			return p.source(t)
		}, "200 MiB, more than the limit of 64 MiB"},
		"a thousand attestations": {func(t *testing.T, p *publisher) workerapi.SBOMSource {
			p.list(t, bundleType)
			return p.source(t)
		}, "1000 attestations are attached, and only 16 are read"},
		"a trusted root that is none": {func(t *testing.T, p *publisher) workerapi.SBOMSource {
			source := p.source(t)
			source.TrustedRoot = `{"mediaType":"application/vnd.dev.sigstore.trustedroot+json;version=9"}`
			return source
		}, "the configuration of "},
	} {
		t.Run(what, func(t *testing.T) {
			p := newPublisher(t, true)
			found, problem := p.find(t, c.attach(t, p))
			if found != nil || !strings.Contains(strings.ToLower(problem), strings.ToLower(c.want)) {
				t.Errorf("found %q and the reason %q, want none and a reason with %q", packages(found), problem, c.want)
			}
			if len(problem) > workerapi.MaxSBOMProblemBytes || strings.Contains(problem, "\n") {
				t.Errorf("the reason has %d bytes, or several lines: %q", len(problem), problem)
			}
		})
	}
}

// TestIndexes: an SBOM of an index counts only if the index is of one platform.
func TestIndexes(t *testing.T) {
	for what, c := range map[string]struct {
		architectures []string
		want          string
	}{
		"one platform":  {[]string{"amd64"}, wantPackages},
		"two platforms": {[]string{"amd64", "arm64"}, ""},
	} {
		t.Run(what, func(t *testing.T) {
			p := newPublisher(t, true)
			images := map[string]v1.Image{}
			for _, architecture := range c.architectures {
				images[architecture] = registrytest.ImageFor(t, architecture, registrytest.Files{"a": architecture})
			}
			index := registrytest.Index(t, images)
			p.reference, p.digest = p.PushIndex(t, "shop/web:2", index), hash(t, index)
			p.referBundle(t, p.digest, p.attest(t, workflow, issuer, soon(), p.sbomStatement(t, "web")))
			if found, problem := p.find(t, p.source(t)); packages(found) != c.want {
				t.Errorf("found %q (%s), want %q", packages(found), problem, c.want)
			}
		})
	}
}

// signTag attaches a signature of a digest to the image as cosign before version 3 does.
func (p *publisher) signTag(t *testing.T, key *ecdsa.PrivateKey, digest v1.Hash) {
	t.Helper()
	p.tag(t, p.digest, "sig", simpleSignature(t, key, digest))
}

// simpleSignature returns the artifact in which cosign before version 3 signs a digest.
func simpleSignature(t *testing.T, key *ecdsa.PrivateKey, digest v1.Hash) v1.Image {
	t.Helper()
	payload := marshal(t, map[string]any{"critical": map[string]any{
		"identity": map[string]string{"docker-reference": "shop/web"}, "image": map[string]string{"docker-manifest-digest": digest.String()},
		"type": "cosign container image signature",
	}})
	signer, err := signature.LoadECDSASigner(key, crypto.SHA256)
	if err != nil {
		t.Fatal(err)
	}
	sig, err := signer.SignMessage(bytes.NewReader(payload))
	if err != nil {
		t.Fatal(err)
	}
	return artifact(t, "application/vnd.oci.image.config.v1+json", payload, "application/vnd.dev.cosign.simplesigning.v1+json",
		map[string]string{"dev.cosignproject.cosign/signature": base64.StdEncoding.EncodeToString(sig)})
}

// signBundle attaches a signature of a digest to the image as cosign from version 3 does.
func (p *publisher) signBundle(t *testing.T, key *ecdsa.PrivateKey, digest v1.Hash) {
	t.Helper()
	p.referBundle(t, p.digest, keyBundle(t, key, statement(t, digest, "https://sigstore.dev/cosign/sign/v1", []byte(`{}`))))
}

// pushBuildKit pushes an index with an image and BuildKit's attestations of it. These hold the statements that are returned for the image's digest.
func (p *publisher) pushBuildKit(t *testing.T, layers ...func(about v1.Hash) []byte) (attached v1.Image) {
	t.Helper()
	image := registrytest.ImageFor(t, "amd64", registrytest.Files{"a": "b"})
	const media = "application/vnd.in-toto+json"
	attached = mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), "application/vnd.oci.image.config.v1+json")
	for _, layer := range layers {
		content := layer(hash(t, image))
		var about struct{ PredicateType string }
		if err := json.Unmarshal(content, &about); err != nil {
			t.Fatal(err)
		}
		var err error
		attached, err = mutate.Append(attached, mutate.Addendum{
			Layer: static.NewLayer(content, media), MediaType: media, Annotations: map[string]string{"in-toto.io/predicate-type": about.PredicateType},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	index := mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "amd64"}}},
		mutate.IndexAddendum{Add: attached, Descriptor: v1.Descriptor{
			Platform:    &v1.Platform{OS: "unknown", Architecture: "unknown"},
			Annotations: map[string]string{"vnd.docker.reference.type": "attestation-manifest", "vnd.docker.reference.digest": hash(t, image).String()},
		}})
	p.reference, p.digest = p.PushIndex(t, "shop/web:3", index), hash(t, index)
	return attached
}

// TestBuildKit: the SBOM that BuildKit puts into an index counts if the index is signed.
func TestBuildKit(t *testing.T) {
	other := v1.Hash{Algorithm: "sha256", Hex: strings.Repeat("ab", 32)}
	for what, c := range map[string]struct {
		sign func(t *testing.T, p *publisher)
		want string
	}{
		"signed by a tag":    {func(t *testing.T, p *publisher) { p.signTag(t, p.key, p.digest) }, ""},
		"signed by a bundle": {func(t *testing.T, p *publisher) { p.signBundle(t, p.key, p.digest) }, ""},
		"signed by cosign 2 as a referrer": {func(t *testing.T, p *publisher) {
			p.refer(t, p.digest, mutate.ConfigMediaType(simpleSignature(t, p.key, p.digest), "application/vnd.dev.cosign.artifact.sig.v1+json"))
		}, ""},
		"not signed":                     {func(*testing.T, *publisher) {}, "the index is not signed"},
		"the signature of another image": {func(t *testing.T, p *publisher) { p.signTag(t, p.key, other) }, "it is about sha256:abab"},
		"the bundle of another image":    {func(t *testing.T, p *publisher) { p.signBundle(t, p.key, other) }, "it is about sha256:abab"},
		"an attestation instead of a signature": {func(t *testing.T, p *publisher) {
			p.referBundle(t, p.digest, keyBundle(t, p.key, statement(t, p.digest, "https://slsa.dev/provenance/v1", []byte(`{}`))))
		}, "the index is not signed"},
		"a stranger's attestation instead of a signature": {func(t *testing.T, p *publisher) {
			p.referBundle(t, p.digest, keyBundle(t, newPublisher(t, true).key, statement(t, p.digest, "https://slsa.dev/provenance/v1", []byte(`{}`))))
		}, "the index is not signed"},
	} {
		t.Run(what, func(t *testing.T) {
			p := newPublisher(t, true)
			predicateType, predicate := document(t, spdxjson.ID, "web")
			p.pushBuildKit(t, func(about v1.Hash) []byte { return statement(t, about, predicateType, predicate) })
			c.sign(t, p)
			found, problem := p.find(t, p.keySource(t))
			if c.want == "" && packages(found) != wantPackages || c.want != "" && (found != nil || !strings.Contains(problem, c.want)) {
				t.Errorf("found %q and the reason %q, want the SBOM, or a reason with %q", packages(found), problem, c.want)
			}
		})
	}
}

// TestThrottled: a registry that throttles is no reason to catalog the image, for which it is needed as well.
func TestThrottled(t *testing.T) {
	p := newPublisher(t, true)
	p.answerReferrers = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooManyRequests) }
	_, _, err := p.tryFind(t, p.source(t))
	if failed := failure.Describe(err, ""); failed.Reason != workerapi.ReasonRegistryThrottled {
		t.Errorf("got %+v, want %s", failed, workerapi.ReasonRegistryThrottled)
	}
}

// A publisher attests a corrected SBOM to an image that has one. Signatures with a key have no time, so the time of the document decides, whatever
// order the registry lists them in. Without a difference, the layer that was added later counts.
func TestLaterSBOM(t *testing.T) {
	created := regexp.MustCompile(`"(created|timestamp|Timestamp)": ?"[^"]*"`)
	at := func(p *publisher, id sbom.FormatID, name, when string) []byte {
		t.Helper()
		predicateType, predicate := document(t, id, name)
		content := statement(t, p.digest, predicateType, predicate)
		if !created.Match(content) {
			t.Fatalf("the document has no time: %.300s", content)
		}
		return created.ReplaceAll(content, []byte(`"$1":"`+when+`"`))
	}
	const early, late = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
	for name, order := range map[string][][2]string{
		"the later one comes last":  {{"old", early}, {"new", late}},
		"the later one comes first": {{"new", late}, {"old", early}},
	} {
		for _, id := range []sbom.FormatID{spdxjson.ID, cyclonedxjson.ID, syftjson.ID} {
			t.Run(fmt.Sprintf("bundles of %s: %s", id, name), func(t *testing.T) {
				p := newPublisher(t, true)
				for _, document := range order {
					p.referBundle(t, p.digest, keyBundle(t, p.key, at(p, id, document[0], document[1])))
				}
				if found, problem := p.find(t, p.keySource(t)); !strings.HasPrefix(packages(found), "new ") {
					t.Errorf("got %q, want the later SBOM (problem: %s)", packages(found), problem)
				}
			})
		}
	}
	for name, order := range map[string][][2]string{
		"the later one comes last":  {{"old", early}, {"new", late}},
		"the later one comes first": {{"new", late}, {"old", early}},
		"at the same time":          {{"old", early}, {"new", early}},
	} {
		t.Run("layers: "+name, func(t *testing.T) {
			p := newPublisher(t, true)
			const media = "application/vnd.dsse.envelope.v1+json"
			img := artifact(t, "application/vnd.oci.image.config.v1+json", marshal(t, signEnvelope(t, p.key, at(p, spdxjson.ID, order[0][0], order[0][1]))), media, nil)
			img, err := mutate.Append(img, mutate.Addendum{Layer: static.NewLayer(marshal(t, signEnvelope(t, p.key, at(p, spdxjson.ID, order[1][0], order[1][1]))), media), MediaType: media})
			if err != nil {
				t.Fatal(err)
			}
			p.tag(t, p.digest, "att", img)
			if found, problem := p.find(t, p.keySource(t)); !strings.HasPrefix(packages(found), "new ") {
				t.Errorf("got %q, want the later SBOM (problem: %s)", packages(found), problem)
			}
		})
	}
}
