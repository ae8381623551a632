// Package slack renders messages for Slack and posts them to incoming webhooks.
//
// Whatever names an image contains, a rendered message stays within Slack's limits, mentions nobody, links only to https URLs and counts
// what it leaves out. The package knows nothing about Secrets, retries, or what is new.
package slack

import (
	"fmt"
	"slices"
	"strings"

	slackapi "github.com/slack-go/slack"

	"github.com/scanner-operator/scanner-operator/pkg/action"
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

// TestText is the content of a test message.
const TestText = "This is a test: messages to this receiver arrive. It is not about a finding, and there is nothing to do."

// Render returns the Slack message for d.
func Render(d announce.Message) *slackapi.WebhookMessage { return RenderWithin(d, maxTotalText) }

// RenderWithin returns the Slack message for d, for a receiver with less room: findings have at most limit bytes of text together with the title,
// notices and namespaces. What does not fit is counted. The limit is at most that of Render.
func RenderWithin(d announce.Message, limit int) *slackapi.WebhookMessage {
	d = d.WithActions()
	m := newMessage(d, limit)
	if d.Kind == announce.KindTest {
		m.section(TestText)
		return m.encode()
	}
	m.context(unconfirmed(d.Unconfirmed))
	if d.Kind == announce.KindChanges {
		m.changes(d)
	} else {
		m.summary(d)
	}
	m.context(footer(d))
	return m.encode()
}

// RenderTitle returns a message with the title of d and where to read the rest.
func RenderTitle(d announce.Message) *slackapi.WebhookMessage {
	m := newMessage(d, maxTotalText)
	m.section("This message is too long to be shown here.")
	m.context(footer(d))
	return m.encode()
}

// newMessage returns a message with the title and the sender.
func newMessage(d announce.Message, limit int) *message {
	m := &message{fallback: fallback(d), limit: limit}
	m.size = len(m.fallback)
	m.linkedTitle(d)
	m.context(sender(d))
	return m
}

func (m *message) encode() *slackapi.WebhookMessage {
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
	// size is the length of all texts so far, in bytes. limit bounds it while findings are added.
	size, limit int
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

// Title returns the message's title in one line of at most 150 bytes, safe as plain text and as mrkdwn. No vulnerability ID and no name in a
// cluster contains the characters that it removes.
func Title(d announce.Message) string {
	return clean(strings.NewReplacer("&", "", "<", "", ">", "").Replace(clean(d.Title(), maxHeaderText)), maxHeaderText)
}

// fallback returns the text that Slack shows in notifications and that screen readers read: the title, the severities and what to do first.
func fallback(d announce.Message) string {
	text := Title(d)
	counts, separator := severities(d.Totals), ": "
	isNamed := d.Exploited() != nil
	switch {
	case d.NotAnnounced > 0:
		separator = " · in all " // the title counts others
	case isNamed:
		separator = " · "
	}
	if counts != "" {
		text += separator + counts
	}
	if isNamed {
		return text // it says already what to do first
	}
	updates, worst := d.Actions, d.Worst
	for _, s := range d.Sections {
		updates, worst = append(updates[:len(updates):len(updates)], s.Actions...), append(worst[:len(worst):len(worst)], s.Items...)
	}
	for _, n := range d.JoinedNamespaces {
		updates = append(updates[:len(updates):len(updates)], n.Actions...)
	}
	if len(updates) > 0 {
		first := slices.MinFunc(updates, func(a, b announce.UpdateAction) int { return action.Compare(a.Ends, b.Ends) })
		return text + ". " + instruction(first) + " in " + imageName(first.Repository, nil)
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
	cluster := ""
	if d.Cluster != "" {
		cluster = " · cluster " + escapedName(d.Cluster, maxName)
	}
	if d.ScannerKind == announce.ClusterScannerKind {
		return fmt.Sprintf("ClusterScanner %s%s%s · %s", escapedName(d.Scanner, maxName), onlyNamespaces(d), cluster, timestamp(d.CreatedAt))
	}
	return fmt.Sprintf("Scanner %s · namespace %s%s · %s",
		escapedName(d.Scanner, maxName), escapedName(d.Namespace, maxName), cluster, timestamp(d.CreatedAt))
}

// onlyNamespaces returns the namespaces that a message of a ClusterScanner is limited to, such as " · namespaces shop, shop-test and 2 more".
func onlyNamespaces(d announce.Message) string {
	switch names := list(d.OnlyNamespaces, maxName, maxNames, max(0, d.MoreOnlyNamespaces)); {
	case names == "":
		return ""
	case len(d.OnlyNamespaces) == 1 && d.MoreOnlyNamespaces <= 0:
		return " · namespace " + names
	default:
		return " · namespaces " + names
	}
}

// unconfirmed returns a warning that earlier messages may be missing, or "".
func unconfirmed(u *announce.Unconfirmed) string {
	if u == nil {
		return ""
	}
	return fmt.Sprintf(":warning: No answer came to %s since %s, the last one: %s. These messages may be missing here, and are not sent again.",
		announce.Pluralize(u.Count, "earlier message"), timestamp(u.Since), escapedText(u.Title, maxHeaderText))
}

// footer returns where to read all findings: a link, or a command to run. Beside a command it has the one that needs less permission: it reads
// ImageScans, which the role view allows, and shows the worst finding of each image. A message of notices has none.
func footer(d announce.Message) string {
	all := d.ReadMore
	switch {
	case all == "" || isOnlyNotices(d):
		return ""
	case linkable(all):
		return "All findings: " + link(all, readMore(d))
	case strings.Contains(all, "imagescans"):
		return "All findings: " + code(all)
	}
	text := "The worst finding of each image: " + code(getImageScans(d)) + "\nAll findings: " + code(all)
	if named := len(d.OnlyNamespaces); named > 0 && d.MoreOnlyNamespaces > 0 {
		text += fmt.Sprintf("\nThe commands are for the first %d of %d namespaces.", named, named+d.MoreOnlyNamespaces)
	}
	return text
}

// isOnlyNotices reports whether a message is only about the Scanner's health.
func isOnlyNotices(d announce.Message) bool {
	return d.Kind == announce.KindChanges && len(d.Sections)+len(d.NewImages)+len(d.JoinedNamespaces)+d.Rest.Findings == 0
}

func readMore(d announce.Message) string {
	if d.WebUI != "" {
		return "in the web UI"
	}
	return "read more"
}

// getImageScans returns the command that lists the images of the Scanner or ClusterScanner, with their worst finding and why one has no result.
// A message that is limited to namespaces has a command without -A, which a team may not have the permission for.
func getImageScans(d announce.Message) string {
	namespace := d.Namespace
	if d.ScannerKind == announce.ClusterScannerKind {
		only := d.OnlyNamespaces[:min(len(d.OnlyNamespaces), announce.MaxOnlyNamespaces)]
		switch len(only) {
		case 0:
			return "kubectl get imagescans -A -o wide"
		case 1:
			namespace = only[0]
		default:
			return fmt.Sprintf("for n in %s; do kubectl -n $n get imagescans -o wide; done", strings.Join(only, " "))
		}
	}
	return "kubectl -n " + namespace + " get imagescans -o wide"
}
