// Package slack renders messages for Slack and posts them to incoming webhooks.
//
// Whatever names an image contains, a rendered message stays within Slack's limits, mentions nobody, links only to https URLs and counts
// what it leaves out. The package knows nothing about Secrets, retries, or what is new.
package slack

import (
	"fmt"
	"strings"

	slackapi "github.com/slack-go/slack"

	"github.com/scanner-operator/scanner-operator/pkg/announce"
)

// Slack's limits (https://docs.slack.dev/reference/block-kit/blocks). They are applied to bytes, the strictest reading of "characters".
const (
	maxBlocks      = 50
	maxSectionText = 3000
	maxHeaderText  = 150
	// maxTotalText bounds all texts together. Slack does not document this limit; it refuses messages beyond about 13,200 characters with
	// msg_blocks_too_long.
	maxTotalText = 12_000
)

// Render returns the Slack message for d.
func Render(d announce.Message) *slackapi.WebhookMessage {
	m := &message{}
	m.fallback = fallback(d)
	m.size = len(m.fallback)
	m.header(title(d))
	m.context(sender(d))
	m.context(unconfirmed(d.Unconfirmed))
	if d.Kind == announce.KindChanges {
		m.changes(d)
	} else {
		m.summary(d)
		m.notices(d)
	}
	m.context(readMore(d.ReadMore))
	no := false
	return &slackapi.WebhookMessage{
		Text: m.fallback,
		// A name that looks like a channel or a URL must not become a link.
		Parse: "none", UnfurlLinks: &no, UnfurlMedia: &no,
		Blocks: &slackapi.Blocks{BlockSet: m.blocks},
	}
}

// message is a Slack message under construction. Its methods add nothing for an empty text, which Slack refuses.
type message struct {
	fallback string
	blocks   []slackapi.Block
	// size is the length of all texts so far, in bytes.
	size int
}

func (m *message) header(text string) {
	m.size += len(text)
	m.blocks = append(m.blocks, slackapi.NewHeaderBlock(slackapi.NewTextBlockObject(slackapi.PlainTextType, text, false, false)))
}

func (m *message) section(text string) {
	if text == "" {
		return
	}
	m.size += len(text)
	m.blocks = append(m.blocks, slackapi.NewSectionBlock(mrkdwn(text), nil, nil))
}

func (m *message) context(text string) {
	if text == "" {
		return
	}
	m.size += len(text)
	m.blocks = append(m.blocks, slackapi.NewContextBlock("", mrkdwn(text)))
}

func (m *message) divider() { m.blocks = append(m.blocks, slackapi.NewDividerBlock()) }

// mrkdwn returns a verbatim text: Slack then adds no links or mentions to plain text such as "@channel".
func mrkdwn(text string) *slackapi.TextBlockObject {
	return slackapi.NewTextBlockObject(slackapi.MarkdownType, text, false, true)
}

// title returns the message's title, safe as plain text and as mrkdwn. No vulnerability ID and no name in a cluster contains the characters
// that it removes.
func title(d announce.Message) string {
	return clean(strings.NewReplacer("&", "", "<", "", ">", "").Replace(clean(d.Title(), maxHeaderText)), maxHeaderText)
}

// fallback returns the text that Slack shows in notifications and that screen readers read.
func fallback(d announce.Message) string {
	text := title(d)
	if s := severities(d.Totals); s != "" {
		text += ": " + s
	}
	worst := d.Worst
	if len(d.Sections) > 0 {
		worst = d.Sections[0].Items
	}
	if len(worst) == 0 {
		return text
	}
	id, affected := escapedName(worst[0].ID, maxID), escapedName(worst[0].Package, maxPackage)
	if strings.Contains(text, id) {
		return text + ", package " + affected
	}
	return text + "; worst: " + id + " in " + affected
}

func sender(d announce.Message) string {
	return fmt.Sprintf("Scanner %s · namespace %s · %s",
		escapedName(d.Scanner, maxName), escapedName(d.Namespace, maxName), timestamp(d.CreatedAt))
}

// unconfirmed returns a warning that earlier messages may be missing, or "".
func unconfirmed(u *announce.Unconfirmed) string {
	if u == nil {
		return ""
	}
	return fmt.Sprintf(":warning: No answer came to %s since %s, the last one: %s. These messages may be missing here, and are not sent again.",
		count(u.Count, "earlier message"), timestamp(u.Since), escapedName(u.Title, maxHeaderText))
}

// readMore returns a link to where, or where as a command to run.
func readMore(where string) string {
	switch {
	case where == "":
		return ""
	case linkable(where):
		return "All findings: " + link(where, "read more")
	}
	return "All findings: " + code(where)
}
