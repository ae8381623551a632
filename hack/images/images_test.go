package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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
images:
  - {name: scanner-grype, newName: "198.51.100.10:5000/x/scanner-grype", digest: "sha256:bb"}
  - {name: scanner-operator, newName: "198.51.100.10:5000/x/scanner-operator", digest: "sha256:aa"}
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("kustomization (-want +got):\n%s", diff)
	}
}

func TestOverlayWithoutPushedImagesSaysWhatToDo(t *testing.T) {
	if err := writeOverlay(t.TempDir(), "registry.example.com/x"); err == nil || !strings.Contains(err.Error(), "make images") {
		t.Errorf("want advice to run make images, got %v", err)
	}
}

func TestOverlayRefusesImagesOfAnotherRegistry(t *testing.T) {
	out := t.TempDir()
	record := `{"scanner-operator": "198.51.100.10:5000/x/scanner-operator@sha256:aa"}`
	if err := os.WriteFile(filepath.Join(out, "images.json"), []byte(record), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := writeOverlay(out, "registry.example.com/x"); err == nil || !strings.Contains(err.Error(), "make images REGISTRY=registry.example.com/x") {
		t.Errorf("want advice to push to that registry, got %v", err)
	}
	if err := writeOverlay(out, "198.51.100.10:5000/x"); err != nil && strings.Contains(err.Error(), "make images") {
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
