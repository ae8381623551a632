package cyclonedx

import (
	"net/url"
	"strings"
	"unicode/utf8"
)

// maxVersion is how many characters the schema lets a version have.
const maxVersion = 1024

// clip cuts a version off at what the schema allows.
func clip(version string) string {
	version = strings.ToValidUTF8(version, "�")
	if utf8.RuneCountInString(version) <= maxVersion {
		return version
	}
	return string([]rune(version)[:maxVersion])
}

// escape encodes a part of a package URL: all but letters, digits and the marks that need no encoding.
func escape(part string) string {
	return strings.ReplaceAll(url.QueryEscape(part), "+", "%20")
}

// webAddress returns an address of the web as it is, and nothing for anything else: databases have all sorts of texts.
func webAddress(address string) string {
	parsed, err := url.Parse(address)
	if err != nil || (parsed.Scheme != "https" && parsed.Scheme != "http") || parsed.Host == "" {
		return ""
	}
	return parsed.String()
}
