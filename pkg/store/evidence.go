package store

import (
	"context"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// Evidence says what a report's data proves about findings that are missing. One version of the data that lacks a finding may be a
// mistake, and so may be the next one that was made of the same: only data that is made independently proves that the finding is
// fixed. The zero value takes any other version for independent.
type Evidence struct {
	// After dates what is missing for the first time: data that was made later is independent of this report's.
	After time.Time
	// Made is when the data was made. BySource is the same for each source of advisories, where sources are updated one by one: then
	// Made does not count, and data of a source that is not in it proves nothing.
	Made     time.Time
	BySource map[string]time.Time
}

// made is when the data about a finding was made: of several sources, when the oldest was.
func (e Evidence) made(advisories []finding.Advisory) (made time.Time) {
	if e.BySource == nil {
		return e.Made
	}
	for n, advisory := range advisories {
		if of := e.BySource[advisory.Source]; n == 0 || of.Before(made) {
			made = of
		}
	}
	return made
}

// isFixed says whether the evidence of a report, which is made with another version of the data, proves that a finding is fixed
// that was missing before.
func (w *findingWriter) isFixed(ctx context.Context, k *knownFinding, evidence Evidence) (bool, error) {
	if k.fixedByDataAfter.IsZero() {
		return true, nil
	}
	var advisories list[finding.Advisory]
	if evidence.BySource != nil {
		if err := w.advisories.QueryRowContext(ctx, k.id).Scan(&advisories); err != nil {
			return false, err
		}
	}
	return evidence.made(advisories).After(k.fixedByDataAfter.Time), nil
}
