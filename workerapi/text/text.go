// Package text bounds texts that come from elsewhere before they are stored or shown.
package text

import "unicode/utf8"

// ellipsis marks where a text was cut.
const ellipsis = "…"

// Truncate returns s if it has at most limit bytes. Otherwise it returns the beginning of s with an ellipsis, at most limit bytes in all, cut
// between two characters. The limit is at least 3, the length of the ellipsis.
func Truncate(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	cut := limit - len(ellipsis)
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + ellipsis
}
