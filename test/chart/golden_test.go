package chart

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// likeConfig are the values with which the chart is to install what config/default does: images there have no registry, and the
// claim for the store and all the rest are as they are by default.
const likeConfig = `
image: {registry: registry.example.com, tag: v1}
`

// overlay is config/default with the images of likeConfig; the base is the first of its files.
const overlay = `apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [%s]
configurations: [image-fields.yaml]
replacements: [{path: policy_replacements.yaml}]
images:
- {name: scanner-operator, newName: registry.example.com/scanner-operator, newTag: v1}
- {name: scanner-notifier, newName: registry.example.com/scanner-notifier, newTag: v1}
- {name: scanner-grype, newName: registry.example.com/scanner-grype, newTag: v1}
`

// imageFields tells kustomize of the worker's image.
const imageFields = `images: [{kind: Deployment, path: spec/template/spec/containers/env/value}]`

// configured is what config/default installs, components of config/ included.
func configured(t *testing.T) objects {
	t.Helper()
	program, dir := kubectl(t), t.TempDir()
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	base, err := filepath.Rel(dir, filepath.Join(here, root, "config", "default"))
	if err != nil {
		t.Fatal(err)
	}
	replacements, err := os.ReadFile(filepath.Join(root, "config", "default", "policy_replacements.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"kustomization.yaml": fmt.Sprintf(overlay, base), "image-fields.yaml": imageFields, "policy_replacements.yaml": string(replacements),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text, err := run(t, "", program, "kustomize", dir)
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, text)
}

// TestChartInstallsWhatConfigDoes: the chart differs from config/default in what is listed here, and in nothing else.
func TestChartInstallsWhatConfigDoes(t *testing.T) {
	want, got := configured(t), rendered(t, likeConfig, "--no-hooks")
	// helm install --create-namespace makes it.
	delete(want, "Namespace "+namespace)
	want, got = alike(want), alike(got)
	if diff := cmp.Diff(slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got))); diff != "" {
		t.Errorf("objects of config/default (-) and of the chart (+):\n%s", diff)
	}
	for key, object := range got {
		if want[key] == nil {
			continue
		}
		if diff := cmp.Diff(want[key].Object, object.Object); diff != "" {
			t.Errorf("%s, in config/default (-) and in the chart (+):\n%s", key, diff)
		}
	}
}

// alike takes away what may differ.
func alike(all objects) objects {
	result := objects{}
	for _, object := range all {
		// Each object of a release says which it is of.
		object.SetLabels(without(object.GetLabels(), "app.kubernetes.io/name", "helm.sh/chart", "app.kubernetes.io/instance",
			"app.kubernetes.io/managed-by", "app.kubernetes.io/version"))
		// CRDs are kept.
		object.SetAnnotations(without(object.GetAnnotations(), "helm.sh/resource-policy"))
		switch object.GetKind() {
		case "ConfigMap", "Deployment":
			nameConfig(object)
		case "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding":
			object.SetNamespace("") // kustomize does not know that these have none
		}
		result[key(object)] = object
	}
	return result
}

// nameConfig: a changed configuration replaces the pod, in config/ by a ConfigMap of another name, in the chart by a checksum.
func nameConfig(object *unstructured.Unstructured) {
	if object.GetKind() == "Deployment" {
		unstructured.RemoveNestedField(object.Object, "spec", "template", "metadata", "annotations", "checksum/config")
		nameConfigVolume(object)
		return
	}
	object.SetName("scanner-operator-config")
	text, _, _ := unstructured.NestedString(object.Object, "data", "config.yaml")
	_ = unstructured.SetNestedField(object.Object, withoutComments(text), "data", "config.yaml")
}

// without is nil when nothing is left.
func without(labels map[string]string, keys ...string) map[string]string {
	for _, key := range keys {
		delete(labels, key)
	}
	if len(labels) == 0 {
		return nil
	}
	return labels
}

func nameConfigVolume(deployment *unstructured.Unstructured) {
	volumes, _, _ := unstructured.NestedSlice(deployment.Object, "spec", "template", "spec", "volumes")
	for _, volume := range volumes {
		configMap, isConfigMap := volume.(map[string]any)["configMap"].(map[string]any)
		if isConfigMap && strings.HasPrefix(configMap["name"].(string), "scanner-operator-config-") {
			configMap["name"] = "scanner-operator-config"
		}
	}
	_ = unstructured.SetNestedSlice(deployment.Object, volumes, "spec", "template", "spec", "volumes")
}

func withoutComments(text string) string {
	lines := slices.DeleteFunc(strings.Split(strings.TrimSpace(text), "\n"), func(line string) bool { return strings.HasPrefix(line, "#") })
	return strings.Join(lines, "\n")
}
