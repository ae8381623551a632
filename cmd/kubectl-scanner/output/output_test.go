package output

import (
	"encoding/csv"
	"encoding/json"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"
)

var people = Table{
	Columns: []Column{{Name: "IMAGE"}, {Name: "FIXED IN"}, {Name: "DIGEST", Wide: true}},
	Rows:    [][]string{{"shop/web:1", "3.0.14", "sha256:1"}, {"=cmd()", "", "sha256:2"}},
}

// TestFormats: what each format writes for the same table and value.
func TestFormats(t *testing.T) {
	value := map[string]any{"image": "shop/web:1", "findings": []int{1, 2}, "switch": "on", "none": nil}
	for format, want := range map[Format]string{
		FormatTable: "IMAGE        FIXED IN\nshop/web:1   3.0.14\n=cmd()       \n",
		FormatWide:  "IMAGE        FIXED IN   DIGEST\nshop/web:1   3.0.14     sha256:1\n=cmd()                  sha256:2\n",
		FormatCSV:   "image,fixed in,digest\nshop/web:1,3.0.14,sha256:1\n'=cmd(),,sha256:2\n",
		FormatJSON:  "{\n  \"findings\": [\n    1,\n    2\n  ],\n  \"image\": \"shop/web:1\",\n  \"none\": null,\n  \"switch\": \"on\"\n}\n",
		FormatYAML:  "findings:\n  - 1\n  - 2\nimage: shop/web:1\nnone: null\nswitch: \"on\"\n",
	} {
		var out strings.Builder
		if err := Write(&out, format, people, value); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, out.String()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", format, diff)
		}
	}
}

// TestEmptyTable: a table without rows is nothing for people, and a heading for programs.
func TestEmptyTable(t *testing.T) {
	for format, want := range map[Format]string{FormatTable: "", FormatWide: "", FormatCSV: "image,fixed in,digest\n"} {
		var out strings.Builder
		if err := Write(&out, format, Table{Columns: people.Columns}, nil); err != nil || out.String() != want {
			t.Errorf("%s: %q, %v; want %q", format, out.String(), err, want)
		}
	}
}

// TestLongCells: a long name does not widen a table, and only a FormatTable leaves out a part of it.
func TestLongCells(t *testing.T) {
	long := "registry.example.com/" + strings.Repeat("漢", 300) + ":1.4.2"
	table := Table{Columns: []Column{{Name: "IMAGE"}, {Name: "PACKAGE"}}, Rows: [][]string{{long, "openssl"}}}
	for _, format := range []Format{FormatTable, FormatWide, FormatCSV} {
		var out strings.Builder
		if err := Write(&out, format, table, nil); err != nil {
			t.Fatal(err)
		}
		if isWhole := strings.Contains(out.String(), long); isWhole != (format != FormatTable) {
			t.Errorf("%s: the whole name is there: %v", format, isWhole)
		}
	}
	if got := shorten(long); len([]rune(got)) != maxCell || !strings.HasPrefix(got, "registry.example.com/") || !strings.HasSuffix(got, ":1.4.2") {
		t.Errorf("%q is shortened to %q, %d characters", long, got, len([]rune(got)))
	}
	if exact := strings.Repeat("a", maxCell); shorten(exact) != exact {
		t.Errorf("a name of %d characters is shortened", maxCell)
	}
}

// TestUnknown: people see that a value is not known. For programs, the cell is empty.
func TestUnknown(t *testing.T) {
	table := Table{Columns: []Column{{Name: "EXPLOITED"}, {Name: "EPSS", Measured: true}, {Name: "END"}}, Rows: [][]string{{"", "", "1"}, {"yes", "0", "2"}}}
	for format, want := range map[Format]string{FormatTable: "EXPLOITED   EPSS   END\n            -      1\nyes         0      2\n", FormatCSV: "exploited,epss,end\n,,1\nyes,0,2\n"} {
		var out strings.Builder
		if err := Write(&out, format, table, nil); err != nil || out.String() != want {
			t.Errorf("%s: %q, %v; want %q", format, out.String(), err, want)
		}
	}
}

func TestParseFormat(t *testing.T) {
	for name, want := range map[string]Format{"": FormatTable, "wide": FormatWide, "json": FormatJSON, "JSON": "", "xml": ""} {
		if got, err := ParseFormat(name); got != want || (err == nil) != (want != "") {
			t.Errorf("%q is %q, %v; want %q", name, got, err, want)
		}
	}
}

// TestFormulas: a cell of CSV is neither a formula nor does it control a terminal.
func TestFormulas(t *testing.T) {
	for cell, want := range map[string]string{
		"=cmd|' /C calc'!A0": "'=cmd|' /C calc'!A0", "\r1": `'\u000d1`, "1=1": "1=1", "": "", "libssl3": "libssl3", "\u202etxt": `\u202etxt`,
	} {
		if got := csvCell(cell); got != want {
			t.Errorf("%q is written as %q, want %q", cell, got, want)
		}
	}
}

// TestNothingControlsTheTerminal: whatever text an image brings, no format writes an unprintable character but line ends, and programs read
// the same text from JSON and YAML.
func TestNothingControlsTheTerminal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.StringOf(rapid.SampledFrom([]rune("a: #-\"'\n\t\r\x1b\u0085\u202e\u2028\U000e0041=\x00")))).Draw(t, "text")
		for _, format := range Formats {
			var out strings.Builder
			if err := Write(&out, format, Table{Columns: []Column{{Name: "TEXT"}}, Rows: [][]string{{text}}}, map[string]string{"text": text}); err != nil {
				t.Fatal(err)
			}
			if i := strings.IndexFunc(out.String(), func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); i >= 0 {
				t.Fatalf("%s writes a character that does not print: %q", format, out.String())
			}
			var read map[string]string
			switch format {
			case FormatJSON:
				if err := json.Unmarshal([]byte(out.String()), &read); err != nil || read["text"] != text {
					t.Fatalf("JSON %s is read as %q, %v; want %q", out.String(), read["text"], err, text)
				}
			case FormatYAML:
				if err := yaml.Unmarshal([]byte(out.String()), &read); err != nil || read["text"] != text {
					t.Fatalf("YAML %s is read as %q, %v; want %q", out.String(), read["text"], err, text)
				}
			case FormatCSV:
				if rows, err := csv.NewReader(strings.NewReader(out.String())).ReadAll(); err != nil || len(rows) < 1 {
					t.Fatalf("CSV %q is read as %q, %v", out.String(), rows, err)
				}
			}
		}
	})
}
