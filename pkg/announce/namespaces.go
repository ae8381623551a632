package announce

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/action"
	"github.com/scanner-operator/scanner-operator/pkg/announce/diff"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// Bounds of what a message names of namespaces.
const (
	maxNamespaces       = 5
	maxNamespaceActions = 3
	// MaxOnlyNamespaces bounds Message.OnlyNamespaces.
	MaxOnlyNamespaces = 3
)

// This file is about the namespaces of a ClusterScanner. A namespace that joins after the baseline has its own baseline: its findings wait until
// its images have results, and are then one section of a message. A namespace that leaves is forgotten here. What was announced of it stays
// recorded in the store, so that its return announces only what is new.

// scannerKind returns Message.ScannerKind.
func (s Settings) scannerKind() string {
	if s.Namespace == "" {
		return ClusterScannerKind
	}
	return ""
}

// holdJoining forgets the namespaces that left, and decides which of those that join are held: nothing about them is read until their images
// have results. A namespace without images stays held, since the first findings of a new namespace come after it.
func (p *planning) holdJoining() (*Action, error) {
	covered := make(map[string]bool, len(p.coverage.Namespaces))
	for _, namespace := range p.coverage.Namespaces {
		covered[namespace.Name] = true
	}
	left := func(name string) bool { return !covered[name] }
	p.state.Namespaces = slices.DeleteFunc(slices.Clone(p.state.Namespaces), left)
	joining := map[string]time.Time{}
	p.held = map[string]bool{}
	for _, namespace := range p.coverage.Namespaces {
		if _, known := slices.BinarySearch(p.state.Namespaces, namespace.Name); known {
			continue
		}
		since := p.state.Joining[namespace.Name]
		switch {
		case namespace.Empty:
			since = time.Time{} // its time begins with its first image
		case since.IsZero():
			since = p.now
		}
		joining[namespace.Name] = since
		until := since.Add(p.settings.GroupWait)
		if !namespace.Complete {
			until = later(until, since.Add(baselineTimeout))
		}
		switch {
		case namespace.Empty:
			p.held[namespace.Name] = true
		case p.now.Before(until):
			p.held[namespace.Name] = true
			p.joinsUntil = earliestSet(p.joinsUntil, until)
		}
	}
	p.state.Joining = joining
	if len(joining) == 0 {
		p.state.Joining = nil
	}
	return nil, nil
}

// finishJoining makes joining namespaces known that are not held and have no new finding to announce. The others become known when the message about
// them is delivered.
func (p *planning) finishJoining() (*Action, error) {
	waiting := map[string]bool{}
	for _, n := range p.pending {
		for _, name := range p.joiningNamespaces(n) {
			waiting[name] = true
		}
	}
	var complete []string
	for name := range p.state.Joining {
		if !p.held[name] && !waiting[name] && !p.truncated {
			complete = append(complete, name)
		}
	}
	if len(complete) > 0 {
		p.state.know(complete...)
	}
	return nil, nil
}

// routeWithoutHeld returns the receiver's route without the namespaces that are held. What runs there does not take the room of the others.
func (p *planning) routeWithoutHeld() *store.Route {
	all := p.settings.Filter.Route
	if len(p.held) == 0 {
		return all
	}
	route := store.Route{All: true}
	if all != nil {
		route = *all
	}
	route.Namespaces = map[string]bool{}
	for _, namespace := range p.coverage.Namespaces {
		if !p.held[namespace.Name] && (all == nil || all.Namespaces == nil || all.Namespaces[namespace.Name]) {
			route.Namespaces[namespace.Name] = true
		}
	}
	return &route
}

// heldRepositories returns the repositories that run in a namespace that is held.
func (p *planning) heldRepositories() map[string]bool {
	repositories := map[string]bool{}
	for _, img := range p.coverage.Images {
		if slices.ContainsFunc(img.Namespaces, func(name string) bool { return p.held[name] }) {
			for _, repository := range img.Repositories {
				repositories[repository] = true
			}
		}
	}
	return repositories
}

// know makes namespaces known to the receiver.
func (s *State) know(names ...string) {
	s.Joining = maps.Clone(s.Joining)
	for _, name := range names {
		delete(s.Joining, name)
	}
	if len(s.Joining) == 0 {
		s.Joining = nil
	}
	all := slices.Concat(s.Namespaces, names)
	slices.Sort(all)
	s.Namespaces = slices.Compact(all)
}

// knowAllNamespaces makes all covered namespaces with images known: they are part of the baseline, or each finding is announced by itself.
func (p *planning) knowAllNamespaces() {
	var names []string
	for _, namespace := range p.coverage.Namespaces {
		if !namespace.Empty {
			names = append(names, namespace.Name)
		}
	}
	p.state.Namespaces, p.state.Joining = nil, nil
	p.state.know(names...)
}

// joiningNamespaces returns the namespaces with a new finding, sorted, if all of them are joining; else nil. Other changes are of findings that
// were announced before, when a namespace that rejoins was covered: they are not part of its first scan.
func (p *planning) joiningNamespaces(n store.FindingChange) (names []string) {
	if n.Change != diff.ChangeNew {
		return nil
	}
	for _, w := range n.Workloads {
		if _, joining := p.state.Joining[w.Namespace]; !joining {
			return nil
		}
		names = append(names, w.Namespace)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// joinedNamespace is a joining namespace with its new findings, the most urgent first. Their workloads are those of the namespace.
type joinedNamespace struct {
	name    string
	pending []store.FindingChange
}

// splitByNamespace separates the new findings of each joining namespace, the namespace with the most urgent finding first, from all other changes. A
// finding of an image that several of them run is in each. In quiet hours it separates none: the urgent findings are not the first scan of a
// namespace, which is announced when the quiet hours end.
func (p *planning) splitByNamespace(pending []store.FindingChange) (joined []joinedNamespace, others []store.FindingChange) {
	if len(p.state.Joining) == 0 || p.isQuiet() {
		return nil, pending
	}
	index := map[string]int{}
	for _, n := range slices.SortedFunc(slices.Values(pending), compareUrgency) {
		names := p.joiningNamespaces(n)
		if len(names) == 0 {
			others = append(others, n)
		}
		for _, name := range names {
			i, found := index[name]
			if !found {
				i = len(joined)
				index[name], joined = i, append(joined, joinedNamespace{name: name})
			}
			joined[i].pending = append(joined[i].pending, inNamespace(n, name))
		}
	}
	return joined, others
}

// inNamespace returns a change with only the workloads of one namespace.
func inNamespace(n store.FindingChange, namespace string) store.FindingChange {
	n.Workloads = slices.DeleteFunc(slices.Clone(n.Workloads), func(w store.Workload) bool { return w.Namespace != namespace })
	return n
}

// addJoined adds the summaries of joining namespaces, and counts those that exceed the bound. It returns the names of all of them.
func (m *Message) addJoined(joined []joinedNamespace) (names []string) {
	for i, of := range joined {
		names = append(names, of.name)
		if i < maxNamespaces {
			summary := NamespaceSummary{Namespace: of.name, Totals: countUnfixed(of.pending), Images: len(byRepository(of.pending))}
			summary.Actions, _, _, _ = newActions(of.pending, maxNamespaceActions)
			m.JoinedNamespaces = append(m.JoinedNamespaces, summary)
		}
	}
	m.MoreJoinedNamespaces = len(joined) - len(m.JoinedNamespaces)
	return names
}

// addNamespaces adds to a summary the namespaces with the most urgent findings.
func (m *Message) addNamespaces(present store.Present) {
	names := slices.SortedFunc(maps.Keys(present.Namespaces), func(a, b string) int {
		return cmp.Or(action.Compare(present.Namespaces[a].Counts, present.Namespaces[b].Counts), cmp.Compare(a, b))
	})
	for _, name := range names[:min(len(names), maxNamespaces)] {
		of := present.Namespaces[name]
		summary := NamespaceSummary{Namespace: name, Totals: of.Counts, Images: of.Repositories}
		summary.Actions, _, _, _ = newActions(urgentIn(name, present), maxNamespaceActions)
		m.Namespaces = append(m.Namespaces, summary)
	}
	m.MoreNamespaces = len(names) - len(m.Namespaces)
}

// urgentIn returns the findings that the most urgent updates end in one namespace.
func urgentIn(namespace string, present store.Present) (found []store.FindingChange) {
	for _, update := range present.Updates {
		for _, part := range update.Actions {
			for _, n := range part.Ends {
				if n = inNamespace(n, namespace); len(n.Workloads) > 0 {
					found = append(found, n)
				}
			}
		}
	}
	return found
}
