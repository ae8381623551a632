package receiver

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/scanner-operator/scanner-operator/workerapi/text"
)

// Bounds of what is quoted of an answer: the number of texts, and the bytes of each and of all of them.
const (
	maxDetails     = 5
	maxDetailBytes = 160
	maxDetailsText = 480
)

// Word returns a receiver's own word about a failure; "" if it can be anything else than one or a few words such as "invalid_blocks". Anything else
// comes from a proxy, or is a document, and could contain the address.
func Word(body []byte) string {
	if word := strings.TrimSpace(string(body)); IsWord(word) {
		return word
	}
	return ""
}

// Details returns the reasons in a tool's answer, in one line; "" for none. The tool's own JSON may be quoted at more length than Word allows: problem
// details (https://www.rfc-editor.org/rfc/rfc9457), and messages by the name of the field that they are about. Of a list of allowed values it has nothing.
func Details(body []byte) string {
	var answer any
	if json.Unmarshal(body, &answer) != nil {
		return Word(body)
	}
	var all []string
	details(&all, "", answer)
	quoted := ""
	for _, reason := range all {
		if len(quoted)+len(reason) > maxDetailsText {
			break
		}
		quoted += ": " + reason
	}
	return strings.TrimPrefix(quoted, ": ")
}

// general are the fields whose names say nothing, in the order of what they have.
var general = []string{"title", "detail", "message", "error", "errors", "non_field_errors"}

// machines are the fields that are not for people, or repeat what was sent.
var machines = []string{"type", "status", "code", "instance", "messageTemplate", "invalidValue"}

// details adds the texts of a value, up to maxDetails. name is that of the field that has it.
func details(all *[]string, name string, value any) {
	if len(*all) >= maxDetails {
		return
	}
	switch value := value.(type) {
	case string:
		// A list of all allowed values is longer than everything else.
		value, _, _ = strings.Cut(value, ` ["`)
		if value = line(name + value); value != "" && !slices.Contains(*all, value) {
			*all = append(*all, value)
		}
	case []any:
		for _, element := range value {
			details(all, name, element)
		}
	case map[string]any:
		for _, field := range general {
			details(all, name, value[field])
		}
		for _, field := range slices.Sorted(maps.Keys(value)) {
			if !slices.Contains(general, field) && !slices.Contains(machines, field) {
				details(all, field+": ", value[field])
			}
		}
	}
}

// line returns a text as one bounded line without characters that have a meaning in the formats of messages.
func line(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case unicode.IsControl(r), unicode.Is(unicode.Cf, r), unicode.Is(unicode.Co, r), strings.ContainsRune("<>`", r):
			return -1
		}
		return r
	}, strings.ToValidUTF8(text.Truncate(s, 4*maxDetailBytes), ""))
	if s = strings.TrimSpace(s); len(s) <= maxDetailBytes {
		return s
	}
	// A word is left out as a whole: the part of a secret would not be recognized as one.
	s = text.Truncate(s, maxDetailBytes)
	return strings.TrimSpace(s[:strings.LastIndex(s, " ")+1]) + "…"
}
