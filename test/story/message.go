package story

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/scanner-operator/scanner-operator/test/slackstandin/standin"
)

// Message is one that came to Slack, read as a person would.
type Message struct {
	standin.Message
	// Headline is the first line, without what stands below.
	Headline string
	// Summary says that it tells what is there, and not what is new.
	Summary bool
	// Findings is the number in the headline.
	Findings int
	// Lines are the findings that it names.
	Lines []Line
}

// Line is one finding in a message.
type Line struct{ Repository, ID, Severity, Package, Version string }

// String names what makes two lines the same news: an image repository, a vulnerability, a package.
func (l Line) String() string { return fmt.Sprintf("%s in %s of %s", l.ID, l.Package, l.Repository) }

var (
	summaryTitle = regexp.MustCompile(`^(?:First scan|Baseline renewed|Engine changed|Engine updated|Wider filter) (?:of|for) `)
	numbers      = regexp.MustCompile(`\d+`)
	sectionTitle = regexp.MustCompile(`^\*([^*\s]+)\*`)
	findingLine  = regexp.MustCompile(`^• \*(?:<[^|>]*\|)?([^*>]+)>?\* (\w+)(?: in (\S+))?`)
	packageLine  = regexp.MustCompile(`^(\S+)(?: ([^\s·→]\S*))?(?: [·→] .*)?$`)
	inRepository = regexp.MustCompile(`^in (\S+)$`)
)

// readMessage reads a message from its blocks. It knows the form that the notifier gives them.
func readMessage(m standin.Message) (Message, error) {
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
			read.Lines = append(read.Lines, readLines(block.Text.Text)...)
		}
	}
	read.Findings = read.counted()
	return read, nil
}

// counted is the number of findings in the headline. One that names a vulnerability is about the findings that are shown.
func (m Message) counted() int {
	headline := m.Headline
	switch {
	case m.Summary:
		_, headline, _ = strings.Cut(headline, ": ")
		headline, _, _ = strings.Cut(headline, " in ")
	case !strings.Contains(headline, "image") && headline != "" && headline[0] >= '0' && headline[0] <= '9':
		headline = headline[:strings.LastIndex(headline, " in ")]
	default:
		return len(m.Lines)
	}
	sum := 0
	for _, number := range numbers.FindAllString(headline, -1) {
		n, _ := strconv.Atoi(number) // digits, and few
		sum += n
	}
	return sum
}

// readLines reads the findings of one section. Its first line names the repository, and in it the line above findings names their
// package, or that of what is fixed its own; or else the lines below each finding name both.
func readLines(section string) []Line {
	title := sectionTitle.FindStringSubmatch(section)
	var lines []Line
	above := Line{}
	if title != nil {
		above.Repository = title[1]
	}
	for text := range strings.SplitSeq(section, "\n") {
		last := len(lines) - 1
		if found := findingLine.FindStringSubmatch(text); found != nil {
			line := Line{Repository: above.Repository, ID: found[1], Severity: found[2], Package: above.Package, Version: above.Version}
			if found[3] != "" {
				line.Package, line.Version = found[3], ""
			}
			lines = append(lines, line)
		} else if in := inRepository.FindStringSubmatch(text); in != nil && title == nil && last >= 0 {
			lines[last].Repository = in[1]
		} else if affected := packageLine.FindStringSubmatch(text); affected != nil && title != nil {
			above.Package, above.Version = affected[1], affected[2]
		} else if affected != nil && last >= 0 {
			lines[last].Package, lines[last].Version = affected[1], affected[2]
		}
	}
	return lines
}
