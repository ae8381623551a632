package attestation_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

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

// findVEX pulls the image and returns the documents' IDs with their signers, and the problem.
func (p *publisher) findVEX(t *testing.T, of workerapi.Registry) (documents, problem string) {
	t.Helper()
	puller := &ours.Puller{Registries: []workerapi.Registry{{Host: p.Host, PlainHTTP: true}}, Log: slog.New(slog.DiscardHandler), Now: time.Now}
	img, err := puller.Pull(t.Context(), []string{p.reference}, v1.Platform{OS: "linux", Architecture: "amd64"})
	if err != nil {
		t.Fatal(err)
	}
	found, problem, err := attestation.FindVEX(t.Context(), puller, img, of, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, f := range found {
		_, id, _ := strings.Cut(string(f.Content), `"@id":"`)
		id, _, _ = strings.Cut(id, `"`)
		signer, _, _ := strings.Cut(f.Signer, " ")
		texts = append(texts, id+" by "+signer)
	}
	return strings.Join(texts, ", "), problem
}

// vexSource trusts what an SBOM source trusts.
func vexSource(of workerapi.SBOMSource) workerapi.Registry {
	return workerapi.Registry{VEX: workerapi.VEXSource{Sources: []string{workerapi.VEXFromImage}, Signers: of.Signers, TrustedRoot: of.TrustedRoot}}
}

// TestFindVEX: which attached documents are returned, and why others are not.
func TestFindVEX(t *testing.T) {
	other := v1.Hash{Algorithm: "sha256", Hex: strings.Repeat("a", 64)}
	for name, tt := range map[string]struct {
		attach         func(t *testing.T, p *publisher) workerapi.Registry
		want, problem  string
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
		}, problem: "is not accepted"},
		"another Sigstore": {attach: func(t *testing.T, p *publisher) workerapi.Registry {
			p.referBundle(t, p.digest, newPublisher(t, true).attest(t, workflow, issuer, soon(), vexStatement(t, p.digest, "one")))
			return vexSource(p.source(t))
		}, problem: "is not accepted"},
		"another digest": {attach: func(t *testing.T, p *publisher) workerapi.Registry {
			p.referBundle(t, p.digest, keyBundle(t, p.key, vexStatement(t, other, "one")))
			return vexSource(p.keySource(t))
		}, problem: "it is about " + other.String()},
		"a broken bundle": {attach: func(t *testing.T, p *publisher) workerapi.Registry {
			p.referBundle(t, p.digest, []byte("{"))
			return vexSource(p.keySource(t))
		}, problem: "attestation sha256:"},
		"too large": {attach: func(t *testing.T, p *publisher) workerapi.Registry {
			p.referBundle(t, p.digest, keyBundle(t, p.key, vexStatement(t, p.digest, strings.Repeat("x", workerapi.MaxVEXBytes))))
			return vexSource(p.keySource(t))
		}, problem: "at most 1048576 of all documents of an image are read"},
		"larger than any attestation": {attach: func(t *testing.T, p *publisher) workerapi.Registry {
			p.referBundle(t, p.digest, keyBundle(t, p.key, vexStatement(t, p.digest, strings.Repeat("x", 4*workerapi.MaxVEXBytes))))
			return vexSource(p.keySource(t))
		}, problem: "too large"},
		"a thousand": {attach: func(t *testing.T, p *publisher) workerapi.Registry {
			p.list(t, bundleType)
			return vexSource(p.keySource(t))
		}, problem: "1000 attestations are attached, and only 16 are read"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPublisher(t, !tt.noReferrersAPI)
			documents, problem := p.findVEX(t, tt.attach(t, p))
			if documents != tt.want {
				t.Errorf("found %q, want %q", documents, tt.want)
			}
			if (problem == "") != (tt.problem == "") || !strings.Contains(problem, tt.problem) || len(problem) > workerapi.MaxVEXProblemBytes {
				t.Errorf("the problem is %q, want %q", problem, tt.problem)
			}
		})
	}
}
