package announce

import (
	"slices"
	"strings"

	"github.com/scanner-operator/scanner-operator/pkg/action"
	"github.com/scanner-operator/scanner-operator/pkg/announce/diff"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/workerapi/text"
)

// Bounds of an action in a message.
const (
	// maxActions bounds the actions of a section: as many as it lists findings.
	maxActions          = maxItems
	maxFirstTimeActions = 3
	maxSummaryActions   = 5
	maxActionWorkloads  = 3
	maxVersions         = 3
	maxFixes            = 2
)

// newActions returns the updates that end some findings, at most limit, and the findings of each. more is the number of further updates.
// noFix are the findings without a fix, worst first.
func newActions(found []store.FindingChange, limit int) (actions []UpdateAction, ends [][]store.FindingChange, more int, noFix []store.FindingChange) {
	grouped, noFix := action.Group(found, store.FindingChange.Located)
	updates := action.ByPackage(grouped)
	more = max(0, len(updates)-limit)
	for _, u := range updates[:len(updates)-more] {
		a, members := newAction(u)
		actions, ends = append(actions, a), append(ends, members)
	}
	return actions, ends, more, noFix
}

// newAction returns one update, and the findings that it ends, worst first.
func newAction(u action.Update[store.FindingChange]) (UpdateAction, []store.FindingChange) {
	a := describeAction(u)
	var ends []store.FindingChange
	for _, part := range u.Actions {
		ends = append(ends, part.Ends...)
	}
	slices.SortStableFunc(ends, compareUrgency)
	a.Workloads, a.MoreWorkloads, a.WorkloadNamespaces = workloadsOf(ends, maxActionWorkloads)
	a.References = referencesOf(ends)
	return a, ends
}

// describeAction returns an update without its workloads and tags.
func describeAction[T any](u action.Update[T]) UpdateAction {
	first := u.Actions[0]
	a := UpdateAction{
		Repository: text.Truncate(first.Repository, maxText), Package: text.Truncate(first.PackageName, maxText), Ends: u.Counts,
	}
	var installed []string
	for i, part := range u.Actions {
		for _, version := range part.Installed {
			if !slices.Contains(installed, version) {
				installed = append(installed, version)
			}
		}
		if i < maxFixes {
			a.Fixes = append(a.Fixes, Fix{Version: text.Truncate(strings.Join(part.FixVersions, fixSeparator), maxText), Findings: len(part.Ends)})
		}
	}
	for _, version := range installed[:min(len(installed), maxVersions)] {
		a.Versions = append(a.Versions, text.Truncate(version, maxText))
	}
	a.MoreVersions = len(installed) - len(a.Versions)
	return a
}

// fixSeparator joins versions that each fix a finding.
const fixSeparator = ", "

// listItems selects findings of several groups, at most limit: the worst of each group, then the next of each, and so on. It returns how
// many of each group are selected.
func listItems[T any](groups [][]T, limit int) []int {
	listed := make([]int, len(groups))
	for added := true; added; {
		added = false
		for i, group := range groups {
			if limit > 0 && listed[i] < len(group) {
				listed[i]++
				limit--
				added = true
			}
		}
	}
	return listed
}

// WithActions returns the message with Actions in each section. In a message of an earlier version, which has none, it groups the items; Ends
// then counts the items only.
func (m Message) WithActions() Message {
	m.Sections = slices.Clone(m.Sections)
	for i, s := range m.Sections {
		if len(s.Actions) == 0 {
			actions, items := groupItems(s.Items, s.Repository)
			for j := range actions {
				actions[j].References, actions[j].Workloads = s.References, s.Workloads
				actions[j].MoreWorkloads, actions[j].WorkloadNamespaces = s.MoreWorkloads, s.WorkloadNamespaces
			}
			m.Sections[i].Actions, m.Sections[i].Items = actions, items
		}
	}
	if len(m.Actions) == 0 {
		m.Actions, m.Worst = groupItems(m.Worst, "")
	}
	return m
}

// groupItems returns the updates that end some items, and the items in their order. Items of a summary name their repository.
func groupItems(items []Item, repository string) (actions []UpdateAction, ordered []Item) {
	fixed, present := partition(items, func(i Item) bool { return i.Change == diff.ChangeFixed })
	grouped, noFix := action.Group(present, func(i Item) (string, *finding.Finding) {
		f := &finding.Finding{
			ID: i.ID, Severity: i.Severity, KnownExploited: i.KnownExploited, EPSS: i.EPSS, Package: finding.Package{Name: i.Package, Version: i.Version},
		}
		if i.FixedIn != "" {
			f.FixState, f.FixVersions = finding.FixStateFixed, strings.Split(i.FixedIn, fixSeparator)
		}
		if i.Repository != "" {
			return i.Repository, f
		}
		return repository, f
	})
	for _, u := range action.ByPackage(grouped) {
		a := describeAction(u)
		for _, part := range u.Actions {
			a.Items += len(part.Ends)
			ordered = append(ordered, part.Ends...)
		}
		actions = append(actions, a)
	}
	return actions, slices.Concat(ordered, noFix, fixed)
}

// partition returns the values for which is holds and the others, each in their order.
func partition[T any](values []T, is func(T) bool) (yes, no []T) {
	for _, v := range values {
		if is(v) {
			yes = append(yes, v)
		} else {
			no = append(no, v)
		}
	}
	return yes, no
}
