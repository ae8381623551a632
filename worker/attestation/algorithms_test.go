package attestation_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"strings"
	"testing"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"github.com/sigstore/sigstore/pkg/signature"
	sigdsse "github.com/sigstore/sigstore/pkg/signature/dsse"

	"github.com/scanner-operator/scanner-operator/workerapi"
)

// TestKeyAlgorithms: keys other than ECDSA P-256, as cosign has signed with them, with SHA-256 before 2.6, and as KMS do.
func TestKeyAlgorithms(t *testing.T) {
	p384, _ := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	p521, _ := ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	rsa2048, _ := rsa.GenerateKey(rand.Reader, 2048)
	rsa4096, _ := rsa.GenerateKey(rand.Reader, 4096)
	_, ed, _ := ed25519.GenerateKey(rand.Reader)
	must := func(s signature.SignerVerifier, err error) signature.SignerVerifier {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	pss := func(k *rsa.PrivateKey) (signature.SignerVerifier, error) {
		return signature.LoadRSAPSSSignerVerifier(k, crypto.SHA256, nil)
	}
	for what, c := range map[string]struct {
		signer signature.SignerVerifier
		public crypto.PublicKey
	}{
		"P-384 with SHA-256, cosign before 2.6": {must(signature.LoadSignerVerifier(p384, crypto.SHA256)), p384.Public()},
		"P-384 with SHA-384":                    {must(signature.LoadSignerVerifier(p384, crypto.SHA384)), p384.Public()},
		"P-521 with SHA-256, cosign before 2.6": {must(signature.LoadSignerVerifier(p521, crypto.SHA256)), p521.Public()},
		"P-521 with SHA-512":                    {must(signature.LoadSignerVerifier(p521, crypto.SHA512)), p521.Public()},
		"RSA 2048 with SHA-256":                 {must(signature.LoadSignerVerifier(rsa2048, crypto.SHA256)), rsa2048.Public()},
		"RSA 4096 with SHA-256":                 {must(signature.LoadSignerVerifier(rsa4096, crypto.SHA256)), rsa4096.Public()},
		"RSA 4096 with SHA-512, Google's KMS":   {must(signature.LoadSignerVerifier(rsa4096, crypto.SHA512)), rsa4096.Public()},
		"RSA 2048, PSS":                         {must(pss(rsa2048)), rsa2048.Public()},
		"RSA 4096, PSS with SHA-512":            {must(signature.LoadRSAPSSSignerVerifier(rsa4096, crypto.SHA512, nil)), rsa4096.Public()},
		"Ed25519":                               {must(signature.LoadSignerVerifier(ed, crypto.SHA256)), ed.Public()},
	} {
		t.Run(what, func(t *testing.T) {
			p := newPublisher(t, true)
			envelopes, err := dsse.NewEnvelopeSigner(&sigdsse.SignerAdapter{SignatureSigner: c.signer, Pub: c.public})
			if err != nil {
				t.Fatal(err)
			}
			envelope, err := envelopes.SignPayload(context.Background(), "application/vnd.in-toto+json", p.sbomStatement(t, "web"))
			if err != nil {
				t.Fatal(err)
			}
			p.tag(t, p.digest, "att", artifact(t, "application/vnd.oci.image.config.v1+json", marshal(t, envelope), "application/vnd.dsse.envelope.v1+json", nil))
			raw, err := x509.MarshalPKIXPublicKey(c.public)
			if err != nil {
				t.Fatal(err)
			}
			found, problem := p.find(t, workerapi.SBOMSource{Prefer: workerapi.PreferAttestation, Signers: []workerapi.Signer{{PublicKey: string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: raw}))}}})
			if found == nil {
				t.Errorf("not accepted: %s", problem)
			}
		})
	}
}

// TestUnfitKeyIsExplained: the reason names the algorithms that were tried.
func TestUnfitKeyIsExplained(t *testing.T) {
	p := newPublisher(t, true)
	p.referBundle(t, p.digest, keyBundle(t, p.key, p.sbomStatement(t, "web")))
	other, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKIXPublicKey(other.Public())
	if err != nil {
		t.Fatal(err)
	}
	text := string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: raw}))
	_, problem := p.find(t, workerapi.SBOMSource{Prefer: workerapi.PreferAttestation, Signers: []workerapi.Signer{{PublicKey: text}}})
	if !strings.Contains(problem, "ECDSA P-384 with SHA-256, SHA-384, SHA-512") {
		t.Errorf("the problem is %q", problem)
	}
}
