package scale

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/scanner-operator/scanner-operator/test/bench/page"
)

// Bounds of a ClusterScanner.
const (
	maxBlocks      = 50
	maxLabelChange = 5 * time.Second
)

// ClusterSection returns the section of the page that compares Scanners with a ClusterScanner.
func ClusterSection(f ClusterFigures) page.Section {
	var text strings.Builder
	fmt.Fprintf(&text, "%d namespaces with %d pods each, in two new clusters: first with a Scanner in each namespace, then with one ClusterScanner for all. "+
		"kube-apiserver, etcd, manager and notifier are real; kwok plays the pods, which run already when the first Scanner is created; the fake backend "+
		"invents the findings; a stand-in for Slack checks its limits. One of the five images of a namespace runs in all of them, so that there are %d images. "+
		"Each Scanner, and the ClusterScanner, has one receiver, with a groupWait of %s.\n\n",
		f.Namespaces, f.Pods/f.Namespaces, f.Images, teamsGroupWait)
	both := []CoverageFigures{f.Scanners, f.ClusterScanner}
	text.WriteString("|  | " + fmt.Sprint(f.Namespaces) + " Scanners | one ClusterScanner |\n|---|---|---|\n")
	for _, r := range []struct {
		name  string
		value func(CoverageFigures) string
	}{
		{"time until every image is scanned", func(c CoverageFigures) string { return seconds(c.Covered) }},
		{"time until all first messages are there", func(c CoverageFigures) string { return seconds(c.Announced) }},
		{"processor time of the manager until it rests", func(c CoverageFigures) string { return seconds(c.CPU) }},
		{"requests per pod", func(c CoverageFigures) string { return fmt.Sprintf("%.2f", per(c.Requests, f.Pods)) }},
		{"of these", func(c CoverageFigures) string { return perPod(c.Requests, f.Pods) }},
		{"resident memory before any Scanner", func(c CoverageFigures) string { return mebibytes(c.MemoryBefore) }},
		{"resident memory at its peak", func(c CoverageFigures) string { return mebibytes(c.MemoryPeak) }},
		{"resident memory when the manager rests", func(c CoverageFigures) string { return mebibytes(c.MemorySteady) }},
		{"ImageScans", func(c CoverageFigures) string { return fmt.Sprint(c.ImageScans) }},
		{"messages until then", func(c CoverageFigures) string { return fmt.Sprint(c.Messages) }},
		{"blocks of the longest", func(c CoverageFigures) string { return fmt.Sprint(c.Blocks) }},
	} {
		fmt.Fprintf(&text, "| %s | %s | %s |\n", r.name, r.value(both[0]), r.value(both[1]))
	}
	c := f.Changes
	fmt.Fprintf(&text, "\nThen namespaces leave the ClusterScanner and join it again: %d by a change of their label, one after the other, and %d together, "+
		"%d times, by changes of `spec.namespaceSelector` back and forth. Figures of labels are the median and the longest.\n\n| | |\n|---|---|\n",
		len(c.Leaves), f.PreviewNamespaces, selectorChanges)
	for _, row := range [][2]string{
		{"from a changed label until the ImageScans are gone", medianAndMost(c.Leaves)},
		{"from a changed label until they are there", medianAndMost(c.Joins)},
		{"from a changed label until they have their results", medianAndMost(c.Scanned)},
		{"a change of the selector, until it is effective and the status shows it, average", seconds(c.SelectorChanges / selectorChanges)},
		{"processor time of the manager for a change of the selector, average", seconds(c.SelectorCPU / selectorChanges)},
		{"messages because of all these changes", fmt.Sprint(c.Messages)},
		{"messages because of a new namespace after them", fmt.Sprint(c.MessagesOfNew)},
		{"resident memory after all, at its peak", mebibytes(c.MemorySteady) + ", " + mebibytes(c.MemoryPeak)},
	} {
		fmt.Fprintf(&text, "| %s | %s |\n", row[0], row[1])
	}
	return page.Section{Text: text.String(), Bounds: f.bounds()}
}

func medianAndMost(all []time.Duration) string {
	sorted := slices.Sorted(slices.Values(all))
	return fmt.Sprintf("%s, %s", seconds(sorted[len(sorted)/2]), seconds(sorted[len(sorted)-1]))
}

func (f ClusterFigures) bounds() []page.Bound {
	own, one, c := f.Scanners, f.ClusterScanner, f.Changes
	slowest := max(slices.Max(c.Leaves), slices.Max(c.Joins))
	return []page.Bound{
		{
			What: fmt.Sprintf("one first message of at most %d blocks for all namespaces, within Slack's limits: %d, of %d blocks", maxBlocks, one.Messages, one.Blocks),
			Kept: one.Messages == 1 && one.Blocks <= maxBlocks && one.Violations == 0,
		},
		{
			What: fmt.Sprintf("each Scanner's first messages are within Slack's limits: %d messages, %d violations", own.Messages, own.Violations),
			Kept: own.Violations == 0,
		},
		{
			What: fmt.Sprintf("the ClusterScanner's manager has at most the peak memory of that with Scanners: %s, %s", mebibytes(one.MemoryPeak), mebibytes(own.MemoryPeak)),
			Kept: one.MemoryPeak <= own.MemoryPeak,
		},
		{
			What: fmt.Sprintf("a changed label is effective within %s: %s", maxLabelChange, seconds(slowest)),
			Kept: slowest <= maxLabelChange,
		},
		{What: fmt.Sprintf("changes of labels and of the selector send nothing: %d messages", c.Messages), Kept: c.Messages == 0},
		{What: fmt.Sprintf("a new namespace is announced once: %d", c.MessagesOfNew), Kept: c.MessagesOfNew == 1},
	}
}
