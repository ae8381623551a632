package chart

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
)

const (
	root      = "../.."
	chart     = root + "/charts/scanner-operator"
	namespace = "scanner-operator-system"
)

// program returns the path of a program that "make test" has built.
func program(t *testing.T, variable string) string {
	t.Helper()
	path := os.Getenv(variable)
	if path == "" {
		t.Skipf("needs %s: make bin/helm, and %[1]s=$PWD/bin/helm, or \"make test\"", variable)
	}
	return path
}

// kubectl returns the path of kubectl, beside the API server of the controller tests.
func kubectl(t *testing.T) string {
	t.Helper()
	assets := os.Getenv("KUBEBUILDER_ASSETS")
	if assets == "" {
		t.Skip(`needs kubectl: KUBEBUILDER_ASSETS="$(hack/cluster/cluster.sh assets)", or "make test"`)
	}
	return filepath.Join(assets, "kubectl")
}

// run returns the standard output of a program, or an error with its output.
func run(t *testing.T, input, name string, args ...string) (string, error) {
	t.Helper()
	command := exec.CommandContext(t.Context(), name, args...)
	command.Stdin = strings.NewReader(input)
	var out, stderr bytes.Buffer
	command.Stdout, command.Stderr = &out, &stderr
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s%s", filepath.Base(name), strings.Join(args, " "), err, out.String(), stderr.String())
	}
	return out.String(), nil
}

// template returns the chart rendered by Helm with the given values (YAML).
func template(t *testing.T, values string, args ...string) (string, error) {
	t.Helper()
	args = append([]string{"template", "scanner-operator", chart, "--namespace", namespace, "--kube-version", "1.37.0", "--values", "-"}, args...)
	return run(t, values, program(t, "HELM"), args...)
}

// objects are rendered objects by kind, namespace and name.
type objects map[string]*unstructured.Unstructured

func key(o *unstructured.Unstructured) string {
	if o.GetNamespace() == "" {
		return o.GetKind() + " " + o.GetName()
	}
	return o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
}

// rendered returns the objects of the chart with the given values.
func rendered(t *testing.T, values string, args ...string) objects {
	t.Helper()
	text, err := template(t, values, args...)
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, text)
}

func decode(t *testing.T, text string) objects {
	t.Helper()
	all := objects{}
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(object)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("%v in:\n%s", err, text)
		}
		if len(object.Object) == 0 {
			continue
		}
		if all[key(object)] != nil {
			t.Errorf("%s is there twice", key(object))
		}
		all[key(object)] = object
	}
}

// into decodes one of the objects strictly: a field that Kubernetes does not know is an error.
func into[T any](t *testing.T, all objects, key string) *T {
	t.Helper()
	object := all[key]
	if object == nil {
		t.Fatalf("there is no %s", key)
	}
	result := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, result, true); err != nil {
		t.Fatalf("%s: %v", key, err)
	}
	return result
}
