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
