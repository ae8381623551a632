package slack

import (
	"regexp"
	"strings"

	slackapi "github.com/slack-go/slack"
)

// Role is what a Line is in a message.
type Role string

// Roles.
const (
	RoleTitle   Role = "Title"
	RoleText    Role = "Text"
	RoleContext Role = "Context"
)

// Line is one line of a message, for receivers with another markup than Slack's.
type Line struct {
	Role Role
	// IsFirst is true for the first line of a block. Separator is true if a divider stands before the line.
	IsFirst, Separator bool
	// Runs is empty for an empty line.
	Runs []Run
}

// Run is text in one style, as plain text: nothing in it is markup.
type Run struct {
	Text       string
	Bold, Code bool
	// URL is the https address that the text links to; empty for none.
	URL string
}

// Lines returns the lines of a message that Render, RenderWithin or RenderTitle has made.
func Lines(m *slackapi.WebhookMessage) (all []Line) {
	separator := false
	for _, block := range m.Blocks.BlockSet {
		var lines []Line
		switch block := block.(type) {
		case *slackapi.DividerBlock:
			separator = true
			continue
		case *slackapi.HeaderBlock:
			lines = []Line{{Role: RoleTitle, Runs: []Run{{Text: block.Text.Text}}}}
		case *slackapi.SectionBlock:
			lines = linesWith(RoleText, block.Text.Text)
		case *slackapi.ContextBlock:
			for _, element := range block.ContextElements.Elements {
				if text, isText := element.(*slackapi.TextBlockObject); isText {
					lines = append(lines, linesWith(RoleContext, text.Text)...)
				}
			}
		}
		if len(lines) > 0 {
			lines[0].IsFirst, lines[0].Separator, separator = true, separator, false
		}
		all = append(all, lines...)
	}
	return all
}

// marks are code, bold and links of mrkdwn (https://docs.slack.dev/messaging/formatting-message-text). Code has no other marks in it,
// and bold text has whole links, whose addresses may have asterisks.
var marks = regexp.MustCompile("`([^`]+)`|\\*((?:<[^<>]*>|[^*<>])+)\\*|<([^<>|]+)\\|([^<>]*)>")

// linesWith converts mrkdwn as this package writes it, line by line.
func linesWith(role Role, mrkdwn string) (lines []Line) {
	for text := range strings.SplitSeq(mrkdwn, "\n") {
		lines = append(lines, Line{Role: role, Runs: runsOf(text, Run{})})
	}
	return lines
}

func runsOf(mrkdwn string, style Run) (runs []Run) {
	add := func(text string, style Run) {
		if style.Text = Plain(text); style.Text != "" {
			runs = append(runs, style)
		}
	}
	end := 0
	for _, at := range marks.FindAllStringSubmatchIndex(mrkdwn, -1) {
		add(mrkdwn[end:at[0]], style)
		end = at[1]
		marked := style
		switch {
		case at[2] >= 0:
			marked.Code = true
			add(mrkdwn[at[2]:at[3]], marked)
		case at[4] >= 0:
			marked.Bold = true
			runs = append(runs, runsOf(mrkdwn[at[4]:at[5]], marked)...)
		default:
			marked.URL = Plain(mrkdwn[at[6]:at[7]])
			add(mrkdwn[at[8]:at[9]], marked)
		}
	}
	add(mrkdwn[end:], style)
	return runs
}

var unescaper = strings.NewReplacer("&lt;", "<", "&gt;", ">", "&amp;", "&", ":warning:", "⚠")

// Plain returns text without the escapes of mrkdwn.
func Plain(text string) string { return unescaper.Replace(text) }
