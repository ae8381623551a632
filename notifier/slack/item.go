package slack

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/announce/diff"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// linesOf renders each item as one line.
func linesOf(items []announce.Item, line func(announce.Item) string) []string {
	lines := make([]string, 0, len(items))
	for _, item := range items {
		lines = append(lines, line(item))
	}
	return lines
}

// endedLine renders a finding below the update that ends it. It names the fixed version if the finding needs another one than the first of
// the update, and since when a fix is known if the update does not.
func endedLine(a announce.UpdateAction, i announce.Item, updateKnown string) string {
	parts := urgency(i, "")
	if len(a.Fixes) > 0 && !fixes(a.Fixes[0].Version, i.FixedIn) {
		parts = append(parts, "→ "+fixVersions(i.FixedIn))
	}
	if known := fixKnown(i); known != "" && known != updateKnown {
		parts = append(parts, known)
	}
	return strings.Join(append(parts, changeHistory(i)...), " · ")
}

// fixKnown returns since when a fix is known; "" if that is unknown, or if the fix itself is announced.
func fixKnown(i announce.Item) string {
	if i.FixSince.IsZero() || i.Change == diff.ChangeFixAvailable {
		return ""
	}
	return "fix known" + since(i.FixSince)
}

// fixes reports whether one of some versions is among those that fix a finding.
func fixes(versions, fixedIn string) bool {
	fixed := strings.Split(fixedIn, ", ")
	return slices.ContainsFunc(strings.Split(versions, ", "), func(v string) bool { return slices.Contains(fixed, v) })
}

// noFixLine renders a finding without a fix: it names the package, and in summaries the image with its workloads.
func noFixLine(d announce.Message, i announce.Item) string {
	in := " in " + escapedName(i.Package, maxPackage)
	if i.Version != "" {
		in += " " + escapedName(i.Version, maxVersion)
	}
	if i.Repository != "" {
		in += " of " + imageName(i.Repository, nil) + runsIn(d, i.Workloads, i.MoreWorkloads, i.WorkloadNamespaces)
	}
	parts := urgency(i, in)
	if i.FixState == finding.FixStateWontFix {
		parts = append(parts, "will not be fixed")
	}
	return strings.Join(append(parts, changeHistory(i)...), " · ")
}

// fixedLine renders a fixed finding briefly, since nothing is left to do.
func fixedLine(i announce.Item) string {
	text := fmt.Sprintf("%s *%s* %s in %s", markFixed, link(i.URL, i.ID), i.Severity, escapedName(i.Package, maxPackage))
	if !i.FirstSeen.IsZero() {
		text += " · first seen " + date(i.FirstSeen)
	}
	return text
}

// urgency returns mark, ID, severity and urgency of an item. in follows the severity.
func urgency(i announce.Item, in string) []string {
	mark := markOf(i.Severity)
	if i.KnownExploited {
		mark = markExploited
	}
	parts := []string{fmt.Sprintf("%s *%s* %s%s", mark, link(i.URL, i.ID), i.Severity, in)}
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
