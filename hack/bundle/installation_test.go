package main

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// installation returns the objects of the file that installs the operator with OLM.
func installation(t *testing.T, args ...string) []*unstructured.Unstructured {
	t.Helper()
	o, err := parse(append([]string{"-tree=" + root, "-manifests=" + filepath.Join(root, "config", "manifests")}, args...))
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := printInstallation(o, &text); err != nil {
		t.Fatal(err)
	}
	var objects []*unstructured.Unstructured
	for _, document := range strings.Split(text.String(), "---\n")[1:] {
		read := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &read.Object); err != nil {
			t.Fatalf("%v\n%s", err, document)
		}
		objects = append(objects, read)
	}
	return objects
}

// One file has everything that a bundle cannot contain. The policies are in force before OLM starts the operator.
func TestInstallationIsComplete(t *testing.T) {
	var order []string
	for _, object := range installation(t) {
		order = append(order, strings.TrimSuffix(object.GetKind(), "Binding"))
	}
	want := []string{"Namespace", "ValidatingAdmissionPolicy", "PersistentVolumeClaim", "OperatorGroup", "Subscription"}
	if diff := cmp.Diff(want, slices.Compact(order)); diff != "" {
		t.Errorf("kinds in their order (-want +got):\n%s", diff)
	}
}

// Everything is in the chosen namespace, and the Subscription gives the operator the volume of the same file.
func TestInstallationInAnotherNamespace(t *testing.T) {
	objects := installation(t, "-namespace=scanning", "-source=community-operators", "-source-namespace=openshift-marketplace")
	claim := ""
	for _, object := range objects {
		switch kind := object.GetKind(); {
		case kind == "Namespace" && object.GetName() != "scanning":
			t.Errorf("the namespace is %s", object.GetName())
		case slices.Contains([]string{"PersistentVolumeClaim", "OperatorGroup", "Subscription"}, kind) && object.GetNamespace() != "scanning":
			t.Errorf("%s is in namespace %s", kind, object.GetNamespace())
		case kind == "PersistentVolumeClaim":
			claim = object.GetName()
		}
	}
	got, err := typed[operatorsv1alpha1.Subscription](objects[len(objects)-1])
	if err != nil {
		t.Fatal(err)
	}
	if spec := got.Spec; spec.CatalogSource != "community-operators" ||
		spec.CatalogSourceNamespace != "openshift-marketplace" || spec.Channel != "stable" {
		t.Errorf("the Subscription is to %s of %s in %s", spec.Channel, spec.CatalogSource, spec.CatalogSourceNamespace)
	}
	volumes := got.Spec.Config.Volumes
	if len(volumes) != 1 || volumes[0].Name != storeVolume || claim == "" || volumes[0].PersistentVolumeClaim.ClaimName != claim {
		t.Errorf("the Subscription has the volumes %+v, want the claim %q", volumes, claim)
	}
}
