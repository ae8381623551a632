package text

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzTruncate: a text that fits is unchanged. Any other text is cut to the limit, between two characters, and marked.
func FuzzTruncate(f *testing.F) {
	for _, seed := range []string{"", "short", "abcédef", "漢字漢字", "\xff\xfe\xfd\xfc", "a\u0301"} {
		f.Add(seed, uint8(2))
	}
	f.Fuzz(func(t *testing.T, text string, room uint8) {
		limit := len(ellipsis) + int(room)
		got := Truncate(text, limit)
		beginning, marked := strings.CutSuffix(got, ellipsis)
		switch {
		case len(text) <= limit && got != text:
			t.Errorf("Truncate(%q, %d) = %q: it fits, and must stay as it is", text, limit, got)
		case len(text) > limit && (len(got) > limit || !marked || !strings.HasPrefix(text, beginning)):
			t.Errorf("Truncate(%q, %d) = %q, want its beginning and an ellipsis", text, limit, got)
		case utf8.ValidString(text) && !utf8.ValidString(got):
			t.Errorf("Truncate(%q, %d) = %q: a character was cut in two", text, limit, got)
		}
	})
}
