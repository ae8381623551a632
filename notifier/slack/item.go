package slack

import (
	"fmt"
	"math"
	"strings"

	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/announce/diff"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// line is the text of one item. lead is the heading above it, which only the first item of each package has.
type line struct{ lead, text string }

func (l line) String() string { return l.lead + l.text + "\n" }

// linesOf renders items in their order. Consecutive items of the same package and version share a heading, and so do consecutive fixed
// items.
func linesOf(items []announce.Item) []line {
	var lines []line
	for len(items) > 0 {
		n := 1
		for n < len(items) && sameGroup(items[0], items[n]) {
			n++
		}
		if items[0].Change == diff.ChangeFixed {
			lines = append(lines, fixedLines(items[:n])...)
		} else {
			lines = append(lines, packageLines(items[:n])...)
		}
		items = items[n:]
	}
	return lines
}

func sameGroup(a, b announce.Item) bool {
	if a.Change == diff.ChangeFixed || b.Change == diff.ChangeFixed {
		return a.Change == b.Change
	}
	return a.Package == b.Package && a.Version == b.Version
}

// fixedLines renders fixed items briefly, since nothing is left to do.
func fixedLines(items []announce.Item) []line {
	var lines []line
	for _, i := range items {
		text := fmt.Sprintf("• *%s* %s in %s", link(i.URL, i.ID), i.Severity, escapedName(i.Package, maxPackage))
		if !i.FirstSeen.IsZero() {
			text += " · first seen " + date(i.FirstSeen)
		}
		lines = append(lines, line{text: text})
	}
	lines[0].lead = "\n*Fixed*\n"
	return lines
}

// packageLines renders the items of one package. A fix that all of them share is part of the heading.
func packageLines(items []announce.Item) []line {
	shared := fix(items[0])
	for _, item := range items[1:] {
		if fix(item) != shared {
			shared = ""
		}
	}
	var lines []line
	for _, item := range items {
		parts := urgency(item)
		if own := fix(item); own != shared {
			parts = append(parts, own)
		}
		parts = append(parts, changeHistory(item)...)
		lines = append(lines, line{text: strings.Join(parts, " · ")})
	}
	lines[0].lead = "\n" + packageAndFix(items[0], shared) + "\n"
	return lines
}

// summaryItem renders a single item of a summary: ID, severity and urgency first, then package, fix and repository.
func summaryItem(i announce.Item) string {
	text := strings.Join(urgency(i), " · ") + "\n" + packageAndFix(i, fix(i))
	if i.Repository != "" {
		text += "\nin " + escapedName(i.Repository, maxRepository)
	}
	return text
}

// packageAndFix returns the package and the fix, if there is one.
func packageAndFix(i announce.Item, helps string) string {
	text := escapedName(i.Package, maxPackage)
	if i.Version != "" {
		text += " " + escapedName(i.Version, maxVersion)
	}
	switch {
	case helps == "":
		return text
	case i.FixedIn != "":
		return text + " " + helps
	}
	return text + " · " + helps
}

// urgency returns the ID, severity and urgency of an item.
func urgency(i announce.Item) []string {
	parts := []string{fmt.Sprintf("• *%s* %s", link(i.URL, i.ID), i.Severity)}
	if exploited := "known exploited" + since(i.ExploitedSince); i.KnownExploited && i.Change == diff.ChangeEscalated {
		parts = append(parts, "*"+exploited+"*")
	} else if i.KnownExploited {
		parts = append(parts, exploited)
	}
	if percent := math.Round(min(i.EPSS, 1) * 100); percent >= 1 {
		parts = append(parts, fmt.Sprintf("EPSS %.0f %%", percent))
	}
	return parts
}

// changeHistory returns why an item is announced and when it was first seen. For an item that is simply new it returns nothing.
func changeHistory(i announce.Item) []string {
	var parts []string
	switch i.Change {
	case diff.ChangeFixAvailable:
		parts = append(parts, "*fix available"+since(i.FixSince)+"*")
	case diff.ChangeEscalated:
		if i.Severity != i.SeverityBefore {
			parts = append(parts, fmt.Sprintf("*was %s*", i.SeverityBefore))
		}
	case diff.ChangeRegressed:
		parts = append(parts, "*is back*")
	default:
		if !i.ExceptionEnded {
			return nil
		}
	}
	if i.ExceptionEnded {
		parts = append(parts, "*exception ended*")
	}
	if !i.FirstSeen.IsZero() {
		parts = append(parts, "first seen "+date(i.FirstSeen))
	}
	return parts
}

// fix returns the version to update to, or why there is none.
func fix(i announce.Item) string {
	switch {
	case i.FixedIn != "" && !i.FixSince.IsZero() && i.Change != diff.ChangeFixAvailable:
		return "→ " + escapedName(i.FixedIn, maxVersion) + " (fix known" + since(i.FixSince) + ")"
	case i.FixedIn != "":
		return "→ " + escapedName(i.FixedIn, maxVersion)
	case i.FixState == finding.FixStateWontFix:
		return "will not be fixed"
	case i.FixState == finding.FixStateNotFixed:
		return "no fix yet"
	}
	return ""
}
