package slack

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// Bounds in bytes of what comes from outside, escaped. Real names are far shorter.
const (
	maxID         = 64
	maxPackage    = 80
	maxEngine     = 128
	maxVersion    = 60
	maxRepository = 150
	maxTag        = 40
	maxWorkload   = 100
	maxReason     = 40
	maxLink       = 300
	maxName       = 63
	maxCommand    = 400
	maxDetail     = 700
	maxExamples   = 400
)

var mrkdwnEscaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

// escape makes a text harmless in mrkdwn: only these three characters have a meaning that reaches beyond the
// text itself, such as <!channel> (https://docs.slack.dev/messaging/formatting-message-text#escaping).
func escape(s string) string { return mrkdwnEscaper.Replace(s) }

// name is a name from outside, as mrkdwn of at most limit bytes. An escaped character is never cut in two. Letters that are written
// from right to left are isolated (https://www.unicode.org/reports/tr9/#Explicit_Directional_Isolates), so that what stands beside
// them, such as the version that helps, stays in its place.
func name(s string, limit int) string {
	if !strings.ContainsFunc(clip(s, 4*limit), isRightToLeft) {
		return isolated(s, limit)
	}
	const first, pop = "\u2068", "\u2069"
	return first + isolated(s, limit-len(first+pop)) + pop
}

func isRightToLeft(r rune) bool {
	return unicode.In(r, unicode.Hebrew, unicode.Arabic, unicode.Syriac, unicode.Thaana, unicode.Nko)
}

func isolated(s string, limit int) string {
	cleaned := clean(s, limit)
	if escaped := escape(cleaned); len(escaped) <= limit {
		return escaped
	}
	const ellipsis = "…"
	var b strings.Builder
	for _, r := range cleaned {
		if part := escape(string(r)); b.Len()+len(part)+len(ellipsis) <= limit {
			b.WriteString(part)
			continue
		}
		break
	}
	return b.String() + ellipsis
}

// clean makes one line of at most limit bytes from any text: no control characters, none that change the
// direction of writing, and a sign where something was cut.
func clean(s string, limit int) string {
	// Cutting first keeps the work small for any input; cleaning only shortens, up to replaced invalid bytes.
	s = clip(strings.ToValidUTF8(clip(s, 4*limit), "\uFFFD"), 4*limit)
	s = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsControl(r), unicode.IsSpace(r), unicode.Is(unicode.Zl, r), unicode.Is(unicode.Zp, r):
			return ' '
		case unicode.Is(unicode.Cf, r), unicode.Is(unicode.Co, r), unicode.Is(unicode.Cs, r):
			return -1
		}
		return r
	}, s)
	s = clip(strings.Join(strings.Fields(s), " "), limit)
	if s == "" {
		return "(unnamed)"
	}
	return s
}

// clip shortens a text to at most limit bytes at the border of a character.
func clip(s string, limit int) string {
	const ellipsis = "…"
	if len(s) <= limit {
		return s
	}
	cut := limit - len(ellipsis)
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + ellipsis
}

// link makes mrkdwn of an id that leads to its advisory, or the id alone if the address is not fit for that.
func link(address, id string) string {
	label := name(id, maxID)
	if !linkable(address) || strings.ContainsAny(label, "|&") {
		return label
	}
	return "<" + escape(address) + "|" + label + ">"
}

// linkTo makes a link of a text of our own, or leaves it as it is.
func linkTo(address, text string) string {
	if !linkable(address) {
		return text
	}
	return "<" + escape(address) + "|" + text + ">"
}

// code is a command to type.
func code(command string) string {
	return "`" + strings.ReplaceAll(name(command, maxCommand), "`", "'") + "`"
}

func date(t time.Time) string { return t.UTC().Format(time.DateOnly) }

func moment(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }

// since is " since" a day, or nothing if that is not known.
func since(t time.Time) string { return orSince(t, "") }

func orSince(t time.Time, unknown string) string {
	if t.IsZero() {
		return unknown
	}
	return " since " + date(t)
}

// linkable says whether an address is a short https URL without anything that ends a link early.
func linkable(address string) bool {
	if len(escape(address)) > maxLink {
		return false
	}
	for _, r := range address {
		if r <= ' ' || r > '~' || strings.ContainsRune("<>|\"`\\", r) {
			return false
		}
	}
	u, err := url.Parse(address)
	return err == nil && u.Scheme == "https" && u.Hostname() != "" && u.User == nil
}

// count is a number with its noun.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}

// severities says how many there are of each severity, worst first, such as "1 Critical, 2 High".
func severities(c finding.Counts) string {
	var parts []string
	for _, s := range finding.Severities() {
		if n := c.Of(s); n != 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, s))
		}
	}
	return strings.Join(parts, ", ")
}

// totals is severities and what else there is to know about a number of findings.
func totals(c finding.Counts) string {
	parts := []string{severities(c)}
	if c.Fixable != 0 {
		parts = append(parts, fmt.Sprintf("%d with a fix", c.Fixable))
	}
	if c.KnownExploited != 0 {
		parts = append(parts, fmt.Sprintf("%d known exploited", c.KnownExploited))
	}
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), " · ")
}

// list joins names within limit bytes; what does not fit, and more, is counted.
func list(names []string, each, limit, more int) string {
	var shown []string
	length := 0
	for i, n := range names {
		n = name(n, each)
		if length += len(n) + 2; length > limit {
			more += len(names) - i
			break
		}
		shown = append(shown, n)
	}
	joined := strings.Join(shown, ", ")
	switch {
	case more <= 0:
		return joined
	case joined == "":
		return strconv.Itoa(more) + " more"
	}
	return fmt.Sprintf("%s and %d more", joined, more)
}
