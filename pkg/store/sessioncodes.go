package store

import (
	"context"
	"errors"
	"time"
)

// ErrTooManyCodes means that as many codes as are allowed wait to be used.
var ErrTooManyCodes = errors.New("too many codes wait to be used")

// SessionCode is a code that signs in once. The store knows neither the code nor the token.
type SessionCode struct {
	// Hash and Owner are hashes of the code and of the user's name, of at most 64 bytes.
	Hash, Owner string
	// Sealed is the token, sealed with a key that only the code gives.
	Sealed    string
	ExpiresAt time.Time
}

const deleteExpiredCodes = `DELETE FROM session_codes WHERE expires_at <= ?`

// SaveSessionCode saves a code in place of the owner's oldest ones, so that the owner has at most maxOfOwner. It returns ErrTooManyCodes if there
// are maxOfAll of all owners. Codes that have expired are deleted. The context must be one of ForAnyReplica.
func (s *Store) SaveSessionCode(ctx context.Context, c SessionCode, maxOfOwner, maxOfAll int) error {
	return s.write(ctx, "save a code", func(ctx context.Context, tx *session) error {
		if _, err := tx.ExecContext(ctx, deleteExpiredCodes, millis{s.now()}); err != nil {
			return err
		}
		own, err := collect(ctx, tx, `SELECT hash FROM session_codes WHERE owner = ? ORDER BY expires_at DESC, hash`, []any{c.Owner}, scanValue[string])
		if err != nil {
			return err
		}
		for i := maxOfOwner - 1; i < len(own); i++ {
			if _, err := tx.ExecContext(ctx, `DELETE FROM session_codes WHERE hash = ?`, own[i]); err != nil {
				return err
			}
		}
		var all int
		if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM session_codes`).Scan(&all); err != nil {
			return err
		}
		if all >= maxOfAll {
			return ErrTooManyCodes
		}
		_, err = tx.ExecContext(ctx, `INSERT INTO session_codes (hash, owner, sealed, expires_at) VALUES (?, ?, ?, ?)`, c.Hash, c.Owner, c.Sealed, millis{c.ExpiresAt})
		return err
	})
}

// TakeSessionCode returns the sealed token of a code and deletes the code: of several calls, one gets it. It returns ErrNotFound if there is no such
// code, or none that still lives; that costs one read. The context must be one of ForAnyReplica.
func (s *Store) TakeSessionCode(ctx context.Context, hash string) (sealed string, err error) {
	now := millis{s.now()}
	err = s.queryRow(ctx, "look up a code", `SELECT sealed FROM session_codes WHERE hash = ? AND expires_at > ?`, hash, now).Scan(&sealed)
	if err != nil {
		return "", err
	}
	err = s.write(ctx, "take a code", func(ctx context.Context, tx *session) error {
		result, err := tx.ExecContext(ctx, `DELETE FROM session_codes WHERE hash = ?`, hash)
		if err != nil {
			return err
		}
		if rows, err := result.RowsAffected(); err != nil || rows == 0 {
			return errors.Join(err, ErrNotFound)
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	return sealed, nil
}
