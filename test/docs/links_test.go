package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var (
	// link matches a link to a file of the project, with or without an anchor, or to an anchor of the same page.
	link    = regexp.MustCompile(`\]\(([^)#:\s]*)(?:#([^)\s]*))?\)`)
	fence   = regexp.MustCompile("(?ms)^```.*?^```$")
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	// linked matches a link in a heading, whose text is part of the anchor. notInAnchors matches characters that anchors do not contain.
	linked       = regexp.MustCompile(`\[([^]]*)\]\([^)]*\)`)
	notInAnchors = regexp.MustCompile(`[^\pL\pN_ -]`)
)

// Each link from a document to a file of the project, or to a heading, has an existing target.
func TestLinksHaveTargets(t *testing.T) {
	links := 0
	for _, page := range pages(t) {
		for _, match := range link.FindAllStringSubmatch(fence.ReplaceAllString(read(t, page), ""), -1) {
			links++
			file, anchor := filepath.Join(filepath.Dir(page), match[1]), match[2]
			if match[1] == "" {
				file = page
			}
			if _, err := os.Stat(filepath.Join(root, file)); err != nil {
				t.Errorf("%s: the link to %s leads nowhere", page, match[1])
			} else if anchor != "" && strings.HasSuffix(file, ".md") && !anchors(read(t, file))[anchor] {
				t.Errorf("%s: %s has no heading #%s", page, file, anchor)
			}
		}
	}
	if links < 300 {
		t.Errorf("only %d links were found: is this test looking for the right thing?", links)
	}
}

// The index of the documents links to each page, and the index of decisions has a row with each decision's title.
func TestIndexesAreComplete(t *testing.T) {
	index, decisions := linkedFrom(t, "docs/README.md"), read(t, "docs/understand/decisions/README.md")
	for _, page := range pages(t) {
		name := filepath.Base(page)
		switch dir := filepath.Dir(page); {
		case dir == "docs/understand/decisions" && name != "README.md":
			number, title, _ := strings.Cut(strings.TrimPrefix(strings.SplitN(read(t, page), "\n", 2)[0], "# "), " ")
			if row := "| [" + number + "](" + name + ") | " + title + " |"; !strings.HasPrefix(name, number+"-") || !strings.Contains(decisions, row) {
				t.Errorf("docs/understand/decisions/README.md has no row %q", row)
			}
		case (dir == "docs" || strings.HasPrefix(dir, "docs/")) && page != "docs/README.md" && !index[page]:
			t.Errorf("docs/README.md does not lead to %s", page)
		}
	}
}

// linkedFrom returns the files that a page links to.
func linkedFrom(t *testing.T, page string) map[string]bool {
	t.Helper()
	files := map[string]bool{}
	for _, match := range link.FindAllStringSubmatch(read(t, page), -1) {
		files[filepath.Join(filepath.Dir(page), match[1])] = true
	}
	return files
}

// pages returns all documents of the project.
func pages(t *testing.T) []string {
	t.Helper()
	return filesEndingIn(t, ".md")
}

// anchors returns the anchors that GitHub assigns to a page's headings.
func anchors(page string) map[string]bool {
	known := map[string]bool{}
	for _, match := range heading.FindAllStringSubmatch(fence.ReplaceAllString(page, ""), -1) {
		text := notInAnchors.ReplaceAllString(strings.ToLower(linked.ReplaceAllString(match[1], "$1")), "")
		anchor := strings.ReplaceAll(text, " ", "-")
		for number, first := 1, anchor; known[anchor]; number++ {
			anchor = first + "-" + strconv.Itoa(number)
		}
		known[anchor] = true
	}
	return known
}
