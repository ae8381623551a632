package store

import (
	"context"
	"database/sql"
	"time"
)

// suspectFor is how long a finding that went with suspicious data is missed. Whoever publishes vulnerability data mends a broken
// build within days; what has not come back in two weeks has gone for good.
const suspectFor = 14 * 24 * time.Hour

const (
	// selectLosses counts what has gone since a time and is not back, for each version of an engine's data. It holds whether or
	// not a later version has confirmed it: the next one is often as wrong.
	selectLosses = `SELECT f.gone_data_version, count(*) AS missing, min(f.gone_at)
		FROM findings f INDEXED BY findings_gone CROSS JOIN reports r ON r.id = f.report_id
		WHERE f.gone_at > ? AND f.gone_data_version <> '' AND r.engine = ?
		GROUP BY f.gone_data_version HAVING missing > ? ORDER BY missing DESC, f.gone_data_version LIMIT 1`

	sumPresent = `SELECT coalesce(sum(present), 0) FROM reports WHERE engine = ?`
)

// Suspicion implements Reports. It is about the version of the data with which most has gone.
func (s *SQLite) Suspicion(ctx context.Context, engine string) (suspicion *Suspicion, err error) {
	err = s.read(ctx, "look for lost findings of "+engine, func(ctx context.Context, q query) error {
		var worst Suspicion
		var since millis
		rows, err := q.QueryContext(ctx, selectLosses, millis{s.now().Add(-suspectFor)}, engine, SuspectNumber)
		losses, err := collect(rows, err, func(rows *sql.Rows) (struct{}, error) {
			return struct{}{}, rows.Scan(&worst.DataVersion, &worst.Missing, &since)
		})
		if err != nil || len(losses) == 0 {
			return err
		}
		if err := q.QueryRowContext(ctx, sumPresent, engine).Scan(&worst.Of); err != nil {
			return err
		}
		worst.Of += worst.Missing
		worst.Since = since.Time
		if float64(worst.Missing) > SuspectShare*float64(worst.Of) {
			suspicion = &worst
		}
		return nil
	})
	return suspicion, err
}
