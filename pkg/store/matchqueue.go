package store

import (
	"context"
	"database/sql"
	"errors"
	"time"
)

// SetDataVersion implements MatchQueue.
func (s *SQLite) SetDataVersion(ctx context.Context, engine string, v DataVersion) error {
	return s.write(ctx, "set data version of "+engine, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `
			INSERT INTO data_versions (engine, version, built, tool, since) VALUES (?, ?, ?, ?, ?)
			ON CONFLICT (engine) DO UPDATE SET version = excluded.version, built = excluded.built, tool = excluded.tool,
				since = CASE WHEN version = excluded.version THEN since ELSE excluded.since END`,
			engine, v.Version, millis{v.Built}, v.Tool, millis{s.now()})
		return err
	})
}

// DataVersion implements MatchQueue.
func (s *SQLite) DataVersion(ctx context.Context, engine string) (v DataVersion, err error) {
	err = s.read(ctx, "look up data version of "+engine, func(ctx context.Context, q query) error {
		var built, since millis
		err := q.QueryRowContext(ctx, `SELECT version, built, tool, since FROM data_versions WHERE engine = ?`, engine).
			Scan(&v.Version, &built, &v.Tool, &since)
		v.Built, v.Since = built.Time, since.Time
		return orNotFound(err)
	})
	return v, err
}

// currentData is an engine's data version, ” as long as none is known.
const currentData = `coalesce((SELECT version FROM data_versions WHERE engine = ?), '')`

// queue is what is to be matched: manifests that a Scanner that is not suspended has with this engine, that are catalogued, and whose
// report is missing or made with other data than the engine's current data. As long as no data version is
// known, existing reports count as current. What has failed with the same data waits for its time, unless that was
// set by a clock that has been put back since.
const queue = queueTables + queueConditions

const queueTables = `
	FROM (SELECT DISTINCT manifest_id FROM scanner_images WHERE engine = @engine AND suspended = 0 AND manifest_id IS NOT NULL) used
	CROSS JOIN catalogues c ON c.manifest_id = used.manifest_id AND c.engine = @engine
	LEFT JOIN data_versions d ON d.engine = @engine
	LEFT JOIN reports r ON r.manifest_id = used.manifest_id AND r.engine = @engine`

const queueConditions = `
	WHERE (r.id IS NULL OR r.data_version <> d.version)
	AND NOT EXISTS (SELECT 1 FROM match_failures f
		WHERE f.manifest_id = used.manifest_id AND f.engine = @engine
		AND f.data_version = coalesce(d.version, '') AND f.retry_at > @now AND coalesce(f.failed_at, 0) <= @now)`

// selectQueue lists what nobody has leased, in the order in which it is lent, and whether it is suspected.
const selectQueue = `SELECT used.manifest_id, e.times IS NOT NULL AS suspected` + queueTables + `
	LEFT JOIN silent_ends e ON e.manifest_id = used.manifest_id AND e.engine = @engine
		AND e.data_version = coalesce(d.version, '')` + queueConditions + `
	AND NOT EXISTS (SELECT 1 FROM leases l
		WHERE l.manifest_id = used.manifest_id AND l.engine = @engine AND l.until > @now)
	ORDER BY suspected, r.id IS NOT NULL, r.matched_at, used.manifest_id LIMIT @limit`

// QueueLength implements MatchQueue.
func (s *SQLite) QueueLength(ctx context.Context, engine string) (n int, err error) {
	err = s.read(ctx, "count the match queue of "+engine, func(ctx context.Context, q query) error {
		return q.QueryRowContext(ctx, `SELECT count(*)`+queue,
			sql.Named("engine", engine), sql.Named("now", millis{s.now()})).Scan(&n)
	})
	return n, err
}

// LeaseMatches implements MatchQueue.
func (s *SQLite) LeaseMatches(ctx context.Context, engine, holder string, limit int, now, until time.Time) (leases []Lease, err error) {
	if limit <= 0 {
		return nil, nil
	}
	err = s.write(ctx, "lease matches of "+engine, func(ctx context.Context, tx *sql.Tx) error {
		manifests, err := nextInQueue(ctx, tx, engine, limit, now)
		if err != nil {
			return err
		}
		for _, manifest := range manifests {
			lease, err := insertLease(ctx, tx, manifest, engine, holder, until)
			if err != nil {
				return err
			}
			leases = append(leases, lease)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return leases, nil
}

// nextInQueue lists what is to be lent: what is not suspected, or else a single one that is.
func nextInQueue(ctx context.Context, tx *sql.Tx, engine string, limit int, now time.Time) ([]int64, error) {
	type queued struct {
		manifest  int64
		suspected bool
	}
	rows, err := tx.QueryContext(ctx, selectQueue,
		sql.Named("engine", engine), sql.Named("now", millis{now}), sql.Named("limit", limit))
	all, err := collect(rows, err, func(rows *sql.Rows) (q queued, err error) {
		err = rows.Scan(&q.manifest, &q.suspected)
		return q, err
	})
	var manifests []int64
	for _, q := range all {
		if q.suspected && len(manifests) > 0 {
			break
		}
		manifests = append(manifests, q.manifest)
		if q.suspected {
			break
		}
	}
	return manifests, err
}

// insertLease also takes the place of a lease that has run out.
func insertLease(ctx context.Context, tx *sql.Tx, manifest int64, engine, holder string, until time.Time) (Lease, error) {
	// As precise as the store, so that the lease reads the same later.
	lease := Lease{ID: randomID(), Holder: holder, Engine: engine, Until: time.UnixMilli(until.UnixMilli()).UTC()}
	if _, err := tx.ExecContext(ctx, `
		INSERT OR REPLACE INTO leases (id, manifest_id, engine, holder, until, data_version) VALUES (?, ?, ?, ?, ?, `+currentData+`)`,
		lease.ID, manifest, engine, holder, millis{until}, engine); err != nil {
		return Lease{}, err
	}
	err := tx.QueryRowContext(ctx, `SELECT platform_digest, scope FROM manifests WHERE id = ?`, manifest).
		Scan(&lease.PlatformDigest, &lease.Scope)
	return lease, err
}

// ReturnLeases implements MatchQueue.
func (s *SQLite) ReturnLeases(ctx context.Context, engine, holder string) error {
	return s.write(ctx, "return leases of "+engine, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `DELETE FROM leases WHERE engine = ? AND holder = ?`, engine, holder)
		return err
	})
}

// Lease implements MatchQueue.
func (s *SQLite) Lease(ctx context.Context, id, holder string, now time.Time) (Lease, error) {
	lease := Lease{ID: id, Holder: holder}
	err := s.read(ctx, "look up lease", func(ctx context.Context, q query) error {
		var until millis
		err := q.QueryRowContext(ctx, `
			SELECT m.platform_digest, m.scope, l.engine, l.until FROM leases l JOIN manifests m ON m.id = l.manifest_id
			WHERE l.id = ? AND l.holder = ? AND l.until > ?`, id, holder, millis{now}).
			Scan(&lease.PlatformDigest, &lease.Scope, &lease.Engine, &until)
		lease.Until = until.Time
		return orLeaseEnded(err)
	})
	if err != nil {
		return Lease{}, err
	}
	return lease, nil
}

func orLeaseEnded(err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return ErrLeaseEnded
	}
	return err
}

// FailMatch implements MatchQueue.
func (s *SQLite) FailMatch(ctx context.Context, id, holder string, f MatchFailure) error {
	return s.write(ctx, "fail match", func(ctx context.Context, tx *sql.Tx) error {
		var manifest int64
		var engine, dataVersion string
		err := tx.QueryRowContext(ctx, `
			DELETE FROM leases WHERE id = ? AND holder = ? AND until > ? RETURNING manifest_id, engine, data_version`,
			id, holder, millis{s.now()}).Scan(&manifest, &engine, &dataVersion)
		if err != nil {
			return orLeaseEnded(err)
		}
		if err := unsuspect(ctx, tx, manifest, engine); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `
			INSERT OR REPLACE INTO match_failures (manifest_id, engine, data_version, reason, message, failed_at, retry_at)
			VALUES (?, ?, ?, ?, ?, ?, ?)`,
			manifest, engine, dataVersion, f.Reason, f.Message, millis{f.FailedAt}, millis{f.RetryAt})
		return err
	})
}

// MatchFailure implements MatchQueue.
func (s *SQLite) MatchFailure(ctx context.Context, subject Subject) (f MatchFailure, err error) {
	err = s.read(ctx, "look up match failure of "+subject.PlatformDigest, func(ctx context.Context, q query) error {
		var failedAt, retryAt millis
		err := q.QueryRowContext(ctx, `
			SELECT f.reason, f.message, f.failed_at, f.retry_at
			FROM manifests m JOIN match_failures f ON f.manifest_id = m.id
			LEFT JOIN data_versions d ON d.engine = f.engine
			WHERE m.platform_digest = ? AND m.scope = ? AND f.engine = ? AND f.data_version = coalesce(d.version, '')`,
			subject.PlatformDigest, subject.Scope, subject.Engine).
			Scan(&f.Reason, &f.Message, &failedAt, &retryAt)
		f.FailedAt, f.RetryAt = failedAt.Time, retryAt.Time
		return orNotFound(err)
	})
	return f, err
}
