package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// values describes a chart's values.yaml by its comments. A value whose own fields have comments gets a row for each field. For any
// other value the whole default is shown.
func values(raw []byte) (string, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(raw, &document); err != nil {
		return "", err
	}
	if document.Kind != yaml.DocumentNode || document.Content[0].Kind != yaml.MappingNode {
		return "", errors.New("is no map")
	}
	var text strings.Builder
	text.WriteString("\n| value | default | meaning |\n|---|---|---|\n")
	if err := writeValues(&text, "", document.Content[0]); err != nil {
		return "", err
	}
	text.WriteString("\n")
	return text.String(), nil
}

func writeValues(text *strings.Builder, path string, fields *yaml.Node) error {
	for pair := range slices.Chunk(fields.Content, 2) {
		name, value := pair[0], pair[1]
		at := path + name.Value
		comment := plain(strings.ReplaceAll("\n"+name.HeadComment, "\n#", "\n"))
		if comment == "" {
			return fmt.Errorf("line %d: %s has no comment that says what it is for", name.Line, at)
		}
		if hasComments(value) {
			fmt.Fprintf(text, "| **`%s`** | | %s |\n", at, comment)
			if err := writeValues(text, at+".", value); err != nil {
				return err
			}
			continue
		}
		preset, err := inOneLine(value)
		if err != nil {
			return fmt.Errorf("line %d: %s: %w", name.Line, at, err)
		}
		fmt.Fprintf(text, "| `%s` | `%s` | %s |\n", at, preset, comment)
	}
	return nil
}

// hasComments reports whether a map has fields with comments.
func hasComments(node *yaml.Node) bool {
	return node.Kind == yaml.MappingNode && slices.ContainsFunc(node.Content, func(n *yaml.Node) bool { return n.HeadComment != "" })
}

func inOneLine(node *yaml.Node) (string, error) {
	var value any
	if err := node.Decode(&value); err != nil {
		return "", err
	}
	if text, isText := value.(string); isText && text != "" {
		return text, nil
	}
	raw, err := json.Marshal(value)
	return string(raw), err
}
