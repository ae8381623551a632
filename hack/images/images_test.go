package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/scanner-operator/scanner-operator/pkg/config"
)

func TestOverlayNamesEveryPushedImageByDigest(t *testing.T) {
	got := overlay("../../config/default", map[string]string{
		"scanner-operator": "198.51.100.10:5000/x/scanner-operator@sha256:aa",
		"scanner-grype":    "198.51.100.10:5000/x/scanner-grype@sha256:bb",
	})
	want := `apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [../../config/default]
configurations: [image-fields.yaml]
replacements: [{path: policy_replacements.yaml}]
images:
  - {name: scanner-grype, newName: "198.51.100.10:5000/x/scanner-grype", digest: "sha256:bb"}
  - {name: scanner-operator, newName: "198.51.100.10:5000/x/scanner-operator", digest: "sha256:aa"}
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("kustomization (-want +got):\n%s", diff)
	}
}

// An image of the manager without the web UI is built only on request.
func TestManagerNeedsWebUI(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, args := range [][]string{{"build"}, {"build", "scanner-operator"}} {
		if err := run(t.Context(), args); err == nil || !strings.Contains(err.Error(), "run make ui, or give -without-ui") {
			t.Errorf("%v: %v, want an error with the way out", args, err)
		}
	}
	for _, args := range [][]string{{"build", "-without-ui"}, {"build", "scanner-notifier"}} {
		if err := run(t.Context(), args); err == nil || strings.Contains(err.Error(), "web UI") {
			t.Errorf("%v: %v, want an error about the sources, which are not here", args, err)
		}
	}
}

// overlayOf writes the overlays of a registry to which one image was pushed, and returns the directory of that of config/default.
func overlayOf(t *testing.T, registry, worker string) string {
	t.Helper()
	t.Chdir(filepath.Join("..", ".."))
	// The directory is the one of "make images", since the overlay names config/default by a relative path.
	if err := os.MkdirAll("bin", 0o755); err != nil {
		t.Fatal(err)
	}
	out, err := os.MkdirTemp("bin", "overlay-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(out) })
	if err := os.WriteFile(filepath.Join(out, "images.json"), []byte(`{"scanner-grype": "`+worker+`"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := writeOverlays(out, registry); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(out, "deploy")
}

// The manager uses the pushed image, and the admission policy allows only this image. The operator may scan images in the same registry,
// which uses plain HTTP.
func TestOverlayPinsTheWorkersImage(t *testing.T) {
	assets := os.Getenv("KUBEBUILDER_ASSETS")
	if assets == "" {
		t.Skip(`needs kubectl: KUBEBUILDER_ASSETS="$(hack/cluster/cluster.sh assets)", or "make test"`)
	}
	const worker = "198.51.100.10:5000/x/scanner-grype@sha256:bb"
	deploy := overlayOf(t, "198.51.100.10:5000/x", worker)
	for _, dir := range []string{deploy, filepath.Join(filepath.Dir(deploy), "quickstart")} {
		text, err := exec.CommandContext(t.Context(), filepath.Join(assets, "kubectl"), "kustomize", dir).CombinedOutput()
		if err != nil {
			t.Fatalf("kubectl kustomize %s: %v\n%s", dir, err, text)
		}
		for _, want := range []string{
			"value: " + worker, "expression: '''" + worker + "'''",
			"registries:\n    - host: 198.51.100.10:5000\n      plainHTTP: true\n", "url: https://grype.anchore.io/databases",
		} {
			if !strings.Contains(string(text), want) {
				t.Errorf("want %q in what %s deploys", want, dir)
			}
		}
	}
}

// Plain HTTP is added to a configuration with and without registries. An existing entry for the host stays.
func TestSettingsWithPlainHTTP(t *testing.T) {
	const host = "198.51.100.10:5000"
	other := config.Registry{Host: "registry.example.com", Mirrors: []string{"mirror.example.com"}}
	allowed := config.Registry{Host: host, PlainHTTP: true}
	for what, c := range map[string]struct {
		settings string
		want     []config.Registry
	}{
		"nothing":         {"# nothing\n", []config.Registry{allowed}},
		"no registries":   {"grype: {database: {url: https://db.example}}", []config.Registry{allowed}},
		"another one":     {"registries:\n- host: registry.example.com\n  mirrors: [mirror.example.com]\n", []config.Registry{other, allowed}},
		"this one":        {"registries: [{host: " + host + ", plainHTTP: true}]", []config.Registry{allowed}},
		"this one, HTTPS": {"registries: [{host: " + host + "}]", []config.Registry{{Host: host}}},
	} {
		t.Run(what, func(t *testing.T) {
			settings, err := settingsWithPlainHTTP([]byte(c.settings), host)
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(t.TempDir(), "config.yaml")
			if err := os.WriteFile(file, settings, 0o600); err != nil {
				t.Fatal(err)
			}
			loaded, err := config.Load(file)
			if err != nil {
				t.Fatalf("%v\n%s", err, settings)
			}
			if diff := cmp.Diff(c.want, loaded.Registries); diff != "" {
				t.Errorf("registries (-want +got):\n%s", diff)
			}
		})
	}
}

// The overlay contains the deployed configuration for any registry, so that a kustomization on top of it can add settings.
func TestOverlayHasTheConfiguration(t *testing.T) {
	for registry, want := range map[string][]config.Registry{
		"198.51.100.10:5000/x":   {{Host: "198.51.100.10:5000", PlainHTTP: true}},
		"registry.example.com/x": nil,
	} {
		t.Run(registry, func(t *testing.T) {
			file := filepath.Join(overlayOf(t, registry, registry+"/scanner-grype@sha256:bb"), "config.yaml")
			settings, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, append(settings, "clair: {instances: [{url: http://clair.clair.svc:6060}]}\n"...), 0o600); err != nil {
				t.Fatal(err)
			}
			loaded, err := config.Load(file)
			if err != nil || len(loaded.Clair.Instances) != 1 {
				t.Fatalf("Clairs %v, error %v, want the one that was added", loaded.Clair.Instances, err)
			}
			if diff := cmp.Diff(want, loaded.Registries); diff != "" {
				t.Errorf("registries (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOverlayWithoutPushedImagesIsAnError(t *testing.T) {
	if err := writeOverlays(t.TempDir(), "registry.example.com/x"); err == nil || !strings.Contains(err.Error(), "make images") {
		t.Errorf("want advice to run make images, got %v", err)
	}
}

func TestOverlayRefusesImagesOfAnotherRegistry(t *testing.T) {
	out := t.TempDir()
	record := `{"scanner-operator": "198.51.100.10:5000/x/scanner-operator@sha256:aa"}`
	if err := os.WriteFile(filepath.Join(out, "images.json"), []byte(record), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := writeOverlays(out, "registry.example.com/x"); err == nil || !strings.Contains(err.Error(), "make images REGISTRY=registry.example.com/x") {
		t.Errorf("want advice to push to that registry, got %v", err)
	}
	if err := writeOverlays(out, "198.51.100.10:5000/x"); err != nil && strings.Contains(err.Error(), "make images") {
		t.Errorf("images of this registry are refused: %v", err)
	}
}

func TestRecordedIgnoresABrokenRecord(t *testing.T) {
	file := filepath.Join(t.TempDir(), "images.json")
	if err := os.WriteFile(file, []byte(`{"a": "b", `), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := recorded(file); len(got) != 0 {
		t.Errorf("a half-written record: want nothing from it, got %v", got)
	}
}

func TestUnknownImageNamesTheKnownOnes(t *testing.T) {
	_, err := imagesNamed([]string{"scanner-gripe"})
	if err == nil || !strings.Contains(err.Error(), "scanner-grype") {
		t.Errorf("want an error that lists the images, got %v", err)
	}
}

func TestParseRefusesWrongPlatform(t *testing.T) {
	if _, err := parse([]string{"-platforms", "linux/amd64/v1/too/much"}); err == nil {
		t.Error("a platform with five parts was accepted")
	}
}
