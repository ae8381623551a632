package slack

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/scanner-operator/scanner-operator/pkg/announce"
)

// summary adds totals, the worst findings and the images that are not covered.
func (m *message) summary(d announce.Message) {
	m.section(allTotals(d))
	m.section(worstFirst(d))
	m.section(remaining(d.Remaining))
	m.context(summaryReason(d))
}

// allTotals returns the totals of everything that was found.
func allTotals(d announce.Message) string {
	all := totals(d.Totals)
	switch {
	case all == "" && d.Remaining.Partly != 0:
		all = "No vulnerability is known in the packages that the engine covers."
	case all == "":
		all = "No vulnerability is known."
	case d.Kind == announce.KindEngineUpdated, d.Kind == announce.KindFilterWidened, d.Kind == announce.KindStoreRestored:
		all = "In all: " + all
	}
	if d.Suppressed > 0 {
		all += "\nIn addition, exceptions suppress " + count(d.Suppressed, "finding") + "."
	}
	return all
}

// worstFirst lists as many of the worst findings as fit into one section.
func worstFirst(d announce.Message) string {
	if len(d.Worst) == 0 {
		return ""
	}
	text := "*Most urgent*"
	if more := d.NotAnnounced - len(d.Worst); d.NotAnnounced > 0 && more > 0 {
		text = fmt.Sprintf("*The worst of these %d*", d.NotAnnounced)
	}
	for i, item := range d.Worst {
		paragraph := "\n" + summaryItem(item)
		if i > 0 {
			paragraph = "\n" + paragraph
		}
		if len(text)+len(paragraph)+moreReserve > maxSectionText {
			return text + "\n\nand " + strconv.Itoa(len(d.Worst)-i) + " more"
		}
		text += paragraph
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
	case announce.KindFilterWidened:
		return "This receiver now gets more findings, and these were present before; " + noClaim + onlyNew
	}
	return onlyNew
}

// remaining returns which images the summary does not cover.
func remaining(r announce.Remaining) string {
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
