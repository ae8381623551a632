package store

import (
	"context"
	"database/sql"
	"slices"
	"time"
)

// sweepBatch is how many images one transaction deletes. It bounds how long other writers wait.
const sweepBatch = 10

// fixedFor is how long fixed findings are kept: half a year. A finding that comes back with a quarterly or half-yearly release of
// its image is then recognized.
const fixedFor = 180 * 24 * time.Hour

// fixedBatch is how many fixed findings one transaction deletes.
const fixedBatch = 1000

// Sweep deletes catalogs, reports and findings of images that no Scanner has had in use since the given time. It returns the number
// of images deleted. It also deletes findings and announcements that were fixed long ago, and what receivers know of repositories
// that have not run for as long; after keptWithoutRoom for receivers without room. Other writers can run between batches. After an
// error, completed batches stay deleted.
func (s *Store) Sweep(ctx context.Context, unusedSince time.Time) (swept int, err error) {
	staged, err := s.sweepStaged(ctx)
	if err != nil {
		return 0, err
	}
	for last := sweepBatch; last == sweepBatch; swept += last {
		if last, err = s.sweepManifests(ctx, unusedSince); err != nil {
			return swept, err
		}
	}
	if err := s.sweepLosses(ctx); err != nil {
		return swept, err
	}
	withoutRoom, err := s.receiversWithoutRoom(ctx)
	if err != nil {
		return swept, err
	}
	if err := s.sweepUnusedRepositories(ctx, withoutRoom); err != nil {
		return swept, err
	}
	if err := s.sweepFixedRecords(ctx, withoutRoom); err != nil {
		return swept, err
	}
	fixed, err := s.sweepFixed(ctx)
	if err != nil {
		return swept, err
	}
	if err := s.sweepMemory(ctx, unusedSince); err != nil {
		return swept, err
	}
	if err := s.exec(ctx, "sweep changes of namespaces", deleteOldChanges); err != nil {
		return swept, err
	}
	if err := s.exec(ctx, "sweep codes", deleteExpiredCodes, millis{s.now()}); err != nil {
		return swept, err
	}
	if err := s.exec(ctx, "sweep counts of vulnerabilities", deleteNotRunning); err != nil || swept+fixed+staged == 0 {
		return swept, err
	}
	return swept, s.sweepVulnerabilities(ctx)
}

// vulnerabilityBatch is how many vulnerabilities one transaction checks.
const vulnerabilityBatch = 2000

const (
	selectBatch       = `SELECT coalesce(max(id), 0) FROM (SELECT id FROM vulnerabilities WHERE id > ? ORDER BY id LIMIT ?) AS batch`
	deleteUnusedBatch = `DELETE FROM vulnerabilities WHERE id > ? AND id <= ?
		AND NOT EXISTS (SELECT 1 FROM findings f WHERE f.vulnerability_id = vulnerabilities.id)`
)

// deleteNotRunning deletes the counts of vulnerabilities that no running image of a namespace has any more.
const deleteNotRunning = `DELETE FROM namespace_vulnerabilities WHERE images = 0`

// sweepVulnerabilities deletes vulnerabilities without findings, in batches by row ID.
func (s *Store) sweepVulnerabilities(ctx context.Context) error {
	for after, last := int64(0), int64(0); ; after = last {
		err := s.write(ctx, "sweep vulnerabilities", func(ctx context.Context, tx *session) error {
			if err := tx.QueryRowContext(ctx, selectBatch, after, vulnerabilityBatch).Scan(&last); err != nil || last == 0 {
				return err
			}
			_, err := tx.ExecContext(ctx, deleteUnusedBatch, after, last)
			return err
		})
		if err != nil || last == 0 {
			return err
		}
	}
}

const selectUnusedIDs = `SELECT id_array(id), count(*) FROM (SELECT id FROM manifests WHERE last_used < ?
	AND NOT EXISTS (SELECT 1 FROM scanner_images si WHERE si.manifest_id = manifests.id)
	AND NOT EXISTS (SELECT 1 FROM reports r JOIN external_reports e ON e.report_id = r.id JOIN scanner_images si ON si.digest = e.digest AND si.namespace = e.namespace
		WHERE r.manifest_id = manifests.id)
	AND NOT EXISTS (SELECT 1 FROM uploaded_sboms u JOIN scanner_images si ON si.digest = u.digest AND si.namespace = u.namespace
		WHERE u.manifest_id = manifests.id) LIMIT ?) AS unused`

func (s *Store) sweepManifests(ctx context.Context, unusedSince time.Time) (n int, err error) {
	err = s.write(ctx, "sweep", func(ctx context.Context, tx *session) error {
		var ids string
		if err := tx.QueryRowContext(ctx, selectUnusedIDs, millis{unusedSince}, sweepBatch).Scan(&ids, &n); err != nil {
			return err
		}
		return deleteManifests(ctx, tx, ids)
	})
	return n, err
}

// A finding is gone before it is fixed, so the index of gone findings bounds the search.
const selectFixed = `SELECT id, report_id FROM findings INDEXED BY findings_gone WHERE gone_at < ?1 AND fixed_at < ?1 LIMIT ?2`

const deleteFindings = `DELETE FROM findings WHERE id IN (SELECT value FROM ids(@ids) i)`

// selectFixedRecords selects the announcement records of findings that were fixed before a time.
const selectFixedRecords = `SELECT receiver_id, repository, canonical_id, package FROM announcements INDEXED BY announcements_fixed WHERE fixed_at < ?`

// selectReleasedRecords selects the announcement records of findings that were released before a time.
const selectReleasedRecords = `
	SELECT receiver_id, repository, canonical_id, package FROM announcements INDEXED BY announcements_released WHERE released_at < ?`

// sweepFixedRecords deletes the announcement records of findings that were fixed or released longer ago than fixedFor. For the receivers without room it
// deletes them after keptWithoutRoom.
func (s *Store) sweepFixedRecords(ctx context.Context, withoutRoom []int64) error {
	before := millis{s.now().Add(-fixedFor)}
	for _, statement := range []string{selectFixedRecords, selectReleasedRecords} {
		for more := true; more; {
			err := s.write(ctx, "sweep records of fixed findings", func(ctx context.Context, tx *session) (err error) {
				_, more, err = deleteRecordPage(ctx, tx, statement, before)
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	before = millis{s.now().Add(-keptWithoutRoom)}
	for _, receiver := range withoutRoom {
		err := s.deleteRecordsInPages(ctx, "sweep records of fixed findings for lack of room", selectKeysAfter+`AND fixed_at < @before`,
			sql.Named("receiver", receiver), sql.Named("before", before))
		if err != nil {
			return err
		}
	}
	return nil
}

// sweepFixed deletes findings that were fixed longer ago than fixedFor, in batches, and returns their number.
func (s *Store) sweepFixed(ctx context.Context) (swept int, err error) {
	before := s.now().Add(-fixedFor)
	for last := fixedBatch; last == fixedBatch; swept += last {
		err := s.write(ctx, "sweep fixed findings", func(ctx context.Context, tx *session) (err error) {
			last, err = deleteFixedPage(ctx, tx, before)
			return err
		})
		if err != nil {
			return swept, err
		}
	}
	return swept, nil
}

// deleteFixedPage deletes a page of the findings that were fixed before a time, and returns their number.
func deleteFixedPage(ctx context.Context, tx *session, before time.Time) (deleted int, err error) {
	var findings, reports []int64
	err = eachRow(ctx, tx, selectFixed, []any{millis{before}, fixedBatch}, func(rows *sql.Rows) error {
		var id, report int64
		err := rows.Scan(&id, &report)
		findings, reports = append(findings, id), append(reports, report)
		return err
	})
	if err != nil {
		return 0, err
	}
	if err := tx.execIDs(ctx, deleteFindings, findings); err != nil {
		return 0, err
	}
	slices.Sort(reports)
	return len(findings), tx.execIDs(ctx, countKept, slices.Compact(reports))
}
