package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/scanner-operator/scanner-operator/registry/registrytest"
	"github.com/scanner-operator/scanner-operator/worker/internal/fixture"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// cyclonedx is an SBOM with one package, which is not in the image.
const cyclonedx = `{"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1, "components": [
	{"type": "library", "name": "claimed", "version": "1.0", "purl": "pkg:npm/claimed@1.0", "bom-ref": "claimed"},
	{"type": "operating-system", "name": "debian", "version": "12", "bom-ref": "os"}]}`

// attested pushes an image with the package curl to a registry whose configuration trusts the signer of what is attached to the image: a predicate
// about the image, or about another digest.
func (p *pod) attested(t *testing.T, otherDigest bool, predicateType, predicate string) (reference string) {
	t.Helper()
	server := registrytest.NewRegistry(t, nil)
	image := registrytest.Image(t, fixture.OSRelease("debian", "12"), fixture.Dpkg(fixture.Deb{Name: "curl", Version: "7.88.1-10"}))
	reference, digest := server.Push(t, "shop/app:1", image), registrytest.Digest(t, image)
	about := digest
	if otherDigest {
		about = "sha256:" + strings.Repeat("ab", 32)
	}
	envelope, key := fixture.SignedEnvelope(t, about, predicateType, []byte(predicate))
	server.Push(t, "shop/app:"+strings.Replace(digest, ":", "-", 1)+".att", fixture.Attestation(t, envelope))
	signers := []workerapi.Signer{{PublicKey: key}}
	registries, err := json.Marshal([]workerapi.Registry{{
		Host: server.Host, PlainHTTP: true,
		SBOM: workerapi.SBOMSource{Prefer: workerapi.PreferAttestation, Signers: signers},
		VEX:  workerapi.VEXSource{Sources: []string{workerapi.VEXFromImage}, Signers: signers},
	}})
	if err != nil {
		t.Fatal(err)
	}
	p.environment[workerapi.EnvRegistries] = string(registries)
	return reference
}

// TestCatalogWithAnAttestation checks that an attested SBOM replaces the catalog if it is allowed and accepted, and that the result says whose claim
// it is, or why the image was cataloged.
func TestCatalogWithAnAttestation(t *testing.T) {
	for what, c := range map[string]struct {
		allowed, otherDigest bool
		// packages is a package of the SBOM. signer and problem are parts of the result's texts; empty if these are empty.
		packages, signer, problem string
	}{
		"accepted":        {allowed: true, packages: "claimed", signer: "key sha256:"},
		"another digest":  {allowed: true, otherDigest: true, packages: "curl", problem: "it is about sha256:abab"},
		"not allowed now": {packages: "curl"},
	} {
		t.Run(what, func(t *testing.T) {
			p := newPod(t)
			reference := p.attested(t, c.otherDigest, "https://cyclonedx.org/bom", cyclonedx)
			args := []string{"catalog", "--image", reference, "--platform", "linux/amd64"}
			if c.allowed {
				args = append(args, "--prefer-attestation")
			}
			if code := run(t.Context(), args, p.process); code != exitDone {
				t.Fatalf("exit code %d, log:\n%s", code, p.log.String())
			}
			p.wantEmptyTemp(t)
			document, result := p.artifact(t, p.server.SBOM), p.server.Results[0]
			if len(document.Artifacts) != 1 || document.Artifacts[0].Name != c.packages || result.Packages != 1 || result.Distro != "debian 12" {
				t.Errorf("the SBOM has %+v with the result %+v, want the package %s of debian 12", document.Artifacts, result, c.packages)
			}
			for text, want := range map[string]string{result.SBOMSigner: c.signer, result.SBOMProblem: c.problem} {
				if !strings.Contains(text, want) || (text == "") != (want == "") {
					t.Errorf("the result says %q, want %q", text, want)
				}
			}
			if pulled := strings.Contains(p.log.String(), "pulling layer"); pulled != (c.signer == "") {
				t.Errorf("layers are pulled: %v, log:\n%s", pulled, p.log.String())
			}
		})
	}
}

// TestCatalogWithVEX checks that attached OpenVEX documents are uploaded with the catalog if they are wanted and accepted.
func TestCatalogWithVEX(t *testing.T) {
	const document = `{"@context":"https://openvex.dev/ns/v0.2.0","@id":"doc","statements":[]}`
	for what, c := range map[string]struct {
		wanted, otherDigest bool
		documents           int
		problem             string
	}{
		"accepted":       {wanted: true, documents: 1},
		"another digest": {wanted: true, otherDigest: true, problem: "it is about sha256:abab"},
		"not wanted":     {},
	} {
		t.Run(what, func(t *testing.T) {
			p := newPod(t)
			reference := p.attested(t, c.otherDigest, "https://openvex.dev/ns/v0.2.0", document)
			args := []string{"catalog", "--image", reference, "--platform", "linux/amd64"}
			if c.wanted {
				args = append(args, "--attached-vex")
			}
			if code := run(t.Context(), args, p.process); code != exitDone {
				t.Fatalf("exit code %d, log:\n%s", code, p.log.String())
			}
			result := p.server.Results[0]
			if len(result.VEX) != c.documents || len(p.server.VEX) != c.documents || result.Packages != 1 {
				t.Fatalf("%d documents with the result %+v, want %d", len(p.server.VEX), result, c.documents)
			}
			if c.documents == 1 && (string(p.server.VEX[0]) != document || !strings.HasPrefix(result.VEX[0].Signer, "key sha256:")) {
				t.Errorf("the document %s by %s", p.server.VEX[0], result.VEX[0].Signer)
			}
			if !strings.Contains(result.VEXProblem, c.problem) || (result.VEXProblem == "") != (c.problem == "") {
				t.Errorf("the result says %q, want %q", result.VEXProblem, c.problem)
			}
		})
	}
}
