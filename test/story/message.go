package story

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

// Message is one that came to Slack, read as a person would.
type Message struct {
	standin.Message
	// Headline is the first line, without what stands below.
	Headline string
	// Summary says that it tells what is there, and not what is new.
	Summary bool
	// Findings is the number in the headline, or that of the lines if the headline names the only vulnerability.
	Findings int
	// Lines are the findings that it names.
	Lines []Line
	// Notices are the titles of what the Scanner says about itself.
	Notices []string
}

// Line is one finding in a message.
type Line struct {
	Repository, ID, Severity, Package, Version string
	// FixedIn is empty if no fix is named.
	FixedIn string
	// Change is why it is told; empty in summaries.
	Change v1alpha1.Change
	// ExceptionEnded says that it is told since an exception ended.
	ExceptionEnded bool
}

// String names what makes two lines the same news: an image repository, a vulnerability, a package.
func (l Line) String() string { return fmt.Sprintf("%s in %s of %s", l.ID, l.Package, l.Repository) }

// told is the line with why it is told.
func (l Line) told() string { return string(l.Change) + ": " + l.String() }

// told are the lines with why they are told, sorted.
func (m Message) told() []string {
	told := make([]string, 0, len(m.Lines))
	for _, line := range m.Lines {
		told = append(told, line.told())
	}
	slices.Sort(told)
	return told
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

// fixedTitle stands above what is fixed, where else a package does.
const fixedTitle = "*Fixed*"

// ReadMessage reads a message from its blocks. It knows the form that the notifier gives them.
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
		read.Findings, _ = strconv.Atoi(count[1]) // digits, and few
	}
	return read, nil
}

// section reads one about an image, the worst findings of a summary, or a notice.
func (m *Message) section(text string) {
	title, rest, _ := strings.Cut(text, "\n")
	switch notice := noticeTitle.FindStringSubmatch(title); {
	case m.Summary:
		m.Lines = append(m.Lines, summaryLines(rest)...)
	case strings.Contains(rest, "\n• "):
		m.Lines = append(m.Lines, newsLines(title, rest)...)
	case notice != nil:
		m.Notices = append(m.Notices, notice[1])
	}
}

// summaryLines reads findings that stand for themselves: what, in the line below it the package, and in the next one the image.
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

// newsLines reads the findings in an image, which stand below the line of their package, or name it if they are fixed; an empty line
// is above each group.
func newsLines(title, text string) []Line {
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

// readPackage reads a package, its version, and what fixes it.
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

// with is the finding of a line in a message, in the package of l.
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
