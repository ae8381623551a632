package cyclonedx

import (
	"net/url"
	"strings"
	"unicode/utf8"
)

// maxVersion is the schema's limit for a version, in characters.
const maxVersion = 1024

// clip truncates a version to maxVersion characters and replaces invalid UTF-8.
func clip(version string) string {
	version = strings.ToValidUTF8(version, "�")
	if utf8.RuneCountInString(version) <= maxVersion {
		return version
	}
	return string([]rune(version)[:maxVersion])
}

// webAddress returns an http or https URL, and "" for anything else: vulnerability databases contain all sorts of text.
func webAddress(address string) string {
	parsed, err := url.Parse(address)
	if err != nil || (parsed.Scheme != "https" && parsed.Scheme != "http") || parsed.Host == "" {
		return ""
	}
	return parsed.String()
}
