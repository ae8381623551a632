package terminal

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"
)

// FuzzEscape: what is printed has no character that a terminal obeys, and is not changed by being escaped again. JSON has the same values afterwards.
func FuzzEscape(f *testing.F) {
	for _, seed := range []string{"", "nginx ü 漢", "\x1b[31mred\x07", "a\nb\r\n", "\u202eevil\u2066", "\U000e0001", "\xff\xfe", "\u009b1m"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		escaped := Escape(text, "\n")
		if obeyed := strings.IndexFunc(escaped, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); obeyed >= 0 {
			t.Errorf("%q becomes %q, which has an unprintable character at byte %d", text, escaped, obeyed)
		}
		if again := Escape(escaped, "\n"); again != escaped {
			t.Errorf("%q becomes %q, and that %q", text, escaped, again)
		}
		if strings.Count(escaped, "\n") != strings.Count(text, "\n") {
			t.Errorf("%q becomes %q, with another number of lines", text, escaped)
		}
		encoded, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		var before, after string
		if err := json.Unmarshal(encoded, &before); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(Escape(string(encoded), "\n")), &after); err != nil || after != before {
			t.Errorf("as JSON, %q becomes %q, %v", before, after, err)
		}
	})
}
