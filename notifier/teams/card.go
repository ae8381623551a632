package teams

import (
	"encoding/json"
	"unicode/utf16"
	"unicode/utf8"

	slackapi "github.com/slack-go/slack"

	"github.com/scanner-operator/scanner-operator/notifier/slack"
	"github.com/scanner-operator/scanner-operator/pkg/announce"
)

// maxBytes bounds a card as the Workflow hands it to Teams: as a text within JSON, in which each quotation mark and backslash takes one byte more, and
// each emoji up to 14.
// Teams refuses more than 28 KB of such properties (https://learn.microsoft.com/microsoftteams/limits-specifications-teams#chat,
// https://github.com/MicrosoftDocs/msteams-docs/issues/11274). The Workflow has answered by then, so nobody would learn of it. The rest of the 28 KB is
// for what Teams adds.
const maxBytes = 27 << 10

// Bounds of the bytes of text to try, until a card is within maxBytes. How much more it takes in a card depends on the number of links.
const (
	mostText, leastText = 12_000, 3_000
	textStep            = 750
)

// payload is the body of a request to a Workflow (https://learn.microsoft.com/connectors/teams/#microsoft-teams-webhook).
type payload struct {
	Type        string       `json:"type"`
	Attachments []attachment `json:"attachments"`
}

type attachment struct {
	ContentType string `json:"contentType"`
	Content     card   `json:"content"`
}

// card is an Adaptive Card (https://adaptivecards.io/explorer/AdaptiveCard.html). Text is in runs alone: Teams applies no Markdown to them.
type card struct {
	Schema       string            `json:"$schema"`
	Type         string            `json:"type"`
	Version      string            `json:"version"`
	FallbackText string            `json:"fallbackText,omitempty"`
	MSTeams      map[string]string `json:"msteams"`
	Body         []line            `json:"body"`
}

// line is a RichTextBlock with one line of text.
type line struct {
	Type      string `json:"type"`
	Inlines   []run  `json:"inlines"`
	Spacing   string `json:"spacing,omitempty"`
	Separator bool   `json:"separator,omitempty"`
}

// run is a TextRun.
type run struct {
	Type         string   `json:"type"`
	Text         string   `json:"text"`
	Size         string   `json:"size,omitempty"`
	Weight       string   `json:"weight,omitempty"`
	FontType     string   `json:"fontType,omitempty"`
	IsSubtle     bool     `json:"isSubtle,omitempty"`
	SelectAction *openURL `json:"selectAction,omitempty"`
}

type openURL struct {
	Type string `json:"type"`
	URL  string `json:"url"`
}

// Render returns the body of the request for a message, within maxBytes. The words are those of Slack's message: the card has as much of it as
// fits, and counts the rest as Slack's message does.
func Render(m announce.Message) ([]byte, error) {
	for limit := mostText; limit >= leastText; limit -= textStep {
		p := payloadOf(slack.RenderWithin(m, limit))
		size, err := handedOn(p)
		if err != nil {
			return nil, err
		}
		if size <= maxBytes {
			return json.Marshal(p)
		}
	}
	// Notices and names can be too long even without findings.
	return json.Marshal(payloadOf(slack.RenderTitle(m)))
}

// handedOn returns the size of the card of a payload in bytes, as the Workflow hands it on at most: some encoders write other characters than ASCII as \u
// with four digits, and the backslash is escaped once more.
func handedOn(p payload) (size int, err error) {
	attachments, err := json.Marshal(p.Attachments)
	for _, r := range string(attachments) {
		switch {
		case r == '"', r == '\\':
			size += 2
		case r < utf8.RuneSelf:
			size++
		default:
			size += utf16.RuneLen(r) * len(`\\u0000`)
		}
	}
	return size + len(`""`), err
}

func payloadOf(m *slackapi.WebhookMessage) payload {
	c := card{
		Schema: "http://adaptivecards.io/schemas/adaptive-card.json", Type: "AdaptiveCard", Version: "1.4", FallbackText: slack.Plain(m.Text),
		MSTeams: map[string]string{"width": "Full"},
	}
	for _, l := range slack.Lines(m) {
		block := line{Type: "RichTextBlock", Separator: l.Separator, Inlines: runsOf(l)}
		if !l.IsFirst {
			block.Spacing = "None"
		}
		c.Body = append(c.Body, block)
	}
	return payload{Type: "message", Attachments: []attachment{{ContentType: "application/vnd.microsoft.card.adaptive", Content: c}}}
}

func runsOf(l slack.Line) (runs []run) {
	style := run{Type: "TextRun"}
	switch l.Role {
	case slack.RoleTitle:
		style.Size, style.Weight = "Large", "Bolder"
	case slack.RoleContext:
		style.Size, style.IsSubtle = "Small", true
	}
	for _, r := range l.Runs {
		styled := style
		styled.Text = r.Text
		if r.Bold {
			styled.Weight = "Bolder"
		}
		if r.Code {
			styled.FontType = "Monospace"
		}
		if r.URL != "" {
			styled.SelectAction = &openURL{Type: "Action.OpenUrl", URL: r.URL}
		}
		runs = append(runs, styled)
	}
	if len(runs) == 0 {
		// A line without text has no height.
		style.Text = "\u00a0"
		runs = []run{style}
	}
	return runs
}
