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
	headlineCount = regexp.MustCompile(`(\d+) (?:new )?findings?`)
	sectionTitle  = regexp.MustCompile(`^\*([^*\s]+)\*`)
	findingLine   = regexp.MustCompile(`^• \*(?:<[^|>]*\|)?([^*>]+)>?\* (\w+) · (\S+)(?: (\S+))?`)
	inRepository  = regexp.MustCompile(` · in (\S+)$`)
)

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
			read.Summary = !strings.Contains(read.Headline, "new finding")
			if count := headlineCount.FindStringSubmatch(read.Headline); count != nil {
				read.Findings, _ = strconv.Atoi(count[1]) // digits, and few
			}
		case "section":
			read.Lines = append(read.Lines, readLines(block.Text.Text)...)
		}
	}
	return read, nil
}

// readLines reads the findings of one section, whose first line names the repository unless each line does.
func readLines(section string) []Line {
	var lines []Line
	repository := ""
	if title := sectionTitle.FindStringSubmatch(section); title != nil {
		repository = title[1]
	}
	for line := range strings.SplitSeq(section, "\n") {
		match := findingLine.FindStringSubmatch(line)
		if match == nil {
			continue
		}
		found := Line{Repository: repository, ID: match[1], Severity: match[2], Package: match[3], Version: match[4]}
		if in := inRepository.FindStringSubmatch(line); in != nil {
			found.Repository = in[1]
		}
		lines = append(lines, found)
	}
	return lines
}
