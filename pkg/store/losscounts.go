package store

import (
	"context"
	"database/sql"
	"time"
)

// lossDay identifies the findings that disappeared with one version of the data on one day, in days since 1970-01-01 UTC.
type lossDay struct {
	version string
	day     int64
}

const dayMillis = 24 * 60 * 60 * 1000

func dayOf(t time.Time) int64 { return t.UnixMilli() / dayMillis }

// lossChange is how one report changes the counts.
type lossChange struct {
	engine  string
	scope   Scope
	at      time.Time
	present int
	missing map[lossDay]int // not nil
}

func newLossChange(r Report, at time.Time) *lossChange {
	return &lossChange{engine: r.Engine, scope: r.Scope, at: at, missing: make(map[lossDay]int)}
}

// count adds n missing findings. Findings that disappeared with an unknown version of the data do not count against any version.
func (d lossChange) count(went lossDay, n int) {
	if went.version != "" {
		d.missing[went] += n
	}
}

const addLosses = `
	INSERT INTO loss_counts (engine, scope, data_version, day, missing, since)
	SELECT @engine, @scope, r.version, r.day, r.missing, @at FROM records(@rows, version text, day bigint, missing bigint) r WHERE true
	ON CONFLICT (engine, scope, data_version, day) DO UPDATE SET missing = loss_counts.missing + excluded.missing`

// save writes the changes. It writes nothing if there are none.
func (d lossChange) save(ctx context.Context, tx *session) error {
	if d.present != 0 {
		if _, err := tx.ExecContext(ctx, `
			INSERT INTO present_counts (engine, scope, present) VALUES (?, ?, ?)
			ON CONFLICT (engine, scope) DO UPDATE SET present = present_counts.present + excluded.present`, d.engine, d.scope, d.present); err != nil {
			return err
		}
	}
	days := make([][]any, 0, len(d.missing))
	for day, n := range d.missing {
		days = append(days, []any{day.version, day.day, n})
	}
	err := tx.execRows(ctx, addLosses, days, sql.Named("engine", d.engine), sql.Named("scope", d.scope), sql.Named("at", millis{d.at}))
	if err != nil {
		return err
	}
	if len(d.missing) == 0 {
		return nil
	}
	_, err = tx.ExecContext(ctx, `DELETE FROM loss_counts WHERE engine = ? AND scope = ? AND missing <= 0`, d.engine, d.scope)
	return err
}

// These statements subtract the reports of some manifests from the counts. The parameter is a JSON list of manifest row IDs.
const (
	withoutPresent = `
		UPDATE present_counts SET present = present_counts.present - d.present FROM (
			SELECT r.engine, m.scope, sum(r.present) AS present
			FROM ids(?) j ORDERED JOIN manifests m ON m.id = j.value ORDERED JOIN reports r ON r.manifest_id = m.id
			GROUP BY r.engine, m.scope) AS d
		WHERE present_counts.engine = d.engine AND present_counts.scope = d.scope`
	withoutLosses = `
		UPDATE loss_counts SET missing = loss_counts.missing - d.missing FROM (
			SELECT r.engine, m.scope, f.gone_data_version, whole(f.gone_at, 86400000) AS day, count(*) AS missing
			FROM ids(?) j ORDERED JOIN manifests m ON m.id = j.value ORDERED JOIN reports r ON r.manifest_id = m.id
			ORDERED JOIN findings f ON f.report_id = r.id
			WHERE f.gone_at IS NOT NULL AND f.gone_data_version <> ''
			GROUP BY r.engine, m.scope, f.gone_data_version, whole(f.gone_at, 86400000)) AS d
		WHERE loss_counts.engine = d.engine AND loss_counts.scope = d.scope AND loss_counts.data_version = d.gone_data_version AND loss_counts.day = d.day`
)

// deleteManifests deletes manifests (a JSON list of row IDs) with everything that belongs to them.
func deleteManifests(ctx context.Context, tx *session, ids string) error {
	for _, statement := range []string{
		withoutPresent, withoutLosses, `DELETE FROM manifests WHERE id IN (SELECT value FROM ids(?) i)`,
	} {
		if _, err := tx.ExecContext(ctx, statement, ids); err != nil {
			return err
		}
	}
	return nil
}

// sweepLosses deletes counts that are zero or older than the quarantine.
func (s *Store) sweepLosses(ctx context.Context) error {
	return s.write(ctx, "sweep counts of lost findings", func(ctx context.Context, tx *session) error {
		if _, err := tx.ExecContext(ctx, `DELETE FROM loss_counts WHERE missing <= 0 OR since < ?`, millis{s.now().Add(-quarantine)}); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `DELETE FROM present_counts WHERE present <= 0`)
		return err
	})
}
