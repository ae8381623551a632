// Package page maintains the page of figures. It has one section for each part of the benchmarks, with the machine, time, commit and
// command of its measurement. Running a part replaces its section; the other sections stay.
package page

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"
)

// Section is the result of a part.
type Section struct {
	// Text is Markdown without headings.
	Text   string  `json:"text"`
	Bounds []Bound `json:"bounds"`
}

// Bound is a bound on a figure. What describes it and contains the measured figure; Kept reports whether the bound is kept.
type Bound struct {
	What string `json:"what"`
	Kept bool   `json:"kept"`
}

// Kept reports whether all bounds are kept.
func (s Section) Kept() bool {
	for _, b := range s.Bounds {
		if !b.Kept {
			return false
		}
	}
	return true
}

// Provenance describes how a section was measured.
type Provenance struct {
	Machine Machine
	// Load is the load average before the part began: a busy machine gives worse figures.
	Load float64
	// Commit is the commit of the source, with "+" for uncommitted changes.
	Commit  string
	Command string
	At      time.Time
	// Took is the duration of the part.
	Took time.Duration
}

// introduction is the text above the sections.
const introduction = `# Benchmarks

` + "```sh\nmake bench PART=store\n```" + `

This page is written by ` + "`make bench`" + `; do not edit it. ` + "`make bench PART=<name>`" + ` measures one part again. Each part checks its bounds, and the
command fails when one of them is broken.
`

// Write replaces one section of the page. order lists the names of all parts in the order of the page.
func Write(file string, order []string, name, title string, section Section, from Provenance) error {
	content, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var page strings.Builder
	page.WriteString(introduction)
	for _, part := range order {
		text := between(string(content), begin(part), end(part))
		if part == name {
			text = section.markdown(title, from)
		}
		if text != "" {
			fmt.Fprintf(&page, "\n%s\n%s%s\n", begin(part), text, end(part))
		}
	}
	return os.WriteFile(file, []byte(page.String()), 0o644)
}

func begin(name string) string { return "<!-- begin: " + name + " -->" }
func end(name string) string   { return "<!-- end: " + name + " -->" }

// between returns the text between two marker lines; empty if they are missing.
func between(text, from, to string) string {
	_, rest, found := strings.Cut(text, from+"\n")
	inside, _, ended := strings.Cut(rest, to)
	if !found || !ended {
		return ""
	}
	return inside
}

// markdown returns the section as it appears on the page.
func (s Section) markdown(title string, from Provenance) string {
	var out strings.Builder
	fmt.Fprintf(&out, "## %s\n\n%s\n", title, strings.TrimSpace(s.Text))
	if len(s.Bounds) > 0 {
		out.WriteString("\n")
	}
	for _, b := range s.Bounds {
		fmt.Fprintf(&out, "- %s: %s\n", b.Verdict(), b.What)
	}
	m := from.Machine
	fmt.Fprintf(&out, "\nMeasured %s in %s by `%s` at %s on %s, %d processors, %d GiB of memory, Linux %s, %s; load before: %.1f.\n",
		from.At.UTC().Format("2006-01-02 15:04 UTC"), from.Took.Round(time.Second), from.Command, from.Commit,
		m.Processor, m.Processors, m.Memory>>30, m.Kernel, m.Go, from.Load)
	return out.String()
}

// Verdict returns the word for the outcome of a bound.
func (b Bound) Verdict() string {
	if b.Kept {
		return "kept"
	}
	return "**broken**"
}
