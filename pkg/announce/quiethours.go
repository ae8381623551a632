package announce

import (
	"slices"

	"github.com/scanner-operator/scanner-operator/pkg/announce/diff"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// This file holds messages back in the quiet hours of a receiver. Nothing is stored of what is held: it is what is not announced when the quiet
// hours end, or are no more. So nothing is lost by a restart, by a change of the settings or of the clock.

// isQuiet reports whether the receiver gets only what is urgent now.
func (p *planning) isQuiet() bool { return !p.quietUntil.IsZero() }

// isUrgent reports whether a change is announced in quiet hours.
func isUrgent(change store.FindingChange) bool {
	return change.Finding.KnownExploited && change.Change != diff.ChangeFixed
}

// holdBack leaves only the urgent ones of the pending changes. They may be more than those that were read, which include less urgent ones.
func (p *planning) holdBack() (err error) {
	p.newImages = nil
	if !p.loaded {
		return nil
	}
	filter := p.state.changeFilter(p.settings, p.coverage)
	filter.Route = p.routeWithoutHeld()
	p.pending, err = p.urgentChanges(filter, maxChanges)
	return err
}

// urgentChanges returns the urgent changes that were not announced and pass a filter, at most limit.
func (p *planning) urgentChanges(filter store.ChangeFilter, limit int) ([]store.FindingChange, error) {
	filter.OnlyKnownExploited = true
	if filter.Changes != nil {
		filter.Changes = slices.DeleteFunc(slices.Clone(filter.Changes), func(c diff.Change) bool { return c == diff.ChangeFixed })
	}
	changes, _, err := p.store.PendingChanges(p.ctx, p.scanner, p.settings.Receiver, filter, limit)
	return slices.DeleteFunc(changes, func(c store.FindingChange) bool { return !isUrgent(c) }), err
}
