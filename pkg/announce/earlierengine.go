package announce

import (
	"slices"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// keepRecords ends the baseline of another engine for a receiver that gets all findings as changes. The records of each repository stay as they
// are until deleteAbsent finds that the repository has all results by the present engine.
func (p *planning) keepRecords() error {
	b := &p.state.Baseline
	if p.settings.FirstScan != FirstScanAll || b.EngineBefore == "" {
		return nil
	}
	recorded, err := p.store.RecordedRepositories(p.ctx, p.scanner, p.settings.Receiver)
	if err != nil {
		return err
	}
	latest, err := p.store.LatestRecord(p.ctx, p.scanner, p.settings.Receiver)
	if err != nil {
		return err
	}
	// All records so far are of the earlier engine, also those that were made before the clock was set back.
	p.state.EarlierEngine, p.state.EarlierEngineUntil = recorded, later(p.now, latest)
	b.ToolBefore = "" // of the earlier engine
	b.revertEngine(p.now)
	return nil
}

// forgetEarlierEngine clears State.EarlierEngine when a baseline of another engine replaces the records of all repositories.
func (p *planning) forgetEarlierEngine() {
	if p.state.Baseline.EngineBefore != "" {
		p.state.EarlierEngine, p.state.EarlierEngineUntil = nil, time.Time{}
	}
}

// deleteAbsent deletes the records of what only an earlier engine found and announced, in each repository that has all results by the present engine. Without
// that, they would be announced as fixed, and as back after a return to the earlier engine. Repositories without a record any more are left out.
func (p *planning) deleteAbsent() (*Action, error) {
	if len(p.state.EarlierEngine) == 0 {
		return nil, nil
	}
	recorded, err := p.store.RecordedRepositories(p.ctx, p.scanner, p.settings.Receiver)
	if err != nil {
		return nil, err
	}
	complete, routed := p.coverage.runningCompleteRepositories(), p.coverage.routedRepositories(p.settings.Filter.Route)
	var settled, left []string
	for _, repository := range p.state.EarlierEngine {
		switch {
		case !slices.Contains(recorded, repository):
		case routed[repository] && slices.Contains(complete, repository):
			settled = append(settled, repository)
		default:
			left = append(left, repository)
		}
	}
	p.state.EarlierEngine = left
	if len(settled) == 0 {
		return nil, nil
	}
	return &Action{Mark: &store.Announcement{At: p.now, DeleteAbsent: &store.AbsentFindings{
		Filter: p.settings.Filter, Repositories: settled, Until: p.state.EarlierEngineUntil,
	}}}, nil
}

// replaceEngine finishes the baseline of another engine, which deletes the records of the earlier one. It is the only baseline that makes room.
func (p *planning) replaceEngine() (*Action, error) {
	if p.state.Baseline.EngineBefore == "" {
		return nil, nil
	}
	return p.finishBaseline()
}

// withoutEarlierEngine returns the repositories without those in EarlierEngine: that Engine does not find what an earlier engine has found is
// no evidence of a fix.
func (s *State) withoutEarlierEngine(repositories []string) []string {
	return slices.DeleteFunc(slices.Clone(repositories), func(repository string) bool {
		_, found := slices.BinarySearch(s.EarlierEngine, repository)
		return found
	})
}
