package store

import (
	"context"
	"time"
)

// MaxSilentEnds is how often in a row an image's lease may expire, or end with its Job, before the match counts as failed.
const MaxSilentEnds = 3

// Reasons of a MatchFailure that the store itself sets.
const (
	// ReasonMatchWorkerDied is the reason for an image whose match workers die.
	ReasonMatchWorkerDied = "MatchWorkerDied"
	// ReasonMatchTimedOut is the reason for an image whose leases expire.
	ReasonMatchTimedOut = "MatchTimedOut"
)

// silentEndRetry is the delay until the next try of an image whose workers died or timed out: by then it may have been given more
// memory.
const silentEndRetry = time.Hour

// countSilentEnds counts the leases that the condition appended to it selects. Leases that no Job held, such as the manager's
// own, do not count.
const countSilentEnds = `
	INSERT INTO silent_ends (manifest_id, engine, data_version, times)
	SELECT manifest_id, engine, data_version, 1 FROM leases WHERE holder IN (SELECT uid FROM jobs) AND `

const incrementSilentEnds = ` ON CONFLICT (manifest_id, engine) DO UPDATE SET
	times = CASE WHEN silent_ends.data_version = excluded.data_version THEN silent_ends.times + 1 ELSE 1 END, data_version = excluded.data_version`

const diedMessage = `'The match worker ended ' || e.times || ' times while it matched this image, most likely for lack of memory. ` +
	`Raise ' || e.engine || '.match.resources in the operator''s configuration.'`

const expiredMessage = `'Matching this image brought no result ' || e.times || ' times in a row: the lease ran out. ` +
	`If match workers are that slow, raise ' || e.engine || '.match.deadline or .match.resources in the operator''s configuration.'`

// failSilentEnds is for the same leases. It replaces the failure of an image, since an existing one is older.
const (
	failSilentEnds = `
	INSERT INTO match_failures (manifest_id, engine, data_version, reason, message, failed_at, retry_at)
	SELECT e.manifest_id, e.engine, e.data_version, ?, `
	ofSilentEnds = `, ?, ?
	FROM leases JOIN silent_ends e ON e.manifest_id = leases.manifest_id AND e.engine = leases.engine AND e.data_version = leases.data_version
	WHERE e.times >= ? AND leases.holder IN (SELECT uid FROM jobs) AND `
)

// recordSilentEnds counts leases that ended without a report or failure, and fails the images that were counted MaxSilentEnds times in a
// row.
func recordSilentEnds(ctx context.Context, tx *session, now time.Time, reason, message, leases string, args ...any) error {
	if _, err := tx.ExecContext(ctx, countSilentEnds+leases+incrementSilentEnds, args...); err != nil {
		return err
	}
	failure := []any{reason, millis{now}, millis{now.Add(silentEndRetry)}, MaxSilentEnds}
	_, err := tx.ExecContext(ctx, failSilentEnds+message+ofSilentEnds+leases+replaceFailure, append(failure, args...)...)
	return err
}

// countDeadWorkers counts the leases that Jobs still hold when they end.
func countDeadWorkers(ctx context.Context, tx *session, now time.Time, jobs string, args ...any) error {
	return recordSilentEnds(ctx, tx, now, ReasonMatchWorkerDied, diedMessage, `leases.holder IN (SELECT uid FROM jobs WHERE `+jobs+`)`, args...)
}

// expireLeases ends and counts the leases that have expired.
func expireLeases(ctx context.Context, tx *session, now time.Time, which string, args ...any) error {
	over, args := `leases.until <= ? AND leases.`+which, append([]any{millis{now}}, args...)
	if err := recordSilentEnds(ctx, tx, now, ReasonMatchTimedOut, expiredMessage, over, args...); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, `DELETE FROM leases WHERE `+over, args...)
	return err
}

// clearSilentEnds resets the count of an image after a report or failure of a worker.
func clearSilentEnds(ctx context.Context, tx *session, manifest int64, engine string) error {
	_, err := tx.ExecContext(ctx, `DELETE FROM silent_ends WHERE manifest_id = ? AND engine = ?`, manifest, engine)
	return err
}
