package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/scanner-operator/scanner-operator/hack/images/build"
)

// imageFields makes kustomize replace images in environment variables of Deployments too: the manager reads the worker's image from
// RELATED_IMAGE_WORKER.
const imageFields = `images:
  - {kind: Deployment, path: spec/template/spec/containers/env/value}
`

// replacementsFile copies values of the kustomization, such as images, into the admission policies.
const replacementsFile = "policy_replacements.yaml"

// settingsGenerator replaces the operator's configuration.
const settingsGenerator = `configMapGenerator:
  - {name: scanner-operator-config, namespace: scanner-operator-system, behavior: replace, files: [config.yaml]}
`

// overlays are the kustomizations of config that get the images of the last push, by the directory that they are written to.
var overlays = map[string]string{"deploy": "default", "quickstart": "quickstart"}

// writeOverlays writes kustomizations that install config/default and config/quickstart with the images of the last push, by digest. They are
// written below out, so that a deployment never changes a file under version control.
//
// Images of another registry than the given one are an error. They come from another push and would otherwise be installed unnoticed.
func writeOverlays(out, registry string) error {
	pushed := recorded(filepath.Join(out, "images.json"))
	if len(pushed) == 0 {
		return fmt.Errorf("no image was pushed yet (%s is missing or empty): make images", filepath.Join(out, "images.json"))
	}
	for _, reference := range pushed {
		if !strings.HasPrefix(reference, registry+"/") {
			return fmt.Errorf("the last push was of %s, and not to %s: make images REGISTRY=%s", reference, registry, registry)
		}
	}
	for name, source := range overlays {
		if err := writeOverlay(filepath.Join(out, name), filepath.Join("config", source), registry, pushed); err != nil {
			return err
		}
	}
	return nil
}

// writeOverlay writes the kustomization of one directory of config.
func writeOverlay(dir, source, registry string, pushed map[string]string) error {
	base, err := filepath.Rel(dir, source)
	if err != nil {
		return err
	}
	// The replacements run once more here, since those of config/default used the image names of config/default.
	replacements, err := os.ReadFile(filepath.Join("config", "default", replacementsFile))
	if err != nil {
		return err
	}
	files := map[string]string{"kustomization.yaml": overlay(base, pushed), "image-fields.yaml": imageFields, replacementsFile: string(replacements)}
	if err := addSettings(files, registry); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// addSettings adds the operator's configuration to an overlay, for kustomizations that build on it. If the registry uses plain HTTP, as
// a registry beside a test cluster does, the overlay's configuration replaces the operator's, since the operator reads from such a
// registry only if its configuration allows plain HTTP.
func addSettings(files map[string]string, registry string) error {
	image, err := build.ParseReference(registry + "/image:tag")
	if err != nil {
		return err
	}
	settings, err := os.ReadFile(filepath.Join("config", "manager", "config.yaml"))
	if err != nil {
		return err
	}
	if image.Context().Scheme() == "http" {
		if settings, err = settingsWithPlainHTTP(settings, image.Context().RegistryStr()); err != nil {
			return err
		}
		files["kustomization.yaml"] += settingsGenerator
	}
	files["config.yaml"] = string(settings)
	return nil
}

// settingsWithPlainHTTP adds plain HTTP for a host to the operator's configuration. An existing entry for the host stays.
func settingsWithPlainHTTP(settings []byte, host string) ([]byte, error) {
	var fields map[string]any
	if err := yaml.Unmarshal(settings, &fields); err != nil {
		return nil, fmt.Errorf("the operator's configuration: %w", err)
	}
	registries, _ := fields["registries"].([]any)
	for _, registry := range registries {
		if known, isObject := registry.(map[string]any); isObject && known["host"] == host {
			return settings, nil
		}
	}
	if fields == nil { // the configuration has only comments
		fields = map[string]any{}
	}
	fields["registries"] = append(registries, map[string]any{"host": host, "plainHTTP": true})
	return yaml.Marshal(fields)
}

// overlay returns the text of the kustomization.
func overlay(base string, pushed map[string]string) string {
	var text strings.Builder
	fmt.Fprintf(&text, "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [%s]\nconfigurations: [image-fields.yaml]\n"+
		"replacements: [{path: %s}]\nimages:\n", filepath.ToSlash(base), replacementsFile)
	for _, name := range slices.Sorted(maps.Keys(pushed)) {
		repository, digest, _ := strings.Cut(pushed[name], "@")
		fmt.Fprintf(&text, "  - {name: %s, newName: %q, digest: %q}\n", name, repository, digest)
	}
	return text.String()
}
