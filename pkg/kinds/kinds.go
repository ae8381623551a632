// Package kinds checks whether the cluster serves the operator's kinds with all fields that this version has.
//
// An installer may leave old CustomResourceDefinitions (CRDs) in place. The API server then silently drops the fields that they lack from
// every write, so that a status never becomes what the operator has written. The check reads the API server's OpenAPI documents, which
// every account may read; the CRDs themselves are not readable for every account. CRDs that are newer than the operator pass.
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

// Outdated is the error for CRDs that are older than the operator.
type Outdated struct {
	// Lacking has an entry for each such CRD: its name and one thing that it lacks.
	Lacking []string
}

// Error implements error.
func (e *Outdated) Error() string {
	return "the cluster's definitions of the operator's kinds are older than the operator: " + strings.Join(e.Lacking, "; ")
}

// schema is the part of an OpenAPI schema that is compared. Extensions are not compared.
type schema struct {
	Properties map[string]*schema `json:"properties"`
	Items      *schema            `json:"items"`
	Values     json.RawMessage    `json:"additionalProperties"`
	Enum       []any              `json:"enum"`
}

// definition is the part of a CustomResourceDefinition that is compared.
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

// Print writes the CRDs that this version needs as YAML for kubectl.
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

// Check compares the served kinds with the CRDs that this version needs. The error is an *Outdated if something is missing.
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

// document holds the served schemas of the operator's API group, by kind.
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

// lacks returns the first thing that a CRD needs and that is not served; empty if there is none.
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

// lacks compares the needed schema of a field with the served one. It returns the first thing that is not served; empty if there is none.
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

// values returns the schema of a map's values; nil if the schema is not a map, or allows any values.
func values(of *schema) *schema {
	var found schema
	if len(of.Values) == 0 || json.Unmarshal(of.Values, &found) != nil {
		return nil
	}
	return &found
}
