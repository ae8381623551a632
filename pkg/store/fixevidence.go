package store

import (
	"context"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// Evidence is what a report's data proves about findings that the report lacks. A version of the data that lacks a finding may be
// wrong, and the next version may be wrong too if it was built from the same sources. Only data that was made independently
// proves that the finding is fixed. The zero value treats any other version as independent.
type Evidence struct {
	// After is recorded with findings that are missing for the first time: data made after it is independent of this report's.
	After time.Time
	// Made is when the data was made. BySource is the same for each source of advisories, where sources are updated one by one. If
	// BySource is set, Made is ignored, and data of a source that is not in it proves nothing.
	Made     time.Time
	BySource map[string]time.Time
}

// dataTime returns when the data about a finding was made: with several sources, the time of the oldest.
func (e Evidence) dataTime(advisories []finding.Advisory) (made time.Time) {
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

// isFixed reports whether a report proves that a missing finding is fixed. The report must be made with another version of the
// data than the one that the finding disappeared with.
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
	return evidence.dataTime(advisories).After(k.fixedByDataAfter.Time), nil
}
