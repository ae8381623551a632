package receiver

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// TestDetails: the reasons of a tool are quoted in one bounded line, and nothing of a page or a list of allowed values.
func TestDetails(t *testing.T) {
	for body, want := range map[string]string{
		"":          "",
		"no_access": "no_access",
		"The principal does not have permission to create project.": "The principal does not have permission to create project.",
		"<html>secret</html>":            "",
		`{"detail":"Invalid token."}`:    "Invalid token.",
		`["The product has a conflict"]`: "The product has a conflict",
		`{"close_old_findings":["Must be a valid boolean."],"file":["Too large","Empty"]}`:                                                                                             "close_old_findings: Must be a valid boolean.: file: Too large: file: Empty",
		`{"message":"No product_name","non_field_errors":["No product_name"]}`:                                                                                                         "No product_name",
		`[{"message":"must not be blank","messageTemplate":"{blank}","path":"projectName","invalidValue":"xyz"}]`:                                                                      "must not be blank: path: projectName",
		`{"status":400,"title":"The uploaded BOM is invalid","detail":"Schema validation failed","errors":["$.a[3].id: does not have a value in the enumeration [\"0BSD\", \"3D\"]"]}`: "The uploaded BOM is invalid: Schema validation failed: $.a[3].id: does not have a value in the enumeration",
		`{"error":{"code":"X","message":"<b>bad</b>\r\n\u202eline"}}`:                                                                                                                  "bbad/b  line",
		`{"detail":7}`: "",
		`null`:         "",
	} {
		if got := Details([]byte(body)); got != want {
			t.Errorf("details of %s are %q, want %q", body, got, want)
		}
	}
	long := `{"errors":["` + strings.Repeat("é", 10_000) + `","` + strings.Repeat(`","é<`, 5000) + `"]}`
	if got := Details([]byte(long)); len(got) > maxDetailsText || !utf8.ValidString(got) {
		t.Errorf("%d bytes of %q", len(got), got)
	}
}
