package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Each value has a row with its default. Nested values follow their parent. A value without a comment is an error.
func TestValues(t *testing.T) {
	got, err := values([]byte(`# The file.

# Who | what,
# in two lines.
name: me
# A group.
group:
  # One.
  size: 5Gi
  # None yet.
  list: []
  # Whole.
  whole:
    limits: {memory: 1Gi}
  # On.
  on: true
  # Empty.
  text: ""
`))
	if err != nil {
		t.Fatal(err)
	}
	want := `
| value | default | meaning |
|---|---|---|
| ` + "`name` | `me` | Who \\| what, in two lines. |" + `
| ` + "**`group`** | | A group. |" + `
| ` + "`group.size` | `5Gi` | One. |" + `
| ` + "`group.list` | `[]` | None yet. |" + `
| ` + "`group.whole` | `{\"limits\":{\"memory\":\"1Gi\"}}` | Whole. |" + `
| ` + "`group.on` | `true` | On. |" + `
| ` + "`group.text` | `\"\"` | Empty. |" + `

`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
	if _, err := values([]byte("# A group.\ngroup:\n  # One.\n  a: 1\n  b: 2\n")); err == nil || !strings.Contains(err.Error(), "group.b") {
		t.Errorf("want an error about group.b, which has no comment, got %v", err)
	}
}
