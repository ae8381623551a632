package workerapi

import "testing"

// TestVEXProblem: each field of a VEX source that cannot be used is named.
func TestVEXProblem(t *testing.T) {
	keyless := Signer{Issuer: "https://issuer.example.com", Identity: "release@example.com"}
	image, key := []string{VEXFromImage}, []Signer{{PublicKey: testKey}}
	for name, tt := range map[string]struct {
		registry Registry
		field    string
	}{
		"nothing":                      {Registry{}, ""},
		"a key":                        {Registry{VEX: VEXSource{Sources: image, Signers: key}}, ""},
		"an identity":                  {Registry{VEX: VEXSource{Sources: image, Signers: []Signer{keyless}, TrustedRoot: testRoot}}, ""},
		"the signers of SBOMs":         {Registry{SBOM: SBOMSource{Prefer: PreferAttestation, Signers: key}, VEX: VEXSource{Sources: image}}, ""},
		"another source":               {Registry{VEX: VEXSource{Sources: []string{"Registry"}, Signers: key}}, "sources[0]"},
		"a source twice":               {Registry{VEX: VEXSource{Sources: []string{VEXFromImage, VEXFromImage}, Signers: key}}, "sources[1]"},
		"signers without a source":     {Registry{VEX: VEXSource{Signers: key}}, "sources"},
		"no signers":                   {Registry{VEX: VEXSource{Sources: image}}, "signers"},
		"a root without signers":       {Registry{SBOM: SBOMSource{Prefer: PreferAttestation, Signers: key}, VEX: VEXSource{Sources: image, TrustedRoot: testRoot}}, "trustedRoot"},
		"an empty signer":              {Registry{VEX: VEXSource{Sources: image, Signers: []Signer{{}}}}, "signers[0]"},
		"an identity without a root":   {Registry{VEX: VEXSource{Sources: image, Signers: []Signer{keyless}}}, "signers[0]"},
		"a root that is none":          {Registry{VEX: VEXSource{Sources: image, Signers: key, TrustedRoot: "x"}}, "trustedRoot"},
		"a root of an SBOM's identity": {Registry{SBOM: SBOMSource{Prefer: PreferAttestation, Signers: []Signer{keyless}, TrustedRoot: testRoot}, VEX: VEXSource{Sources: image}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if field, problem := tt.registry.VEXProblem(); field != tt.field || (problem == "") != (tt.field == "") {
				t.Errorf("the problem is %q: %q, want %q", field, problem, tt.field)
			}
		})
	}
}

// TestVEXPolicy: registries that trust the same have the same policy, wherever the signers are configured.
func TestVEXPolicy(t *testing.T) {
	image, key := []string{VEXFromImage}, []Signer{{PublicKey: testKey}}
	own := Registry{Host: "a", VEX: VEXSource{Sources: image, Signers: key}}
	shared := Registry{Host: "b", SBOM: SBOMSource{Prefer: PreferAttestation, Signers: key}, VEX: VEXSource{Sources: image}}
	other := Registry{Host: "c", VEX: VEXSource{Sources: image, Signers: []Signer{{PublicKey: "other"}}}}
	if own.VEXPolicy() == "" || own.VEXPolicy() != shared.VEXPolicy() {
		t.Errorf("registries that trust the same have the policies %q and %q", own.VEXPolicy(), shared.VEXPolicy())
	}
	if other.VEXPolicy() == own.VEXPolicy() {
		t.Error("registries that trust different signers have the same policy")
	}
	if none := (Registry{SBOM: shared.SBOM}).VEXPolicy(); none != "" {
		t.Errorf("a registry whose documents are not read has the policy %q", none)
	}
}
