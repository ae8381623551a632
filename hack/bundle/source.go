package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// rendered returns the objects that "kustomize build config/default" prints for a checkout.
func rendered(tree string) ([]*unstructured.Unstructured, error) {
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join(tree, "config", "default"))
	if err != nil {
		return nil, fmt.Errorf("kustomize build: %w", err)
	}
	objects := make([]*unstructured.Unstructured, 0, built.Size())
	for _, resource := range built.Resources() {
		text, err := resource.MarshalJSON()
		if err != nil {
			return nil, err
		}
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON(text); err != nil {
			return nil, err
		}
		objects = append(objects, object)
	}
	return objects, nil
}

// typed decodes an object into the Go type of its kind. Unknown fields are an error.
func typed[T any](object *unstructured.Unstructured) (T, error) {
	var into T
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, &into, true); err != nil {
		return into, fmt.Errorf("%s %s: %w", object.GetKind(), object.GetName(), err)
	}
	return into, nil
}

// release is the lock file of the last release: the images that it published.
type release struct {
	// Created is the time of the release, in RFC 3339.
	Created string `json:"created"`
	// Images maps image names of config/default to references by digest.
	Images map[string]string `json:"images"`
}

func readRelease(file string) (release, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return release{}, err
	}
	var read release
	if err := yaml.UnmarshalStrict(text, &read); err != nil {
		return release{}, fmt.Errorf("%s: %w", file, err)
	}
	for name, reference := range read.Images {
		if _, digest, _ := strings.Cut(reference, "@sha256:"); len(digest) != 64 {
			return release{}, fmt.Errorf("%s: %s: %q is no reference by digest", file, name, reference)
		}
	}
	return read, nil
}

// image returns the reference by digest for an image name of config/default.
func (r release) image(name string) (string, error) {
	if reference := r.Images[name]; reference != "" {
		return reference, nil
	}
	return "", fmt.Errorf("no digest is known for the image %q", name)
}
