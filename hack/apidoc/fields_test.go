package main

import (
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/utils/ptr"
)

// Each field has a row with its validation rules. The fields of standard types are not listed.
func TestFields(t *testing.T) {
	inner := apiextensionsv1.JSONSchemaProps{Type: "object", Required: []string{"name"}, Properties: map[string]apiextensionsv1.JSONSchemaProps{
		"name": {Type: "string", Description: "name of <it>,\nin | two lines.", MaxLength: ptr.To[int64](63)},
	}}
	schema := &apiextensionsv1.JSONSchemaProps{Properties: map[string]apiextensionsv1.JSONSchemaProps{
		"spec": {Properties: map[string]apiextensionsv1.JSONSchemaProps{
			"mode":        {Type: "string", Description: "how.", Default: &apiextensionsv1.JSON{Raw: []byte(`"A"`)}, Enum: []apiextensionsv1.JSON{{Raw: []byte(`"A"`)}, {Raw: []byte(`"B"`)}}},
			"receivers":   {Type: "array", Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &inner}},
			"podSelector": {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"matchLabels": {Type: "object"}}},
		}},
	}}
	got := fields(schema)
	for _, want := range []string{
		"| `spec.mode` | string | how. One of `A`, `B`. Default `A`. |\n",
		"| `spec.receivers` | list of object |  |\n| `spec.receivers[].name` | string | name of &lt;it>, in \\| two lines. Required. At most 63 characters. |\n",
		"| `spec.podSelector` | [LabelSelector]",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("want the row %q in:\n%s", want, got)
		}
	}
	if strings.Contains(got, "matchLabels") {
		t.Errorf("a standard type is taken apart:\n%s", got)
	}
}

// For a similar second kind, only the differing rows are written.
func TestBeyond(t *testing.T) {
	one := "\n### spec\n\n| `spec.a` | string | a. |\n| `spec.b` | string | b. |\n"
	other := "\n### spec\n\n| `spec.a` | string | a. |\n| `spec.b` | string | b, but more. |\n| `spec.c` | string | c. |\n"
	want := "\n### Only in a Thing\n\n| field | type | meaning |\n|---|---|---|\n| `spec.b` | string | b, but more. |\n| `spec.c` | string | c. |\n"
	if got := additionalFields(one, "Thing", other); got != want {
		t.Errorf("the table is\n%s, want\n%s", got, want)
	}
}

// Only the text between the markers changes, also in a second run.
func TestReplace(t *testing.T) {
	page := "# Kind\n" + begin + "\nold\n" + end + "\nwords\n"
	for range 2 {
		var err error
		if page, err = replace(page, "new\n"); err != nil {
			t.Fatal(err)
		}
		if want := "# Kind\n" + begin + "\nnew\n" + end + "\nwords\n"; page != want {
			t.Errorf("the page is %q, want %q", page, want)
		}
	}
	if _, err := replace("# Kind\n", "new"); err == nil {
		t.Error("a page without markers is taken")
	}
}
