package slack

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/scanner-operator/scanner-operator/pkg/announce"
)

// maxNamespaceActions bounds the updates of each namespace.
const maxNamespaceActions = 3

// summary adds totals, the most urgent updates with what they end, the worst findings without a fix, the namespaces with the most urgent
// findings, and the images that are not covered.
func (m *message) summary(d announce.Message) {
	below := &message{}
	below.section(namespaces("*Namespaces with the most urgent findings*", d.Namespaces, d.MoreNamespaces))
	below.section(remaining(d))
	below.context(summaryReason(d))
	below.notices(d)
	m.section(allTotals(d))
	m.section(trend(d.Trend))
	m.section(oldestExploited(d))
	parts := splitSection(announce.Section{Actions: d.Actions, Items: d.Worst, MoreItems: notListed(d)})
	if d.NotAnnounced > 0 && len(d.Worst) > 0 {
		m.section(fmt.Sprintf("*Not announced before: %s*", announce.Pluralize(d.NotAnnounced, "finding")))
	}
	var drafts []*draft
	for _, u := range parts.updates[:min(len(parts.updates), maxUpdates)] {
		drafts = append(drafts, updateDraft(d, u))
	}
	if len(parts.noFix) > 0 {
		first := len(drafts)
		if hasExploited(parts.noFix) {
			first = slices.IndexFunc(append(parts.updates[:first:first], listedAction{}), func(u listedAction) bool { return u.action.Ends.KnownExploited == 0 })
		}
		drafts = slices.Insert(drafts, first, &draft{title: "*No fix yet*", lines: linesOf(parts.noFix, func(i announce.Item) string { return noFixLine(d, i) })})
	}
	drafts, _ = layOut(drafts, m.limit-m.size-below.size-len(footer(d))-leftOutReserve)
	for _, dr := range drafts {
		m.section(dr.text())
	}
	if more := max(0, d.MoreActions) + max(0, len(parts.updates)-maxUpdates); more > 0 {
		m.section(linkTo(d.ReadMore, "And "+announce.Pluralize(more, "more update")))
	}
	m.blocks = append(m.blocks, below.blocks...)
	m.size += below.size
}

// notListed returns the number of findings that the summary's updates end and Worst does not list.
func notListed(d announce.Message) (n int) {
	for _, a := range d.Actions {
		n += max(0, a.Ends.Total()-max(0, a.Items))
	}
	return n
}

// allTotals returns the totals of everything that was found.
func allTotals(d announce.Message) string {
	all := markedTotals(d.Totals)
	switch {
	case all == "" && d.Remaining.Partly != 0:
		all = "No vulnerability is known in the packages that the engine covers."
	case all == "":
		all = "No vulnerability is known."
	case d.Kind == announce.KindEngineUpdated, d.Kind == announce.KindFilterWidened, d.Kind == announce.KindStoreRestored:
		all = "In all: " + all
	}
	if d.Suppressed > 0 {
		all += "\nIn addition, exceptions suppress " + announce.Pluralize(d.Suppressed, "finding") + "."
	}
	return all
}

// namespaces lists namespaces with their totals and most urgent updates, within one block, and counts the others together with more.
func namespaces(title string, all []announce.NamespaceSummary, more int) string {
	if len(all) == 0 {
		return ""
	}
	text := title
	for i, n := range all {
		d := announce.Message{Namespace: n.Namespace}
		gap := ""
		if i > 0 {
			gap = "\n"
		}
		paragraph := gap + fmt.Sprintf("\n*%s* · %s", escapedName(n.Namespace, maxName), announce.Pluralize(n.Images, "image"))
		if c := markedTotals(n.Totals); c != "" {
			paragraph += "\n" + c
		}
		for _, a := range n.Actions[:min(len(n.Actions), maxNamespaceActions)] {
			paragraph += fmt.Sprintf("\n• %s in %s%s: ends %s", instruction(a), imageName(a.Repository, nil), runsIn(d, a.Workloads, a.MoreWorkloads, 0), endsText(a))
		}
		if len(text)+len(paragraph)+moreReserve > maxNamespacesText {
			more += len(all) - i
			break
		}
		text += paragraph
	}
	if more > 0 {
		text += "\n\nand " + announce.Pluralize(more, "more namespace")
	}
	return text
}

// summaryReason returns the reason for the summary, and what is announced after it.
func summaryReason(d announce.Message) string {
	const noClaim, onlyNew = "this message calls no finding new. ", "From now on only changes are announced."
	engine, before := escapedName(d.Engine, maxEngine), escapedName(d.EngineBefore, maxEngine)
	restored := "The operator's store was restored from a backup or a snapshot of " + timestamp(d.RestoredFrom) +
		". The record of later messages is lost, so these findings may have been announced before"
	switch d.Kind {
	case announce.KindBaselineRenewed:
		return "The record of what was announced before is lost or not complete; " + noClaim + onlyNew
	case announce.KindEngineChanged:
		changed := fmt.Sprintf("The engine was changed from %s to %s, which may have other findings in the same images; ", before, engine) + noClaim + onlyNew
		if !d.RestoredFrom.IsZero() {
			return restored + ". " + changed
		}
		return changed
	case announce.KindEngineUpdated:
		return fmt.Sprintf("The engine was updated from %s to %s, which finds more in the same images; ", before, engine) + noClaim + onlyNew
	case announce.KindStoreRestored:
		return restored + "; " + noClaim + onlyNew
	case announce.KindScheduledSummary:
		return "This summary comes by the receiver's schedule. It announces nothing: changes have messages of their own."
	case announce.KindFilterWidened:
		return "This receiver now gets more findings, and these were present before; " + noClaim + onlyNew
	}
	return onlyNew
}

// trend returns what has happened since the scheduled summary before.
func trend(t *announce.Trend) string {
	if t == nil {
		return ""
	}
	text := "*Since " + timestamp(t.Since) + ":* "
	text += fmt.Sprintf("%d opened · %s", t.Opened, t.Ended())
	if t.NotProven > 0 {
		text += "\nNot proven: one version of the data lacks them, the data has an anomaly, the engine was changed, or an image has no complete result"
	}
	if t.Before != nil {
		before := markedTotals(*t.Before)
		if before == "" {
			before = "no vulnerability was known"
		}
		text += "\nBefore: " + before
	}
	return text
}

// oldestExploited returns the finding that is known to be exploited for the longest time.
func oldestExploited(d announce.Message) string {
	if d.OldestExploited == nil {
		return ""
	}
	line := noFixLine(d, *d.OldestExploited)
	if fix := d.OldestExploited.FixedIn; fix != "" {
		line += " · fixed in " + escapedName(fix, maxVersion)
	}
	return "*Known exploited for the longest time*\n" + line
}

// remaining returns which images the summary does not cover.
func remaining(d announce.Message) string {
	r, title := d.Remaining, "*Not covered:* "
	var parts []string
	if r.Pending != 0 {
		parts = append(parts, announce.Pluralize(r.Pending, "image")+" not scanned yet")
	}
	if len(r.Failed) > 0 {
		parts = append(parts, failures(r.Failed))
	}
	if r.Excluded != 0 {
		parts = append(parts, fmt.Sprintf("%d excluded", r.Excluded))
	}
	if r.Partly != 0 {
		parts = append(parts, "parts of "+announce.Pluralize(r.Partly, "scanned image"))
	}
	if len(parts) == 0 {
		return ""
	}
	return title + strings.Join(parts, " · ")
}

func failures(byReason map[string]int) string {
	n := 0
	var reasons []string
	for _, reason := range slices.Sorted(maps.Keys(byReason)) {
		n += byReason[reason]
		reasons = append(reasons, fmt.Sprintf("%s %d", clean(reason, maxReason), byReason[reason]))
	}
	return fmt.Sprintf("%s failed (%s)", announce.Pluralize(n, "image"), list(reasons, maxReason+24, maxNames, 0))
}
