package scenario

import (
	"cmp"
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
	summaryTitle  = regexp.MustCompile(`^(?:Exploited now: .* · )?(First scan of|Baseline renewed for|Engine changed for|Engine updated for|Wider filter for|Restored from a backup for) `)
	exploitedOnly = regexp.MustCompile(`^Exploited now: \d+ findings? · `)
	headlineCount = regexp.MustCompile(`(\d+) (?:new )?findings?`)
	severityCount = regexp.MustCompile(`(\d+)[ \x{a0}](?:Critical|High|Medium|Low|Negligible|Unknown)\b`)
	updateTitle   = regexp.MustCompile(`^\*Update (\S+)(?: ([^→]+?))? → (\S+?),?(?: .*)? in ([^*]+)\*`)
	noFixTitle    = regexp.MustCompile(`^\*No fix yet(?: in ([^*]+))?\*`)
	fixedTitle    = regexp.MustCompile(`^\*Fixed in ([^*]+)\*`)
	noticeTitle   = regexp.MustCompile(`^\*([^*]+)\*$`)
	findingLine   = regexp.MustCompile(`^\S+ \*(?:<[^|>]*\|)?([^*>]+)>?\* (\w+)(?: in (\S+)(?: ([^\s·]\S*))??(?: of (\S+))?)?(?: ·|$)`)
	fixedVersion  = regexp.MustCompile(` → (\S+)`)
)

// ReadMessage parses the blocks of a message in the form that the notifier writes.
func ReadMessage(m standin.Message) (Message, error) {
	type text struct{ Text string }
	var payload struct {
		Text   string
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
	if count := headlineCount.FindStringSubmatch(exploitedOnly.ReplaceAllString(read.Headline, "")); count != nil {
		read.Findings, _ = strconv.Atoi(count[1]) // only few digits
	} else if strings.HasPrefix(read.Headline, "Exploited now: ") { // the push text ends with the numbers by severity
		read.Findings = 0
		for _, count := range severityCount.FindAllStringSubmatch(strings.TrimPrefix(payload.Text, read.Headline), -1) {
			n, _ := strconv.Atoi(count[1])
			read.Findings += n
		}
	}
	return read, nil
}

// section parses a block: an update with the findings that it ends, findings without a fix, fixed findings, or a notice.
func (m *Message) section(text string) {
	title, rest, _ := strings.Cut(text, "\n")
	switch {
	case updateTitle.MatchString(title):
		parts := updateTitle.FindStringSubmatch(title)
		version, _, _ := strings.Cut(parts[2], ",")
		m.findings(rest, Line{Repository: repositoryOf(parts[4]), Package: parts[1], Version: version, FixedIn: parts[3]})
	case noFixTitle.MatchString(title):
		m.findings(rest, Line{Repository: repositoryOf(noFixTitle.FindStringSubmatch(title)[1])})
	case fixedTitle.MatchString(title):
		m.findings(rest, Line{Repository: repositoryOf(fixedTitle.FindStringSubmatch(title)[1]), Change: v1alpha1.ChangeFixed})
	case !m.Summary && noticeTitle.MatchString(title):
		m.Notices = append(m.Notices, noticeTitle.FindStringSubmatch(title)[1])
	}
}

// repositoryOf returns the repository of an image with its tags, such as "registry:5000/shop/web:1.0, 1.1".
func repositoryOf(image string) string {
	first, _, _ := strings.Cut(image, ", ")
	first, _, _ = strings.Cut(first, "@")
	if tag := strings.LastIndex(first, ":"); tag > strings.LastIndex(first, "/") {
		return first[:tag]
	}
	return first
}

// findings parses the lines of findings below a title. in is what the title has of each.
func (m *Message) findings(text string, in Line) {
	for line := range strings.SplitSeq(text, "\n") {
		parts := findingLine.FindStringSubmatch(line)
		if parts == nil {
			continue
		}
		found := in
		found.ID, found.Severity = parts[1], parts[2]
		found.Package, found.Version = cmp.Or(parts[3], in.Package), cmp.Or(parts[4], in.Version)
		found.Repository = cmp.Or(parts[5], in.Repository)
		if fix := fixedVersion.FindStringSubmatch(line); fix != nil {
			found.FixedIn = fix[1]
		}
		found.ExceptionEnded = strings.Contains(line, "*exception ended*")
		if found.Change == "" && !m.Summary {
			found.Change = changeOf(line)
		}
		m.Lines = append(m.Lines, found)
	}
}

// changeOf returns why a finding that is present is announced.
func changeOf(line string) v1alpha1.Change {
	for words, change := range map[string]v1alpha1.Change{
		"*fix available": v1alpha1.ChangeFixAvailable, "*is back*": v1alpha1.ChangeRegressed,
		"*was ": v1alpha1.ChangeEscalated, "*known exploited": v1alpha1.ChangeEscalated,
	} {
		if strings.Contains(line, words) {
			return change
		}
	}
	return v1alpha1.ChangeNew
}
