package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// decode reads a text over a configuration. The decoder's own error does not name the field of an invalid duration or quantity. If a text
// is refused, each of its values is therefore decoded once more by itself.
func decode(text []byte, into *Config) error {
	err := yaml.UnmarshalStrict(text, into)
	if err == nil {
		return nil
	}
	var whole any
	if yaml.Unmarshal(text, &whole) != nil {
		return trimDecoderPrefix(err) // not YAML: the error names the line
	}
	var errs []error
	walkValues(whole, "", func(v any) any { return v }, func(field string, alone any) {
		encoded, marshalErr := json.Marshal(alone)
		if marshalErr != nil {
			return
		}
		if err := yaml.UnmarshalStrict(encoded, new(Config)); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", field, trimDecoderPrefix(err)))
		}
	})
	if len(errs) == 0 {
		return trimDecoderPrefix(err) // each value is valid by itself, as with a repeated field
	}
	return errors.Join(errs...)
}

// walkValues visits the leaves of a tree. wrap puts a part of the tree in its original place, without any other part.
func walkValues(part any, field string, wrap func(any) any, visit func(field string, alone any)) {
	switch part := part.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(part)) {
			name := strings.TrimPrefix(field+"."+key, ".")
			walkValues(part[key], name, func(v any) any { return wrap(map[string]any{key: v}) }, visit)
		}
	case []any:
		for i, one := range part {
			walkValues(one, fmt.Sprintf("%s[%d]", field, i), func(v any) any { return wrap([]any{v}) }, visit)
		}
	default:
		visit(field, wrap(part))
	}
}

// trimDecoderPrefix removes the prefixes that name the decoder.
func trimDecoderPrefix(err error) error {
	text := err.Error()
	for _, prefix := range []string{"error converting YAML to JSON: ", "error unmarshaling JSON: ", "while decoding JSON: ", "json: "} {
		text = strings.TrimPrefix(text, prefix)
	}
	return errors.New(text)
}
