package scenario

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/test/slackstandin/standin"
)

// Message is a message in Slack, parsed from the text that a person sees.
type Message struct {
	standin.Message
	// Headline is the text of the header block.
	Headline string
	// Summary reports whether the message lists the present findings instead of changes.
	Summary bool
	// Findings is the number in the headline, or the number of lines if the headline names the only vulnerability.
	Findings int
	// Lines are the findings that the message names.
	Lines []Line
	// Notices are the titles of health notices about the Scanner.
	Notices []string
}

// Line is one finding in a message.
type Line struct {
	Repository, ID, Severity, Package, Version string
	// FixedIn is the fixed version; empty if none is named.
	FixedIn string
	// Change is the reason for announcing the finding; empty in summaries.
	Change v1alpha1.Change
	// ExceptionEnded reports whether the finding is announced because an exception ended.
	ExceptionEnded bool
}

// String returns the identity of the announced finding: repository, vulnerability and package.
func (l Line) String() string { return fmt.Sprintf("%s in %s of %s", l.ID, l.Package, l.Repository) }

// announcement returns the line with its change.
func (l Line) announcement() string { return string(l.Change) + ": " + l.String() }

// announcements returns the lines with their changes, sorted.
func (m Message) announcements() []string {
	reported := make([]string, 0, len(m.Lines))
	for _, line := range m.Lines {
		reported = append(reported, line.announcement())
	}
	slices.Sort(reported)
	return reported
}

var (
	summaryTitle  = regexp.MustCompile(`^(First scan of|Baseline renewed for|Engine changed for|Engine updated for|Wider filter for|Restored from a backup for) `)
	headlineCount = regexp.MustCompile(`(\d+) (?:new )?findings?`)
	sectionTitle  = regexp.MustCompile(`^\*([^*\s]+)\*`)
	noticeTitle   = regexp.MustCompile(`^\*([^*]+)\*$`)
	findingLine   = regexp.MustCompile(`^• \*(?:<[^|>]*\|)?([^*>]+)>?\* (\w+)(?: in (\S+))?`)
	packageLine   = regexp.MustCompile(`^(\S+)(?: ([^\s→·]+))?`)
	fixedVersion  = regexp.MustCompile(`→ (\S+)`)
	inRepository  = regexp.MustCompile(`^in (\S+)$`)
)

// fixedTitle is the first line of a group of fixed findings, where other groups have their package.
const fixedTitle = "*Fixed*"

// ReadMessage parses the blocks of a message in the form that the notifier writes.
func ReadMessage(m standin.Message) (Message, error) {
	type text struct{ Text string }
	var payload struct {
		Blocks []struct {
			Type string
			Text text
		}
	}
	read := Message{Message: m}
	if err := json.Unmarshal(m.Payload, &payload); err != nil {
		return Message{}, fmt.Errorf("message of %s: %w", m.Time, err)
	}
	for _, block := range payload.Blocks {
		switch block.Type {
		case "header":
			read.Headline = block.Text.Text
			read.Summary = summaryTitle.MatchString(read.Headline)
		case "section":
			read.section(block.Text.Text)
		}
	}
	read.Findings = len(read.Lines)
	if count := headlineCount.FindStringSubmatch(read.Headline); count != nil {
		read.Findings, _ = strconv.Atoi(count[1]) // only few digits
	}
	return read, nil
}

// section parses a section about an image, the most severe findings of a summary, or a notice.
func (m *Message) section(text string) {
	title, rest, _ := strings.Cut(text, "\n")
	switch notice := noticeTitle.FindStringSubmatch(title); {
	case m.Summary:
		m.Lines = append(m.Lines, summaryLines(rest)...)
	case strings.Contains(rest, "\n• "):
		m.Lines = append(m.Lines, changeLines(title, rest)...)
	case notice != nil:
		m.Notices = append(m.Notices, notice[1])
	}
}

// summaryLines parses the findings of a summary: a line for the finding, the next for the package, and the next for the repository.
func summaryLines(text string) []Line {
	var lines []Line
	for line := range strings.SplitSeq(text, "\n") {
		if what := findingLine.FindStringSubmatch(line); what != nil {
			lines = append(lines, Line{ID: what[1], Severity: what[2]})
		} else if last := len(lines) - 1; last >= 0 && lines[last].Package == "" {
			lines[last].readPackage(line)
		} else if in := inRepository.FindStringSubmatch(line); last >= 0 && in != nil {
			lines[last].Repository = in[1]
		}
	}
	return lines
}

// changeLines parses the findings of an image. They follow the line of their package, or name the package if they are fixed. Groups are
// separated by empty lines.
func changeLines(title, text string) []Line {
	var image Line
	if repository := sectionTitle.FindStringSubmatch(title); repository != nil {
		image.Repository = repository[1]
	}
	var lines []Line
	for group := range strings.SplitSeq(text, "\n\n") {
		in := image
		for line := range strings.SplitSeq(strings.TrimPrefix(group, "\n"), "\n") {
			switch what := findingLine.FindStringSubmatch(line); {
			case line == fixedTitle:
				in.Change = v1alpha1.ChangeFixed
			case what == nil:
				in.readPackage(line)
			case in.Change == v1alpha1.ChangeFixed:
				lines = append(lines, Line{Repository: in.Repository, ID: what[1], Severity: what[2], Package: what[3], Change: in.Change})
			default:
				lines = append(lines, in.with(what[1], what[2], line))
			}
		}
	}
	return lines
}

// readPackage parses a package, its version, and the fixed version.
func (l *Line) readPackage(text string) {
	if affected := packageLine.FindStringSubmatch(text); affected != nil {
		l.Package, l.Version = affected[1], affected[2]
	}
	l.readFix(text)
}

func (l *Line) readFix(text string) {
	if fix := fixedVersion.FindStringSubmatch(text); fix != nil {
		l.FixedIn = fix[1]
	}
}

// with returns a copy of l with the finding of a line.
func (l Line) with(id, severity, line string) Line {
	l.ID, l.Severity, l.Change = id, severity, v1alpha1.ChangeNew
	l.ExceptionEnded = strings.Contains(line, "*exception ended*")
	l.readFix(line)
	for words, change := range map[string]v1alpha1.Change{
		"*fix available": v1alpha1.ChangeFixAvailable, "*is back*": v1alpha1.ChangeRegressed,
		"*was ": v1alpha1.ChangeEscalated, "*known exploited": v1alpha1.ChangeEscalated,
	} {
		if strings.Contains(line, words) {
			l.Change = change
		}
	}
	return l
}
