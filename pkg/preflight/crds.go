package preflight

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

// OutdatedCRDsError is the error for CRDs that are older than the operator.
type OutdatedCRDsError struct {
	// Missing has an entry for each such CRD: its name and one thing that it lacks.
	Missing []string
}

// Error implements error.
func (e *OutdatedCRDsError) Error() string {
	return "the cluster's CustomResourceDefinitions are older than the operator: " + strings.Join(e.Missing, "; ")
}

// crdSchema is the part of an OpenAPI schema that is compared. Extensions are not compared.
type crdSchema struct {
	Properties map[string]*crdSchema `json:"properties"`
	Items      *crdSchema            `json:"items"`
	Values     json.RawMessage       `json:"additionalProperties"`
	Enum       []any                 `json:"enum"`
}

// crdManifest is the part of a CustomResourceDefinition that is compared.
type crdManifest struct {
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
				OpenAPIV3Schema *crdSchema `json:"openAPIV3Schema"`
			} `json:"schema"`
		} `json:"versions"`
	} `json:"spec"`
}

// PrintCRDs writes the CRDs that this version needs as YAML for kubectl.
func PrintCRDs(to io.Writer) error {
	return eachCRD(func(text []byte) error {
		_, err := fmt.Fprintf(to, "---\n%s", strings.TrimPrefix(string(text), "---\n"))
		return err
	})
}

func eachCRD(do func(text []byte) error) error {
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

// checkCRDs compares the served kinds with the CRDs that this version needs. The error is an *OutdatedCRDsError if something is missing.
func checkCRDs(served openapi.Client) error {
	document, err := readServed(served)
	if err != nil {
		return fmt.Errorf("reading what the API server serves: %w", err)
	}
	outdated := &OutdatedCRDsError{}
	err = eachCRD(func(text []byte) error {
		var needed crdManifest
		if err := yaml.Unmarshal(text, &needed); err != nil {
			return err
		}
		if missing := document.firstMissing(&needed); missing != "" {
			outdated.Missing = append(outdated.Missing, needed.Metadata.Name+" has no "+missing)
		}
		return nil
	})
	if err == nil && len(outdated.Missing) > 0 {
		return outdated
	}
	return err
}

// servedSchemas holds the served schemas of the operator's API group, by kind.
type servedSchemas map[string]*crdSchema

func readServed(served openapi.Client) (servedSchemas, error) {
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
				crdSchema
				Kinds []struct {
					Kind string `json:"kind"`
				} `json:"x-kubernetes-group-version-kind"`
			} `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(text, &parsed); err != nil {
		return nil, err
	}
	kinds := servedSchemas{}
	for _, one := range parsed.Components.Schemas {
		for _, kind := range one.Kinds {
			kinds[kind.Kind] = &one.crdSchema
		}
	}
	return kinds, nil
}

// firstMissing returns the first thing that a CRD needs and that is not served; empty if there is none.
func (d servedSchemas) firstMissing(needed *crdManifest) string {
	for _, version := range needed.Spec.Versions {
		if version.Name != v1alpha1.GroupVersion.Version {
			continue
		}
		served := d[needed.Spec.Names.Kind]
		if served == nil {
			return "version " + version.Name
		}
		for _, part := range []string{"spec", "status"} {
			if missing := missingField(version.Schema.OpenAPIV3Schema.Properties[part], served.Properties[part], part); missing != "" {
				return missing
			}
		}
	}
	return ""
}

// missingField compares the needed schema of a field with the served one. It returns the first thing that is not served; empty if there is none.
func missingField(needed, served *crdSchema, field string) string {
	switch {
	case needed == nil:
		return ""
	case served == nil:
		return "field " + field
	}
	for _, name := range slices.Sorted(maps.Keys(needed.Properties)) {
		if missing := missingField(needed.Properties[name], served.Properties[name], field+"."+name); missing != "" {
			return missing
		}
	}
	if len(served.Enum) > 0 {
		for _, value := range needed.Enum {
			if !slices.Contains(served.Enum, value) {
				return fmt.Sprintf("value %v of field %s", value, field)
			}
		}
	}
	if missing := missingField(mapValues(needed), mapValues(served), field+"[*]"); missing != "" {
		return missing
	}
	return missingField(needed.Items, served.Items, field+"[]")
}

// mapValues returns the schema of a map's values; nil if the schema is not a map, or allows any values.
func mapValues(of *crdSchema) *crdSchema {
	var found crdSchema
	if len(of.Values) == 0 || json.Unmarshal(of.Values, &found) != nil {
		return nil
	}
	return &found
}
