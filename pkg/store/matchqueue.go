package store

import (
	"context"
	"database/sql"
	"errors"
	"time"
)

// DataVersion identifies the vulnerability data of one engine.
type DataVersion struct {
	// Version identifies the data and the engine's version. While it is equal, nothing has to be rematched.
	Version string
	// Built is when the data was built, according to the data itself.
	Built time.Time
	// Tool is the engine and its version, such as "grype 0.121.2"; empty if unknown.
	Tool string
	// Since is when the store first recorded this version; zero if that is not known. It is read, never saved.
	Since time.Time
}

// MatchFailure is why an image could not be matched, and when the match is retried.
type MatchFailure struct {
	Reason, Message string
	FailedAt        time.Time
	RetryAt         time.Time
}

// SetDataVersion records the data that an engine's reports are to be made with from then on.
func (s *Store) SetDataVersion(ctx context.Context, engine string, v DataVersion) error {
	return s.exec(ctx, "set data version of "+engine, `
		INSERT INTO data_versions (engine, version, built, tool, since) VALUES (?, ?, ?, ?, ?)
		ON CONFLICT (engine) DO UPDATE SET
			since = CASE WHEN data_versions.version = excluded.version THEN data_versions.since ELSE excluded.since END,
			version = excluded.version, built = excluded.built, tool = excluded.tool`,
		engine, v.Version, millis{v.Built}, v.Tool, millis{s.now()})
}

// DataVersion returns the data version of an engine, or ErrNotFound.
func (s *Store) DataVersion(ctx context.Context, engine string) (v DataVersion, err error) {
	var built, since millis
	err = s.queryRow(ctx, "look up data version of "+engine, `SELECT version, built, tool, since FROM data_versions WHERE engine = ?`, engine).
		Scan(&v.Version, &built, &v.Tool, &since)
	v.Built, v.Since = built.Time, since.Time
	return v, err
}

// ReturnLeases ends all leases that a holder has of an engine, except those with the given IDs, as if they had never been given. If there
// are none, it only reads.
func (s *Store) ReturnLeases(ctx context.Context, engine, holder string, except ...string) error {
	where, args := ` FROM leases WHERE engine = ? AND holder = ?`, []any{engine, holder}
	for _, id := range except {
		where, args = where+` AND id <> ?`, append(args, id)
	}
	action := "return leases of " + engine
	var has bool
	if err := s.queryRow(ctx, action, `SELECT EXISTS (SELECT 1`+where+`)`, args...).Scan(&has); err != nil || !has {
		return err
	}
	return s.exec(ctx, action, `DELETE`+where, args...)
}

// Lease returns a lease that the holder has at that time, or ErrLeaseEnded.
func (s *Store) Lease(ctx context.Context, id, holder string, now time.Time) (Lease, error) {
	lease := Lease{ID: id, Holder: holder}
	var until millis
	err := s.queryRow(ctx, "look up lease", `
		SELECT m.platform_digest, m.scope, m.namespace, l.engine, l.until FROM leases l JOIN manifests m ON m.id = l.manifest_id
		WHERE l.id = ? AND l.holder = ? AND l.until > ?`, id, holder, millis{now}).
		Scan(&lease.PlatformDigest, &lease.Scope, &lease.Namespace, &lease.Engine, &until)
	if errors.Is(err, ErrNotFound) {
		return Lease{}, s.wrapError(ctx, "look up lease", ErrLeaseEnded)
	}
	if err != nil {
		return Lease{}, err
	}
	lease.Until = until.Time
	return lease, nil
}

func orLeaseEnded(err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return ErrLeaseEnded
	}
	return err
}

// matchRequested replaces the data version of a report to request a rematch. No data has this version, so the report is never
// current.
const matchRequested = "match requested"

// RequestMatch requests a rematch of an image even if its report is current or its match has failed. The findings stay until the
// next report. For an image that is not cataloged it does nothing.
func (s *Store) RequestMatch(ctx context.Context, subject Subject) error {
	return s.write(ctx, "request match of "+subject.PlatformDigest, func(ctx context.Context, tx *session) error {
		return requestMatch(ctx, tx, subject)
	})
}

func requestMatch(ctx context.Context, tx *session, subject Subject) error {
	if _, err := tx.ExecContext(ctx, `DELETE FROM match_failures`+ofSubject, subjectArgs(subject)...); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, `UPDATE reports SET data_version = ?`+ofSubject, append([]any{matchRequested}, subjectArgs(subject)...)...)
	return err
}

// matchAgain requests a rematch of an image whose match input was replaced. Reports that are being made from the former input are not taken
// any more.
func matchAgain(ctx context.Context, tx *session, subject Subject) error {
	if _, err := tx.ExecContext(ctx, `DELETE FROM leases`+ofSubject, subjectArgs(subject)...); err != nil {
		return err
	}
	return requestMatch(ctx, tx, subject)
}

// ofSubject selects the rows of a subject in a table with its engine and manifest. Its parameters are those of subjectArgs.
const ofSubject = ` WHERE engine = ? AND manifest_id = (SELECT id FROM manifests WHERE platform_digest = ? AND scope = ?)`

func subjectArgs(subject Subject) []any {
	return []any{subject.Engine, subject.PlatformDigest, subject.Scope}
}

// FailMatch ends a lease without a report. The image is not leased again before RetryAt. It returns ErrLeaseEnded if the lease is
// not held.
func (s *Store) FailMatch(ctx context.Context, id, holder string, f MatchFailure) error {
	return s.write(ctx, "fail match", func(ctx context.Context, tx *session) error {
		var manifest int64
		var engine, dataVersion string
		err := tx.QueryRowContext(ctx, `SELECT manifest_id, engine, data_version FROM leases WHERE id = ? AND holder = ? AND until > ?`,
			id, holder, millis{s.now()}).Scan(&manifest, &engine, &dataVersion)
		if err != nil {
			return orLeaseEnded(err)
		}
		if _, err := tx.ExecContext(ctx, `DELETE FROM leases WHERE id = ?`, id); err != nil {
			return err
		}
		if err := clearSilentEnds(ctx, tx, manifest, engine); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `
			INSERT INTO match_failures (manifest_id, engine, data_version, reason, message, failed_at, retry_at)
			VALUES (?, ?, ?, ?, ?, ?, ?)`+replaceFailure,
			manifest, engine, dataVersion, f.Reason, f.Message, millis{f.FailedAt}, millis{f.RetryAt})
		return err
	})
}

const replaceFailure = ` ON CONFLICT (manifest_id, engine) DO UPDATE SET data_version = excluded.data_version, reason = excluded.reason,
	message = excluded.message, failed_at = excluded.failed_at, retry_at = excluded.retry_at`

// MatchFailure returns why an image could not be matched with the current data, or ErrNotFound.
func (s *Store) MatchFailure(ctx context.Context, subject Subject) (f MatchFailure, err error) {
	var failedAt, retryAt millis
	err = s.queryRow(ctx, "look up match failure of "+subject.PlatformDigest, `
		SELECT f.reason, f.message, f.failed_at, f.retry_at
		FROM manifests m JOIN match_failures f ON f.manifest_id = m.id
		LEFT JOIN data_versions d ON d.engine = f.engine
		WHERE m.platform_digest = ? AND m.scope = ? AND f.engine = ? AND f.data_version = coalesce(d.version, '')`,
		subject.PlatformDigest, subject.Scope, subject.Engine).
		Scan(&f.Reason, &f.Message, &failedAt, &retryAt)
	f.FailedAt, f.RetryAt = failedAt.Time, retryAt.Time
	return f, err
}
