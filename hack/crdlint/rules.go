package main

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// schema is the schema of a field as the API server enforces it.
type schema = apiextensionsv1.JSONSchemaProps

// rule returns the problem with one field; empty if there is none.
type rule func(name string, field schema) string

// everywhere applies to every field, specOnly to the fields that users write. The controller bounds what it writes itself.
var (
	everywhere = []rule{requireDescription, requireCamelCase, requireListType}
	specOnly   = []rule{requireTextBound, requireListBound, requireMapBound, requireNumberBound}
)

// kubernetesTypes are Kubernetes types, identified by their field names. The project cannot change their schemas.
var kubernetesTypes = [][]string{
	{"matchExpressions", "matchLabels"},                                                 // LabelSelector
	{"claims", "limits", "requests"},                                                    // ResourceRequirements
	{"effect", "key", "operator", "tolerationSeconds", "value"},                         // Toleration
	{"lastTransitionTime", "message", "observedGeneration", "reason", "status", "type"}, // Condition
}

// check returns the problems of a CustomResourceDefinition, one line each, in a fixed order.
func check(crd apiextensionsv1.CustomResourceDefinition) []string {
	var problems []string
	for _, version := range crd.Spec.Versions {
		where := crd.Name + " " + version.Name + ": "
		report := func(text string) { problems = append(problems, where+text) }
		if version.Subresources == nil || version.Subresources.Status == nil {
			report("no status subresource: whoever may change the spec could change the status too")
		}
		if len(version.AdditionalPrinterColumns) == 0 {
			report("no printer columns: kubectl get shows only name and age")
		}
		if version.Schema == nil || version.Schema.OpenAPIV3Schema == nil {
			report("no schema")
			continue
		}
		for _, part := range []string{"spec", "status"} {
			if field, ok := version.Schema.OpenAPIV3Schema.Properties[part]; ok {
				walker{report: report, rules: rulesFor(part)}.walk(part, part, field)
			}
		}
	}
	return problems
}

func rulesFor(part string) []rule {
	if part == "spec" {
		return slices.Concat(everywhere, specOnly)
	}
	return everywhere
}

// walker applies rules to a field and to all fields below it.
type walker struct {
	rules  []rule
	report func(string)
}

func (w walker) walk(path, name string, field schema) {
	for _, apply := range w.rules {
		if problem := apply(name, field); problem != "" {
			w.report(path + ": " + problem)
		}
	}
	children := slices.Sorted(maps.Keys(field.Properties))
	if slices.ContainsFunc(kubernetesTypes, func(fields []string) bool { return slices.Equal(fields, children) }) {
		return
	}
	for _, child := range children {
		w.walk(path+"."+child, child, field.Properties[child])
	}
	// Items have no name: the description is that of the list. Values of a map are bounded by the map.
	if field.Items != nil && field.Items.Schema != nil {
		w.walk(path+"[]", "", *field.Items.Schema)
	}
}

func requireDescription(name string, field schema) string {
	if name != "" && field.Description == "" {
		return "no description: it is what kubectl explain shows"
	}
	return ""
}

var camelCase = regexp.MustCompile(`^[a-z][a-zA-Z0-9]*$`)

func requireCamelCase(name string, _ schema) string {
	if name != "" && !camelCase.MatchString(name) {
		return "the name is not in camelCase"
	}
	return ""
}

// boundedFormats are formats that the API server checks and whose values are always short.
var boundedFormats = []string{"date-time", "date", "duration", "uuid"}

// requireTextBound also accepts a pattern without unlimited repetition, and a CEL rule on the field itself, as a bound.
func requireTextBound(_ string, field schema) string {
	switch {
	case field.Type != "string", field.MaxLength != nil, len(field.Enum) > 0, len(field.XValidations) > 0:
		return ""
	case slices.Contains(boundedFormats, field.Format), field.Pattern != "" && !strings.ContainsAny(field.Pattern, "*+"):
		return ""
	default:
		return "a string without maxLength, enum, bounded pattern or format"
	}
}

func requireListBound(_ string, field schema) string {
	if field.Type == "array" && field.MaxItems == nil {
		return "a list without maxItems"
	}
	return ""
}

func requireListType(_ string, field schema) string {
	if field.Type == "array" && field.XListType == nil {
		return "a list without x-kubernetes-list-type: with server-side apply, two writers would replace each other's items"
	}
	return ""
}

func requireMapBound(_ string, field schema) string {
	if field.AdditionalProperties != nil && field.MaxProperties == nil {
		return "a map without maxProperties"
	}
	return ""
}

// requireNumberBound rejects floating point numbers, which are not exact between languages, and integers without bounds. A quantity (integer
// or string) is checked by its pattern.
func requireNumberBound(_ string, field schema) string {
	switch {
	case field.XIntOrString && field.Pattern == "":
		return "integer or string without a pattern"
	case field.Type == "number":
		return "a floating point number: use an integer in a smaller unit, or a quantity"
	case field.Type == "integer" && (field.Minimum == nil || field.Maximum == nil):
		return "an integer without minimum and maximum"
	default:
		return ""
	}
}
