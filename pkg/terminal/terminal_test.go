package terminal

import (
	"bytes"
	"fmt"
	"testing"
)

// TestEscapingKeepsLines: errors quote registries and API servers. Of their control characters, only line ends are printed as they are.
func TestEscapingKeepsLines(t *testing.T) {
	var out bytes.Buffer
	fmt.Fprintln(Writer{&out}, "first:\n\x1b[31mnginx ü 漢\x07")
	if want := "first:\n\\u001b[31mnginx ü 漢\\u0007\n"; out.String() != want {
		t.Errorf("printed %q, want %q", out.String(), want)
	}
}
