package main

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/operator-framework/api/pkg/operators/v1alpha1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

type schema = apiextensionsv1.JSONSchemaProps

// Descriptors that OpenShift's console supports: https://github.com/openshift/console,
// frontend/packages/operator-lifecycle-manager/src/components/descriptors.
const (
	ui         = "urn:alm:descriptor:com.tectonic.ui:"
	kubernetes = "urn:alm:descriptor:io.kubernetes"
	plainText  = "urn:alm:descriptor:text"
)

// standard maps Kubernetes types to the console's own editor or view for them. Their nested fields are not described.
var standard = map[string]string{
	"resources":         ui + "resourceRequirements",
	"podSelector":       ui + "selector:core:v1:Pod",
	"namespaceSelector": ui + "selector:core:v1:Namespace",
	"fromNamespaces":    ui + "selector:core:v1:Namespace",
	"nodeSelector":      ui + "nodeSelector",
	"tolerations":       ui + "advanced",
	"conditions":        kubernetes + ".conditions",
	"phase":             kubernetes + ".phase",
}

// depth is the maximum length of a path in spec. Forms show deeper fields in the advanced section.
const depth = 3

// field is a field of spec or status.
type field struct {
	path   []string // field names; the name of a list ends in "[0]" if the field is inside it
	schema schema
	// group is the enclosing field, which a form shows as a group; empty at the top level.
	group string
}

// fieldsOf returns the fields of spec or status. Each field precedes its nested fields.
func fieldsOf(part schema) []field { return below(part, nil, "") }

func below(part schema, path []string, group string) []field {
	var fields []field
	for _, name := range slices.Sorted(maps.Keys(part.Properties)) {
		one := field{append(slices.Clone(path), name), part.Properties[name], group}
		fields = append(fields, one)
		if standard[name] != "" {
			continue
		}
		if items := one.schema.Items; items != nil && items.Schema != nil {
			inside := slices.Clone(one.path)
			inside[len(inside)-1] += "[0]"
			fields = append(fields, below(*items.Schema, inside, ui+"arrayFieldGroup:"+strings.Join(one.path, "."))...)
		}
		fields = append(fields, below(one.schema, one.path, ui+"fieldGroup:"+strings.Join(one.path, "."))...)
	}
	return fields
}

// specDescriptors describe the fields of spec, from which consoles build a form.
func specDescriptors(definition schema) []v1alpha1.SpecDescriptor {
	var descriptors []v1alpha1.SpecDescriptor
	for _, f := range fieldsOf(definition.Properties["spec"]) {
		descriptors = append(descriptors, v1alpha1.SpecDescriptor{
			Path: f.name(), DisplayName: display(f.last()), Description: f.schema.Description, XDescriptors: f.editors(),
		})
	}
	return descriptors
}

// statusDescriptors describe the fields of status, which the operator writes.
func statusDescriptors(definition schema) []v1alpha1.StatusDescriptor {
	var descriptors []v1alpha1.StatusDescriptor
	for _, f := range fieldsOf(definition.Properties["status"]) {
		if f.path[0] == "columns" { // they repeat other fields for kubectl
			continue
		}
		view := plainText
		if standard[f.last()] != "" {
			view = standard[f.last()]
		}
		descriptors = append(descriptors, v1alpha1.StatusDescriptor{
			Path: f.name(), DisplayName: display(f.last()), Description: f.schema.Description, XDescriptors: []string{view},
		})
	}
	return descriptors
}

func (f field) name() string { return strings.Join(f.path, ".") }
func (f field) last() string { return f.path[len(f.path)-1] }

// editors returns the console's input elements for a field.
func (f field) editors() []string {
	var editors []string
	if f.group != "" {
		editors = append(editors, f.group)
	}
	if len(f.path) > depth {
		editors = append(editors, ui+"advanced")
	}
	return slices.Compact(append(editors, f.input()...))
}

func (f field) input() []string {
	list := f.schema.Items != nil && f.schema.Items.Schema != nil
	switch {
	case standard[f.last()] != "":
		return []string{standard[f.last()]}
	case f.last() == "name" && f.inSecretRef():
		return []string{kubernetes + ":Secret"}
	case len(f.schema.Enum) > 0:
		return choices(f.schema.Enum)
	case list && len(f.schema.Items.Schema.Properties) > 0:
		return []string{ui + "arrayFieldGroup:" + f.name()}
	case list:
		return nil // the form edits a list of fields without an editor; an editor would replace the list and write a single value
	case len(f.schema.Properties) > 0:
		return []string{ui + "fieldGroup:" + f.name()}
	case f.schema.Type == "boolean":
		return []string{ui + "booleanSwitch"}
	case f.schema.Type == "integer":
		return []string{ui + "number"}
	}
	return []string{ui + "text"}
}

func (f field) inSecretRef() bool {
	return len(f.path) > 1 && strings.HasSuffix(f.path[len(f.path)-2], "SecretRef")
}

func choices(values []apiextensionsv1.JSON) []string {
	var editors []string
	for _, value := range values {
		var text string
		if json.Unmarshal(value.Raw, &text) == nil {
			editors = append(editors, ui+"select:"+text)
		}
	}
	return editors
}
