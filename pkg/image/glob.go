package image

import (
	"unicode/utf8"
)

// Match reports whether a glob matches a reference: with its tag, with its digest, or its repository alone. In a glob "*" stands
// for any number of any characters and "?" for one. In the worst case, the time grows with the product of both lengths, whatever
// the glob.
func Match(glob string, ref Reference) bool {
	return MatchText(glob, ref.String()) || MatchText(glob, ref.Repository) ||
		(ref.Digest != "" && MatchText(glob, ref.Repository+"@"+ref.Digest))
}

// MatchText reports whether a glob matches a whole text. It walks along both. On a mismatch, it lets the last "*" consume one
// character more. Earlier ones need no retry, since the last one can consume all that they could.
func MatchText(glob, text string) bool {
	g, t := 0, 0
	afterStar, resume := -1, 0
	for t < len(text) {
		_, size := utf8.DecodeRuneInString(text[t:])
		switch {
		case g < len(glob) && glob[g] == '*':
			g++
			afterStar, resume = g, t
		case g < len(glob) && glob[g] == '?':
			g++
			t += size
		case g < len(glob) && glob[g] == text[t]:
			g++
			t++
		case afterStar >= 0:
			_, size := utf8.DecodeRuneInString(text[resume:])
			resume += size
			g, t = afterStar, resume
		default:
			return false
		}
	}
	for g < len(glob) && glob[g] == '*' {
		g++
	}
	return g == len(glob)
}
