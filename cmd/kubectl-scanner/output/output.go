// Package output prints the results of a command: tables for people, and JSON, YAML and CSV for programs.
//
// Images, registries and tenants choose most of the text. No format passes on a character that controls a terminal or changes the direction of
// text, and no cell of a CSV file is a formula for a spreadsheet.
package output

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/scanner-operator/scanner-operator/pkg/spreadsheet"
	"github.com/scanner-operator/scanner-operator/pkg/terminal"
)

// Format is a form of output.
type Format string

// Formats. Wide is a table with all its columns, as are the columns of CSV.
const (
	FormatTable Format = "table"
	FormatWide  Format = "wide"
	FormatJSON  Format = "json"
	FormatYAML  Format = "yaml"
	FormatCSV   Format = "csv"
)

// Formats are all formats.
var Formats = []Format{FormatTable, FormatWide, FormatJSON, FormatYAML, FormatCSV}

// ParseFormat returns the format with this name. The empty name is that of a table.
func ParseFormat(name string) (Format, error) {
	if name == "" {
		return FormatTable, nil
	}
	if f := Format(name); slices.Contains(Formats, f) {
		return f, nil
	}
	return "", fmt.Errorf("-o: %q is none of table, wide, json, yaml and csv", name)
}

// IsForPeople reports whether people read the format rather than programs.
func (f Format) IsForPeople() bool { return f == FormatTable || f == FormatWide }

// Column is a column of a table.
type Column struct {
	// Name is the heading in a table. In CSV it is in lower case.
	Name string
	// Wide columns are left out of a FormatTable.
	Wide bool
	// Measured means that an empty cell is a value that is not known. Tables have Unknown there, so that it does not look like none.
	Measured bool
}

// Unknown is in tables, as in those of kubectl get, what is not known.
const Unknown = "-"

// Table has a cell in each row for each column.
type Table struct {
	Columns []Column
	Rows    [][]string
}

// maxCell is how many characters of a cell a FormatTable has. An image may bring a name that is longer than a line of the terminal, which would
// push the other columns out of sight.
const maxCell = 80

// Write writes a value as JSON or YAML, or its table. A table without rows writes nothing, except the heading of CSV.
func Write(out io.Writer, format Format, table Table, value any) error {
	switch format {
	case FormatJSON:
		return writeJSON(out, value)
	case FormatYAML:
		return writeYAML(out, value)
	case FormatCSV:
		return table.writeCSV(out)
	default:
		return table.write(out, format == FormatWide)
	}
}

func (t Table) write(out io.Writer, wide bool) error {
	if len(t.Rows) == 0 {
		return nil
	}
	w := printers.GetNewTabWriter(out)
	var heading []string
	for _, column := range t.Columns {
		heading = append(heading, column.Name)
	}
	for _, cells := range slices.Concat([][]string{heading}, t.Rows) {
		var line []string
		for i, cell := range cells {
			if t.Columns[i].Measured {
				cell = cmp.Or(cell, Unknown)
			}
			switch {
			case wide:
				line = append(line, terminal.Escape(cell, ""))
			case !t.Columns[i].Wide:
				line = append(line, shorten(terminal.Escape(cell, "")))
			}
		}
		if _, err := fmt.Fprintln(w, strings.Join(line, "\t")); err != nil {
			return err
		}
	}
	return w.Flush()
}

// shorten leaves out the middle of a text that is longer than maxCell: the tag of an image and the end of a version are worth more.
func shorten(text string) string {
	characters := []rune(text)
	if len(characters) <= maxCell {
		return text
	}
	return string(characters[:maxCell/2]) + "…" + string(characters[len(characters)-maxCell/2+1:])
}

func (t Table) writeCSV(out io.Writer) error {
	w := csv.NewWriter(out)
	line := make([]string, len(t.Columns))
	for i, column := range t.Columns {
		line[i] = strings.ToLower(column.Name)
	}
	if err := w.Write(line); err != nil {
		return err
	}
	for _, cells := range t.Rows {
		for i, cell := range cells {
			line[i] = csvCell(cell)
		}
		if err := w.Write(line); err != nil {
			return err
		}
	}
	w.Flush()
	return w.Error()
}

// csvCell returns a cell that a spreadsheet takes for text. Control characters are escaped.
func csvCell(cell string) string { return terminal.Escape(spreadsheet.Text(cell), "") }

// writeJSON escapes what a terminal would obey. Programs read the same values.
func writeJSON(out io.Writer, value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, terminal.Escape(string(text), "\n"))
	return err
}

// writeYAML writes the same fields and values as writeJSON.
func writeYAML(out io.Writer, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var decoded any
	if err := decoder.Decode(&decoded); err != nil {
		return err
	}
	var written strings.Builder
	encoder := yaml.NewEncoder(&written)
	encoder.SetIndent(2)
	if err := errors.Join(encoder.Encode(yamlNode(decoded)), encoder.Close()); err != nil {
		return err
	}
	_, err = io.WriteString(out, escapeYAML(written.String()))
	return err
}

// yamlNode returns the node of a value that was decoded from JSON.
func yamlNode(value any) *yaml.Node {
	switch value := value.(type) {
	case map[string]any:
		node := &yaml.Node{Kind: yaml.MappingNode}
		for _, key := range slices.Sorted(maps.Keys(value)) {
			node.Content = append(node.Content, yamlText(key), yamlNode(value[key]))
		}
		return node
	case []any:
		node := &yaml.Node{Kind: yaml.SequenceNode}
		for _, item := range value {
			node.Content = append(node.Content, yamlNode(item))
		}
		return node
	case string:
		return yamlText(value)
	case nil:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: "null"}
	default: // a number or a boolean
		return &yaml.Node{Kind: yaml.ScalarNode, Value: fmt.Sprint(value)}
	}
}

var (
	// plain matches text that is the same without quotes.
	plain = regexp.MustCompile(`^[A-Za-z_/][A-Za-z0-9_./+@:-]*[A-Za-z0-9_/]$|^[A-Za-z]$`)
	// ambiguous matches text that some version of YAML takes for another type.
	ambiguous = regexp.MustCompile(`^(?i:y|n|yes|no|on|off|true|false|null)$`)
)

// yamlText returns the node of a text. Unless it is a plain word, it is quoted, so that each version of YAML reads it as text.
func yamlText(text string) *yaml.Node {
	node := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text, Style: yaml.DoubleQuotedStyle}
	if plain.MatchString(text) && !ambiguous.MatchString(text) {
		node.Style = 0
	}
	return node
}

// escapeYAML escapes the unprintable characters of quoted text. Others than line ends are nowhere else.
func escapeYAML(text string) string {
	var safe strings.Builder
	for _, r := range text {
		if r == '\n' || unicode.IsPrint(r) {
			safe.WriteRune(r)
		} else {
			fmt.Fprintf(&safe, `\U%08x`, r)
		}
	}
	return safe.String()
}
