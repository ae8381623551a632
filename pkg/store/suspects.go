package store

import (
	"context"
	"database/sql"
	"time"
)

// suspectRetry is when an image whose workers died is tried again: it may have been given more memory meanwhile.
const suspectRetry = time.Hour

const countSilentEnds = `
	INSERT INTO silent_ends (manifest_id, engine, data_version, times)
	SELECT manifest_id, engine, data_version, 1 FROM leases WHERE until > ? AND holder IN (SELECT uid FROM jobs WHERE `

const diedMessage = `'The match worker ended ' || e.times || ' times while it matched this image, most likely for lack of memory. ` +
	`Raise ' || e.engine || '.match.resources in the operator''s configuration.'`

// failSuspects is for the same leases: INSERT OR REPLACE, since the failure before, if any, is an older one.
const failSuspects = `
	INSERT OR REPLACE INTO match_failures (manifest_id, engine, data_version, reason, message, failed_at, retry_at)
	SELECT e.manifest_id, e.engine, e.data_version, ?, ` + diedMessage + `, ?, ?
	FROM leases l CROSS JOIN silent_ends e ON e.manifest_id = l.manifest_id AND e.engine = l.engine
	WHERE e.times >= ? AND l.until > ? AND l.holder IN (SELECT uid FROM jobs WHERE `

// suspect counts the leases that Jobs hold at their end, and fails the images that were counted too often. A
// lease that ran out says nothing about its image: its worker may have been slow, or long gone.
func suspect(ctx context.Context, tx *sql.Tx, now time.Time, jobs string, args ...any) error {
	const orCountOn = `) ON CONFLICT (manifest_id, engine) DO UPDATE SET data_version = excluded.data_version,
		times = CASE WHEN data_version = excluded.data_version THEN times + 1 ELSE 1 END`
	_, err := tx.ExecContext(ctx, countSilentEnds+jobs+orCountOn, append([]any{millis{now}}, args...)...)
	if err != nil {
		return err
	}
	failure := []any{ReasonMatchWorkerDied, millis{now}, millis{now.Add(suspectRetry)}, MaxSilentEnds, millis{now}}
	_, err = tx.ExecContext(ctx, failSuspects+jobs+`)`, append(failure, args...)...)
	return err
}

// unsuspect is for images of which a worker has told something.
func unsuspect(ctx context.Context, tx *sql.Tx, manifest int64, engine string) error {
	_, err := tx.ExecContext(ctx, `DELETE FROM silent_ends WHERE manifest_id = ? AND engine = ?`, manifest, engine)
	return err
}
