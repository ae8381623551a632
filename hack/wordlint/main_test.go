package main

import (
	"strings"
	"testing"
)

// TestRefusedWords checks which lines are refused: words, and identifiers that contain them.
func TestRefusedWords(t *testing.T) {
	patterns := compile()
	for line, want := range map[string]bool{
		"the courier comes":         true,
		"Courier comes":             true,
		"func (x) sendCourier() {":  true,
		"sendCourierNow":            true,
		"a planet":                  false, // contains lane
		"the permissions":           false,
		"its rights.":               true,
		"others_missing_rights > 0": false, // a metric's name
		"copyrights":                false,
		`NotAnnounced int ` + "`json:\"untold,omitempty\"`": false,
		"the untold ones":       true,
		"the receiver was told": true,
		"an excepted finding":   true,
		"a toldItem":            false,
		"it is taken care of":   true,
	} {
		found := checkText("a.go", "fine\n"+line+"\n", patterns)
		if (len(found) > 0) != want {
			t.Errorf("%q: got %q, want refused %t", line, found, want)
		}
		if want && len(found) > 0 && !strings.HasPrefix(found[0], "a.go:2: ") {
			t.Errorf("%q: got %q, want line 2", line, found)
		}
	}
	if found := checkText("pkg/store/a.go", "SELECT * FROM catalogues", patterns); len(found) != 0 {
		t.Errorf("the table's name is refused: %q", found)
	}
}
