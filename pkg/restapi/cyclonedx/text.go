package cyclonedx

import (
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
