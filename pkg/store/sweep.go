package store

import (
	"context"
	"database/sql"
	"time"
)

// sweepBatch is how many images one transaction deletes: others wait for no more than that.
const sweepBatch = 10

// Sweep implements Usage. Other writers have their turn between batches. An error leaves done what was done.
func (s *SQLite) Sweep(ctx context.Context, unusedSince time.Time) (swept int, err error) {
	for last := sweepBatch; last == sweepBatch; swept += last {
		if last, err = s.sweepSome(ctx, unusedSince); err != nil {
			return swept, err
		}
	}
	if err := s.sweepMemory(ctx, unusedSince); err != nil || swept == 0 {
		return swept, err
	}
	return swept, s.write(ctx, "sweep vulnerabilities", func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `
			DELETE FROM vulnerabilities WHERE NOT EXISTS (SELECT 1 FROM findings f WHERE f.vulnerability_id = vulnerabilities.id)`)
		return err
	})
}

func (s *SQLite) sweepSome(ctx context.Context, unusedSince time.Time) (n int, err error) {
	err = s.write(ctx, "sweep", func(ctx context.Context, tx *sql.Tx) error {
		// Everything else about an image goes with its manifest.
		result, err := tx.ExecContext(ctx, `
			DELETE FROM manifests WHERE id IN (
				SELECT id FROM manifests WHERE last_used < ?
				AND NOT EXISTS (SELECT 1 FROM scanner_images si WHERE si.manifest_id = manifests.id) LIMIT ?)`,
			millis{unusedSince}, sweepBatch)
		if err != nil {
			return err
		}
		deleted, err := result.RowsAffected()
		n = int(deleted)
		return err
	})
	return n, err
}
