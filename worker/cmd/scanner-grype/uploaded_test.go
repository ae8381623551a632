package main

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/scanner-operator/scanner-operator/registry/failure"
	"github.com/scanner-operator/scanner-operator/registry/registrytest"
	"github.com/scanner-operator/scanner-operator/worker/internal/fixture"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// uploadedBody returns what the ingest API sends for an uploaded SBOM.
func uploadedBody(t testing.TB, sbom string, manifests ...[]byte) string {
	t.Helper()
	var header workerapi.UploadedSBOM
	documents := ""
	for _, manifest := range manifests {
		header.ManifestSizes = append(header.ManifestSizes, int64(len(manifest)))
		documents += string(manifest)
	}
	line, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	encoder, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return string(line) + "\n" + documents + string(encoder.EncodeAll([]byte(sbom), nil))
}

// TestCatalogWithAnUpload checks that an uploaded SBOM is used where the image cannot be pulled, and only there, and that a failure says why neither
// works.
func TestCatalogWithAnUpload(t *testing.T) {
	for what, c := range map[string]struct {
		pulled, accepted bool
		sbom             string
		status           int
		// packages is a package of the SBOM. problem and failure are parts of texts; empty if there is none.
		packages, problem, failure string
	}{
		"the image cannot be pulled": {accepted: true, sbom: cyclonedx, packages: "claimed", problem: "ImageNotFound: "},
		"it can":                     {pulled: true, accepted: true, sbom: cyclonedx, packages: "curl"},
		"not accepted":               {sbom: cyclonedx, failure: "NAME_UNKNOWN"},
		"an upload that is none":     {accepted: true, sbom: `{"a": 1}`, failure: "the SBOM that was uploaded for the image cannot be used: "},
		"an upload without packages": {accepted: true, sbom: strings.Replace(cyclonedx, `"components"`, `"other"`, 1), failure: "it lists no packages"},
		"a withdrawn upload":         {accepted: true, status: http.StatusGone, failure: "replaced or withdrawn"},
	} {
		t.Run(what, func(t *testing.T) {
			p := newPod(t)
			server := registrytest.NewRegistry(t, nil)
			image := registrytest.Image(t, fixture.OSRelease("debian", "12"), fixture.Dpkg(fixture.Deb{Name: "curl", Version: "7.88.1-10"}))
			manifest, err := image.RawManifest()
			if err != nil {
				t.Fatal(err)
			}
			reference := server.Host + "/shop/app@" + registrytest.Digest(t, image)
			if c.pulled {
				server.Push(t, "shop/app:1", image)
			}
			p.registry(server.Host)
			p.server.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
				switch {
				case r.URL.Path != workerapi.PathUploadedSBOM:
					return false
				case c.status != 0:
					http.Error(w, "the uploaded SBOM was replaced or withdrawn meanwhile", c.status)
				default:
					_, _ = io.WriteString(w, uploadedBody(t, c.sbom, manifest))
				}
				return true
			}
			args := []string{"catalog", "--image", reference, "--platform", "linux/amd64"}
			if c.accepted {
				args = append(args, "--accept-upload")
			}
			code := run(t.Context(), args, p.process)
			p.wantEmptyTemp(t)
			if c.failure != "" {
				failed := p.failure(t)
				if code == exitDone || failed == nil || failed.Reason != workerapi.ReasonImageNotFound || !strings.Contains(failed.Message, c.failure) {
					t.Fatalf("exit code %d with the failure %+v, want %s and %q", code, failed, workerapi.ReasonImageNotFound, c.failure)
				}
				return
			}
			if code != exitDone {
				t.Fatalf("exit code %d, log:\n%s", code, p.log.String())
			}
			document, result := p.artifact(t, p.server.SBOM), p.server.Results[0]
			if len(document.Artifacts) != 1 || document.Artifacts[0].Name != c.packages || result.Distro != "debian 12" || result.UploadedSBOM == c.pulled {
				t.Errorf("the SBOM has %+v with the result %+v, want the package %s of debian 12", document.Artifacts, result, c.packages)
			}
			if !strings.HasPrefix(result.SBOMProblem, c.problem) || (result.SBOMProblem == "") != (c.problem == "") {
				t.Errorf("the result says %q, want %q", result.SBOMProblem, c.problem)
			}
			if len(p.server.Manifests) != 1 || string(p.server.Manifests[0]) != string(manifest) {
				t.Errorf("the result has %d documents, want the manifest", len(p.server.Manifests))
			}
		})
	}
}

// TestReasonOfAnUpload checks that a failure without a reason of its own has that of the command, too.
func TestReasonOfAnUpload(t *testing.T) {
	p := newPod(t)
	p.server.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == workerapi.PathUploadedSBOM {
			_, _ = io.WriteString(w, uploadedBody(t, cyclonedx, []byte("{}")))
			return true
		}
		return false
	}
	log := slog.New(slog.DiscardHandler)
	job, err := p.parseCatalog([]string{"--image", "registry.example.com/app", "--platform", "linux/amd64"}, log)
	if err != nil {
		t.Fatal(err)
	}
	uploaded, err := job.uploadedSBOM(t.Context(), log, errors.New("unknown layout"))
	if want := workerapi.ReasonCatalogFailed + ": unknown layout"; err != nil || uploaded.problem != want {
		t.Errorf("the problem is %q (%v), want %q", uploaded.problem, err, want)
	}
}

// TestFailuresThatMayPass checks that an upload does not count while the image's content may be there soon.
func TestFailuresThatMayPass(t *testing.T) {
	p := newPod(t)
	p.server.Intercept = func(_ http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == workerapi.PathUploadedSBOM {
			t.Error("the upload was read")
		}
		return false
	}
	log := slog.New(slog.DiscardHandler)
	job, err := p.parseCatalog([]string{"--image", "registry.example.com/app", "--platform", "linux/amd64"}, log)
	if err != nil {
		t.Fatal(err)
	}
	for _, reason := range []string{workerapi.ReasonRegistryThrottled, workerapi.ReasonRegistryUnavail, workerapi.ReasonScratchFull} {
		cause := failure.New(reason, errors.New("try again"))
		if _, err := job.uploadedSBOM(t.Context(), log, cause); !errors.Is(err, cause) {
			t.Errorf("%s becomes %v, want the failure itself", reason, err)
		}
	}
}

// TestUploadAdvice checks that a failure for lack of credentials names the way out.
func TestUploadAdvice(t *testing.T) {
	p := newPod(t)
	server := registrytest.NewRegistry(t, func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("WWW-Authenticate", "Basic")
			w.WriteHeader(http.StatusUnauthorized)
		})
	})
	image := registrytest.Image(t)
	p.registry(server.Host)
	if code := run(t.Context(), []string{"catalog", "--image", server.Host + "/shop/app@" + registrytest.Digest(t, image), "--platform", "linux/amd64"}, p.process); code == exitDone {
		t.Fatal("the image was cataloged")
	}
	if failed := p.failure(t); failed.Reason != workerapi.ReasonUnauthorized || !strings.Contains(failed.Message, uploadURL) {
		t.Errorf("the failure is %+v, want %s with %s", failed, workerapi.ReasonUnauthorized, uploadURL)
	}
}

// FuzzUploaded: what the ingest API sends is refused, or has packages and at most as many documents as are taken.
func FuzzUploaded(f *testing.F) {
	f.Add([]byte(uploadedBody(f, cyclonedx, []byte("{}"))))
	f.Add([]byte(uploadedBody(f, `{}`, []byte("{}"), []byte("[]"))))
	f.Add([]byte("{\"manifestSizes\":[-1]}\n"))
	f.Add([]byte("{\"manifestSizes\":[9999999999]}\n"))
	f.Fuzz(func(t *testing.T, body []byte) {
		uploaded, err := readUploaded(strings.NewReader(string(body)))
		if err == nil && (uploaded.Artifacts.Packages.PackageCount() == 0 || len(uploaded.documents) > workerapi.MaxManifests || !uploaded.uploaded) {
			t.Errorf("%d packages with %d documents are taken", uploaded.Artifacts.Packages.PackageCount(), len(uploaded.documents))
		}
	})
}
