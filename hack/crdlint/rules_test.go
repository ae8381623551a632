package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// definition returns a CRD with the given schema of spec.
func definition(spec schema) apiextensionsv1.CustomResourceDefinition {
	spec.Type, spec.Description = "object", "what is wanted"
	var crd apiextensionsv1.CustomResourceDefinition
	crd.Name = "shops.example.test"
	crd.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{{
		Name:                     "v1",
		Subresources:             &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
		AdditionalPrinterColumns: []apiextensionsv1.CustomResourceColumnDefinition{{Name: "Ready"}},
		Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &schema{
			Properties: map[string]schema{"spec": spec},
		}},
	}}
	return crd
}

func TestRulesForAField(t *testing.T) {
	ten, zero, set := int64(10), float64(0), "set"
	tests := map[string]struct {
		field schema
		want  string // part of the only problem; "" for none
	}{
		"no description":                   {schema{Type: "boolean"}, "no description"},
		"boolean":                          {schema{Type: "boolean", Description: "d"}, ""},
		"string without end":               {schema{Type: "string", Description: "d"}, "without maxLength"},
		"string with length":               {schema{Type: "string", Description: "d", MaxLength: &ten}, ""},
		"string with pattern":              {schema{Type: "string", Description: "d", Pattern: "^a{3}$"}, ""},
		"string with endless pattern":      {schema{Type: "string", Description: "d", Pattern: "^a+$"}, "without maxLength"},
		"string with date":                 {schema{Type: "string", Description: "d", Format: "date-time"}, ""},
		"string with rule":                 {schema{Type: "string", Description: "d", XValidations: apiextensionsv1.ValidationRules{{Rule: "size(self) < 9"}}}, ""},
		"integer without bounds":           {schema{Type: "integer", Description: "d", Minimum: &zero}, "minimum and maximum"},
		"integer with bounds":              {schema{Type: "integer", Description: "d", Minimum: &zero, Maximum: &zero}, ""},
		"floating point":                   {schema{Type: "number", Description: "d"}, "floating point"},
		"list without length":              {schema{Type: "array", Description: "d", XListType: &set}, "maxItems"},
		"list without type":                {schema{Type: "array", Description: "d", MaxItems: &ten}, "list-type"},
		"map without size":                 {schema{Type: "object", Description: "d", AdditionalProperties: &apiextensionsv1.JSONSchemaPropsOrBool{Allows: true}}, "maxProperties"},
		"selector of Kubernetes' own":      {schema{Type: "object", Description: "d", Properties: map[string]schema{"matchLabels": {}, "matchExpressions": {}}}, ""},
		"problem in an item of a list":     {schema{Type: "array", Description: "d", MaxItems: &ten, XListType: &set, Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &schema{Type: "number"}}}, "spec.field[]: a floating"},
		"problem in a field below a field": {schema{Type: "object", Description: "d", Properties: map[string]schema{"below": {Type: "number", Description: "d"}}}, "spec.field.below: a floating"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			problems := check(definition(schema{Properties: map[string]schema{"field": test.field}}))
			switch {
			case test.want == "" && len(problems) > 0:
				t.Errorf("want no problem, got %q", problems)
			case test.want != "" && (len(problems) != 1 || !strings.Contains(problems[0], test.want)):
				t.Errorf("want one problem with %q, got %q", test.want, problems)
			}
		})
	}
}

func TestNamesAreCamelCase(t *testing.T) {
	problems := check(definition(schema{Properties: map[string]schema{"under_score": {Type: "boolean", Description: "d"}}}))
	want := []string{"shops.example.test v1: spec.under_score: the name is not in camelCase"}
	if diff := cmp.Diff(want, problems); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

func TestVersionNeedsStatusColumnsAndSchema(t *testing.T) {
	crd := definition(schema{})
	crd.Spec.Versions[0] = apiextensionsv1.CustomResourceDefinitionVersion{Name: "v1"}
	problems := strings.Join(check(crd), "\n")
	for _, want := range []string{"no status subresource", "no printer columns", "no schema"} {
		if !strings.Contains(problems, want) {
			t.Errorf("want %q among the problems, got:\n%s", want, problems)
		}
	}
}

func TestUnknownFieldInAFileIsAnError(t *testing.T) {
	file := filepath.Join(t.TempDir(), "crd.yaml")
	if err := os.WriteFile(file, []byte("spec: {versoins: []}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := checkFiles([]string{file}); err == nil || !strings.Contains(err.Error(), "versoins") {
		t.Errorf("want an error about versoins, got %v", err)
	}
}
