// Package slack turns messages into Slack's form and posts them to incoming webhooks.
//
// It promises that any message, whatever an image calls its packages, keeps within Slack's limits, mentions
// nobody, links only to https addresses and counts what it leaves out. It knows nothing of Secrets, of
// retries, or of what is new.
package slack

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	slackapi "github.com/slack-go/slack"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
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

// Shares of the total.
const (
	// closingReserve is kept free for what stands below the sections.
	closingReserve = 900
	// moreReserve is the room for one "and N more" line with any number.
	moreReserve = 48
	// maxSections leaves blocks for header, context, totals and closing.
	maxSections = maxBlocks - 6
	maxNames    = 500
)

// Render returns the message to post.
func Render(d notify.Digest) *slackapi.WebhookMessage {
	m := &message{}
	m.fallback = fallback(d)
	m.size = len(m.fallback)
	m.header(headline(d))
	m.context(speaker(d))
	if d.Kind == notify.KindNews {
		m.section(newsTotals(d))
		m.news(d)
	} else {
		m.summary(d)
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
	text = clip(text, maxHeaderText)
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

// mrkdwn is verbatim: Slack then makes no links and no mentions of plain text such as "@channel".
func mrkdwn(text string) *slackapi.TextBlockObject {
	return slackapi.NewTextBlockObject(slackapi.MarkdownType, text, false, true)
}

// headline says what it is about, in plain text.
func headline(d notify.Digest) string {
	// A namespace has none of these characters. Without them this is safe as plain text and as mrkdwn.
	where := strings.NewReplacer("&", "", "<", "", ">", "").Replace(clean(d.Namespace, 63))
	n := d.Totals.Total()
	switch d.Kind {
	case notify.KindNews:
		return count(n, "new finding") + " in " + where
	case notify.KindBaselineRenewed:
		return fmt.Sprintf("Baseline renewed for %s: %s in %s", where, count(n, "finding"), count(d.Images, "image"))
	case notify.KindEngineChanged:
		return fmt.Sprintf("Engine changed for %s: %s in %s", where, count(n, "finding"), count(d.Images, "image"))
	}
	return fmt.Sprintf("First scan of %s: %s in %s", where, count(n, "finding"), count(d.Images, "image"))
}

// fallback is shown in notifications and read by screen readers.
func fallback(d notify.Digest) string {
	text := headline(d)
	if s := severities(d.Totals); s != "" {
		text += ": " + s
	}
	worst := d.Worst
	if len(d.Sections) > 0 {
		worst = d.Sections[0].Items
	}
	if len(worst) > 0 {
		text += fmt.Sprintf("; worst: %s in %s", name(worst[0].ID, maxID), name(worst[0].Package, maxPackage))
	}
	return text
}

func speaker(d notify.Digest) string {
	return fmt.Sprintf("Scanner %s · namespace %s · %s",
		name(d.Scanner, 63), name(d.Namespace, 63), d.CreatedAt.UTC().Format("2006-01-02 15:04 UTC"))
}

// readMore is a link, or a command to type.
func readMore(where string) string {
	if where == "" {
		return ""
	}
	if linkable(where) {
		return "All findings: " + link(where, "read more")
	}
	return "All findings: `" + strings.ReplaceAll(name(where, maxLink), "`", "'") + "`"
}

// newsTotals stands above the sections when there are several; one section speaks for itself.
func newsTotals(d notify.Digest) string {
	if len(d.Sections) < 2 {
		return ""
	}
	return totals(d.Totals)
}

// summary shows totals, the worst and what is missing.
func (m *message) summary(d notify.Digest) {
	all := totals(d.Totals)
	if all == "" {
		all = "Nothing is known to be wrong."
		if d.Remaining.Partly != 0 {
			all = "No vulnerability is known in what the engine covers."
		}
	}
	m.section(all)
	if len(d.Worst) > 0 {
		m.section(worstFirst(d.Worst))
	}
	m.section(remaining(d.Remaining))
	const onlyNew = "From now on only what is new is announced."
	switch d.Kind {
	case notify.KindBaselineRenewed:
		m.context("What was found before has been found again; nothing in this message is claimed to be new. " + onlyNew)
	case notify.KindEngineChanged:
		m.context(fmt.Sprintf("The engine was changed from %s to %s, which may find other things in the same images; nothing in this message is claimed to be new. %s",
			name(d.EngineBefore, maxEngine), name(d.Engine, maxEngine), onlyNew))
	default:
		m.context(onlyNew)
	}
}

// worstFirst lists as many as fit into one section.
func worstFirst(items []notify.Item) string {
	text := "*Look at these first*"
	for i, item := range items {
		line := "\n" + itemLine(item)
		if len(text)+len(line)+moreReserve > maxSectionText {
			return text + fmt.Sprintf("\nand %d more", len(items)-i)
		}
		text += line
	}
	return text
}

// remaining says which images the summary does not cover.
func remaining(r notify.Remaining) string {
	var parts []string
	if r.Pending != 0 {
		parts = append(parts, count(r.Pending, "image")+" not scanned yet")
	}
	if len(r.Failed) > 0 {
		parts = append(parts, failures(r.Failed))
	}
	if r.Excluded != 0 {
		parts = append(parts, fmt.Sprintf("%d excluded", r.Excluded))
	}
	if r.Partly != 0 {
		parts = append(parts, "parts of "+count(r.Partly, "scanned image"))
	}
	if len(parts) == 0 {
		return ""
	}
	return "*Not covered:* " + strings.Join(parts, " · ")
}

func failures(byReason map[string]int) string {
	n := 0
	var reasons []string
	for _, reason := range slices.Sorted(maps.Keys(byReason)) {
		n += byReason[reason]
		reasons = append(reasons, fmt.Sprintf("%s %d", clean(reason, maxReason), byReason[reason]))
	}
	return fmt.Sprintf("%s failed (%s)", count(n, "image"), list(reasons, maxReason+24, maxNames, 0))
}

// itemLine is one finding: what, how bad, where, what helps, how urgent.
func itemLine(i notify.Item) string {
	affected := name(i.Package, maxPackage)
	if i.Version != "" {
		affected += " " + name(i.Version, maxVersion)
	}
	parts := []string{fmt.Sprintf("• *%s* %s", link(i.URL, i.ID), i.Severity), affected + fix(i)}
	if i.KnownExploited {
		parts = append(parts, "known exploited")
	}
	if percent := math.Round(min(i.EPSS, 1) * 100); percent >= 1 {
		parts = append(parts, fmt.Sprintf("EPSS %.0f %%", percent))
	}
	if i.Repository != "" {
		parts = append(parts, "in "+name(i.Repository, maxRepository))
	}
	return strings.Join(parts, " · ")
}

func fix(i notify.Item) string {
	switch {
	case i.FixedIn != "":
		return " → " + name(i.FixedIn, maxVersion)
	case i.FixState == finding.FixStateWontFix:
		return " · will not be fixed"
	case i.FixState == finding.FixStateNotFixed:
		return " · no fix yet"
	}
	return ""
}
