// Package kinds finds out whether the cluster serves the operator's kinds with all the fields that this version has.
//
// An installer may leave old definitions in place. The API server drops what they do not have from all that is written, without
// a word: status would never be what it was made. What is served is read from the API server's OpenAPI documents, which every
// account may read; the definitions themselves are not. Newer definitions are no fault.
package kinds

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"k8s.io/client-go/openapi"
	"sigs.k8s.io/yaml"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/config/crd"
)

// Outdated says what the cluster's definitions lack.
type Outdated struct {
	// Lacking has the names of definitions, each with one thing that it has not.
	Lacking []string
}

// Error implements error.
func (e *Outdated) Error() string {
	return "the cluster's definitions of the operator's kinds are older than the operator: " + strings.Join(e.Lacking, "; ")
}

// schema is the part of OpenAPI that counts here. What has an extension may hold anything.
type schema struct {
	Properties map[string]*schema `json:"properties"`
	Items      *schema            `json:"items"`
	Values     json.RawMessage    `json:"additionalProperties"`
	Enum       []any              `json:"enum"`
}

// definition is a CustomResourceDefinition.
type definition struct {
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		Names struct {
			Kind string `json:"kind"`
		} `json:"names"`
		Versions []struct {
			Name   string `json:"name"`
			Schema struct {
				OpenAPIV3Schema *schema `json:"openAPIV3Schema"`
			} `json:"schema"`
		} `json:"versions"`
	} `json:"spec"`
}

// Print writes the definitions that this version needs, for kubectl.
func Print(to io.Writer) error {
	return eachFile(func(text []byte) error {
		_, err := fmt.Fprintf(to, "---\n%s", strings.TrimPrefix(string(text), "---\n"))
		return err
	})
}

func eachFile(do func(text []byte) error) error {
	names, err := fs.Glob(crd.Files, path.Join("bases", "*.yaml"))
	if err != nil {
		return err
	}
	for _, name := range names {
		text, err := crd.Files.ReadFile(name)
		if err = errors.Join(err, do(text)); err != nil {
			return err
		}
	}
	return nil
}

// Check compares what is served with what this version needs. The error is *Outdated if something is lacking.
func Check(served openapi.Client) error {
	document, err := read(served)
	if err != nil {
		return fmt.Errorf("reading what the API server serves: %w", err)
	}
	outdated := &Outdated{}
	err = eachFile(func(text []byte) error {
		var needed definition
		if err := yaml.Unmarshal(text, &needed); err != nil {
			return err
		}
		if lack := document.lacks(&needed); lack != "" {
			outdated.Lacking = append(outdated.Lacking, needed.Metadata.Name+" has no "+lack)
		}
		return nil
	})
	if err == nil && len(outdated.Lacking) > 0 {
		return outdated
	}
	return err
}

// document is what is served of the operator's group, by kind.
type document map[string]*schema

func read(served openapi.Client) (document, error) {
	paths, err := served.Paths()
	if err != nil {
		return nil, err
	}
	group, found := paths[path.Join("apis", v1alpha1.GroupVersion.String())]
	if !found {
		return nil, nil
	}
	text, err := group.Schema("application/json")
	if err != nil {
		return nil, err
	}
	var parsed struct {
		Components struct {
			Schemas map[string]*struct {
				schema
				Kinds []struct {
					Kind string `json:"kind"`
				} `json:"x-kubernetes-group-version-kind"`
			} `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(text, &parsed); err != nil {
		return nil, err
	}
	kinds := document{}
	for _, one := range parsed.Components.Schemas {
		for _, kind := range one.Kinds {
			kinds[kind.Kind] = &one.schema
		}
	}
	return kinds, nil
}

// lacks names the first thing that a definition needs and that is not served; empty if there is nothing.
func (d document) lacks(needed *definition) string {
	for _, version := range needed.Spec.Versions {
		if version.Name != v1alpha1.GroupVersion.Version {
			continue
		}
		served := d[needed.Spec.Names.Kind]
		if served == nil {
			return "version " + version.Name
		}
		for _, part := range []string{"spec", "status"} {
			if lack := lacks(version.Schema.OpenAPIV3Schema.Properties[part], served.Properties[part], part); lack != "" {
				return lack
			}
		}
	}
	return ""
}

// lacks compares what is needed below a field with what is served there.
func lacks(needed, served *schema, field string) string {
	switch {
	case needed == nil:
		return ""
	case served == nil:
		return "field " + field
	}
	for _, name := range slices.Sorted(maps.Keys(needed.Properties)) {
		if lack := lacks(needed.Properties[name], served.Properties[name], field+"."+name); lack != "" {
			return lack
		}
	}
	if len(served.Enum) > 0 {
		for _, value := range needed.Enum {
			if !slices.Contains(served.Enum, value) {
				return fmt.Sprintf("value %v of field %s", value, field)
			}
		}
	}
	if lack := lacks(values(needed), values(served), field+"[*]"); lack != "" {
		return lack
	}
	return lacks(needed.Items, served.Items, field+"[]")
}

// values is the schema of a map's values; nil if it is no map, or one of anything.
func values(of *schema) *schema {
	var found schema
	if len(of.Values) == 0 || json.Unmarshal(of.Values, &found) != nil {
		return nil
	}
	return &found
}
