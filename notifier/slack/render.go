// Package slack turns messages into Slack's form and posts them to incoming webhooks.
//
// It promises that any message, whatever an image calls its packages, keeps within Slack's limits, mentions
// nobody, links only to https addresses and counts what it leaves out. It knows nothing of Secrets, of
// retries, or of what is new.
package slack

import (
	"fmt"
	"strings"

	slackapi "github.com/slack-go/slack"

	"github.com/scanner-operator/scanner-operator/pkg/notify"
)

// Slack's limits (https://docs.slack.dev/reference/block-kit/blocks). They are kept in bytes, the strictest
// reading of "characters".
const (
	maxBlocks      = 50
	maxSectionText = 3000
	maxHeaderText  = 150
	// maxTotalText is for all texts together. Slack does not document this limit; messages beyond about
	// 13,200 characters are refused with msg_blocks_too_long.
	maxTotalText = 12_000
)

// Render returns the message to post.
func Render(d notify.Digest) *slackapi.WebhookMessage {
	m := &message{}
	m.fallback = fallback(d)
	m.size = len(m.fallback)
	m.header(title(d))
	m.context(speaker(d))
	m.context(unconfirmed(d.Unconfirmed))
	if d.Kind == notify.KindNews {
		m.news(d)
	} else {
		m.summary(d)
		m.notices(d)
	}
	m.context(readMore(d.ReadMore))
	no := false
	return &slackapi.WebhookMessage{
		Text: m.fallback,
		// Names in the text are names, also when they look like a channel or an address.
		Parse: "none", UnfurlLinks: &no, UnfurlMedia: &no,
		Blocks: &slackapi.Blocks{BlockSet: m.blocks},
	}
}

// message is a message in the making. Empty texts, which Slack refuses, add nothing.
type message struct {
	fallback string
	blocks   []slackapi.Block
	// size is the length of all texts so far.
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

// mrkdwn is verbatim: Slack then makes no links and no mentions of plain text such as "@channel".
func mrkdwn(text string) *slackapi.TextBlockObject {
	return slackapi.NewTextBlockObject(slackapi.MarkdownType, text, false, true)
}

// title is the message's title. Without these characters, which no id and no name in a cluster has, it is safe as plain text and
// as mrkdwn.
func title(d notify.Digest) string {
	return clean(strings.NewReplacer("&", "", "<", "", ">", "").Replace(clean(d.Title(), maxHeaderText)), maxHeaderText)
}

// fallback is shown in notifications and read by screen readers.
func fallback(d notify.Digest) string {
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
	id, affected := name(worst[0].ID, maxID), name(worst[0].Package, maxPackage)
	if strings.Contains(text, id) {
		return text + ", package " + affected
	}
	return text + "; worst: " + id + " in " + affected
}

func speaker(d notify.Digest) string {
	return fmt.Sprintf("Scanner %s · namespace %s · %s",
		name(d.Scanner, maxName), name(d.Namespace, maxName), moment(d.CreatedAt))
}

// unconfirmed says that earlier messages may be missing.
func unconfirmed(u *notify.Unconfirmed) string {
	if u == nil {
		return ""
	}
	return fmt.Sprintf(":warning: No answer came to %s since %s, the last one: %s. What was not answered may be missing here, and is not sent again.",
		count(u.Count, "earlier message"), moment(u.Since), name(u.Title, maxHeaderText))
}

// readMore is a link, or a command to type.
func readMore(where string) string {
	switch {
	case where == "":
		return ""
	case linkable(where):
		return "All findings: " + link(where, "read more")
	}
	return "All findings: " + code(where)
}
