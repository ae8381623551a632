// Package spreadsheet writes lists as CSV (RFC 4180) for spreadsheets and other programs.
//
// Images, registries and tenants choose most of the text. So no cell is a formula, unless the caller wants the texts as they are. A list is
// written row by row, and no row is kept. The package must not know where a list comes from.
package spreadsheet

import (
	"regexp"
	"strings"
)

const (
	// formulaStart matches a character by which a spreadsheet recognizes a formula, also in its full-width form
	// (https://owasp.org/www-community/attacks/CSV_Injection).
	formulaStart = `[=+\-@＝＋－＠]`
	// space matches white space, which does not hide a formula.
	space = `[\s\v\p{Z}\x{85}]*`
)

var (
	formula = regexp.MustCompile(`^(?:[\t\r\n]|` + space + formulaStart + `)`)
	// separated matches a formula after what separates cells or rows for a spreadsheet that expects other separators than a comma, as in
	// many countries. Such a spreadsheet does not see that the cell is quoted, and takes quotation marks after the separator for its own.
	separated = regexp.MustCompile(`([;\t\r\n](?:` + space + `"?)*)(` + formulaStart + `)`)
)

// Text returns a cell that a spreadsheet takes for text: an apostrophe precedes what could begin a formula.
func Text(cell string) string {
	if strings.ContainsAny(cell, ";\t\r\n") {
		cell = separated.ReplaceAllString(cell, "$1'$2")
	}
	if formula.MatchString(cell) {
		return "'" + cell
	}
	return cell
}
