package attestation_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"

	ours "github.com/scanner-operator/scanner-operator/registry"
	"github.com/scanner-operator/scanner-operator/worker/attestation"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

const openVEX = "https://openvex.dev/ns/v0.2.0"

// vexStatement returns an in-toto statement with an OpenVEX document about a digest.
func vexStatement(t *testing.T, about v1.Hash, id string) []byte {
	t.Helper()
	return statement(t, about, openVEX, fmt.Appendf(nil, `{"@context": %q, "@id": %q, "statements": []}`, openVEX, id))
}

// findVEX pulls the image and returns the documents' IDs with their signers, the problem, and whether a document may be missing.
func (p *publisher) findVEX(t *testing.T, of workerapi.Registry) (documents, problem string, unread bool) {
	t.Helper()
	puller := &ours.Puller{Registries: []workerapi.Registry{{Host: p.Host, PlainHTTP: true}}, Log: slog.New(slog.DiscardHandler), Now: time.Now}
	img, err := puller.Pull(t.Context(), []string{p.reference}, v1.Platform{OS: "linux", Architecture: "amd64"})
	if err != nil {
		t.Fatal(err)
	}
	found, err := attestation.FindVEX(t.Context(), puller, img, of, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, f := range found.Found {
		_, id, _ := strings.Cut(string(f.Content), `"@id":"`)
		id, _, _ = strings.Cut(id, `"`)
		signer, _, _ := strings.Cut(f.Signer, " ")
		texts = append(texts, id+" by "+signer)
	}
	return strings.Join(texts, ", "), found.Problem, found.Unread
}

// charset is an answer whose media type has a parameter.
type charset struct{ http.ResponseWriter }

func (c charset) Write(p []byte) (int, error) {
	c.Header().Set("Content-Type", c.Header().Get("Content-Type")+"; charset=utf-8")
	return c.ResponseWriter.Write(p)
}

// vexSource trusts what an SBOM source trusts.
func vexSource(of workerapi.SBOMSource) workerapi.Registry {
	return workerapi.Registry{VEX: workerapi.VEXSource{Sources: []string{workerapi.VEXFromImage}, Signers: of.Signers, TrustedRoot: of.TrustedRoot}}
}

// TestFindVEX: which attached documents are returned, why others are not, and whether one of these may be a signer's about the image.
func TestFindVEX(t *testing.T) {
	other := v1.Hash{Algorithm: "sha256", Hex: strings.Repeat("a", 64)}
	for name, tt := range map[string]struct {
		attach         func(t *testing.T, p *publisher) workerapi.Registry
		want, problem  string
		unread         bool
		noReferrersAPI bool
	}{
		"none": {attach: func(t *testing.T, p *publisher) workerapi.Registry { return vexSource(p.source(t)) }},
		"a bundle": {attach: func(t *testing.T, p *publisher) workerapi.Registry {
			p.referBundle(t, p.digest, p.attest(t, workflow, issuer, soon(), vexStatement(t, p.digest, "one")))
			return vexSource(p.source(t))
		}, want: "one by " + workflow},
		"the signers of SBOMs": {attach: func(t *testing.T, p *publisher) workerapi.Registry {
			p.referBundle(t, p.digest, keyBundle(t, p.key, vexStatement(t, p.digest, "one")))
			return workerapi.Registry{SBOM: p.keySource(t), VEX: workerapi.VEXSource{Sources: []string{workerapi.VEXFromImage}}}
		}, want: "one by key"},
		"the referrers tag": {attach: func(t *testing.T, p *publisher) workerapi.Registry {
			p.referBundle(t, p.digest, keyBundle(t, p.key, vexStatement(t, p.digest, "one")))
			return vexSource(p.keySource(t))
		}, want: "one by key", noReferrersAPI: true},
		"cosign's tag, and the same document as a referrer": {attach: func(t *testing.T, p *publisher) workerapi.Registry {
			content := vexStatement(t, p.digest, "one")
			p.referBundle(t, p.digest, keyBundle(t, p.key, content))
			layer := marshal(t, signEnvelope(t, p.key, content))
			p.tag(t, p.digest, "att", artifact(t, "application/vnd.oci.image.config.v1+json", layer, "application/vnd.dsse.envelope.v1+json", nil))
			return vexSource(p.keySource(t))
		}, want: "one by key"},
		"beside an SBOM": {attach: func(t *testing.T, p *publisher) workerapi.Registry {
			p.referBundle(t, p.digest, keyBundle(t, p.key, p.sbomStatement(t, "web")))
			p.referBundle(t, p.digest, keyBundle(t, p.key, vexStatement(t, p.digest, "one")))
			return vexSource(p.keySource(t))
		}, want: "one by key"},
		"beside a large SBOM": {attach: func(t *testing.T, p *publisher) workerapi.Registry {
			const envelope = "application/vnd.dsse.envelope.v1+json"
			annotated := map[string]string{"predicateType": "https://spdx.dev/Document"}
			p.tag(t, p.digest, "att", artifact(t, "application/vnd.oci.image.config.v1+json", make([]byte, 4*workerapi.MaxVEXBytes), envelope, annotated))
			p.referBundle(t, p.digest, keyBundle(t, p.key, vexStatement(t, p.digest, "one")))
			return vexSource(p.keySource(t))
		}, want: "one by key"},
		"beside a stranger's SBOM": {attach: func(t *testing.T, p *publisher) workerapi.Registry {
			p.referBundle(t, p.digest, newPublisher(t, true).attest(t, stranger, issuer, soon(), p.sbomStatement(t, "web")))
			p.referBundle(t, p.digest, p.attest(t, workflow, issuer, soon(), vexStatement(t, p.digest, "one")))
			return vexSource(p.source(t))
		}, want: "one by " + workflow},
		"beside one of another Sigstore by a stranger": {attach: func(t *testing.T, p *publisher) workerapi.Registry {
			p.referBundle(t, p.digest, newPublisher(t, true).attest(t, stranger, issuer, soon(), vexStatement(t, p.digest, "strange")))
			p.referBundle(t, p.digest, p.attest(t, workflow, issuer, soon(), vexStatement(t, p.digest, "one")))
			return vexSource(p.source(t))
		}, want: "one by " + workflow, problem: "which is none of the signers"},
		"beside one by a stranger's key": {attach: func(t *testing.T, p *publisher) workerapi.Registry {
			p.referBundle(t, p.digest, keyBundle(t, newPublisher(t, true).key, vexStatement(t, p.digest, "strange")))
			p.referBundle(t, p.digest, keyBundle(t, p.key, vexStatement(t, p.digest, "one")))
			return vexSource(p.keySource(t))
		}, want: "one by key", problem: "its signature is not by key"},
		"beside one whose log is not known": {attach: func(t *testing.T, p *publisher) workerapi.Registry {
			p.referBundle(t, p.digest, newPublisher(t, true).attest(t, workflow, issuer, soon(), vexStatement(t, p.digest, "renewed")))
			p.referBundle(t, p.digest, p.attest(t, workflow, issuer, soon(), vexStatement(t, p.digest, "one")))
			return vexSource(p.source(t))
		}, want: "one by " + workflow, problem: "is not accepted", unread: true},
		"beside one that the registry lists and does not have": {attach: func(t *testing.T, p *publisher) workerapi.Registry {
			layer := marshal(t, signEnvelope(t, p.key, vexStatement(t, p.digest, "one")))
			p.tag(t, p.digest, "att", artifact(t, "application/vnd.oci.image.config.v1+json", layer, "application/vnd.dsse.envelope.v1+json", nil))
			p.answerReferrers = referrersOf(t, v1.Descriptor{MediaType: types.OCIManifestSchema1, ArtifactType: bundleType, Size: 7, Digest: other})
			return vexSource(p.keySource(t))
		}, want: "one by key", problem: "the registry does not have it", unread: true},
		"a list that goes on": {attach: func(t *testing.T, p *publisher) workerapi.Registry {
			layer := marshal(t, signEnvelope(t, p.key, vexStatement(t, p.digest, "one")))
			p.tag(t, p.digest, "att", artifact(t, "application/vnd.oci.image.config.v1+json", layer, "application/vnd.dsse.envelope.v1+json", nil))
			first := referrersOf(t)
			p.answerReferrers = func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Link", `</v2/shop/web/referrers/`+p.digest.String()+`?last=1>; rel="next"`)
				first(w, r)
			}
			return vexSource(p.keySource(t))
		}, want: "one by key", problem: "2 attestations are attached, and only 1 are read", unread: true},
		"a list whose type has a parameter": {attach: func(t *testing.T, p *publisher) workerapi.Registry {
			list := referrersOf(t, v1.Descriptor{MediaType: types.OCIManifestSchema1, ArtifactType: bundleType, Size: 7, Digest: other})
			p.answerReferrers = func(w http.ResponseWriter, r *http.Request) { list(charset{w}, r) }
			return vexSource(p.keySource(t))
		}, problem: "the registry does not have it", unread: true},
		"a registry that cannot list": {attach: func(t *testing.T, p *publisher) workerapi.Registry {
			layer := marshal(t, signEnvelope(t, p.key, vexStatement(t, p.digest, "one")))
			p.tag(t, p.digest, "att", artifact(t, "application/vnd.oci.image.config.v1+json", layer, "application/vnd.dsse.envelope.v1+json", nil))
			p.answerReferrers = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }
			return vexSource(p.keySource(t))
		}, want: "one by key", problem: "cannot be listed", unread: true},
		"beside one by a stranger": {attach: func(t *testing.T, p *publisher) workerapi.Registry {
			p.referBundle(t, p.digest, p.attest(t, stranger, issuer, soon(), vexStatement(t, p.digest, "strange")))
			p.referBundle(t, p.digest, p.attest(t, workflow, issuer, soon(), vexStatement(t, p.digest, "one")))
			return vexSource(p.source(t))
		}, want: "one by " + workflow, problem: "which is none of the signers"},
		"another issuer": {attach: func(t *testing.T, p *publisher) workerapi.Registry {
			p.referBundle(t, p.digest, p.attest(t, workflow, "https://issuer.example.org", soon(), vexStatement(t, p.digest, "one")))
			return vexSource(p.source(t))
		}, problem: "which is none of the signers"},
		"an expired certificate": {attach: func(t *testing.T, p *publisher) workerapi.Registry {
			p.referBundle(t, p.digest, p.attest(t, workflow, issuer, time.Now().Add(time.Hour), vexStatement(t, p.digest, "one")))
			return vexSource(p.source(t))
		}, problem: "is not accepted", unread: true},
		"another Sigstore": {attach: func(t *testing.T, p *publisher) workerapi.Registry {
			p.referBundle(t, p.digest, newPublisher(t, true).attest(t, workflow, issuer, soon(), vexStatement(t, p.digest, "one")))
			return vexSource(p.source(t))
		}, problem: "is not accepted", unread: true},
		"another digest": {attach: func(t *testing.T, p *publisher) workerapi.Registry {
			p.referBundle(t, p.digest, keyBundle(t, p.key, vexStatement(t, other, "one")))
			return vexSource(p.keySource(t))
		}, problem: "it is about " + other.String()},
		"a broken bundle": {attach: func(t *testing.T, p *publisher) workerapi.Registry {
			p.referBundle(t, p.digest, []byte("{"))
			return vexSource(p.keySource(t))
		}, problem: "attestation sha256:", unread: true},
		"too large": {attach: func(t *testing.T, p *publisher) workerapi.Registry {
			p.referBundle(t, p.digest, keyBundle(t, p.key, vexStatement(t, p.digest, strings.Repeat("x", workerapi.MaxVEXBytes))))
			return vexSource(p.keySource(t))
		}, problem: "at most 1048576 of all documents of an image are read", unread: true},
		"larger than any attestation": {attach: func(t *testing.T, p *publisher) workerapi.Registry {
			p.referBundle(t, p.digest, keyBundle(t, p.key, vexStatement(t, p.digest, strings.Repeat("x", 4*workerapi.MaxVEXBytes))))
			return vexSource(p.keySource(t))
		}, problem: "too large", unread: true},
		"a thousand": {attach: func(t *testing.T, p *publisher) workerapi.Registry {
			p.list(t, bundleType)
			return vexSource(p.keySource(t))
		}, problem: "1000 attestations are attached, and only 16 are read", unread: true},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPublisher(t, !tt.noReferrersAPI)
			documents, problem, unread := p.findVEX(t, tt.attach(t, p))
			if documents != tt.want || unread != tt.unread {
				t.Errorf("found %q, want %q; others are unread: %v, want %v", documents, tt.want, unread, tt.unread)
			}
			if (problem == "") != (tt.problem == "") || !strings.Contains(problem, tt.problem) || len(problem) > workerapi.MaxVEXProblemBytes {
				t.Errorf("the problem is %q, want %q", problem, tt.problem)
			}
		})
	}
}

// TestBuildKitVEX: of documents that BuildKit put into the index, one that may be a signer's and is not read makes the others incomplete. What a stranger
// writes beside the image does not, unless it is so much that the signature is not found.
func TestBuildKitVEX(t *testing.T) {
	other := v1.Hash{Algorithm: "sha256", Hex: strings.Repeat("ab", 32)}
	vex := func(t *testing.T, id string) func(v1.Hash) []byte {
		return func(about v1.Hash) []byte { return vexStatement(t, about, id) }
	}
	foreign := func(t *testing.T) func(v1.Hash) []byte {
		return func(v1.Hash) []byte { return vexStatement(t, other, "foreign") }
	}
	broken := func(v1.Hash) []byte {
		return []byte(`{"_type":"https://example.com","predicateType":"` + openVEX + `"}`)
	}
	// remove deletes the attestation manifest from the registry.
	remove := func(t *testing.T, p *publisher, attached v1.Image) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, "http://"+p.Host+"/v2/shop/web/manifests/"+hash(t, attached).String(), http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusAccepted {
			t.Fatal(response.Status)
		}
	}
	// manyLayers repeats a stranger's signature in more layers than are read.
	manyLayers := func(t *testing.T, p *publisher) v1.Image {
		t.Helper()
		img := simpleSignature(t, newPublisher(t, true).key, p.digest)
		layers, err := img.Layers()
		if err != nil {
			t.Fatal(err)
		}
		manifest, err := img.Manifest()
		if err != nil {
			t.Fatal(err)
		}
		again := mutate.Addendum{Layer: layers[0], MediaType: manifest.Layers[0].MediaType, Annotations: manifest.Layers[0].Annotations}
		img, err = mutate.Append(img, slices.Repeat([]mutate.Addendum{again}, 40)...)
		if err != nil {
			t.Fatal(err)
		}
		return img
	}
	for name, tt := range map[string]struct {
		layers        []func(v1.Hash) []byte
		change        func(t *testing.T, p *publisher, attached v1.Image)
		want, problem string
		unread        bool
	}{
		"one": {layers: []func(v1.Hash) []byte{vex(t, "one")}, want: "one by key", change: func(t *testing.T, p *publisher, _ v1.Image) {
			p.signTag(t, p.key, p.digest)
		}},
		"not signed": {layers: []func(v1.Hash) []byte{vex(t, "one")}, problem: "the index is not signed"},
		"not signed, and missing": {
			layers: []func(v1.Hash) []byte{vex(t, "one")}, change: remove, problem: "the index is not signed",
		},
		"missing": {layers: []func(v1.Hash) []byte{vex(t, "one")}, change: func(t *testing.T, p *publisher, attached v1.Image) {
			p.signTag(t, p.key, p.digest)
			remove(t, p, attached)
		}, problem: "the registry does not have it", unread: true},
		"behind one about another image": {
			layers: []func(v1.Hash) []byte{foreign(t), vex(t, "one")}, want: "one by key", problem: "it is about " + other.String(),
			change: func(t *testing.T, p *publisher, _ v1.Image) { p.signTag(t, p.key, p.digest) },
		},
		"behind a broken one": {
			layers: []func(v1.Hash) []byte{broken, vex(t, "one")}, want: "one by key", problem: "instead of an in-toto statement", unread: true,
			change: func(t *testing.T, p *publisher, _ v1.Image) { p.signTag(t, p.key, p.digest) },
		},
		"a stranger's signature": {layers: []func(v1.Hash) []byte{vex(t, "one")}, change: func(t *testing.T, p *publisher, _ v1.Image) {
			p.signTag(t, newPublisher(t, true).key, p.digest)
		}, problem: "its signature is not by key"},
		"a signature that is not readable, and a stranger's": {layers: []func(v1.Hash) []byte{vex(t, "one")}, change: func(t *testing.T, p *publisher, _ v1.Image) {
			p.tag(t, p.digest, "sig", artifact(t, "application/vnd.oci.image.config.v1+json", []byte("{}"), "application/vnd.dev.cosign.simplesigning.v1+json", nil))
			p.signBundle(t, newPublisher(t, true).key, p.digest)
		}, problem: "no readable signature", unread: true},
		"a stranger's signature before the signer's": {layers: []func(v1.Hash) []byte{vex(t, "one")}, change: func(t *testing.T, p *publisher, _ v1.Image) {
			p.signTag(t, newPublisher(t, true).key, p.digest)
			p.signBundle(t, p.key, p.digest)
		}, want: "one by key"},
		"a signature that the registry lists and does not have": {layers: []func(v1.Hash) []byte{vex(t, "one")}, change: func(t *testing.T, p *publisher, _ v1.Image) {
			p.answerReferrers = referrersOf(t, v1.Descriptor{MediaType: types.OCIManifestSchema1, ArtifactType: bundleType, Size: 7, Digest: other,
				Annotations: map[string]string{"dev.sigstore.bundle.predicateType": "https://sigstore.dev/cosign/sign/v1"}})
		}, problem: "the registry does not have it", unread: true},
		"a list of signatures that goes on": {layers: []func(v1.Hash) []byte{vex(t, "one")}, change: func(t *testing.T, p *publisher, _ v1.Image) {
			first := referrersOf(t)
			p.answerReferrers = func(w http.ResponseWriter, r *http.Request) {
				if strings.HasSuffix(r.URL.Path, p.digest.String()) {
					w.Header().Set("Link", `<`+r.URL.Path+`?last=1>; rel="next"`)
				}
				first(w, r)
			}
		}, problem: "more pages", unread: true},
		"a signed index whose list cannot be read": {layers: []func(v1.Hash) []byte{vex(t, "one")}, change: func(t *testing.T, p *publisher, _ v1.Image) {
			p.signTag(t, p.key, p.digest)
			p.answerReferrers = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }
		}, want: "one by key", problem: "cannot be listed", unread: true},
		"a signature behind many layers": {layers: []func(v1.Hash) []byte{vex(t, "one")}, change: func(t *testing.T, p *publisher, _ v1.Image) {
			p.tag(t, p.digest, "sig", manyLayers(t, p))
		}, problem: "of 41, only 32 are read", unread: true},
		"more signatures than are read": {layers: []func(v1.Hash) []byte{vex(t, "one")}, change: func(t *testing.T, p *publisher, _ v1.Image) {
			strange := newPublisher(t, true).key
			for range 20 {
				p.signBundle(t, strange, p.digest)
			}
		}, problem: "more than 16 artifacts", unread: true},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPublisher(t, true)
			attached := p.pushBuildKit(t, tt.layers...)
			if tt.change != nil {
				tt.change(t, p, attached)
			}
			documents, problem, unread := p.findVEX(t, vexSource(p.keySource(t)))
			if documents != tt.want || unread != tt.unread {
				t.Errorf("found %q, want %q; others are unread: %v, want %v (%s)", documents, tt.want, unread, tt.unread, problem)
			}
			if (problem == "") != (tt.problem == "") || !strings.Contains(problem, tt.problem) || len(problem) > workerapi.MaxVEXProblemBytes {
				t.Errorf("the problem is %q, want %q", problem, tt.problem)
			}
		})
	}
}
