package store

import (
	"context"
	"database/sql"
	"errors"
	"time"
)

// RescanInterval is the minimum time between two requests that replace the same catalog, whoever makes them.
const RescanInterval = 10 * time.Minute

// ErrRescannedLately means that a catalog was replaced on request less than RescanInterval ago.
var ErrRescannedLately = errors.New("the image was cataloged again on request a short time ago")

// RequestRescan has the catalog of a scanner's image replaced. The catalog counts for all others until then. The result of a Job for this scanner
// replaces it, as SaveCatalog does. An image without a catalog needs no request. It returns ErrRescannedLately for a catalog that was replaced
// within RescanInterval.
func (s *Store) RequestRescan(ctx context.Context, img ScannerImage) error {
	return s.write(ctx, "request a rescan of "+img.Key.String(), func(ctx context.Context, tx *session) error {
		var replaced millis
		err := tx.QueryRowContext(ctx, `SELECT c.rescanned_at FROM scanner_images si JOIN catalogues c ON c.manifest_id = si.manifest_id AND c.engine = si.engine
			WHERE `+isImageOfScanner, img.imageArgs()...).Scan(&replaced)
		switch now := s.now(); {
		case errors.Is(err, sql.ErrNoRows):
			return nil
		case err != nil:
			return err
		case !replaced.IsZero() && !replaced.After(now) && now.Sub(replaced.Time) < RescanInterval:
			return ErrRescannedLately
		default:
			_, err := tx.ExecContext(ctx, `UPDATE scanner_images SET rescan_requested_at = ? WHERE `+isImageOfScanner, append([]any{millis{now}}, img.imageArgs()...)...)
			return err
		}
	})
}

// RescanRequested reports whether the catalog of a scanner's image is to be replaced.
func (s *Store) RescanRequested(ctx context.Context, img ScannerImage) (requested bool, err error) {
	err = s.queryRow(ctx, "look up requests for "+img.Key.String(),
		`SELECT EXISTS (SELECT 1 FROM scanner_images WHERE `+isImageOfScanner+` AND rescan_requested_at IS NOT NULL)`, img.imageArgs()...).Scan(&requested)
	return requested, err
}

// JobRescans reports whether a catalog is to be replaced by the result of a catalog Job: its scanner's, in any namespace whose image the Job is for. A
// ClusterScanner may have requested it for one of several.
func (s *Store) JobRescans(ctx context.Context, job Job) (requested bool, err error) {
	err = s.queryRow(ctx, "look up requests for the job of "+job.Key.String(), `SELECT EXISTS (SELECT 1 FROM scanner_images
		WHERE scanner = ? AND digest = ? AND platform = ? AND scope = ? AND rescan_requested_at IS NOT NULL)`,
		job.Scanner, job.Key.Digest, platform(job.Key.Platform), job.Scope).Scan(&requested)
	return requested, err
}

// endRescans ends the requests to replace a manifest's catalog, which was replaced now.
func endRescans(ctx context.Context, tx *session, engine string, manifest int64, now time.Time) error {
	result, err := tx.ExecContext(ctx, `UPDATE scanner_images SET rescan_requested_at = NULL
		WHERE manifest_id = ? AND engine = ? AND rescan_requested_at IS NOT NULL`, manifest, engine)
	if err != nil {
		return err
	}
	if ended, err := result.RowsAffected(); err != nil || ended == 0 {
		return err
	}
	_, err = tx.ExecContext(ctx, `UPDATE catalogues SET rescanned_at = ? WHERE manifest_id = ? AND engine = ?`, millis{now}, manifest, engine)
	return err
}
