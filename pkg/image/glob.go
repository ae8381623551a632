package image

import (
	"unicode/utf8"
)

// Match says whether a glob fits a reference: with its tag, with its digest, or its repository alone. In a
// glob "*" stands for any number of any characters and "?" for one. The time that it takes grows with the
// product of both lengths at worst, whatever the glob.
func Match(glob string, ref Reference) bool {
	return MatchText(glob, ref.String()) || MatchText(glob, ref.Repository) ||
		(ref.Digest != "" && MatchText(glob, ref.Repository+"@"+ref.Digest))
}

// MatchText says whether a glob fits a whole text. It walks along both. When it gets stuck it lets the last "*" take one character more: earlier
// ones need not be tried again, since all that they could take the last one can take too.
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
