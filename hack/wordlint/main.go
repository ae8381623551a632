// Command wordlint refuses words for which the project uses a standard term, in Go, Markdown and YAML files. It only knows words without a
// second meaning in this project; all others are left to the reader.
//
//	wordlint        check the files that git tracks or would track, below the current directory
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// refused are words with the words that replace them. A word counts as part of an identifier as well, if it begins there with a capital letter.
var refused = []struct{ words, instead string }{
	{`courier`, "dispatcher"},
	{`teller`, "dispatcher, detector"},
	{`untold`, "not announced"},
	{`rivals?`, "conflict, other instance"},
	{`lanes?`, "queue, slot"},
	{`outlook`, "preflight check, health condition"},
	{`patience|patient`, "timeout, backoff"},
	{`catalogue[sd]?|cataloguing`, "catalog, SBOM"},
	{`suspicion|suspicious|suspects?`, "anomaly"},
	{`tender`, "Job loop"},
	{`rights`, "permissions"},
	{`told|spoken`, "announced, sent, reported"},
	{`excepted`, "suppressed"},
	{`cataloguers?`, "cataloger"},
	{`taken care of`, "handled"},
}

// allowed matches lines, with the path before them, that contain such a word for a reason: names that stored data, metrics or other projects
// have, and texts of others.
var allowed = []*regexp.Regexp{
	regexp.MustCompile(`^(docs/understand/glossary\.md|hack/wordlint/[a-z_]+\.go|pkg/store/migrations/.*|.*/testdata/schema/.*):`),
	regexp.MustCompile(`json:"untold|json:"excepted`),                              // in stored and sent messages
	regexp.MustCompile(`^pkg/store/.*\bexcepted\b`),                                // a column
	regexp.MustCompile(`(^pkg/store/|ALTER TABLE ).*\b(catalogues|catalogued_at)`), // a table and its column
	regexp.MustCompile(`DataSuspect`),                                              // a reason of an earlier version
	regexp.MustCompile(`All Rights Reserved`),
	regexp.MustCompile(`outlook\.office(365)?\.com`), // a host of Microsoft
}

func main() {
	findings, err := check()
	for _, finding := range findings {
		fmt.Println(finding)
	}
	if err == nil && len(findings) > 0 {
		err = fmt.Errorf("%d lines have words for which the project uses others", len(findings))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "wordlint:", err)
		os.Exit(1)
	}
}

func check() (findings []string, err error) {
	listed, err := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard", "*.go", "*.md", "*.yaml").Output()
	if err != nil {
		return nil, fmt.Errorf("list the files: %w", err)
	}
	files := strings.Fields(string(listed))
	if len(files) == 0 {
		return nil, errors.New("git lists no files here")
	}
	patterns := compile()
	for _, file := range files {
		text, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) {
			continue // deleted and not committed
		}
		if err != nil {
			return nil, err
		}
		findings = append(findings, checkText(filepath.ToSlash(file), string(text), patterns)...)
	}
	return findings, nil
}

func compile() (patterns []*regexp.Regexp) {
	for _, one := range refused {
		var capital []string
		for word := range strings.SplitSeq(one.words, "|") {
			capital = append(capital, strings.ToUpper(word[:1])+word[1:])
		}
		patterns = append(patterns, regexp.MustCompile(`\b(?i:`+one.words+`)\b|(?:^|[a-z0-9])(?:`+strings.Join(capital, "|")+`)(?:[A-Z]|\b)`))
	}
	return patterns
}

// checkText returns a line for each line of a file with a refused word.
func checkText(file, text string, patterns []*regexp.Regexp) (findings []string) {
	for i, line := range strings.Split(text, "\n") {
		for n, pattern := range patterns {
			if found := pattern.FindString(line); found != "" && !isAllowed(file+":"+line) {
				findings = append(findings, fmt.Sprintf("%s:%d: %q: write %s", file, i+1, found, refused[n].instead))
			}
		}
	}
	return findings
}

func isAllowed(line string) bool {
	for _, pattern := range allowed {
		if pattern.MatchString(line) {
			return true
		}
	}
	return false
}
