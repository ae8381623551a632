package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// heading matches the heading of a version in CHANGELOG.md, as on https://keepachangelog.com: "## [0.1.0] - 2026-11-22".
var heading = regexp.MustCompile(`(?m)^## \[([^]]+)\](?: - (\S+))?.*\n`)

// source is the URL of the repository.
const source = "https://github.com/scanner-operator/scanner-operator"

// undatedDay is the date of a version without a date. It is fixed, since a build must not depend on the current day.
const undatedDay = "1970-01-01"

// created returns the date of the version in CHANGELOG.md, in RFC 3339.
func (r release) created() (string, error) {
	text, err := os.ReadFile(filepath.Join(r.root, "CHANGELOG.md"))
	if err != nil {
		return "", err
	}
	day := undatedDay
	for _, found := range heading.FindAllStringSubmatch(string(text), -1) {
		if _, err := time.Parse(time.DateOnly, found[2]); found[1] == r.version && err == nil {
			day = found[2]
		}
	}
	return day + "T00:00:00Z", nil
}

// link matches a relative link to a file of the repository. The release's page is at another URL, so such links become absolute.
var link = regexp.MustCompile(`\]\(([^:)#][^:)]*)\)`)

// notes returns the section of CHANGELOG.md about the version, without its heading.
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
			return link.ReplaceAllString(section, "]("+source+"/blob/v"+r.version+"/$1)") + "\n", nil
		}
	}
	return "", fmt.Errorf("CHANGELOG.md says nothing of version %s: it needs a section \"## [%s]\"", r.version, r.version)
}
