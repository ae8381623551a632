package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/anchore/syft/syft/format/syftjson/model"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/scanner-operator/scanner-operator/registry/document"
	"github.com/scanner-operator/scanner-operator/registry/registrytest"
	"github.com/scanner-operator/scanner-operator/worker/clock"
	"github.com/scanner-operator/scanner-operator/worker/internal/cloudtest"
	"github.com/scanner-operator/scanner-operator/worker/internal/fixture"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// pod is the environment of a worker's pod.
type pod struct {
	process
	environment map[string]string
	server      *fixture.Ingest
	temp        string
	log         bytes.Buffer
	out         bytes.Buffer
}

func newPod(t *testing.T) *pod {
	t.Helper()
	p := &pod{server: fixture.NewIngest(t), temp: t.TempDir()}
	t.Setenv("TMPDIR", p.temp)
	p.environment = map[string]string{workerapi.EnvServer: p.server.URL, workerapi.EnvServerCA: p.server.CA}
	p.process = process{
		getenv: func(name string) string { return p.environment[name] },
		stdout: &p.out, stderr: &p.log,
		tokenFile:       p.server.TokenFile,
		terminationFile: filepath.Join(t.TempDir(), "termination-log"),
		pullSecretsDir:  filepath.Join(t.TempDir(), "pull"),
		clock:           clock.NewFake(time.Now()),
	}
	return p
}

// registry configures plain HTTP for a host.
func (p *pod) registry(host string) {
	p.environment[workerapi.EnvRegistries] = fmt.Sprintf(`[{"host": %q, "plainHTTP": true}]`, host)
}

// secret mounts a pull secret.
func (p *pod) secret(t *testing.T, host, user, password string) {
	t.Helper()
	dir := filepath.Join(p.pullSecretsDir, "secret")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	content := fmt.Sprintf(`{"auths": {%q: {"username": %q, "password": %q}}}`, host, user, password)
	if err := os.WriteFile(filepath.Join(dir, ".dockerconfigjson"), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// failure returns the content of the termination file; nil if there is none.
func (p *pod) failure(t *testing.T) *workerapi.Failure {
	t.Helper()
	raw, err := os.ReadFile(p.terminationFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	var f workerapi.Failure
	if err := json.Unmarshal(raw, &f); err != nil {
		t.Fatal(err)
	}
	return &f
}

func (p *pod) wantEmptyTemp(t *testing.T) {
	t.Helper()
	entries, err := os.ReadDir(p.temp)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		t.Errorf("%s is left in the temporary directory", entry.Name())
	}
}

func TestUsageErrors(t *testing.T) {
	for what, c := range map[string]struct {
		args        []string
		environment map[string]string
		want        string
	}{
		"no command":               {nil, nil, "Usage:"},
		"an unknown command":       {[]string{"scan"}, nil, `unknown command "scan"`},
		"no image":                 {[]string{"catalog", "--platform", "linux/amd64"}, nil, "--image is required"},
		"no platform":              {[]string{"catalog", "--image", "x"}, nil, "--platform must be os/arch"},
		"a platform without an OS": {[]string{"catalog", "--image", "x", "--platform", "amd64"}, nil, "--platform must be os/arch"},
		"an unknown architecture":  {[]string{"catalog", "--image", "x", "--platform", "linux/pdp11"}, nil, "--platform must be os/arch"},
		"an unknown format":        {[]string{"catalog", "--image", "x", "--platform", "linux/amd64", "--format", "syft-json"}, nil, "--format must be one of cyclonedx-json, spdx-json"},
		"a surplus argument":       {[]string{"catalog", "--image", "x", "--platform", "linux/amd64", "y"}, nil, `unexpected argument "y"`},
		"an unknown flag":          {[]string{"match", "--speed", "1"}, nil, "not defined"},
		"broken registries":        {[]string{"catalog", "--image", "x", "--platform", "linux/amd64"}, map[string]string{workerapi.EnvRegistries: `{}`}, workerapi.EnvRegistries},
		"a registry's broken CA":   {[]string{"catalog", "--image", "x", "--platform", "linux/amd64"}, map[string]string{workerapi.EnvRegistries: `[{"host": "a.b", "caBundle": "x"}]`}, "caBundle of a.b"},
		"a provider of no cloud":   {[]string{"catalog", "--image", "x", "--platform", "linux/amd64"}, map[string]string{workerapi.EnvRegistries: `[{"host": "a.b", "provider": "aws"}]`}, `provider "aws" of a.b must be`},
		"a registry with a path":   {[]string{"catalog", "--image", "x", "--platform", "linux/amd64"}, map[string]string{workerapi.EnvRegistries: `[{"host": "a/b"}]`}, "not a host name"},
		"no server":                {[]string{"catalog", "--image", "x", "--platform", "linux/amd64"}, map[string]string{workerapi.EnvServer: ""}, workerapi.EnvServer},
		"no database URL":          {[]string{"match"}, nil, "--database-url is required"},
		"a database URL of ftp":    {[]string{"match", "--database-url", "ftp://x"}, nil, "--database-url"},
		"too much at a time":       {[]string{"match", "--database-url", "http://x", "--parallel", "100"}, nil, "--parallel must be from 1 to 32"},
		"no time":                  {[]string{"match", "--database-url", "http://x"}, map[string]string{"SCANNER_IDLE_TIMEOUT": "soon"}, "SCANNER_IDLE_TIMEOUT"},
	} {
		t.Run(what, func(t *testing.T) {
			p := newPod(t)
			for name, value := range c.environment {
				p.environment[name] = value
			}
			if code := run(t.Context(), c.args, p.process); code != exitUsage {
				t.Errorf("exit code %d, want %d", code, exitUsage)
			}
			if !strings.Contains(p.log.String(), c.want) {
				t.Errorf("said %q, want %q in it", p.log.String(), c.want)
			}
		})
	}
}

func TestFlagsWinOverTheEnvironment(t *testing.T) {
	p := newPod(t)
	p.environment["SCANNER_DATABASE_URL"] = "https://environment.example"
	p.environment["SCANNER_PARALLEL"] = "7"
	job, err := p.parseMatch([]string{"--database-url", "https://flag.example"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if got := job.source.String(); got != "https://flag.example/v6/latest.json" || job.parallel != 7 {
		t.Errorf("database %s and parallel %d, want the flag's database and the environment's 7", got, job.parallel)
	}
}

func TestVersion(t *testing.T) {
	p := newPod(t)
	code := run(t.Context(), []string{"version"}, p.process)
	if code != exitDone || !strings.HasPrefix(p.out.String(), "scanner-grype dev (go") || !strings.Contains(p.out.String(), ", syft ") {
		t.Errorf("exit code %d and %q, want 0 and the versions", code, p.out.String())
	}
}

func TestCatalog(t *testing.T) {
	p := newPod(t)
	server := registrytest.NewRegistry(t, nil)
	p.registry(server.Host)
	p.secret(t, server.Host, "robot", "s3cret-password")
	image := registrytest.Image(t, fixture.Debian())
	reference := server.PushIndex(t, "shop/app:1", registrytest.Index(t, map[string]v1.Image{
		"amd64": image, "arm64": registrytest.ImageFor(t, "arm64", registrytest.Files{"a": "b"}),
	}))
	args := []string{"catalog", "--image", server.Host + "/shop/gone:1", "--image", reference, "--platform", "linux/amd64"}
	if code := run(t.Context(), args, p.process); code != exitDone {
		t.Fatalf("exit code %d, log:\n%s", code, p.log.String())
	}

	full, compact := p.artifact(t, p.server.SBOM), p.artifact(t, p.server.MatchInput)
	if len(full.Artifacts) == 0 || len(full.Artifacts) != len(compact.Artifacts) {
		t.Errorf("%d packages in the SBOM, %d in the match input; want the same number", len(full.Artifacts), len(compact.Artifacts))
	}
	want := []workerapi.CatalogResult{{
		Image: reference, Platform: "linux/amd64", Distro: "debian 12", Packages: len(full.Artifacts),
	}}
	// The server checks the sizes: it rejects an upload that differs.
	ignored := cmpopts.IgnoreFields(workerapi.CatalogResult{}, "ManifestSizes", "SBOMSize", "MatchInputSize", "Tool")
	if diff := cmp.Diff(want, p.server.Results, ignored); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
	// The documents lead from the pod's digest to the platform's manifest, so that the manager need not trust the worker.
	if n := len(p.server.Manifests); n != 2 {
		t.Fatalf("%d documents say which manifest it is, want the index and the manifest", n)
	}
	digest, err := document.Verify(document.Digest(p.server.Manifests[0]), v1.Platform{OS: "linux", Architecture: "amd64"}, p.server.Manifests)
	if err != nil || digest.String() != registrytest.Digest(t, image) {
		t.Errorf("the documents lead to %s (%v), want the manifest %s", digest, err, registrytest.Digest(t, image))
	}
	if got := p.failure(t); got != nil {
		t.Errorf("a failure was left: %+v", got)
	}
	p.wantEmptyTemp(t)
	for _, secret := range []string{"s3cret-password", fixture.Token} {
		if strings.Contains(p.log.String(), secret) {
			t.Errorf("the log contains the secret %s:\n%s", secret, p.log.String())
		}
	}
	for _, progress := range []string{"asking the registry", "pulling layer", "packages found", "uploading", "image cataloged"} {
		if !strings.Contains(p.log.String(), progress) {
			t.Errorf("the log does not say %q:\n%s", progress, p.log.String())
		}
	}
}

// TestCatalogInAdditionalFormats checks that the SBOM is uploaded in each format that is wanted, and in no other.
func TestCatalogInAdditionalFormats(t *testing.T) {
	server := registrytest.NewRegistry(t, nil)
	reference := server.Push(t, "app:1", registrytest.Image(t, fixture.Alpine()))
	for what, formats := range map[string][]string{"none": nil, "one": {workerapi.FormatSPDX}, "all": workerapi.AdditionalFormats} {
		t.Run(what, func(t *testing.T) {
			p := newPod(t)
			p.registry(server.Host)
			args := []string{"catalog", "--image", reference, "--platform", "linux/amd64"}
			for _, format := range formats {
				args = append(args, "--format", format)
			}
			if code := run(t.Context(), args, p.process); code != exitDone {
				t.Fatalf("exit code %d, log:\n%s", code, p.log.String())
			}
			if full := p.artifact(t, p.server.SBOM); len(full.Artifacts) == 0 {
				t.Error("the SBOM in Syft's format has no packages")
			}
			if len(p.server.Additional) != len(formats) {
				t.Errorf("%d additional formats are uploaded, want %q", len(p.server.Additional), formats)
			}
			for _, format := range formats {
				text, err := fixture.Decompress(p.server.Additional[format])
				marks := map[string]string{workerapi.FormatCycloneDX: `"specVersion":"1.6"`, workerapi.FormatSPDX: `"spdxVersion":"SPDX-2.3"`}
				if err != nil || !strings.Contains(string(text), marks[format]) || !strings.Contains(string(text), "musl") {
					t.Errorf("%s (%v) is %.300s, want the package musl and %s", format, err, text, marks[format])
				}
			}
			p.wantEmptyTemp(t)
		})
	}
}

// TestCatalogByIdentity checks that a catalog Job pulls by its cloud identity if it runs under the ServiceAccount for that, and under no other.
func TestCatalogByIdentity(t *testing.T) {
	const host = "123456789012.dkr.ecr.eu-central-1.amazonaws.com"
	for account, want := range map[string]string{workerapi.CatalogServiceAccount: "", "default": workerapi.ReasonNodeCredentials} {
		t.Run(account, func(t *testing.T) {
			cloud := cloudtest.AWS{
				Host: host, API: "api.ecr.eu-central-1.amazonaws.com", STS: "sts.eu-central-1.amazonaws.com", Region: "eu-central-1", ClusterRegion: "eu-central-1",
			}.New(t)
			p := newPod(t)
			p.server.UseToken(t, cloudtest.AccountToken("scanning", account))
			p.transport = cloud
			for name, value := range cloud.Env {
				p.environment[name] = value
			}
			p.environment[workerapi.EnvRegistries] = fmt.Sprintf(`[{"host": %q, "provider": "aws"}]`, host)
			reference := cloud.Push(t, registrytest.Image(t, fixture.Debian()))
			code := run(t.Context(), []string{"catalog", "--image", reference, "--platform", "linux/amd64"}, p.process)
			switch failed := p.failure(t); {
			case want == "" && (code != exitDone || len(p.server.Results) != 1):
				t.Errorf("exit code %d and results %+v, want one result; log:\n%s", code, p.server.Results, p.log.String())
			case want != "" && (failed == nil || failed.Reason != want || len(cloud.Calls()) > 0):
				t.Errorf("failure %+v after calls of %q, want %s and no calls", failed, cloud.Calls(), want)
			}
			if strings.Contains(p.log.String(), "s3cret") {
				t.Errorf("the log contains a secret:\n%s", p.log.String())
			}
		})
	}
}

// TestCatalogWithABrokenMirror checks that the registry itself is used if a mirror has the manifest but not the layers.
func TestCatalogWithABrokenMirror(t *testing.T) {
	server := registrytest.NewRegistry(t, nil)
	empty := false
	mirror := registrytest.NewRegistry(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if empty && r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") {
				w.WriteHeader(http.StatusNotFound)
				return
			}
			next.ServeHTTP(w, r)
		})
	})
	image := registrytest.Image(t, fixture.Debian())
	reference := strings.TrimSuffix(server.Push(t, "app:1", image), ":1") + "@" + registrytest.Digest(t, image)
	mirror.Push(t, "app:1", image)
	empty = true
	p := newPod(t)
	p.environment[workerapi.EnvRegistries] = fmt.Sprintf(`[{"host": %q, "plainHTTP": true, "mirrors": [%q]}, {"host": %q, "plainHTTP": true}]`, server.Host, mirror.Host, mirror.Host)
	if code := run(t.Context(), []string{"catalog", "--image", reference, "--platform", "linux/amd64"}, p.process); code != exitDone {
		t.Fatalf("exit code %d, log:\n%s", code, p.log.String())
	}
	if len(p.server.Results) != 1 || p.server.Results[0].Image != reference || p.server.Results[0].Packages == 0 {
		t.Errorf("results %+v, want one with packages of %s", p.server.Results, reference)
	}
	p.wantEmptyTemp(t)
}

// TestCatalogOfAThrottlingRegistry checks that the failure names the throttling registry, and how long it asked to wait.
func TestCatalogOfAThrottlingRegistry(t *testing.T) {
	asked := 0
	server := registrytest.NewRegistry(t, func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			asked++
			w.Header().Set("Retry-After", "60")
			w.WriteHeader(http.StatusTooManyRequests)
		})
	})
	for what, c := range map[string]struct {
		args []string
		want int // seconds
	}{
		"a requested wait": {nil, 60},
		"left alone":       {[]string{"--spare", server.Host}, 0},
		"left alone, env.": {nil, 0},
	} {
		t.Run(what, func(t *testing.T) {
			p := newPod(t)
			p.registry(server.Host)
			if what == "left alone, env." {
				p.environment["SCANNER_SPARE"] = server.Host
			}
			asked = 0
			args := append([]string{"catalog", "--image", server.Host + "/app:1", "--platform", "linux/amd64"}, c.args...)
			if code := run(t.Context(), args, p.process); code != exitFailed {
				t.Errorf("exit code %d, want %d", code, exitFailed)
			}
			got := p.failure(t)
			if got == nil || got.Reason != workerapi.ReasonRegistryThrottled || got.Registry != server.Host || got.RetryAfterSeconds != c.want {
				t.Errorf("failure %+v, want %s of %s for %d seconds", got, workerapi.ReasonRegistryThrottled, server.Host, c.want)
			}
			if (asked == 0) != (c.want == 0) {
				t.Errorf("the registry was asked %d times", asked)
			}
		})
	}
}

// TestCatalogOfAMistakenArchitecture checks that the platform is the requested one, whatever the image's configuration declares.
func TestCatalogOfAMistakenArchitecture(t *testing.T) {
	server := registrytest.NewRegistry(t, nil)
	image := registrytest.Image(t, fixture.Debian())
	for what, architecture := range map[string]string{"wrong": "s390x", "missing": ""} {
		mistaken := registrytest.WithPlatform(t, image, v1.Platform{OS: "linux", Architecture: architecture})
		for kind, reference := range map[string]string{
			"manifest": server.Push(t, "app/"+what+":1", mistaken),
			"index":    server.PushIndex(t, "app/"+what+":2", registrytest.Index(t, map[string]v1.Image{"amd64": mistaken})),
		} {
			t.Run(what+" "+kind, func(t *testing.T) {
				p := newPod(t)
				p.registry(server.Host)
				if code := run(t.Context(), []string{"catalog", "--image", reference, "--platform", "linux/amd64"}, p.process); code != exitDone {
					t.Fatalf("exit code %d, log:\n%s", code, p.log.String())
				}
				if len(p.server.Results) != 1 || p.server.Results[0].Platform != "linux/amd64" || p.server.Results[0].Packages == 0 {
					t.Errorf("results %+v, want one with packages for linux/amd64", p.server.Results)
				}
			})
		}
	}
}

// TestUploadIsOneRequest checks that the whole upload is repeated as one request if the manager restarts. A refusal is final.
func TestUploadIsOneRequest(t *testing.T) {
	server := registrytest.NewRegistry(t, nil)
	reference := server.Push(t, "app:1", registrytest.Image(t, registrytest.Files{"a": "b"}))
	for what, c := range map[string]struct {
		answers  []int // statuses before the server itself answers
		requests int
		want     int
	}{
		"taken":                 {nil, 1, exitDone},
		"the manager restarts":  {[]int{http.StatusBadGateway, http.StatusServiceUnavailable}, 3, exitDone},
		"refused":               {[]int{http.StatusUnprocessableEntity}, 1, exitFailed},
		"another result before": {[]int{http.StatusConflict}, 1, exitFailed},
	} {
		t.Run(what, func(t *testing.T) {
			p := newPod(t)
			p.registry(server.Host)
			requests := 0
			p.server.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
				if r.URL.Path != workerapi.PathCatalogResult {
					return false
				}
				if requests++; requests > len(c.answers) {
					return false
				}
				_, _ = io.Copy(io.Discard, r.Body)
				http.Error(w, "no", c.answers[requests-1])
				return true
			}
			if code := run(t.Context(), []string{"catalog", "--image", reference, "--platform", "linux/amd64"}, p.process); code != c.want {
				t.Errorf("exit code %d, want %d", code, c.want)
			}
			if requests != c.requests {
				t.Errorf("%d requests, want %d", requests, c.requests)
			}
			if got := p.failure(t); c.want == exitFailed && (got == nil || got.Reason != workerapi.ReasonUploadRefused) {
				t.Errorf("failure %+v, want %s", got, workerapi.ReasonUploadRefused)
			}
			p.wantEmptyTemp(t)
		})
	}
}

// artifact decodes an uploaded document.
func (p *pod) artifact(t *testing.T, uploaded []byte) model.Document {
	t.Helper()
	content, err := fixture.Decompress(uploaded)
	if err != nil {
		t.Fatal(err)
	}
	var document model.Document
	if err := json.Unmarshal(content, &document); err != nil {
		t.Fatal(err)
	}
	return document
}

func TestCatalogFailures(t *testing.T) {
	server := registrytest.NewRegistry(t, nil)
	there := server.Push(t, "app:1", registrytest.Image(t, registrytest.Files{"a": "b"}))
	refuse := func(w http.ResponseWriter, r *http.Request) bool {
		_, _ = io.Copy(io.Discard, r.Body)
		http.Error(w, "not your image", http.StatusForbidden)
		return true
	}
	busy := func(w http.ResponseWriter, r *http.Request) bool {
		_, _ = io.Copy(io.Discard, r.Body)
		http.Error(w, "another upload of this Job is not finished", http.StatusTooManyRequests)
		return true
	}
	for what, c := range map[string]struct {
		image     string
		intercept func(http.ResponseWriter, *http.Request) bool
		reason    string
		message   string
	}{
		"the image is gone":     {server.Host + "/gone:1", nil, workerapi.ReasonImageNotFound, "gone:1"},
		"not a reference":       {"UPPER CASE", nil, workerapi.ReasonCatalogFailed, "not an image reference"},
		"the registry is away":  {"127.0.0.1:1/app:1", nil, workerapi.ReasonRegistryUnavail, "127.0.0.1:1"},
		"the upload is refused": {there, refuse, workerapi.ReasonUploadRefused, "not your image"},
		"the server stays busy": {there, busy, workerapi.ReasonIngestUnreachable, "another upload of this Job"},
	} {
		t.Run(what, func(t *testing.T) {
			p := newPod(t)
			p.registry(server.Host)
			p.server.Intercept = c.intercept
			if code := run(t.Context(), []string{"catalog", "--image", c.image, "--platform", "linux/amd64"}, p.process); code != exitFailed {
				t.Errorf("exit code %d, want %d", code, exitFailed)
			}
			got := p.failure(t)
			if got == nil || got.Reason != c.reason || !strings.Contains(got.Message, c.message) {
				t.Errorf("failure %+v, want %s with %q", got, c.reason, c.message)
			}
			if len(p.server.Results) > 0 {
				t.Error("a result was posted")
			}
			p.wantEmptyTemp(t)
		})
	}
}

// TestPanicsAreFailures checks panics, since neither the images nor the code that reads them are trusted.
func TestPanicsAreFailures(t *testing.T) {
	p := newPod(t)
	code := p.runCommand(t.Context(), workerapi.ReasonCatalogFailed, func(*slog.Logger) (job, error) { return panicking{}, nil })
	if got := p.failure(t); code != exitFailed || got == nil || got.Message != "the worker panicked: oh" {
		t.Errorf("exit code %d and failure %+v, want %d and the panic", code, got, exitFailed)
	}
}

type panicking struct{}

func (panicking) run(context.Context, *slog.Logger) error { panic("oh") }

func TestMatch(t *testing.T) {
	p := newPod(t)
	server := registrytest.NewRegistry(t, nil)
	p.registry(server.Host)
	reference := server.Push(t, "shop/app:1", registrytest.Image(t, fixture.Debian()))
	if code := run(t.Context(), []string{"catalog", "--image", reference, "--platform", "linux/amd64"}, p.process); code != exitDone {
		t.Fatalf("exit code %d, log:\n%s", code, p.log.String())
	}
	p.server.AddLease("one", p.server.MatchInput)
	p.server.AddLease("two", p.server.SBOM)

	publisher := fixture.Publish(t, fixture.Database(t, fixture.Built))
	p.environment["SCANNER_DATABASE_URL"] = publisher.URL
	p.environment["SCANNER_DATABASE_DIR"] = t.TempDir()
	p.environment["SCANNER_IDLE_TIMEOUT"] = "5m"
	if code := run(t.Context(), []string{"match"}, p.process); code != exitDone {
		t.Fatalf("exit code %d, log:\n%s", code, p.log.String())
	}
	if len(p.server.Reports["one"].Findings) < 40 {
		t.Errorf("%d findings, want at least 40; failures %v", len(p.server.Reports["one"].Findings), p.server.Failures)
	}
	if diff := cmp.Diff(p.server.Reports["two"], p.server.Reports["one"]); diff != "" {
		t.Errorf("reports of the SBOM and the match input (-SBOM +match input):\n%s", diff)
	}
	p.wantEmptyTemp(t)
}

func TestMatchWithoutAServer(t *testing.T) {
	p := newPod(t)
	p.server.Intercept = func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(http.StatusForbidden)
		return true
	}
	args := []string{"match", "--database-url", fixture.Publish(t, fixture.Database(t, fixture.Built)).URL, "--database-dir", t.TempDir()}
	if code := run(t.Context(), args, p.process); code != exitFailed {
		t.Errorf("exit code %d, want %d", code, exitFailed)
	}
	if got := p.failure(t); got == nil || got.Reason != workerapi.ReasonUploadRefused {
		t.Errorf("failure %+v, want %s", got, workerapi.ReasonUploadRefused)
	}
}
