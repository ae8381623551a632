package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

const labelSelector = "[LabelSelector](https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors)"

// standard links the Kubernetes types to their own documentation. Their fields are not described here.
var standard = map[string]string{
	"resources":   "[ResourceRequirements](https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/)",
	"podSelector": labelSelector, "namespaceSelector": labelSelector,
	"tolerations": "list of [Toleration](https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/)",
	"conditions":  "list of [Condition](https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/condition/)",
}

const tableHead = "\n### %s\n\n| field | type | meaning |\n|---|---|---|\n"

// fields returns a table for spec and a table for status.
func fields(schema *apiextensionsv1.JSONSchemaProps) string {
	var text strings.Builder
	for _, part := range []string{"spec", "status"} {
		fmt.Fprintf(&text, tableHead, part)
		writeFields(&text, part, schema.Properties[part])
	}
	return text.String()
}

// additionalFields returns a table with the rows of described that the tables in another do not contain.
func additionalFields(another, kind, described string) string {
	var text strings.Builder
	fmt.Fprintf(&text, tableHead, "Only in a "+kind)
	for row := range strings.Lines(described) {
		if strings.HasPrefix(row, "| `") && !strings.Contains(another, row) {
			text.WriteString(row)
		}
	}
	return text.String()
}

// writeFields writes a row for each field. The rows of nested fields follow the row of their parent.
func writeFields(text *strings.Builder, path string, schema apiextensionsv1.JSONSchemaProps) {
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		field := schema.Properties[name]
		at := path + "." + name
		required := slices.Contains(schema.Required, name)
		fmt.Fprintf(text, "| `%s` | %s | %s |\n", at, kind(name, field), description(field, required))
		if standard[name] != "" {
			continue
		}
		if field.Items != nil && field.Items.Schema != nil {
			writeFields(text, at+"[]", *field.Items.Schema)
		}
		writeFields(text, at, field)
	}
}

func kind(name string, schema apiextensionsv1.JSONSchemaProps) string {
	switch {
	case standard[name] != "":
		return standard[name]
	case schema.XIntOrString:
		return "quantity"
	case schema.Format == "date-time":
		return "time"
	case schema.Items != nil && schema.Items.Schema != nil:
		return "list of " + kind("", *schema.Items.Schema)
	case schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil:
		return "map of string to " + kind("", *schema.AdditionalProperties.Schema)
	}
	return schema.Type
}

// description returns the field's description, followed by its validation rules and its default.
func description(schema apiextensionsv1.JSONSchemaProps, required bool) string {
	parts := []string{plain(schema.Description)}
	if required {
		parts = append(parts, "Required.")
	}
	if len(schema.Enum) > 0 {
		var values []string
		for _, value := range schema.Enum {
			values = append(values, literal(value.Raw))
		}
		parts = append(parts, "One of "+strings.Join(values, ", ")+".")
	}
	if schema.Default != nil {
		parts = append(parts, "Default "+literal(schema.Default.Raw)+".")
	}
	for _, rule := range schema.XValidations {
		parts = append(parts, "Rule: "+plain(rule.Message)+".")
	}
	return strings.Join(slices.DeleteFunc(append(parts, bounds(schema)), func(s string) bool { return s == "" }), " ")
}

// bounds returns the maximum lengths and sizes as sentences.
func bounds(schema apiextensionsv1.JSONSchemaProps) string {
	var sentences []string
	for _, bound := range []struct {
		limit *int64
		words string
	}{{schema.MaxLength, "characters"}, {schema.MaxItems, "entries"}, {schema.MaxProperties, "entries"}} {
		if bound.limit != nil {
			sentences = append(sentences, fmt.Sprintf("At most %d %s.", *bound.limit, bound.words))
		}
	}
	return strings.Join(sentences, " ")
}

// plain joins a description into one line and escapes the characters that would end a table cell.
func plain(text string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;").Replace(strings.Join(strings.Fields(text), " "))
}

func literal(raw []byte) string {
	var value any
	if json.Unmarshal(raw, &value) != nil {
		return "`" + string(raw) + "`"
	}
	if text, isText := value.(string); isText {
		return "`" + cmp.Or(text, `""`) + "`"
	}
	return "`" + string(raw) + "`"
}
