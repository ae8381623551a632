package finding

import (
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxID bounds the ID of a vulnerability in bytes, so that an index of every database has room for it. Real ones have less than 50.
const maxID = 256

// Bounds of what is kept of the texts about a vulnerability, in bytes. A description in a CVE record has at most 4096 characters
// (https://github.com/CVEProject/cve-schema), and few servers take a longer URL. Other tools send any.
const (
	maxDescription = 4 << 10
	maxURL         = 2 << 10
)

// Clean returns the finding with texts that every database takes: valid UTF-8 without NUL. The content of an image decides about many of
// them. Invalid bytes become U+FFFD, and NUL is removed. Paths keep all bytes but NUL, since a path need not be UTF-8. A longer ID than any real
// one is cut, as is a long description; a longer URL than any real one goes. Clean does not change the slices of f.
func (f Finding) Clean() Finding {
	for _, text := range []*string{
		&f.ID, &f.FixState, &f.Description, &f.URL, &f.Package.Name, &f.Package.Version, &f.Package.Type, &f.Package.PURL,
	} {
		*text = CleanText(*text)
	}
	f.ID, f.Description = TruncateText(f.ID, maxID), TruncateText(f.Description, maxDescription)
	if len(f.URL) > maxURL {
		f.URL = ""
	}
	f.Aliases, f.FixVersions = cleanList(f.Aliases, CleanText), cleanList(f.FixVersions, CleanText)
	f.Paths = cleanList(f.Paths, withoutNUL)
	f.Advisories = cleanAll(f.Advisories, Advisory.clean)
	return f
}

func (a Advisory) clean() (Advisory, bool) {
	changed := false
	for _, text := range []*string{&a.ID, &a.Source, &a.Severity, &a.FixState, &a.Layer, &a.Analysis} {
		changed = clean(text) || changed
	}
	versions := cleanList(a.FixVersions, CleanText)
	ratings := cleanAll(a.Ratings, Rating.clean)
	changed = changed || !slices.Equal(versions, a.FixVersions) || !slices.Equal(ratings, a.Ratings)
	a.FixVersions, a.Ratings = versions, ratings
	return a, changed
}

func (r Rating) clean() (Rating, bool) {
	changed := false
	for _, text := range []*string{&r.Source, &r.Version, &r.Vector} {
		changed = clean(text) || changed
	}
	return r, changed
}

func clean(text *string) (changed bool) {
	before := *text
	*text = CleanText(before)
	return *text != before
}

// CleanText returns a text as valid UTF-8 without NUL, the text itself if it is.
func CleanText(text string) string {
	if !utf8.ValidString(text) {
		text = strings.ToValidUTF8(text, "\uFFFD")
	}
	return withoutNUL(text)
}

// WebAddress returns an http or https URL, and "" for anything else: vulnerability databases contain all sorts of text.
func WebAddress(address string) string {
	parsed, err := url.Parse(address)
	if err != nil || (parsed.Scheme != "https" && parsed.Scheme != "http") || parsed.Host == "" {
		return ""
	}
	return parsed.String()
}

// TruncateText returns a text as CleanText does, and at most limit bytes of it. It cuts between two characters.
func TruncateText(text string, limit int) string {
	text = CleanText(text)
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit]
}

func withoutNUL(text string) string {
	if strings.IndexByte(text, 0) < 0 {
		return text
	}
	return strings.ReplaceAll(text, "\x00", "")
}

func cleanList(list []string, clean func(string) string) []string {
	return cleanAll(list, func(text string) (string, bool) {
		cleaned := clean(text)
		return cleaned, cleaned != text
	})
}

// cleanAll returns the list with cleaned values: the list itself if none changes.
func cleanAll[T any](list []T, clean func(T) (T, bool)) []T {
	cleaned := list
	for i, value := range list {
		value, changed := clean(value)
		if !changed {
			continue
		}
		if &cleaned[0] == &list[0] {
			cleaned = slices.Clone(list)
		}
		cleaned[i] = value
	}
	return cleaned
}
