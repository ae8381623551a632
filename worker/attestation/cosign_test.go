package attestation_test

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	ours "github.com/scanner-operator/scanner-operator/registry"
	"github.com/scanner-operator/scanner-operator/worker/attestation"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// TestCosign: what cosign 3.1.3 itself attaches is accepted. Each file in testdata/cosign has what a registry without the referrers API
// answered afterwards, by path; layers are left out. cosign.pub is from "cosign generate-key-pair", sc.json from "cosign signing-config create".
//
//	attest-bundle  cosign attest --key cosign.key --signing-config sc.json --type spdxjson --predicate web.spdx.json IMAGE@DIGEST
//	attest-tag     cosign attest --key cosign.key --new-bundle-format=false --use-signing-config=false --tlog-upload=false
//	                 --type custom --predicate web.syft.json IMAGE@DIGEST
//	sign-bundle    cosign sign --key cosign.key --signing-config sc.json INDEX@DIGEST
//	sign-tag       cosign sign --key cosign.key --new-bundle-format=false --use-signing-config=false --tlog-upload=false INDEX@DIGEST
//
// The index has an SBOM where BuildKit puts one.
func TestCosign(t *testing.T) {
	key, err := os.ReadFile("testdata/cosign/cosign.pub")
	if err != nil {
		t.Fatal(err)
	}
	source := workerapi.SBOMSource{Prefer: workerapi.PreferAttestation, Signers: []workerapi.Signer{{PublicKey: string(key)}}}
	for _, name := range []string{"attest-bundle", "attest-tag", "sign-bundle", "sign-tag"} {
		t.Run(name, func(t *testing.T) {
			host := recordedRegistry(t, filepath.Join("testdata", "cosign", name+".json"))
			puller := &ours.Puller{Registries: []workerapi.Registry{{Host: host, PlainHTTP: true}}, Log: slog.New(slog.DiscardHandler), Now: time.Now}
			img, err := puller.Pull(t.Context(), []string{host + "/shop/web:1"}, v1.Platform{OS: "linux", Architecture: "amd64"})
			if err != nil {
				t.Fatal(err)
			}
			found, problem, err := attestation.Find(t.Context(), puller, img, source, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			if got := packages(found); got != wantPackages {
				t.Fatalf("found %q (%s), want %q", got, problem, wantPackages)
			}
			if want := "key sha256:"; !strings.HasPrefix(found.Signer, want) {
				t.Errorf("the signer is %q, want %q", found.Signer, want)
			}
		})
	}
}

// recordedRegistry starts a registry that gives recorded answers, and returns its host.
func recordedRegistry(t *testing.T, file string) (host string) {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var answers map[string]string
	if err := json.Unmarshal(raw, &answers); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, known := answers[strings.TrimPrefix(r.URL.Path, "/v2/shop/web/")]
		if r.URL.Path != "/v2/" && !known {
			http.NotFound(w, r)
			return
		}
		var manifest struct {
			MediaType string `json:"mediaType"`
		}
		if strings.Contains(r.URL.Path, "/manifests/") && json.Unmarshal([]byte(answer), &manifest) == nil {
			w.Header().Set("Content-Type", manifest.MediaType)
		}
		if _, err := w.Write([]byte(answer)); err != nil {
			t.Log(err)
		}
	}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}
