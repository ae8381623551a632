package store

import (
	"context"
	"database/sql"
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

// dataTime returns when the data about a finding was made, where sources are updated one by one: the time of the oldest.
func (e Evidence) dataTime(advisories []finding.Advisory) (made time.Time) {
	for n, advisory := range advisories {
		if of := e.BySource[advisory.Source]; n == 0 || of.Before(made) {
			made = of
		}
	}
	return made
}

// confirmFixed returns the row IDs of those findings that a report proves to be fixed. The report must be made with another version of the
// data than the one that each finding disappeared with.
func confirmFixed(ctx context.Context, q query, missing []*knownFinding, evidence Evidence) (fixed []int64, err error) {
	var dated []int64 // findings that only data made after a time proves to be fixed
	after := make(map[int64]time.Time)
	for _, k := range missing {
		switch {
		case k.fixedByDataAfter.IsZero():
			fixed = append(fixed, k.id)
		case evidence.BySource != nil:
			dated = append(dated, k.id)
			after[k.id] = k.fixedByDataAfter.Time
		case evidence.Made.After(k.fixedByDataAfter.Time):
			fixed = append(fixed, k.id)
		}
	}
	if len(dated) == 0 {
		return fixed, nil
	}
	err = eachRow(ctx, q, `SELECT id, advisories FROM findings WHERE id IN (SELECT value FROM ids(?) i)`, []any{jsonArray(dated)}, func(rows *sql.Rows) error {
		var id int64
		var advisories list[finding.Advisory]
		if err := rows.Scan(&id, &advisories); err != nil {
			return err
		}
		if evidence.dataTime(advisories).After(after[id]) {
			fixed = append(fixed, id)
		}
		return nil
	})
	return fixed, err
}
