package output

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// FuzzWrite: whatever an image, a registry or a tenant brings, no format has a character that a terminal obeys. JSON and YAML have the same values, and each
// cell of CSV is text.
func FuzzWrite(f *testing.F) {
	for _, seed := range []string{"", "openssl", "=cmd()", "\t=1", "a,b\"c", "on", "1e3", "0x1", "a: #-\"'\n\t\r\x1b\u0085\u202e\u2028\U000e0041=\x00", "\xff", "-", "＝1", strings.Repeat("漢", 100)} {
		f.Add(seed, "key")
		f.Add("value", seed)
	}
	f.Fuzz(func(t *testing.T, text, key string) {
		table := Table{Columns: []Column{{Name: "TEXT"}, {Name: "KEY", Wide: true}, {Name: "END"}}, Rows: [][]string{{text, key, "end"}, {"1", "2", "3"}}}
		value := map[string]any{key: text, "list": []any{text, 1.5, true, nil, map[string]string{"k": text}}}
		for _, format := range Formats {
			var out strings.Builder
			if err := Write(&out, format, table, value); err != nil {
				t.Fatal(err)
			}
			if obeyed := strings.IndexFunc(out.String(), func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); obeyed >= 0 {
				t.Fatalf("%s writes a character that does not print: %q", format, out.String())
			}
			if lines := strings.Count(out.String(), "\n"); format != FormatJSON && format != FormatYAML && lines != len(table.Rows)+1 {
				t.Errorf("%s writes %d lines: %q", format, lines, out.String())
			}
			want, err := json.Marshal(value)
			if err != nil {
				t.Fatal(err)
			}
			switch format {
			case FormatJSON:
				requireJSON(t, out.String(), want)
			case FormatYAML:
				converted, err := yaml.YAMLToJSON([]byte(out.String()))
				if err != nil {
					t.Fatalf("%q: %v", out.String(), err)
				}
				requireJSON(t, string(converted), want)
			case FormatCSV:
				rows, err := csv.NewReader(strings.NewReader(out.String())).ReadAll()
				if err != nil || len(rows) != len(table.Rows)+1 || len(rows[1]) != len(table.Columns) {
					t.Fatalf("%q is read as %q, %v", out.String(), rows, err)
				}
				for _, cell := range slices.Concat(rows...) {
					if strings.IndexAny(strings.TrimSpace(cell), "=+-@＝＋－＠") == 0 {
						t.Errorf("%q has a formula: %q", out.String(), cell)
					}
				}
			}
		}
	})
}

// requireJSON fails the test unless a text is JSON with the same values as another one.
func requireJSON(t *testing.T, text string, want []byte) {
	t.Helper()
	var got, wanted any
	if err := errors.Join(json.Unmarshal([]byte(text), &got), json.Unmarshal(want, &wanted)); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	if diff := cmp.Diff(wanted, got); diff != "" {
		t.Errorf("%s is read (-want +got):\n%s", text, diff)
	}
}
