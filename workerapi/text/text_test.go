package text

import "testing"

func TestTruncate(t *testing.T) {
	for _, test := range []struct {
		text  string
		limit int
		want  string
	}{
		{"", 3, ""},
		{"short", 5, "short"},
		{"longer", 5, "lo…"},
		{"abcdé", 6, "abcdé"},
		{"abcédef", 7, "abc…"}, // the fifth byte is within é
		{"éé", 3, "…"},
	} {
		if got := Truncate(test.text, test.limit); got != test.want || len(got) > test.limit {
			t.Errorf("Truncate(%q, %d) is %q, want %q", test.text, test.limit, got, test.want)
		}
	}
}

func TestTruncateMiddle(t *testing.T) {
	for _, test := range []struct {
		text  string
		limit int
		want  string
	}{
		{"short", 6, "short"},
		{"registry.example.com/shop/web-1", 20, "registr…shop/web-1"},
		{"abcdefghi", 8, "a…fghi"},
		{"ééééé", 9, "é…éé"}, // half of the limit is within é
		{"漢字漢字", 6, "…字"},
		{"\xff\xbf\xbf\xbf\xbf\xbf\xbf\xbf", 7, "…"},
	} {
		if got := TruncateMiddle(test.text, test.limit); got != test.want || len(got) > test.limit {
			t.Errorf("TruncateMiddle(%q, %d) is %q of %d bytes, want %q", test.text, test.limit, got, len(got), test.want)
		}
	}
}
