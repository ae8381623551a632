package announce

import (
	"slices"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// keepRecords ends the baseline of another engine for a receiver that gets all findings as changes. The records of each repository stay as they
// are until deleteAbsent finds that the repository has all results by the present engine.
func (l *planning) keepRecords() error {
	b := &l.state.Baseline
	if l.settings.FirstScan != FirstScanAll || b.EngineBefore == "" {
		return nil
	}
	recorded, err := l.store.RecordedRepositories(l.ctx, l.scanner, l.settings.Receiver)
	if err != nil {
		return err
	}
	latest, err := l.store.LatestRecord(l.ctx, l.scanner, l.settings.Receiver)
	if err != nil {
		return err
	}
	// All records so far are of the earlier engine, also those that were made before the clock was set back.
	l.state.EarlierEngine, l.state.EarlierEngineUntil = recorded, later(l.now, latest)
	b.ToolBefore = "" // of the earlier engine
	b.revertEngine(l.now)
	return nil
}

// forgetEarlierEngine clears State.EarlierEngine when a baseline of another engine replaces the records of all repositories.
func (l *planning) forgetEarlierEngine() {
	if l.state.Baseline.EngineBefore != "" {
		l.state.EarlierEngine, l.state.EarlierEngineUntil = nil, time.Time{}
	}
}

// deleteAbsent deletes the records of what only an earlier engine found and announced, in each repository that has all results by the present engine. Without
// that, they would be announced as fixed, and as back after a return to the earlier engine. Repositories without a record any more are left out.
func (l *planning) deleteAbsent() (*Action, error) {
	if len(l.state.EarlierEngine) == 0 {
		return nil, nil
	}
	recorded, err := l.store.RecordedRepositories(l.ctx, l.scanner, l.settings.Receiver)
	if err != nil {
		return nil, err
	}
	complete, routed := l.coverage.runningCompleteRepositories(), l.coverage.routedRepositories(l.settings.Filter.Route)
	var settled, left []string
	for _, repository := range l.state.EarlierEngine {
		switch {
		case !slices.Contains(recorded, repository):
		case routed[repository] && slices.Contains(complete, repository):
			settled = append(settled, repository)
		default:
			left = append(left, repository)
		}
	}
	l.state.EarlierEngine = left
	if len(settled) == 0 {
		return nil, nil
	}
	return &Action{Mark: &store.Announcement{At: l.now, DeleteAbsent: &store.AbsentFindings{
		Filter: l.settings.Filter, Repositories: settled, Until: l.state.EarlierEngineUntil,
	}}}, nil
}

// replaceEngine finishes the baseline of another engine, which deletes the records of the earlier one. It is the only baseline that makes room.
func (l *planning) replaceEngine() (*Action, error) {
	if l.state.Baseline.EngineBefore == "" {
		return nil, nil
	}
	return l.finishBaseline()
}

// withoutEarlierEngine returns the repositories without those in EarlierEngine: that Engine does not find what an earlier engine has found is
// no evidence of a fix.
func (s *State) withoutEarlierEngine(repositories []string) []string {
	return slices.DeleteFunc(slices.Clone(repositories), func(repository string) bool {
		_, found := slices.BinarySearch(s.EarlierEngine, repository)
		return found
	})
}
