package workerapi

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

const testKey = `-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE6n80QCVfoaaeuok5LxD8Pe120aIp
8oiikjxjJaE9z8k4Tt/GbUoFeCb9jt206ZVh5uXDejbZKjbzXOiJyaq13A==
-----END PUBLIC KEY-----
`

const testRoot = `{"mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1"}`

// TestSBOMSourceProblem: each error names its field.
func TestSBOMSourceProblem(t *testing.T) {
	keyless := Signer{Issuer: "https://issuer.example.com", Identity: "release@example.com"}
	for what, c := range map[string]struct {
		source SBOMSource
		want   string
	}{
		"nothing":                       {SBOMSource{}, ""},
		"a key":                         {SBOMSource{Prefer: "Attestation", Signers: []Signer{{PublicKey: testKey}}}, ""},
		"an identity":                   {SBOMSource{Prefer: "Attestation", Signers: []Signer{keyless}, TrustedRoot: testRoot}, ""},
		"another preference":            {SBOMSource{Prefer: "attestation"}, "prefer"},
		"signers without a preference":  {SBOMSource{Signers: []Signer{keyless}, TrustedRoot: testRoot}, "prefer"},
		"no signers":                    {SBOMSource{Prefer: "Attestation", TrustedRoot: testRoot}, "signers"},
		"too many signers":              {SBOMSource{Prefer: "Attestation", Signers: slices.Repeat([]Signer{keyless}, 17), TrustedRoot: testRoot}, "signers"},
		"an empty signer":               {SBOMSource{Prefer: "Attestation", Signers: []Signer{{PublicKey: testKey}, {}}}, "signers[1]"},
		"a key and an identity":         {SBOMSource{Prefer: "Attestation", Signers: []Signer{{PublicKey: testKey, Issuer: "https://issuer.example.com"}}}, "signers[0]"},
		"a private key":                 {SBOMSource{Prefer: "Attestation", Signers: []Signer{{PublicKey: strings.ReplaceAll(testKey, "PUBLIC", "PRIVATE")}}}, "signers[0].publicKey"},
		"two keys":                      {SBOMSource{Prefer: "Attestation", Signers: []Signer{{PublicKey: testKey + testKey}}}, "signers[0].publicKey"},
		"no key":                        {SBOMSource{Prefer: "Attestation", Signers: []Signer{{PublicKey: "cosign.pub"}}}, "signers[0].publicKey"},
		"an issuer without an identity": {SBOMSource{Prefer: "Attestation", Signers: []Signer{{Issuer: "https://issuer.example.com"}}, TrustedRoot: testRoot}, "signers[0].identity"},
		"an identity without an issuer": {SBOMSource{Prefer: "Attestation", Signers: []Signer{{Identity: "release@example.com"}}, TrustedRoot: testRoot}, "signers[0].issuer"},
		"two kinds of identity":         {SBOMSource{Prefer: "Attestation", Signers: []Signer{{Issuer: "https://issuer.example.com", Identity: "a", IdentityRegExp: "b"}}, TrustedRoot: testRoot}, "signers[0].identityRegExp"},
		"a broken pattern":              {SBOMSource{Prefer: "Attestation", Signers: []Signer{{Issuer: "https://issuer.example.com", IdentityRegExp: "a)|(b"}}, TrustedRoot: testRoot}, "signers[0].identityRegExp"},
		"an identity without a root":    {SBOMSource{Prefer: "Attestation", Signers: []Signer{keyless}}, "signers[0]"},
		"a root that is none":           {SBOMSource{Prefer: "Attestation", Signers: []Signer{keyless}, TrustedRoot: "trusted_root.json"}, "trustedRoot"},
	} {
		if field, problem := c.source.Problem(); field != c.want || (problem == "") != (c.want == "") {
			t.Errorf("%s: the problem is %q of %q, want one of %q", what, problem, field, c.want)
		}
	}
}

// TestIdentityPattern: an expression matches whole identities.
func TestIdentityPattern(t *testing.T) {
	pattern, err := Signer{IdentityRegExp: `https://github\.com/acme/.*|release@example\.com`}.IdentityPattern()
	if err != nil {
		t.Fatal(err)
	}
	for identity, want := range map[string]bool{
		"https://github.com/acme/web": true, "release@example.com": true,
		"https://evil.example/?https://github.com/acme/web": false, "release@example.com.evil.example": false,
	} {
		if got := regexp.MustCompile(pattern).MatchString(identity); got != want {
			t.Errorf("%s matches: %v, want %v", identity, got, want)
		}
	}
}
