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
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// likeConfig are the values with which the chart must install the same objects as config/default. The images in config/default have no
// registry; everything else has its default.
const likeConfig = `
image: {registry: registry.example.com, tag: v1}
`

// overlay is config/default with the images of likeConfig, and components of config/.
const overlay = `apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [%[1]s/default]
components: [%[2]s]
configurations: [image-fields.yaml]
replacements: [{path: policy_replacements.yaml}]
images:
- {name: scanner-operator, newName: registry.example.com/scanner-operator, newTag: v1}
- {name: scanner-notifier, newName: registry.example.com/scanner-notifier, newTag: v1}
- {name: scanner-grype, newName: registry.example.com/scanner-grype, newTag: v1}
`

// imageFields makes kustomize replace the worker's image in the environment variable.
const imageFields = `images: [{kind: Deployment, path: spec/template/spec/containers/env/value}]`

// The chart differs from config/ only in what alike removes.
func TestChartInstallsWhatConfigDoes(t *testing.T) {
	for name, test := range map[string]struct {
		components []string
		values     string
	}{
		"default": {},
		"network policies": {components: []string{"components/network-policy"}, values: `
networkPolicy:
  enabled: true
  # config/ knows the namespace of config/components/clair-trial.
  clairFrom: &clair
  - namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: clair}}
    podSelector: {matchLabels: {app.kubernetes.io/name: clair}}
  managerEgress: &egress
  - to:
    - namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: clair}}
      podSelector: {matchLabels: {app.kubernetes.io/name: clair, app.kubernetes.io/component: clair}}
    ports: [{port: api, protocol: TCP}]
  notifierEgress: *egress
`},
		"monitoring": {components: []string{"components/prometheus"}, values: `
monitoring:
  serviceMonitor: {enabled: true}
  prometheusRule: {enabled: true}
  dashboards: {enabled: true}
`},
		// The components leave the number of connections to the operator's configuration.
		"a store on PostgreSQL": {components: []string{"components/postgresql"}, values: `
store: {type: PostgreSQL, maxConnections: null, dsnSecretRef: {name: scanner-operator-store}}
`},
		"a store on MySQL": {components: []string{"components/mysql"}, values: `
store: {type: MySQL, maxConnections: null, dsnSecretRef: {name: scanner-operator-store}}
`},
		"high availability": {components: []string{"components/postgresql", "components/high-availability"}, values: `
store: {type: PostgreSQL, maxConnections: null, dsnSecretRef: {name: scanner-operator-store}}
manager: {replicas: 2}
notifier: {replicas: 2}
`},
		"Clair's webhooks over TLS": {components: []string{"notifier-clair-webhooks"}, values: `
notifier: {clairWebhooks: {enabled: true}}
`},
		"Clair's webhooks over plain HTTP": {components: []string{"notifier-clair-webhooks/plain-http"}, values: `
notifier: {clairWebhooks: {enabled: true, plainHTTP: true}}
`},
	} {
		t.Run(name, func(t *testing.T) {
			want, got := configured(t, test.components...), rendered(t, likeConfig+test.values, "--no-hooks")
			delete(want, "Namespace "+namespace) // helm install --create-namespace creates it
			same(t, alike(want), alike(got))
		})
	}
}

// The permissions to write Reports are those of the component, and are only granted with a mode that needs them.
func TestPermissionsForReports(t *testing.T) {
	reports := func(all objects) objects {
		maps.DeleteFunc(all, func(key string, _ *unstructured.Unstructured) bool { return !strings.Contains(key, "openreports") })
		return all
	}
	for _, mode := range []string{"Write", "Remove"} {
		same(t, alike(reports(configured(t, "components/openreports"))), alike(reports(rendered(t, likeConfig+"config: {openReports: {mode: "+mode+"}}\n", "--no-hooks"))))
	}
	for _, values := range []string{"", "config: {openReports: {mode: None}}", "config: {openReports: {maxResults: 9}}"} {
		if got := reports(rendered(t, values)); len(got) > 0 {
			t.Errorf("with %q the chart has %v", values, slices.Collect(maps.Keys(got)))
		}
	}
}

func same(t *testing.T, want, got objects) {
	t.Helper()
	if diff := cmp.Diff(slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got))); diff != "" {
		t.Errorf("objects of config/ (-) and of the chart (+):\n%s", diff)
	}
	for key, object := range got {
		if want[key] == nil {
			continue
		}
		if diff := cmp.Diff(want[key].Object, object.Object, unordered); diff != "" {
			t.Errorf("%s, in config/ (-) and in the chart (+):\n%s", key, diff)
		}
	}
}

// unordered ignores the order of a NetworkPolicy's rules and of a rule's peers, which are sets.
var unordered = cmp.FilterPath(func(path cmp.Path) bool {
	return slices.ContainsFunc(path, func(step cmp.PathStep) bool {
		at, isMap := step.(cmp.MapIndex)
		return isMap && (at.Key().String() == "ingress" || at.Key().String() == "egress")
	})
}, cmpopts.SortSlices(func(a, b any) bool { return fmt.Sprint(a) < fmt.Sprint(b) }))

// configured returns the objects that config/default installs with the given components of config/.
func configured(t *testing.T, components ...string) objects {
	t.Helper()
	program, dir := kubectl(t), t.TempDir()
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	config, err := filepath.Rel(dir, filepath.Join(here, root, "config"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range components {
		components[i] = config + "/" + components[i]
	}
	replacements, err := os.ReadFile(filepath.Join(root, "config", "default", "policy_replacements.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"kustomization.yaml": fmt.Sprintf(overlay, config, strings.Join(components, ", ")),
		"image-fields.yaml":  imageFields, "policy_replacements.yaml": string(replacements),
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

// alike removes the allowed differences.
func alike(all objects) objects {
	result := objects{}
	for _, object := range all {
		// Each object of a Helm release has the release's labels.
		object.SetLabels(without(object.GetLabels(), "app.kubernetes.io/name", "helm.sh/chart", "app.kubernetes.io/instance",
			"app.kubernetes.io/managed-by", "app.kubernetes.io/version"))
		// Helm keeps CRDs on uninstall.
		object.SetAnnotations(without(object.GetAnnotations(), "helm.sh/resource-policy"))
		switch object.GetKind() {
		case "ConfigMap", "Deployment":
			nameConfig(object)
		case "NetworkPolicy":
			splitPorts(object)
		case "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding":
			object.SetNamespace("") // kustomize does not know that these kinds are cluster-scoped
		}
		result[key(object)] = object
	}
	return result
}

// nameConfig removes the mechanism that restarts the pod after a change of the configuration: another ConfigMap name in config/, a
// checksum in the chart.
func nameConfig(object *unstructured.Unstructured) {
	if object.GetKind() == "Deployment" {
		annotations, _, _ := unstructured.NestedStringMap(object.Object, "spec", "template", "metadata", "annotations")
		unstructured.RemoveNestedField(object.Object, "spec", "template", "metadata", "annotations")
		if annotations = without(annotations, "checksum/config"); annotations != nil {
			_ = unstructured.SetNestedStringMap(object.Object, annotations, "spec", "template", "metadata", "annotations")
		}
		nameConfigVolume(object)
		withoutOptionalSources(object)
		return
	}
	if !strings.HasPrefix(object.GetName(), "scanner-operator-config") {
		return
	}
	object.SetName("scanner-operator-config")
	text, _, _ := unstructured.NestedString(object.Object, "data", "config.yaml")
	_ = unstructured.SetNestedField(object.Object, withoutComments(text), "data", "config.yaml")
}

// withoutOptionalSources removes what the component for PostgreSQL mounts only if it is there: the chart has a value for it.
func withoutOptionalSources(deployment *unstructured.Unstructured) {
	volumes, _, _ := unstructured.NestedSlice(deployment.Object, "spec", "template", "spec", "volumes")
	for _, volume := range volumes {
		if sources, isProjected, _ := unstructured.NestedSlice(volume.(map[string]any), "projected", "sources"); isProjected {
			sources = slices.DeleteFunc(sources, func(source any) bool {
				optional, _, _ := unstructured.NestedBool(source.(map[string]any), "secret", "optional")
				return optional
			})
			_ = unstructured.SetNestedSlice(volume.(map[string]any), sources, "projected", "sources")
		}
	}
	_ = unstructured.SetNestedSlice(deployment.Object, volumes, "spec", "template", "spec", "volumes")
}

// splitPorts splits a rule for two ports into two equivalent rules.
func splitPorts(policy *unstructured.Unstructured) {
	for _, direction := range []string{"ingress", "egress"} {
		rules, _, _ := unstructured.NestedSlice(policy.Object, "spec", direction)
		var split []any
		for _, rule := range rules {
			for _, port := range rule.(map[string]any)["ports"].([]any) {
				one := maps.Clone(rule.(map[string]any))
				one["ports"] = []any{port}
				split = append(split, one)
			}
		}
		if split != nil {
			_ = unstructured.SetNestedSlice(policy.Object, split, "spec", direction)
		}
	}
}

// without removes keys; it returns nil if nothing is left.
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
