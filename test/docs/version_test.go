package docs

import (
	"regexp"
	"strings"
	"testing"
)

// named matches a version of the operator in text that users copy: in an address, an image, a chart, or a tag.
var named = regexp.MustCompile(`(?:releases/download/v|\?ref=v|scanner-operator/v|checkout v|--version |\bversion=|scanner-operator-|/scanner-[a-z]+:|\$image:)(\d+\.\d+\.\d+)`)

// A page whose addresses do not exist yet says so, and says it no longer once they do.
func TestPagesSayIfNothingIsReleased(t *testing.T) {
	heading := "\n## [" + strings.TrimSpace(read(t, "VERSION")) + "] - "
	_, released, found := strings.Cut(read(t, "CHANGELOG.md"), heading)
	if !found {
		t.Fatalf("CHANGELOG.md has no heading %q", heading)
	}
	unreleased := strings.HasPrefix(released, "Unreleased")
	for _, page := range []string{"README.md", "docs/try/quickstart.md"} {
		if says := strings.Contains(read(t, page), "\nNot released yet: "); says != unreleased {
			t.Errorf("%s says that nothing is released: %t; CHANGELOG.md says so: %t", page, says, unreleased)
		}
	}
}

// Commands that users copy install the version that the pages describe.
func TestPagesNameTheVersion(t *testing.T) {
	version, places := strings.TrimSpace(read(t, "VERSION")), 0
	for _, page := range pages(t) {
		// These pages are about other versions.
		if page == "CHANGELOG.md" || page == "docs/understand/releasing.md" || strings.HasPrefix(page, "docs/understand/decisions/") {
			continue
		}
		for _, match := range named.FindAllStringSubmatch(read(t, page), -1) {
			if places++; match[1] != version {
				t.Errorf("%s: %q is not the version of the file VERSION, %s", page, match[0], version)
			}
		}
	}
	if places < 20 {
		t.Errorf("only %d places were found: is this test looking for the right thing?", places)
	}
}
