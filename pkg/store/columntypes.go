package store

import (
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/image"
)

// millis is a time in a column: Unix milliseconds in UTC, NULL for the zero time.
type millis struct{ time.Time }

// Value implements driver.Valuer.
func (m millis) Value() (driver.Value, error) {
	if m.IsZero() {
		return nil, nil
	}
	return m.UnixMilli(), nil
}

// Scan implements sql.Scanner.
func (m *millis) Scan(column any) error {
	switch value := column.(type) {
	case nil:
		m.Time = time.Time{}
	case int64:
		m.Time = time.UnixMilli(value).UTC()
	default:
		return fmt.Errorf("time column: got %T, want an integer", column)
	}
	return nil
}

// columnText returns the text of a column. MySQL has texts as bytes, since its texts do not compare bytewise.
func columnText(column any) (string, error) {
	switch value := column.(type) {
	case string:
		return value, nil
	case []byte:
		return string(value), nil
	}
	return "", fmt.Errorf("got %T, want text", column)
}

// list is a slice in a column: JSON, or the empty text for an empty slice.
type list[T any] []T

// Value implements driver.Valuer.
func (l list[T]) Value() (driver.Value, error) {
	if len(l) == 0 {
		return "", nil
	}
	text, err := json.Marshal([]T(l))
	return string(text), err
}

// Scan implements sql.Scanner.
func (l *list[T]) Scan(column any) error {
	text, err := columnText(column)
	if err != nil {
		return fmt.Errorf("list column: %w", err)
	}
	*l = nil
	if text == "" {
		return nil
	}
	return json.Unmarshal([]byte(text), (*[]T)(l))
}

// jsonArray returns a parameter for the macros ids, texts and records. Numbers and texts always marshal.
func jsonArray[T ~int | ~int64 | ~string | [2]string | [3]string | [2]int64](values []T) string {
	if len(values) == 0 {
		return "[]"
	}
	text, _ := json.Marshal(values)
	return withoutEscapedNUL(string(text))
}

// withoutEscapedNUL removes NUL from texts in JSON: PostgreSQL refuses it there. A backslash before the escape would make it a text of its own.
func withoutEscapedNUL(text string) string {
	const escaped = `\u0000`
	for from := 0; ; {
		i := strings.Index(text[from:], escaped)
		if i < 0 {
			return text
		}
		i += from
		before := len(text[:i]) - len(strings.TrimRight(text[:i], `\`))
		if before%2 == 0 {
			text = text[:i] + text[i+len(escaped):]
			from = i
		} else {
			from = i + len(escaped)
		}
	}
}

// idsOf returns the row IDs that are keys of a map, in order, as a parameter for the macro ids.
func idsOf[V any](byID map[int64]V) string { return jsonArray(slices.Sorted(maps.Keys(byID))) }

// paths are file names in a column: bytes, joined by NUL, which no path contains.
type paths []string

// Value implements driver.Valuer.
func (p paths) Value() (driver.Value, error) { return []byte(strings.Join(p, "\x00")), nil }

// Scan implements sql.Scanner.
func (p *paths) Scan(column any) error {
	// An empty blob comes back as nil.
	joined, ok := column.([]byte)
	if !ok && column != nil {
		return fmt.Errorf("paths column: got %T, want bytes", column)
	}
	*p = nil
	if len(joined) > 0 {
		*p = strings.Split(string(joined), "\x00")
	}
	return nil
}

// platform is an image.Platform in a column. Unlike image.ParsePlatform it also parses the zero value.
type platform image.Platform

// Value implements driver.Valuer.
func (p platform) Value() (driver.Value, error) { return image.Platform(p).String(), nil }

// Scan implements sql.Scanner.
func (p *platform) Scan(column any) error {
	text, err := columnText(column)
	if err != nil {
		return fmt.Errorf("platform column: %w", err)
	}
	parts := append(strings.SplitN(text, "/", 3), "", "")
	*p = platform{OS: parts[0], Architecture: parts[1], Variant: parts[2]}
	return nil
}

// foldName returns an ID in the form in which it is stored as a name and searched: its ASCII letters in lower case. Databases fold other
// letters in different ways, and no ID has one.
func foldName(id string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, id)
}

func foldNames(ids []string) []string {
	folded := make([]string, len(ids))
	for i, id := range ids {
		folded[i] = foldName(id)
	}
	return folded
}
