package image

import (
	"regexp"
	"strings"
)

// Match says whether a glob fits a reference: with its tag, with its digest, or its repository alone. In a
// glob "*" stands for any number of any characters and "?" for one.
func Match(glob string, ref Reference) bool {
	pattern := regexp.QuoteMeta(glob)
	pattern = strings.ReplaceAll(pattern, `\*`, ".*")
	pattern = strings.ReplaceAll(pattern, `\?`, ".")
	expression, err := regexp.Compile("^(?s:" + pattern + ")$")
	if err != nil {
		return false // not reached: everything special is quoted
	}
	return expression.MatchString(ref.String()) || expression.MatchString(ref.Repository) ||
		(ref.Digest != "" && expression.MatchString(ref.Repository+"@"+ref.Digest))
}
