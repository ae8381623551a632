package slack

import (
	"fmt"
	"slices"
	"strings"

	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// Marks at the beginning of a line. Some differ only by colour, such as 🟡 and ⚪: the severity therefore follows each as a word.
const (
	markExploited = "🚨"
	markFixed     = "✅"
)

var severityMarks = map[finding.Severity]string{
	finding.Critical: "🟥", finding.High: "🔶", finding.Medium: "🟡", finding.Low: "🔹", finding.Negligible: "⚪", finding.Unknown: "❔",
}

// markOf returns the mark of a severity, that of an unknown one for any other value.
func markOf(s finding.Severity) string {
	if mark, known := severityMarks[s]; known {
		return mark
	}
	return severityMarks[finding.Unknown]
}

// updateDraft returns the block of an update: what to do and what it ends, then the findings.
func updateDraft(d announce.Message, u listedAction) *draft {
	a := u.action
	dr := &draft{
		repository: a.Repository, title: fmt.Sprintf("*%s in %s*", instruction(a), imageName(a.Repository, a.References)),
		runs: runsIn(d, a.Workloads, a.MoreWorkloads, a.WorkloadNamespaces), more: u.more, readMore: repositoryPage(d, a.Repository),
	}
	if ends := endsText(a); ends != "" {
		dr.ends = ": ends " + ends
	}
	// A day that all findings share stands once.
	known := ""
	if len(u.items) > 0 {
		known = fixKnown(u.items[0])
	}
	if slices.ContainsFunc(u.items, func(i announce.Item) bool { return fixKnown(i) != known }) {
		known = ""
	} else {
		dr.ends = strings.TrimSuffix(dr.ends+" · "+known, " · ")
	}
	dr.lines = linesOf(u.items, func(i announce.Item) string { return endedLine(a, i, known) })
	return dr
}

// instruction returns what to do, such as "Update libssl3 3.0.9-1 → 3.0.11-1". In parentheses are the versions that the other findings need.
func instruction(a announce.UpdateAction) string {
	text := "Update " + escapedName(a.Package, maxPackage)
	if versions := list(a.Versions, maxVersion, maxNames, a.MoreVersions); versions != "" {
		text += " " + versions
	}
	var exceptions []string
	others := a.Ends.Total()
	for i, fix := range a.Fixes {
		others -= fix.Findings
		if version := fixVersions(fix.Version); i == 0 {
			text += " → " + version
		} else {
			exceptions = append(exceptions, version+" for "+announce.Pluralize(fix.Findings, "finding"))
		}
	}
	if others > 0 {
		exceptions = append(exceptions, "other versions for "+announce.Pluralize(others, "finding"))
	}
	if len(exceptions) > 0 {
		text += " (" + strings.Join(exceptions, ", ") + ")"
	}
	return text
}

// fixVersions returns versions that each fix the same as "18.1 or 20.1".
func fixVersions(versions string) string {
	return escapedName(strings.ReplaceAll(versions, ", ", " or "), maxVersion)
}

// endsText counts what an update ends, such as "1 known exploited among 2 Critical, 3 High".
func endsText(a announce.UpdateAction) string {
	text := countsText(a.Ends)
	if a.AtLeast && text != "" {
		return "at least " + text
	}
	return text
}

// countsText returns how many findings are known exploited, and the number of all by severity.
func countsText(c finding.Counts) string {
	all := severities(c)
	switch exploited := fmt.Sprintf("%d%sknown exploited", c.KnownExploited, noBreak); c.KnownExploited {
	case 0:
		return all
	case c.Total():
		return exploited + " (" + all + ")"
	default:
		return exploited + " among " + all
	}
}

// markedTotals returns the counts with marks and the number of findings with a fix: "🚨 1 known exploited · 🟥 2 Critical · 1 with a fix".
func markedTotals(c finding.Counts) string {
	var parts []string
	if c.KnownExploited != 0 {
		parts = append(parts, fmt.Sprintf("%s%s%d%sknown exploited", markExploited, noBreak, c.KnownExploited, noBreak))
	}
	for _, s := range finding.Severities() {
		if n := c.Of(s); n != 0 {
			parts = append(parts, fmt.Sprintf("%s%s%d%s%s", markOf(s), noBreak, n, noBreak, s))
		}
	}
	if c.Fixable != 0 {
		parts = append(parts, strings.ReplaceAll(fmt.Sprintf("%d with a fix", c.Fixable), " ", noBreak))
	}
	return strings.Join(parts, " · ")
}

// shortDigest is the number of digits that are shown of a digest. They identify an image in practice.
const shortDigest = 12

// imageName returns an image with its tags in use, such as "nginx:1.25, 1.26". An image without a tag has the beginning of its
// digest.
func imageName(repository string, references []string) string {
	name := escapedName(announce.FamiliarName(repository), maxRepository)
	if len(references) == 0 {
		return name
	}
	separator, tags := ":", make([]string, 0, len(references))
	for _, reference := range references {
		if algorithm, digits, isDigest := strings.Cut(reference, ":"); isDigest {
			separator, reference = "@", algorithm+":"+digits[:min(len(digits), shortDigest)]
		}
		tags = append(tags, reference)
	}
	return name + separator + list(tags, maxTag, maxTags, 0)
}

// runsIn returns the workloads in brackets, such as " (Deployment web and 4 more)". The namespace is omitted if the message is about a
// single one.
func runsIn(d announce.Message, workloads []string, more, inNamespaces int) string {
	if len(workloads) == 0 {
		return ""
	}
	shown := min(len(workloads), 2)
	more = max(more, 0) + len(workloads) - shown
	names := make([]string, 0, shown)
	for _, w := range workloads[:shown] {
		names = append(names, strings.Replace(w, " "+d.Namespace+"/", " ", 1))
	}
	text := list(names, maxWorkload, maxNames, more)
	if inNamespaces > 1 {
		text += fmt.Sprintf(" in %d namespaces", inNamespaces)
	}
	return " (" + text + ")"
}
