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

// TruncateMiddle is Truncate for names, whose ends tell them apart: the ellipsis stands in the middle. The limit is at least 6.
func TruncateMiddle(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	end := len(s) - limit/2
	for end < len(s) && !utf8.RuneStart(s[end]) {
		end++
	}
	return Truncate(s, limit-limit/2) + s[end:]
}
