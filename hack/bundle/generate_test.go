package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// object parses an object.
func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	read := &unstructured.Unstructured{}
	if err := read.UnmarshalJSON(raw); err != nil {
		t.Fatal(err)
	}
	return read
}

// Objects of a tree.
const (
	worker = `{apiVersion: apps/v1, kind: Deployment, metadata: {name: m}, spec: {template: {spec: {serviceAccountName: m,
  containers: [{name: c, image: scanner-operator, env: [{name: RELATED_IMAGE_WORKER, value: scanner-grype}, {name: OTHER, value: scanner-grype}]}]}}}}`
	role   = `{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: r}, rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]}`
	grant  = `{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: b}, roleRef: {kind: Role, name: r}, subjects: [SUBJECTS]}`
	ours   = `{kind: ServiceAccount, name: m, namespace: operators}`
	people = `{kind: Group, name: everybody}`
)

func divideTexts(t *testing.T, texts ...string) (parts, error) {
	t.Helper()
	var objects []*unstructured.Unstructured
	for _, text := range texts {
		objects = append(objects, object(t, text))
	}
	return divide(objects)
}

func bound(subjects string) string { return strings.Replace(grant, "SUBJECTS", subjects, 1) }

// Permissions of the operator's ServiceAccounts go into the ClusterServiceVersion, roles for users stay beside it.
func TestOwnPermissionsGoIntoTheCSV(t *testing.T) {
	divided, err := divideTexts(t, bound(ours), role, worker)
	if err != nil {
		t.Fatal(err)
	}
	cluster, own, err := divided.permissions()
	if err != nil || len(cluster) != 0 || len(own) != 1 || own[0].ServiceAccountName != "m" || len(own[0].Rules) != 1 {
		t.Errorf("want one rule for account m in its own namespace, got %v, %v, %v", cluster, own, err)
	}
	if len(divided.beside) != 0 {
		t.Errorf("want nothing beside the CSV, got %v", divided.beside)
	}
	divided, err = divideTexts(t, bound(people), role, worker)
	if err != nil || len(divided.beside) != 2 {
		t.Errorf("a role of people and its binding: want both beside the CSV, got %v, %v", divided.beside, err)
	}
}

// An object of config/default that cannot be bundled is an error, so that none is lost.
func TestUnbundledObjectIsAnError(t *testing.T) {
	if _, err := divideTexts(t, `{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: d}}`); err == nil || !strings.Contains(err.Error(), "DaemonSet d") {
		t.Errorf("a DaemonSet: want an error that names it, got %v", err)
	}
	for name, subjects := range map[string]string{"people, too": ours + "," + people} {
		divided, err := divideTexts(t, worker, role, bound(subjects))
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := divided.permissions(); err == nil {
			t.Errorf("a binding of the operator's account and %s: want an error", name)
		}
	}
	divided, err := divideTexts(t, worker, bound(ours))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := divided.permissions(); err == nil || !strings.Contains(err.Error(), "no Role r") {
		t.Errorf("a binding without role: want an error, got %v", err)
	}
	divided, err = divideTexts(t, `{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}}`)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := divided.defaults(); err == nil || !strings.Contains(err.Error(), "settings") {
		t.Errorf("a ConfigMap that users would change: want an error, got %v", err)
	}
}

// Images in containers and in RELATED_IMAGE_ variables are pinned. Other variables stay the same.
func TestImagesArePinned(t *testing.T) {
	divided, err := divideTexts(t, worker)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := divided.strategies(release{Images: map[string]string{"scanner-operator": "m@sha256:1"}}); err == nil || !strings.Contains(err.Error(), "scanner-grype") {
		t.Errorf("without the worker's digest: want an error that names the image, got %v", err)
	}
	divided, err = divideTexts(t, worker)
	if err != nil {
		t.Fatal(err)
	}
	specs, related, err := divided.strategies(release{Images: map[string]string{"scanner-operator": "m@sha256:1", "scanner-grype": "w@sha256:2"}})
	if err != nil {
		t.Fatal(err)
	}
	container := specs[0].Spec.Template.Spec.Containers[0]
	if container.Image != "m@sha256:1" || container.Env[0].Value != "w@sha256:2" || container.Env[1].Value != "scanner-grype" {
		t.Errorf("want image and RELATED_IMAGE_WORKER by digest and OTHER as it was, got %+v", container)
	}
	if len(related) != 2 {
		t.Errorf("want both images among the related, got %v", related)
	}
}

func TestImagesWithoutDigestAreRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "images.yaml")
	save(t, file, "images: {scanner-operator: 'example.com/m:v1'}\n")
	if _, err := readRelease(file); err == nil || !strings.Contains(err.Error(), "no reference by digest") {
		t.Errorf("a tag: want an error, got %v", err)
	}
}

// In a projected volume, a file of a later source replaces that of an earlier one. The user's ConfigMap is optional.
func TestConfigurationOfTheUserComesLast(t *testing.T) {
	volume := corev1.Volume{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: "scanner-operator-config-abcdef1234"},
	}}}
	adaptVolume(&volume)
	if volume.Projected == nil || len(volume.Projected.Sources) != 2 {
		t.Fatalf("want a projected volume of two sources, got %+v", volume)
	}
	defaults, user := volume.Projected.Sources[0].ConfigMap, volume.Projected.Sources[1].ConfigMap
	if defaults.Name != "scanner-operator-defaults" || user.Name != "scanner-operator-config" || user.Optional == nil || !*user.Optional {
		t.Errorf("want the defaults and then the user's, if there is one; got %+v, %+v", defaults, user)
	}
	other := corev1.Volume{VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "scanner-notifier-trust"}}}}
	if adaptVolume(&other); other.ConfigMap == nil {
		t.Error("a ConfigMap that is the user's from the beginning was changed")
	}
}

// The policies follow the namespace and allow each image of the worker's repository, since OLM upgrades the operator automatically.
func TestPoliciesFollowTheNamespace(t *testing.T) {
	policy := object(t, `{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, metadata: {name: scanner-operator-manager-jobs}, spec: {
  matchConditions: [{name: manager, expression: "request.userInfo.username == 'system:serviceaccount:scanner-operator-system:scanner-operator-manager'"}],
  variables: [{name: workerImage, expression: "'scanner-grype'"}]}}`)
	text, err := forNamespace(policy, "operators", "example.com/scanner-grype")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"system:serviceaccount:operators:scanner-operator-manager", "startsWith('example.com/scanner-grype@sha256:')"} {
		if !strings.Contains(strings.ReplaceAll(text, "''", "'"), want) { // YAML doubles quotes
			t.Errorf("want %q in the policy, got:\n%s", want, text)
		}
	}
	if strings.Contains(text, "scanner-operator-system") {
		t.Errorf("the policy is about another namespace still:\n%s", text)
	}
}

func TestNamesOfFieldsBecomeWords(t *testing.T) {
	for name, want := range map[string]string{
		"webhookURLSecretRef": "Webhook URL Secret Ref", "caBundle": "CA Bundle", "url": "URL", "storeID": "Store ID", "minSeverity": "Min Severity",
	} {
		if got := display(name); got != want {
			t.Errorf("%s: want %q, got %q", name, want, got)
		}
	}
}

// A form offers the values that the API server accepts.
func TestEditorsFollowTheSchema(t *testing.T) {
	text, number := schema{Type: "string"}, schema{Type: "integer"}
	choice := schema{Type: "string", Enum: []apiextensionsv1.JSON{{Raw: []byte(`"On"`)}, {Raw: []byte(`"Off"`)}}}
	object := func(fields map[string]schema) schema { return schema{Type: "object", Properties: fields} }
	list := func(of schema) schema {
		return schema{Type: "array", Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &of}}
	}
	definition := schema{Properties: map[string]schema{"spec": object(map[string]schema{
		"choice": choice, "number": number, "switch": {Type: "boolean"}, "words": list(text), "podSelector": object(map[string]schema{"deep": text}),
		"lists": list(object(map[string]schema{"tokenSecretRef": object(map[string]schema{"name": text})})),
	})}}
	got := map[string][]string{}
	for _, d := range specDescriptors(definition) {
		got[d.Path] = d.XDescriptors
	}
	want := map[string][]string{
		"choice": {ui + "select:On", ui + "select:Off"}, "number": {ui + "number"}, "switch": {ui + "booleanSwitch"}, "words": nil,
		"podSelector": {ui + "selector:core:v1:Pod"}, "lists": {ui + "arrayFieldGroup:lists"},
		"lists[0].tokenSecretRef":      {ui + "arrayFieldGroup:lists", ui + "fieldGroup:lists[0].tokenSecretRef"},
		"lists[0].tokenSecretRef.name": {ui + "fieldGroup:lists[0].tokenSecretRef", "urn:alm:descriptor:io.kubernetes:Secret"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("editors (-want +got):\n%s", diff)
	}
}

// The tree has the files that a pull request to a community catalog needs.
func TestSubmission(t *testing.T) {
	t.Chdir(root)
	out := t.TempDir()
	if err := run([]string{"submission", "-out", out}); err == nil || !strings.Contains(err.Error(), "-reviewers") {
		t.Errorf("without reviewers: want an error that names the flag, got %v", err)
	}
	if err := run([]string{"submission", "-out", out, "-version", "9.9.9", "-reviewers", "alice"}); err == nil || !strings.Contains(err.Error(), "make bundle") {
		t.Errorf("of another version than the bundle's: want an error, got %v", err)
	}
	if err := run([]string{"submission", "-out", out, "-reviewers", "alice,bob"}); err != nil {
		t.Fatal(err)
	}
	version := bundleVersionIn(t, "bundle")
	operator := filepath.Join(out, "operators", "scanner-operator")
	if diff := cmp.Diff(filesBelow(t, filepath.Join("bundle", "manifests")), filesBelow(t, filepath.Join(operator, version, "manifests"))); diff != "" {
		t.Errorf("manifests (-bundle +submission):\n%s", diff)
	}
	var ci struct {
		Reviewers   []string
		UpdateGraph string
		FBC         struct{ Enabled bool }
	}
	if err := yaml.Unmarshal([]byte(read(t, filepath.Join(operator, "ci.yaml"))), &ci); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"alice", "bob"}, ci.Reviewers); diff != "" || ci.UpdateGraph != "replaces-mode" || !ci.FBC.Enabled {
		t.Errorf("ci.yaml: got %+v", ci)
	}
	if _, err := os.Stat(filepath.Join(operator, version, "release-config.yaml")); err != nil {
		t.Errorf("the catalog's pipeline would not publish the version: %v", err)
	}
}
