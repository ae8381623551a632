package policy

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// overlay writes a typical kustomization of a user: on top of config/default, with another namespace and image.
func overlay(t *testing.T, namespace string) string {
	t.Helper()
	dir := t.TempDir()
	replacements, err := os.ReadFile(filepath.Join(config, "default", "policy_replacements.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "policy_replacements.yaml"), string(replacements))
	write(t, filepath.Join(dir, "kustomization.yaml"), fmt.Sprintf(`
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
namespace: %s
resources: [%s]
patches:
- target: {kind: Deployment, name: scanner-operator-manager}
  patch: |
    apiVersion: apps/v1
    kind: Deployment
    metadata: {name: any}
    spec:
      template:
        spec:
          containers:
          - name: manager
            env: [{name: RELATED_IMAGE_WORKER, value: "%s"}]
replacements: [{path: policy_replacements.yaml}]
`, namespace, relative(t, dir, filepath.Join(config, "default")), workerImage))
	return dir
}

// above writes a kustomization on top of another one, with components of config.
func above(t *testing.T, base string, components ...string) string {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "kustomization.yaml"), "resources: ["+relative(t, dir, base)+"]\ncomponents:\n")
	for _, component := range components {
		add(t, dir, "- "+relative(t, dir, filepath.Join(config, component))+"\n")
	}
	return dir
}

// relative returns the path by which a kustomization in one directory refers to another one.
func relative(t *testing.T, from, to string) string {
	t.Helper()
	absolute, err := filepath.Abs(to)
	if err != nil {
		t.Fatal(err)
	}
	found, err := filepath.Rel(from, absolute)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// add appends text to a kustomization.
func add(t *testing.T, dir, text string) {
	t.Helper()
	file := filepath.Join(dir, "kustomization.yaml")
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	write(t, file, string(before)+text)
}

// components returns the optional components, as directories of config.
func components(t *testing.T) []string {
	t.Helper()
	found := []string{"notifier-clair-webhooks", "notifier-clair-webhooks/plain-http"}
	directories, err := os.ReadDir(filepath.Join(config, "components"))
	if err != nil || len(directories) < 3 {
		t.Fatalf("%d components: %v", len(directories), err)
	}
	for _, directory := range directories {
		found = append(found, "components/"+directory.Name())
	}
	return found
}

// together returns the components that can be added at once: one for the notifier, which clair-trial includes, and one for the store.
func together(components []string) []string {
	return slices.DeleteFunc(slices.Clone(components), func(name string) bool {
		return strings.HasPrefix(name, "notifier-clair-webhooks") || name == "components/mysql"
	})
}

// namespaces is the generator that the component for a list of namespaces needs.
const namespaces = `
configMapGenerator:
- {name: scanner-operator-namespaces, namespace: %s, literals: ["namespaces=shop,blog"]}
`

// Each component works with the operator in any namespace, and all of them together that do not exclude each other.
func TestComponentsFollowTheNamespace(t *testing.T) {
	found := components(t)
	for what, list := range map[string][]string{"none": nil, "together": together(found)} {
		t.Run(what, func(t *testing.T) { checkNamespaces(t, above(t, overlay(t, "elsewhere"), list...)) })
	}
	for _, name := range found {
		var component struct{ Kind string }
		text, err := os.ReadFile(filepath.Join(config, name, "kustomization.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal(text, &component); err != nil || component.Kind != "Component" {
			t.Errorf("%s: its kind is %q, want Component (%v)", name, component.Kind, err)
		}
		t.Run(name, func(t *testing.T) { checkNamespaces(t, above(t, overlay(t, "elsewhere"), name)) })
		// Clair has a namespace of its own, which "namespace" in the same file would change.
		if name == "components/clair-trial" {
			continue
		}
		t.Run(name+" in the same file", func(t *testing.T) {
			dir := overlay(t, "elsewhere")
			add(t, dir, "components: ["+relative(t, dir, filepath.Join(config, name))+"]\n")
			checkNamespaces(t, dir)
		})
	}
}

// checkNamespaces checks that no object has the default namespace, and that no namespaced object lacks a namespace.
func checkNamespaces(t *testing.T, dir string) {
	t.Helper()
	add(t, dir, fmt.Sprintf(namespaces, "elsewhere"))
	objects, err := decode(render(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	outside := []string{"Namespace", "CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "ClusterScanner"}
	for _, object := range objects {
		what := object.GetKind() + " " + object.GetName()
		if object.GetNamespace() == "" && !slices.Contains(outside, object.GetKind()) {
			t.Errorf("%s is in no namespace", what)
		}
		for path, text := range texts(object.Object, "") {
			if strings.Contains(text, home) || strings.HasSuffix(path, ".namespace") && text == "system" {
				t.Errorf("%s: %s is %q", what, path, text)
			}
		}
	}
}

// texts returns all strings in an object by their paths.
func texts(value any, path string) map[string]string {
	found := map[string]string{}
	switch value := value.(type) {
	case string:
		found[path] = value
	case map[string]any:
		for key, inner := range value {
			maps.Copy(found, texts(inner, path+"."+key))
		}
	case []any:
		for i, inner := range value {
			maps.Copy(found, texts(inner, fmt.Sprintf("%s[%d]", path, i)))
		}
	}
	return found
}

// With a list of namespaces, the manager's permissions in namespaces are bound only in these namespaces, and the manager gets the list.
func TestNamespacedComponentBindsNoClusterRoleEverywhere(t *testing.T) {
	dir := above(t, filepath.Join(config, "default"), "components/namespaced")
	add(t, dir, fmt.Sprintf(namespaces, home))
	objects, err := decode(render(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	bound, reported := map[string][]string{}, ""
	for i := range objects {
		switch object := &objects[i]; object.GetKind() {
		case "ClusterRoleBinding", "RoleBinding":
			role, _, _ := unstructured.NestedString(object.Object, "roleRef", "name")
			kind, _, _ := unstructured.NestedString(object.Object, "roleRef", "kind")
			if kind == "ClusterRole" {
				bound[role] = append(bound[role], object.GetKind()+" "+object.GetNamespace())
			}
		case "Deployment":
			for _, variable := range deployment(t, object).Spec.Template.Spec.Containers[0].Env {
				if variable.Name == "SCANNER_WATCH_NAMESPACES" {
					reported = object.GetName() + " " + variable.ValueFrom.ConfigMapKeyRef.Name
				}
			}
		}
	}
	want := map[string][]string{manager: {"RoleBinding " + home}, manager + "-cluster": {"ClusterRoleBinding "}, notifier: {"ClusterRoleBinding "}}
	if diff := cmp.Diff(want, bound); diff != "" {
		t.Errorf("ClusterRoles are bound otherwise than wanted (-want +got):\n%s", diff)
	}
	if !strings.HasPrefix(reported, manager+" scanner-operator-namespaces-") {
		t.Errorf("the manager's list is %q", reported)
	}
}

// Every pod of config runs on nodes with Linux, for which all images are.
func TestPodsRunOnLinux(t *testing.T) {
	pods := 0
	err := filepath.WalkDir(config, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".yaml" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for document := range strings.SplitSeq(string(text), "\n---\n") {
			var object struct {
				Spec struct {
					Template corev1.PodTemplateSpec
				}
			}
			if yaml.Unmarshal([]byte(document), &object) != nil {
				continue // another kind, or a list of patches
			}
			pod := object.Spec.Template.Spec
			if len(pod.Containers) == 0 || pod.Containers[0].Image == "" { // a patch
				continue
			}
			if pods++; pod.NodeSelector[corev1.LabelOSStable] != "linux" {
				t.Errorf("%s: the nodes %v of the pod may have another system than Linux", path, pod.NodeSelector)
			}
		}
		return nil
	})
	if err != nil || pods < 8 {
		t.Errorf("%d pods, %v", pods, err)
	}
}
