package teams

import (
	"regexp"
	"strings"
)

// marks are code, bold and links of Slack's mrkdwn (https://docs.slack.dev/messaging/formatting-message-text). Code has no other marks in it.
var marks = regexp.MustCompile("`([^`]+)`|\\*([^*]+)\\*|<([^<>|]+)\\|([^<>]*)>")

// linesOf converts mrkdwn as package slack writes it, line by line, to runs with a style.
func linesOf(mrkdwn string, style run) (lines []line) {
	for text := range strings.SplitSeq(mrkdwn, "\n") {
		runs := runsOf(text, style)
		if len(runs) == 0 {
			// A line without text has no height.
			style.Text = "\u00a0"
			runs = []run{style}
		}
		lines = append(lines, line{Inlines: runs})
	}
	return lines
}

func runsOf(mrkdwn string, style run) (runs []run) {
	add := func(text string, style run) {
		if style.Text = plain(text); style.Text != "" {
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
			marked.FontType = "Monospace"
			add(mrkdwn[at[2]:at[3]], marked)
		case at[4] >= 0:
			marked.Weight = "Bolder"
			runs = append(runs, runsOf(mrkdwn[at[4]:at[5]], marked)...)
		default:
			marked.SelectAction = &openURL{Type: "Action.OpenUrl", URL: plain(mrkdwn[at[6]:at[7]])}
			add(mrkdwn[at[8]:at[9]], marked)
		}
	}
	add(mrkdwn[end:], style)
	return runs
}
