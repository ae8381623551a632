package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/scanner-operator/scanner-operator/pkg/config"
)

// schema is a JSON Schema.
type schema = map[string]any

// special maps types to their schemas if their form in YAML differs from the Go type.
var special = map[reflect.Type]schema{
	reflect.TypeFor[metav1.Duration]():             {"$ref": "#/$defs/duration"},
	reflect.TypeFor[resource.Quantity]():           {"$ref": "#/$defs/quantity"},
	reflect.TypeFor[corev1.ResourceRequirements](): {"$ref": "#/$defs/resources"},
}

// writeSchema replaces the definition "configuration" in the chart's schema. The rest of the schema is written by hand.
func writeSchema(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var values schema
	if err := json.Unmarshal(text, &values); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	definitions, isMap := values["$defs"].(schema)
	if !isMap {
		return fmt.Errorf("%s: has no $defs", file)
	}
	definitions["configuration"] = describe(reflect.TypeFor[config.Config]())
	text, err = json.MarshalIndent(values, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

// describe returns the schema of a type: names and types of its fields, without bounds. Only the manager checks bounds, when it starts.
func describe(kind reflect.Type) schema {
	if known, found := special[kind]; found {
		return known
	}
	switch kind.Kind() {
	case reflect.Struct:
		properties := schema{}
		for field := range kind.Fields() {
			name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
			if options == "inline" {
				maps.Copy(properties, describe(field.Type)["properties"].(schema))
				continue
			}
			properties[name] = describe(field.Type)
		}
		return schema{"type": "object", "additionalProperties": false, "properties": properties}
	case reflect.Pointer:
		return describe(kind.Elem())
	case reflect.Map:
		return schema{"type": "object", "additionalProperties": describe(kind.Elem())}
	case reflect.Slice:
		return schema{"type": "array", "items": describe(kind.Elem())}
	case reflect.Bool:
		return schema{"type": "boolean"}
	case reflect.Int, reflect.Int32, reflect.Int64:
		return schema{"type": "integer"}
	case reflect.String:
		return schema{"type": "string"}
	default:
		panic(fmt.Sprintf("the configuration has a field of type %s: say in this file what it is in YAML", kind))
	}
}
