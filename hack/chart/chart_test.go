package main

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Fields have their names and types in YAML, and additional properties are not allowed.
func TestDescribe(t *testing.T) {
	got := describe(reflect.TypeFor[struct {
		URL   string              `json:"url,omitempty"`
		Every metav1.Duration     `json:"every"`
		Sizes []resource.Quantity `json:"sizes"`
		Plain struct {
			On    bool `json:"on"`
			Count int  `json:"count"`
		} `json:"plain"`
	}]())
	want := schema{"type": "object", "additionalProperties": false, "properties": schema{
		"url": schema{"type": "string"}, "every": schema{"$ref": "#/$defs/duration"},
		"sizes": schema{"type": "array", "items": schema{"$ref": "#/$defs/quantity"}},
		"plain": schema{"type": "object", "additionalProperties": false, "properties": schema{
			"on": schema{"type": "boolean"}, "count": schema{"type": "integer"},
		}},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("schema (-want +got):\n%s", diff)
	}
}

// Files that config/ no longer has are deleted. A duplicate file name and a pattern without files are errors.
func TestCopies(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	for _, patterns := range copies {
		for _, pattern := range patterns {
			write(t, filepath.Join(from, strings.ReplaceAll(pattern, "*", "some")))
		}
	}
	write(t, filepath.Join(from, "policy", "kustomization.yaml"))
	write(t, filepath.Join(to, "policy", "old.yaml"))
	if err := copyAll(from, to); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(to, "policy", "*"))
	if err != nil || len(left) != 1 || filepath.Base(left[0]) != "some.yaml" {
		t.Errorf("policy: want some.yaml alone, got %v %v", left, err)
	}
	write(t, filepath.Join(from, "rbac", "rbac.yaml")) // the same name as notifier/rbac.yaml
	if err := copyAll(from, to); err == nil || !strings.Contains(err.Error(), "notifier/rbac.yaml") {
		t.Errorf("want an error about notifier/rbac.yaml, which would take the place of another file, got %v", err)
	}
	if err := copyAll(t.TempDir(), to); err == nil || !strings.Contains(err.Error(), "no manifests") {
		t.Errorf("want an error where there is nothing to copy, got %v", err)
	}
}

func write(t *testing.T, file string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("a: b\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}
