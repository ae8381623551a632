package announce

import (
	"github.com/scanner-operator/scanner-operator/pkg/announce/evidence"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// This file decides how far the store's findings are evidence about a receiver's records. Package diff decides by it which change each finding is.

// changeFilter returns the filter for what is to be announced now.
func (s *State) changeFilter(settings Settings, coverage Coverage) store.ChangeFilter {
	filter := settings.Filter
	s.setEvidence(&filter, coverage.runningGaps())
	return filter
}

// idleFilter returns the filter for what is to be announced when all images that nothing runs now run again.
func (s *State) idleFilter(settings Settings, coverage Coverage) store.ChangeFilter {
	filter := settings.Filter
	filter.IncludeIdle = true
	s.setEvidence(&filter, coverage.Gaps())
	return filter
}

// setEvidence sets in which repositories the absence of a finding is evidence.
func (s *State) setEvidence(filter *store.ChangeFilter, gaps map[string]evidence.Gap) {
	filter.AbsentIsFixedIn = s.withoutEarlierEngine(repositoriesWith(gaps, evidence.NoGap, evidence.OSPackages))
	filter.OSPackagesUnknownIn = repositoriesWith(gaps, evidence.OSPackages)
}

// updateExtent returns which part of the receiver's records may be updated now, by the findings of an engine. Findings of an engine that the
// state does not follow yet are no evidence that a finding of the other engine is fixed. sent means that a message was sent since the coverage
// was listed: what runs may have changed since.
func (s *State) updateExtent(engine string, sent bool) store.UpdateExtent {
	switch {
	case s.Outbox != nil:
		return store.UpdateSuppressed
	case sent, s.Baseline.summarizesAll(), s.Engine != "" && engine != "" && engine != s.Engine:
		return store.UpdateKnown
	}
	return store.UpdateAll
}
