// Package page keeps the page of figures: one section for each part of the benchmarks, each with where, when, of what and
// by which command it was measured. A section is replaced when its part is run; the others stay as they are.
package page

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"
)

// Section is what a part has to say.
type Section struct {
	// Text is Markdown, without headings.
	Text   string  `json:"text"`
	Bounds []Bound `json:"bounds"`
}

// Bound is a promise, in words that hold the measured figure, and whether it is kept.
type Bound struct {
	What string `json:"what"`
	Kept bool   `json:"kept"`
}

// Kept says whether all bounds are.
func (s Section) Kept() bool {
	for _, b := range s.Bounds {
		if !b.Kept {
			return false
		}
	}
	return true
}

// Provenance says where a section comes from.
type Provenance struct {
	Machine Machine
	// Load of the machine before the part began: figures of a busy machine are worse.
	Load float64
	// Commit is that of the source; "+" behind it stands for changes that are not committed.
	Commit  string
	Command string
	At      time.Time
	// Took is how long the part ran.
	Took time.Duration
}

// introduction is everything above the sections.
const introduction = `# Benchmarks

This page is written by ` + "`make bench`" + `; do not edit it. ` + "`make bench PART=<name>`" + ` measures one part again. Each part checks its bounds, and the
command fails when one of them is broken.
`

// Write puts a section into the page. order are the names of all parts, which is the order on the page.
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

// between is what stands between two marks, without the line break after the first; empty if they are not there.
func between(text, from, to string) string {
	_, rest, found := strings.Cut(text, from+"\n")
	inside, _, ended := strings.Cut(rest, to)
	if !found || !ended {
		return ""
	}
	return inside
}

// markdown is the section as it stands on the page.
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

// Verdict is the word for what became of a bound.
func (b Bound) Verdict() string {
	if b.Kept {
		return "kept"
	}
	return "**broken**"
}
