// Package action groups findings by the update that ends them.
//
// An action is one package in one image repository and the version that fixes it, with the findings that it ends. It is the unit of
// messages, reports and the user interface: whoever acts does not handle a vulnerability, but updates a package.
//
// The package only computes. It compares versions for equality alone, because each ecosystem orders versions in its own way: a version
// ends a finding if the finding's own advisories name that version.
package action

import (
	"cmp"
	"slices"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// Action is the update of one package in one image repository. T is what the caller has of a finding.
type Action[T any] struct {
	Repository string
	// PackageName and PackageType identify the package. Two types may have packages of the same name.
	PackageName, PackageType string
	// Installed are the installed versions that have the findings, that of the worst finding first.
	Installed []string
	// FixVersions are the versions that each end all findings of the action, in the order of the worst finding's advisory. There is at
	// least one.
	FixVersions []string
	// Ends are the findings that the update ends, by finding.Worse. There is at least one. Counts counts them.
	Ends   []T
	Counts finding.Counts
}

// Group groups findings into actions, the most urgent first. Each finding is in exactly one action, or in noFix if no version is known
// that fixes it. noFix is ordered by finding.Worse, then by repository.
//
// Where findings of a package name different versions, the version that ends the most urgent set is chosen first, with all findings
// that name it, then the next for the others. The result does not depend on the order of found. of returns the repository and the finding
// of an element; the finding is not changed.
func Group[T any](found []T, of func(T) (repository string, f *finding.Finding)) (actions []Action[T], noFix []T) {
	byPackage := map[packageKey][]member[T]{}
	var without []member[T]
	for _, value := range found {
		repository, f := of(value)
		m := member[T]{value: value, repository: repository, finding: f, versions: versionsOf(f)}
		if len(m.versions) == 0 {
			without = append(without, m)
			continue
		}
		key := packageKey{repository, f.Package.Type, f.Package.Name}
		byPackage[key] = append(byPackage[key], m)
	}
	var groups []group[T]
	for _, members := range byPackage {
		slices.SortFunc(members, compareMembers)
		for len(members) > 0 {
			var g group[T]
			g, members = takeBest(members)
			groups = append(groups, g)
		}
	}
	slices.SortFunc(groups, func(a, b group[T]) int {
		return cmp.Or(Compare(a.counts, b.counts), compareMembers(a.members[0], b.members[0]))
	})
	for _, g := range groups {
		actions = append(actions, g.action())
	}
	slices.SortStableFunc(without, compareMembers)
	for _, m := range without {
		noFix = append(noFix, m.value)
	}
	return actions, noFix
}

// Update is the actions of one package in one repository. The version of each ends findings that those of the actions before it do not.
type Update[T any] struct {
	// Actions has at least one, the most urgent first.
	Actions []Action[T]
	// Counts counts what all of them end.
	Counts finding.Counts
}

// ByPackage combines the actions of each package in each repository, the most urgent update first. actions are ordered as by Group.
func ByPackage[T any](actions []Action[T]) []Update[T] {
	index := map[packageKey]int{}
	var updates []Update[T]
	for _, a := range actions {
		key := packageKey{a.Repository, a.PackageType, a.PackageName}
		i, found := index[key]
		if !found {
			i = len(updates)
			index[key] = i
			updates = append(updates, Update[T]{})
		}
		updates[i].Actions = append(updates[i].Actions, a)
		updates[i].Counts = updates[i].Counts.Plus(a.Counts)
	}
	slices.SortStableFunc(updates, func(a, b Update[T]) int { return Compare(a.Counts, b.Counts) })
	return updates
}

// Compare orders the counts of what actions end by urgency: known exploited findings first, then those of each severity, the worst first.
// The more of them, the more urgent. It returns a negative number if a is more urgent than b.
func Compare(a, b finding.Counts) int {
	order := cmp.Compare(b.KnownExploited, a.KnownExploited)
	for _, severity := range finding.Severities() {
		order = cmp.Or(order, cmp.Compare(b.Of(severity), a.Of(severity)))
	}
	return order
}

type packageKey struct{ repository, kind, name string }

// member is a finding while it is grouped.
type member[T any] struct {
	value      T
	repository string
	finding    *finding.Finding
	versions   []string
}

func compareMembers[T any](a, b member[T]) int {
	return cmp.Or(finding.Worse(*a.finding, *b.finding), cmp.Compare(a.repository, b.repository))
}

// versionsOf returns the distinct versions that fix a finding; none if it has no fix.
func versionsOf(f *finding.Finding) []string {
	if !f.Fixable() {
		return nil
	}
	var versions []string
	for _, version := range f.FixVersions {
		if version != "" && !slices.Contains(versions, version) {
			versions = append(versions, version)
		}
	}
	return versions
}

// group is the members that one version ends, sorted.
type group[T any] struct {
	members []member[T]
	counts  finding.Counts
}

// takeBest returns the group of the version that ends the most urgent set, and the members that this version does not end.
func takeBest[T any](members []member[T]) (best group[T], others []member[T]) {
	counts := map[string]*finding.Counts{}
	for _, m := range members {
		for _, version := range m.versions {
			if counts[version] == nil {
				counts[version] = &finding.Counts{}
			}
			counts[version].AddFinding(*m.finding)
		}
	}
	chosen, found := "", false
	for version, c := range counts {
		// Of versions that end equally much, the choice must not depend on the order of the map.
		if !found || cmp.Or(Compare(*c, *counts[chosen]), cmp.Compare(version, chosen)) < 0 {
			chosen, found = version, true
		}
	}
	best.counts = *counts[chosen]
	for _, m := range members {
		if slices.Contains(m.versions, chosen) {
			best.members = append(best.members, m)
		} else {
			others = append(others, m)
		}
	}
	return best, others
}

func (g group[T]) action() Action[T] {
	worst := g.members[0]
	a := Action[T]{
		Repository: worst.repository, PackageName: worst.finding.Package.Name, PackageType: worst.finding.Package.Type,
		FixVersions: slices.Clone(worst.versions), Counts: g.counts,
	}
	for _, m := range g.members {
		a.Ends = append(a.Ends, m.value)
		if version := m.finding.Package.Version; version != "" && !slices.Contains(a.Installed, version) {
			a.Installed = append(a.Installed, version)
		}
		a.FixVersions = slices.DeleteFunc(a.FixVersions, func(version string) bool { return !slices.Contains(m.versions, version) })
	}
	return a
}
