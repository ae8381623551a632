package config

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/scanner-operator/scanner-operator/registry"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// newCertificate returns a certificate in PEM format.
func newCertificate(t testing.TB) string {
	t.Helper()
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
}

// TestRegistries: valid settings of registries are accepted.
func TestRegistries(t *testing.T) {
	config := Default()
	config.Registries = []Registry{
		{Host: "docker.io", Mirrors: []string{"mirror.example.com/dockerhub", "mirror.example.com", "localhost/hub", "10.0.0.1:5000"}},
		{Host: "harbor:8443", CABundle: "# the company's\n" + newCertificate(t) + newCertificate(t)},
		{Host: "[fd00::1]:5000", PlainHTTP: true},
		{Host: "registry.example.com", Mirrors: []string{"registry.example.com/cache", "registry.example.com:8443"}},
		{Host: "123456789012.dkr.ecr.cn-north-1.amazonaws.com.cn", Provider: "aws", Mirrors: []string{"mirror.example.com/ecr"}},
	}
	if err := config.Validate(); err != nil {
		t.Error(err)
	}
	// The code that uses the settings validates them, too.
	if err := registry.Validate(config.RegistrySettings()); err != nil {
		t.Error(err)
	}
}

// TestInvalidRegistries: each error names its field.
func TestInvalidRegistries(t *testing.T) {
	key := string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("hunter2")}))
	broken := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("no certificate")}))
	valid := newCertificate(t)
	brokenKey := strings.Replace(key, "-----END PRIVATE KEY-----", "-----END PRIVATE KEY", 1)
	for name, tt := range map[string]struct {
		registries []Registry
		field      string
	}{
		"a host with a path":            {[]Registry{{Host: "ghcr.io/a"}}, "registries[0].host"},
		"a host with a space":           {[]Registry{{Host: "ghcr .io"}}, "registries[0].host"},
		"a host with credentials":       {[]Registry{{Host: "user:hunter2@ghcr.io"}}, "registries[0].host"},
		"a wildcard":                    {[]Registry{{Host: "*.example.com"}}, "registries[0].host"},
		"Docker Hub under two names":    {[]Registry{{Host: "docker.io"}, {Host: "index.docker.io"}}, "registries[1].host"},
		"Docker Hub's oldest name":      {[]Registry{{Host: "docker.io"}, {Host: "www.docker.com"}}, "registries[1].host"},
		"the same host in capitals":     {[]Registry{{Host: "ghcr.io"}, {Host: "GHCR.io"}}, "registries[1].host"},
		"no certificate":                {[]Registry{{Host: "a.b", CABundle: "hunter2"}}, "registries[0].caBundle"},
		"a broken certificate":          {[]Registry{{Host: "a.b", CABundle: valid + broken}}, "registries[0].caBundle"},
		"a private key":                 {[]Registry{{Host: "a.b", CABundle: valid + key}}, "registries[0].caBundle"},
		"a private key without its end": {[]Registry{{Host: "a.b", CABundle: valid + brokenKey}}, "registries[0].caBundle"},
		"a broken private key at first": {[]Registry{{Host: "a.b", CABundle: brokenKey + valid}}, "registries[0].caBundle"},
		"more than a variable can hold": {[]Registry{{Host: "a.b", CABundle: strings.Repeat(valid, 1+100<<10/len(valid))}}, "registries"},
		"a mirror with scheme":          {[]Registry{{Host: "a.b", Mirrors: []string{"https://c.d"}}}, "registries[0].mirrors[0]"},
		"a mirror without a host":       {[]Registry{{Host: "a.b", Mirrors: []string{"/c"}}}, "registries[0].mirrors[0]"},
		"a mirror with a bare name":     {[]Registry{{Host: "a.b", Mirrors: []string{"mirror/hub"}}}, "registries[0].mirrors[0]"},
		"a mirror with a tag":           {[]Registry{{Host: "a.b", Mirrors: []string{"c.d/hub:1"}}}, "registries[0].mirrors[0]"},
		"a mirror in capitals":          {[]Registry{{Host: "a.b", Mirrors: []string{"c.d/Hub"}}}, "registries[0].mirrors[0]"},
		"a mirror that ends at a slash": {[]Registry{{Host: "a.b", Mirrors: []string{"c.d/"}}}, "registries[0].mirrors[0]"},
		"a mirror of itself":            {[]Registry{{Host: "docker.io", Mirrors: []string{"registry-1.docker.io"}}}, "registries[0].mirrors[0]"},
		"a mirror twice":                {[]Registry{{Host: "a.b", Mirrors: []string{"c.d/e", "C.d/e"}}}, "registries[0].mirrors[1]"},
		"too many mirrors":              {[]Registry{{Host: "a.b", Mirrors: manyMirrors(9)}}, "registries[0].mirrors"},
		"an unknown provider":           {[]Registry{{Host: "company.azurecr.io", Provider: "Azure"}}, "registries[0].provider"},
		"a provider of other hosts":     {[]Registry{{Host: "company.azurecr.io", Provider: "gcp"}}, "registries[0].provider"},
		"VEX without signers":           {[]Registry{{Host: "a.b", VEX: workerapi.VEXSource{Sources: []string{"Image"}}}}, "registries[0].vex.signers"},
		"an SBOM without signers":       {[]Registry{{Host: "a.b", SBOM: workerapi.SBOMSource{Prefer: "Attestation"}}}, "registries[0].sbom.signers"},
		"a provider with its own CA":    {[]Registry{{Host: "company.azurecr.io", Provider: "azure", CABundle: valid}}, "registries[0].provider"},
	} {
		t.Run(name, func(t *testing.T) {
			config := Default()
			config.Registries = tt.registries
			err := config.Validate()
			if err == nil {
				t.Fatal("it is accepted")
			}
			if !strings.HasPrefix(err.Error(), tt.field+": ") || strings.Contains(err.Error(), "\n") {
				t.Errorf("the error is %q, want one line that begins with %q", err, tt.field+": ")
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the error repeats what may be a secret: %q", err)
			}
		})
	}
}

// TestCABundleHasOnlyCertificates: only the certificates of a bundle are passed on.
func TestCABundleHasOnlyCertificates(t *testing.T) {
	valid := newCertificate(t)
	text, err := json.Marshal(map[string]any{"registries": []Registry{{Host: "a.b", CABundle: "hunter2\n" + valid + "hunter2\n" + valid + "hunter2"}}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	config, err := Load(file)
	if err != nil {
		t.Fatal(err)
	}
	if got := config.Registries[0].CABundle; got != valid+valid {
		t.Errorf("the caBundle is\n%s\nwant the two certificates and nothing else", got)
	}
}

// TestProviders: a registry has the provider of its own entry, and those of its mirrors' entries beside it.
func TestProviders(t *testing.T) {
	config := Config{Registries: []Registry{
		{Host: "docker.io", Mirrors: []string{"mirror.example.com/hub", "gcr.io/hub", "company.azurecr.io/hub"}},
		{Host: "Company.azurecr.io", Provider: "azure", Mirrors: []string{"gcr.io", "eu.gcr.io"}},
		{Host: "gcr.io", Provider: "gcp"},
		{Host: "eu.gcr.io", Provider: "gcp"},
	}}
	for host, want := range map[string]struct {
		own string
		all []string
	}{
		"registry-1.docker.io": {"", []string{"gcp", "azure"}},
		"company.AZURECR.io":   {"azure", []string{"azure", "gcp"}},
		"gcr.io":               {"gcp", []string{"gcp"}},
		"us.gcr.io":            {"", nil},
	} {
		if got := config.Provider(host); got != want.own {
			t.Errorf("%s: provider %q, want %q", host, got, want.own)
		}
		if diff := cmp.Diff(want.all, config.Providers(host)); diff != "" {
			t.Errorf("%s: providers with those of mirrors (-want +got):\n%s", host, diff)
		}
	}
}

// manyMirrors returns n different mirrors.
func manyMirrors(n int) (mirrors []string) {
	for i := range n {
		mirrors = append(mirrors, fmt.Sprintf("mirror-%d.example.com", i))
	}
	return mirrors
}

// TestSBOMPolicy: attested SBOMs of an image are accepted only if all of its registries trust the same signers.
func TestSBOMPolicy(t *testing.T) {
	acme := workerapi.SBOMSource{Prefer: "Attestation", Signers: []workerapi.Signer{{Issuer: "https://issuer.example.com", Identity: "acme"}}, TrustedRoot: "{}"}
	other := workerapi.SBOMSource{Prefer: "Attestation", Signers: []workerapi.Signer{{Issuer: "https://issuer.example.com", Identity: "other"}}, TrustedRoot: "{}"}
	config := Config{Registries: []Registry{{Host: "docker.io", SBOM: acme}, {Host: "same.example.com", SBOM: acme}, {Host: "other.example.com", SBOM: other}, {Host: "none.example.com"}}}
	for name, tt := range map[string]struct {
		repositories []string
		want         string
	}{
		"none":                       {nil, ""},
		"one":                        {[]string{"docker.io/library/web", "docker.io/library/web"}, acme.Policy()},
		"two that trust the same":    {[]string{"docker.io/library/web", "same.example.com/web"}, acme.Policy()},
		"two that trust others":      {[]string{"docker.io/library/web", "other.example.com/web"}, ""},
		"one that trusts nobody":     {[]string{"docker.io/library/web", "none.example.com/web"}, ""},
		"one that is not configured": {[]string{"unknown.example.com/web", "docker.io/library/web"}, ""},
	} {
		if got := config.SBOMPolicy(tt.repositories...); got != tt.want {
			t.Errorf("%s: the policy is %q, want %q", name, got, tt.want)
		}
	}
	if acme.Policy() == other.Policy() || acme.Policy() == "" {
		t.Errorf("the policies %q and %q are the same, or empty", acme.Policy(), other.Policy())
	}
}

// TestVEXHosts: statements count for the hosts that trust the same signers now.
func TestVEXHosts(t *testing.T) {
	trusting := func(host, identity string) Registry {
		return Registry{Host: host, VEX: workerapi.VEXSource{
			Sources: []string{workerapi.VEXFromImage}, Signers: []workerapi.Signer{{Issuer: "https://issuer.example.com", Identity: identity}}, TrustedRoot: "{}",
		}}
	}
	c := Config{Registries: []Registry{trusting("a.example.com", "acme"), trusting("index.docker.io", "acme"), trusting("b.example.com", "other"), {Host: "c.example.com"}}}
	acme := c.VEXPolicy("a.example.com/web")
	if diff := cmp.Diff([]string{"a.example.com", "docker.io"}, c.VEXHosts(acme)); diff != "" {
		t.Errorf("hosts (-want +got):\n%s", diff)
	}
	if hosts := c.VEXHosts("former"); hosts != nil {
		t.Errorf("a policy that nobody has counts for %q", hosts)
	}
	if hosts := c.VEXHosts(""); hosts != nil {
		t.Errorf("statements that nobody has signed count for %q", hosts)
	}
	for _, repositories := range [][]string{{"a.example.com/web", "b.example.com/web"}, {"a.example.com/web", "c.example.com/web"}, {"d.example.com/web"}, {}} {
		if policy := c.VEXPolicy(repositories...); policy != "" {
			t.Errorf("images of %q have the policy %q", repositories, policy)
		}
	}
	if !c.ReadsVEX() || (Config{}).ReadsVEX() {
		t.Error("whether any documents are read is wrong")
	}
}
