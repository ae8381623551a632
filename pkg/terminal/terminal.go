// Package terminal makes text safe to print to a terminal.
package terminal

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf16"
)

// Escape escapes, as \uXXXX, each character that does not print and each that changes the direction of text. Characters in kept stay.
// Images, registries and tenants choose text that is printed to a terminal, which obeys such characters.
func Escape(text, kept string) string {
	var safe strings.Builder
	for _, r := range text {
		switch {
		case unicode.IsPrint(r) || strings.ContainsRune(kept, r):
			safe.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&safe, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&safe, `\u%04x`, r)
		}
	}
	return safe.String()
}

// Writer passes on a text, and escapes all but printable characters and line ends. Each Write must hold whole characters.
type Writer struct{ To io.Writer }

// Write implements io.Writer.
func (p Writer) Write(text []byte) (int, error) {
	if _, err := io.WriteString(p.To, Escape(string(text), "\n")); err != nil {
		return 0, err
	}
	return len(text), nil
}
