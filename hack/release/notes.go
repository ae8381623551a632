package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// heading begins what CHANGELOG.md says of a version, as on https://keepachangelog.com: "## [0.1.0] - 2026-11-22".
var heading = regexp.MustCompile(`(?m)^## \[([^]]+)\].*\n`)

// notes are what CHANGELOG.md says of the version, without its heading.
func (r release) notes() (string, error) {
	text, err := os.ReadFile(filepath.Join(r.root, "CHANGELOG.md"))
	if err != nil {
		return "", err
	}
	for _, found := range heading.FindAllStringSubmatchIndex(string(text), -1) {
		if string(text[found[2]:found[3]]) != r.version {
			continue
		}
		section := string(text[found[1]:])
		if next := heading.FindStringIndex(section); next != nil {
			section = section[:next[0]]
		}
		if section = strings.TrimSpace(section); section != "" {
			return section + "\n", nil
		}
	}
	return "", fmt.Errorf("CHANGELOG.md says nothing of version %s: it needs a section \"## [%s]\"", r.version, r.version)
}
