package slack

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/scanner-operator/scanner-operator/notifier/receiver"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/workerapi/text"
)

// Bounds in bytes for texts from outside, after escaping. Real names are far shorter.
const (
	maxID         = 64
	maxPackage    = 80
	maxEngine     = 128
	maxVersion    = 60
	maxRepository = 150
	maxTag        = 40
	maxTags       = 160
	maxWorkload   = 100
	maxReason     = 40
	maxLink       = 300
	maxName       = 63
	maxCommand    = 400
	maxDetail     = 700
	maxExamples   = 400
)

var mrkdwnEscaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

// escape makes text safe for mrkdwn. Only these three characters can start something special, such as <!channel>
// (https://docs.slack.dev/messaging/formatting-message-text#escaping).
func escape(s string) string { return mrkdwnEscaper.Replace(s) }

// escapedName returns a name from outside as mrkdwn of at most limit bytes. Of a long one it leaves out the middle: the names of images, packages and
// workloads often begin alike.
func escapedName(s string, limit int) string { return isolated(s, limit, text.TruncateMiddle) }

// escapedText returns text from outside as mrkdwn of at most limit bytes.
func escapedText(s string, limit int) string { return isolated(s, limit, text.Truncate) }

// isolated returns text as mrkdwn of at most limit bytes. It never cuts an escaped character in two. It isolates text that is written from right to left
// (https://www.unicode.org/reports/tr9/#Explicit_Directional_Isolates), which would otherwise reorder the text next to it, such as the fixed version.
func isolated(s string, limit int, cut func(string, int) string) string {
	if !strings.ContainsFunc(text.Truncate(s, 4*limit), isRightToLeft) {
		return escapedWithin(cut(s, limit), limit)
	}
	const first, pop = "\u2068", "\u2069"
	limit -= len(first + pop)
	return first + escapedWithin(cut(s, limit), limit) + pop
}

func isRightToLeft(r rune) bool {
	return unicode.In(r, unicode.Hebrew, unicode.Arabic, unicode.Syriac, unicode.Thaana, unicode.Nko)
}

func escapedWithin(s string, limit int) string {
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

// clean returns s as one line of at most limit bytes, without control characters and characters that change the direction of writing. An
// ellipsis marks a cut. Empty text becomes "(unnamed)".
func clean(s string, limit int) string {
	// Clipping first bounds the work for any input. Cleaning only shortens the text, except that it replaces invalid bytes.
	s = text.Truncate(strings.ToValidUTF8(text.Truncate(s, 4*limit), "\uFFFD"), 4*limit)
	s = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsControl(r), unicode.IsSpace(r), unicode.Is(unicode.Zl, r), unicode.Is(unicode.Zp, r):
			return ' '
		case unicode.Is(unicode.Cf, r), unicode.Is(unicode.Co, r), unicode.Is(unicode.Cs, r):
			return -1
		}
		return r
	}, s)
	s = text.Truncate(strings.Join(strings.Fields(s), " "), limit)
	if s == "" {
		return "(unnamed)"
	}
	return s
}

// link returns an ID as an mrkdwn link to its advisory, or the ID alone if the address or the ID cannot be used in a link.
func link(address, id string) string {
	label := escapedName(id, maxID)
	if !linkable(address) || strings.ContainsAny(label, "|&") {
		return label
	}
	return "<" + escape(address) + "|" + label + ">"
}

// linkTo returns text as a link, or as it is if the address is not linkable. The text must be one of the package's own.
func linkTo(address, text string) string {
	if !linkable(address) {
		return text
	}
	return "<" + escape(address) + "|" + text + ">"
}

// code returns a command in code format.
func code(command string) string {
	return "`" + strings.ReplaceAll(escapedText(command, maxCommand), "`", "'") + "`"
}

func date(t time.Time) string { return t.UTC().Format(time.DateOnly) }

func timestamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }

// since returns " since" and the day of t, or "" for the zero time.
func since(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return " since " + date(t)
}

// linkable reports whether an address may be a link, and is short enough for one.
func linkable(address string) bool {
	return len(escape(address)) <= maxLink && receiver.IsLink(address)
}

// noBreak is a space at which no line ends, so that a count stays with its word.
const noBreak = "\u00a0"

// severities returns the number of findings of each severity, worst first, such as "1 Critical, 2 High".
func severities(c finding.Counts) string {
	var parts []string
	for _, s := range finding.Severities() {
		if n := c.Of(s); n != 0 {
			parts = append(parts, fmt.Sprintf("%d%s%s", n, noBreak, s))
		}
	}
	return strings.Join(parts, ", ")
}

// list joins names within limit bytes, each of at most each bytes. It counts the names that do not fit together with more.
func list(names []string, each, limit, more int) string {
	var shown []string
	length := 0
	for i, n := range names {
		n = escapedName(n, each)
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
