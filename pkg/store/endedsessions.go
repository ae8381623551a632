package store

import (
	"context"
	"time"
)

// EndedSession is a session of the web UI that was signed out.
type EndedSession struct {
	// Hash and Tenant are hashes of what the session's cookies encode and of its user's tenant, of at most 64 bytes.
	Hash, Tenant string
	ExpiresAt    time.Time
}

// EndSession records a session that was signed out, until it expires. A tenant with maxOfTenant of them makes room with its oldest one; beyond
// maxOfAll, the tenant with the most does. Ending a session again changes nothing. The context must be one of ForAnyReplica.
func (s *Store) EndSession(ctx context.Context, e EndedSession, maxOfTenant, maxOfAll int) error {
	return s.write(ctx, "end a session", func(ctx context.Context, tx *session) error {
		now := millis{s.now()}
		if _, err := tx.ExecContext(ctx, `DELETE FROM ended_sessions WHERE expires_at <= ? OR hash = ?`, now, e.Hash); err != nil {
			return err
		}
		var own, all int
		err := tx.QueryRowContext(ctx, `SELECT count(CASE WHEN tenant = ? THEN 1 END), count(*) FROM ended_sessions`, e.Tenant).Scan(&own, &all)
		if err != nil {
			return err
		}
		most := e.Tenant
		if own < maxOfTenant && all >= maxOfAll {
			err = tx.QueryRowContext(ctx, `SELECT tenant FROM ended_sessions GROUP BY tenant ORDER BY count(*) DESC, tenant LIMIT 1`).Scan(&most)
		}
		if err == nil && (own >= maxOfTenant || all >= maxOfAll) {
			err = deleteOldestEnded(ctx, tx, most)
		}
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `INSERT INTO ended_sessions (hash, tenant, ended_at, expires_at) VALUES (?, ?, ?, ?)`, e.Hash, e.Tenant, now, millis{e.ExpiresAt})
		return err
	})
}

func deleteOldestEnded(ctx context.Context, tx *session, tenant string) error {
	var oldest string
	err := tx.QueryRowContext(ctx, `SELECT hash FROM ended_sessions WHERE tenant = ? ORDER BY ended_at, hash LIMIT 1`, tenant).Scan(&oldest)
	if err == nil {
		_, err = tx.ExecContext(ctx, `DELETE FROM ended_sessions WHERE hash = ?`, oldest)
	}
	return err
}

// EndedSessions returns the hashes of the sessions that were signed out on any replica and have not expired.
func (s *Store) EndedSessions(ctx context.Context) ([]string, error) {
	return queryRows(ctx, s, "list ended sessions", `SELECT hash FROM ended_sessions WHERE expires_at > ?`, []any{millis{s.now()}}, scanValue[string])
}
