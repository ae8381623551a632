package store

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"maps"
	"slices"
	"time"
)

// stepRows is how many rows one step of a large report writes. It bounds how long other writers wait (docs/understand/benchmarks.md).
const stepRows = 3000

// staging is a report to save in steps.
type staging struct {
	namespace, action string
	report            Report
	rows              []*findingRow
	// external is the report that other tools made; nil for that of an engine.
	external *ExternalReport
}

// stagedReport is a large report of which all is written but the last step.
type stagedReport struct {
	*comparison // what is left to write
	before      previousReport
	// manifest and report are the rows of a report that no reader sees, since no image has the manifest. It has all findings, those that are gone included,
	// and takes the place of the report before. They are 0 if there is little to change in the report before.
	manifest, report int64
}

// stagedPrefix begins the platform digests of the manifests of staged and of replaced reports. These reports have engines of their own.
const stagedPrefix = "staged:"

// errStale means that what was staged does not fit any more.
var errStale = errors.New("the report before has changed meanwhile")

const (
	insertStaged = `INSERT INTO reports (revision, store_revision, manifest_id, engine, data_version, matched_at, distro, not_covered, present, bytes, urgency)
		VALUES (0, ` + currentRevision + `, ?, 'staged', '', 0, '', '', 0, ?, 0)`
	copiedColumns = `"key", vulnerability_id, known_exploited, content, first_seen, fixable_since, last_seen, gone_at, gone_data_version, fixed_by_data_after,
		fixed_at, severity_history, ` + findingColumns
	copyFindings = `INSERT INTO findings (report_id, ` + copiedColumns + `) SELECT @report, ` + copiedColumns + `
		FROM findings WHERE id IN (SELECT value FROM ids(@ids) i) ORDER BY id`

	moveExternal  = `UPDATE external_reports SET report_id = ? WHERE report_id = ?`
	replaceStaged = `UPDATE reports SET manifest_id = ?, engine = 'replaced', present = 0, bytes = 0, kept_bytes = 0 WHERE id = ?`
	publishStaged = `UPDATE reports SET manifest_id = ?, engine = ?, revision = ? WHERE id = ? AND manifest_id = ?`

	deleteStagedFindings = `DELETE FROM findings WHERE id IN (SELECT old.id FROM (
		SELECT f.id FROM reports r ORDERED JOIN findings f ON f.report_id = r.id WHERE r.manifest_id = ? LIMIT ?) AS old)`
	deleteUnusedStatements = `DELETE FROM vulnerabilities WHERE id IN (SELECT old.id FROM (
		SELECT v.id FROM vulnerabilities v WHERE v.engine = ? AND NOT EXISTS (SELECT 1 FROM findings f WHERE f.vulnerability_id = v.id) LIMIT ?) AS old)`
	selectStaged = `SELECT id FROM manifests WHERE platform_digest >= ? AND platform_digest < ? AND last_used < ?`
)

// inSteps saves a report. A large one is written in steps, last of all by last. If the report before changes meanwhile, last writes everything.
func (s *Store) inSteps(ctx context.Context, of staging, last func(ctx context.Context, tx *session, staged *stagedReport) error) error {
	write := func(staged *stagedReport) error {
		return s.writeLarge(ctx, of.namespace, of.action, func(ctx context.Context, tx *session) error { return last(ctx, tx, staged) })
	}
	staged, err := s.stageReport(ctx, of)
	if err == nil {
		err = write(staged)
	}
	if staged != nil {
		// Sweep deletes what is left after an error.
		_ = s.dropStaged(context.WithoutCancel(ctx), of, staged.manifest)
	}
	if errors.Is(err, errStale) {
		err = write(nil)
	}
	return err
}

// stageReport writes a large report in steps, but for the last one. The result is nil for a small report. With an error too, it tells what to delete. The
// error is errStale if the report before changes.
func (s *Store) stageReport(ctx context.Context, of staging) (staged *stagedReport, err error) {
	var before previousReport
	err = s.read(ctx, of.action, func(ctx context.Context, q query) (err error) {
		before, err = findPreviousReport(ctx, q, of.report.Subject)
		return err
	})
	if err != nil || int64(max(len(of.rows), before.present)) <= s.stepRows && before.kept <= s.stepRows*findingBytes {
		return nil, err
	}
	staged = &stagedReport{before: before}
	if err := s.requireStagedRoom(ctx, of, before); err != nil {
		return nil, err
	}
	rows := slices.SortedFunc(slices.Values(of.rows), func(a, b *findingRow) int { return cmp.Compare(a.ID, b.ID) })
	for len(rows) > 0 {
		n := min(len(rows), int(s.stepRows/2)) // a vulnerability has two rows
		for n < len(rows) && rows[n].ID == rows[n-1].ID {
			n++
		}
		err := s.step(ctx, of, func(ctx context.Context, tx *session) error {
			if err := saveVulnerabilities(ctx, tx, of.report.Engine, rows[:n], s.now(), nil); err != nil || of.external == nil {
				return err
			}
			return countStated(ctx, tx, rows[:n])
		})
		if err != nil {
			return staged, err
		}
		rows = rows[n:]
	}
	if staged.comparison, err = s.compareStaged(ctx, of, before); err != nil || int64(staged.rows()) <= s.stepRows {
		return staged, err
	}
	return staged, s.stageFindings(ctx, of, staged)
}

// step is one transaction.
func (s *Store) step(ctx context.Context, of staging, work func(context.Context, *session) error) error {
	return s.writeLarge(ctx, of.namespace, of.action, work)
}

// requireStagedRoom returns ErrOverBudget if an external report has no room, before anything is written of it. The last step decides.
func (s *Store) requireStagedRoom(ctx context.Context, of staging, before previousReport) error {
	if of.external == nil || of.external.Budget == 0 {
		return nil
	}
	return s.read(ctx, of.action, func(ctx context.Context, q query) error {
		left, err := of.external.room(ctx, q)
		if err != nil {
			return err
		}
		v, err := compareVulnerabilities(ctx, q, of.report.Engine, of.rows)
		if err != nil {
			return err
		}
		if err := left.take(v.more); err != nil {
			return err
		}
		c, err := compareReport(ctx, q, before, of.report, of.rows, newLossChange(of.report, s.now()))
		if err != nil {
			return err
		}
		return c.requireRoom(ctx, q, left)
	})
}

// compareStaged compares with the findings of a report, which have vulnerabilities already.
func (s *Store) compareStaged(ctx context.Context, of staging, with previousReport) (c *comparison, err error) {
	err = s.read(ctx, of.action, func(ctx context.Context, q query) (err error) {
		c, err = compareReport(ctx, q, with, of.report, of.rows, newLossChange(of.report, s.now()))
		return err
	})
	return c, err
}

// stageFindings copies the report before, and changes the copy.
func (s *Store) stageFindings(ctx context.Context, of staging, staged *stagedReport) error {
	staged.comparison = nil // the copy is compared again, and each comparison may have all rows in memory
	err := s.step(ctx, of, func(ctx context.Context, tx *session) (err error) {
		staged.manifest, err = tx.insert(ctx, `INSERT INTO manifests (platform_digest, scope, last_used, namespace) VALUES (?, '', ?, ?)`,
			stagedPrefix+rand.Text(), millis{s.now()}, of.namespace)
		if err == nil {
			staged.report, err = tx.insert(ctx, insertStaged, staged.manifest, bytesOf(of.rows))
		}
		return err
	})
	if err != nil {
		return err
	}
	old, err := queryRows(ctx, s, of.action, `SELECT id FROM findings WHERE report_id = ? ORDER BY id`, []any{staged.before.id}, scanValue[int64])
	if err != nil {
		return err
	}
	for page := range slices.Chunk(old, int(s.stepRows)) {
		err := s.step(ctx, of, func(ctx context.Context, tx *session) error {
			return tx.execIDs(ctx, copyFindings, page, sql.Named("report", staged.report))
		})
		if err != nil {
			return err
		}
	}
	copied := staged.before
	copied.id = staged.report
	if staged.comparison, err = s.compareStaged(ctx, of, copied); err != nil {
		return err
	}
	for staged.rows() > 0 {
		page := staged.takePage(int(s.stepRows))
		err := s.step(ctx, of, func(ctx context.Context, tx *session) error {
			if err := requireVulnerabilities(ctx, tx, of.report.Engine, page.writtenRows()); err != nil {
				return err
			}
			return page.write(ctx, tx, staged.report)
		})
		if err != nil {
			return err
		}
	}
	return s.countStaged(ctx, of, staged)
}

// countStaged counts what follows from the findings of a staged report, and gives the namespaces the rows in which the last step counts.
func (s *Store) countStaged(ctx context.Context, of staging, staged *stagedReport) error {
	staged.returned = false
	if of.external != nil {
		for page := range slices.Chunk(of.rows, int(s.stepRows)) {
			err := s.step(ctx, of, func(ctx context.Context, tx *session) error { return countStated(ctx, tx, page) })
			if err != nil {
				return err
			}
		}
		if err := s.inPages(ctx, of, deleteOldest, staged.report, s.stepRows, maxGoneExternal); err != nil {
			return err
		}
	}
	err := s.step(ctx, of, func(ctx context.Context, tx *session) error {
		return tx.execIDs(ctx, countKept, []int64{staged.report})
	})
	if err != nil || staged.before.manifest == 0 {
		return err
	}
	for page := range slices.Chunk(staged.counts, int(s.stepRows/2)) { // a namespace, and all of them
		zero := make([][]any, 0, len(page))
		for _, row := range page {
			zero = append(zero, []any{row[0], row[2], row[2]})
		}
		err := s.step(ctx, of, func(ctx context.Context, tx *session) error {
			return tx.execRows(ctx, countReported, zero, sql.Named("manifest", staged.before.manifest), sql.Named("engine", of.report.Engine))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// takePage moves up to n rows to a writer of their own.
func (w *findingWriter) takePage(n int) findingWriter {
	page := *w
	page.added, w.added = take(w.added, &n)
	page.addedRows, w.addedRows = w.addedRows[:len(page.added)], w.addedRows[len(page.added):]
	page.changed, w.changed = take(w.changed, &n)
	page.changedRows, w.changedRows = w.changedRows[:len(page.changed)], w.changedRows[len(page.changed):]
	page.names, w.names = take(w.names, &n)
	page.gone, w.gone = take(w.gone, &n)
	page.fixed, w.fixed = take(w.fixed, &n)
	return page
}

// take splits a list after its first elements, up to n, and subtracts their number from n.
func take[T any](all []T, n *int) (first, rest []T) {
	m := min(len(all), *n)
	*n -= m
	return all[:m], all[m:]
}

// publish makes a staged report the subject's report, and returns what is left to write. before is what the subject has now, and becomes the new report.
func (staged *stagedReport) publish(ctx context.Context, tx *session, before *previousReport, r Report, change *lossChange) (*comparison, error) {
	was := staged.before
	if before.id != was.id || before.revision != was.revision || before.kept != was.kept {
		return nil, errStale
	}
	maps.Copy(change.missing, staged.losses.missing)
	left := *staged.comparison
	if err := requireVulnerabilities(ctx, tx, r.Engine, left.writtenRows()); err != nil || staged.report == 0 {
		return &left, err
	}
	if !before.first() {
		if _, err := tx.ExecContext(ctx, moveExternal, staged.report, before.id); err != nil {
			return nil, err
		}
		if _, err := tx.ExecContext(ctx, replaceStaged, staged.manifest, before.id); err != nil {
			return nil, err
		}
	}
	result, err := tx.ExecContext(ctx, publishStaged, before.manifest, r.Engine, before.revision, staged.report, staged.manifest)
	if err != nil {
		return nil, err
	}
	if n, err := result.RowsAffected(); err != nil || n == 0 {
		return nil, errors.Join(errStale, err)
	}
	before.id = staged.report
	return &left, nil
}

// requireVulnerabilities returns errStale if a sweep has deleted the vulnerability of a row.
func requireVulnerabilities(ctx context.Context, tx *session, engine string, rows []*findingRow) error {
	if len(rows) == 0 {
		return nil
	}
	ids, _ := mergeVulnerabilities(rows)
	known, _, err := knownVulnerabilities(ctx, tx, engine, ids)
	for _, row := range rows {
		if err == nil && known[row.ID] != row.vulnerability {
			err = errStale
		}
	}
	return err
}

// dropStaged deletes a staged or replaced report, and what an external one stated of vulnerabilities that no report has any more.
func (s *Store) dropStaged(ctx context.Context, of staging, manifest int64) error {
	if manifest != 0 {
		if err := s.inPages(ctx, of, deleteStagedFindings, manifest, s.stepRows); err != nil {
			return err
		}
		err := s.step(ctx, of, func(ctx context.Context, tx *session) error {
			_, err := tx.ExecContext(ctx, `DELETE FROM manifests WHERE id = ?`, manifest)
			return err
		})
		if err != nil {
			return err
		}
	}
	if of.external == nil {
		return nil
	}
	return s.inPages(ctx, of, deleteUnusedStatements, of.report.Engine, s.stepRows)
}

// inPages runs a statement that deletes rows, each time in a transaction of its own, until it deletes less than a page.
func (s *Store) inPages(ctx context.Context, of staging, statement string, args ...any) error {
	for {
		var deleted int64
		err := s.step(ctx, of, func(ctx context.Context, tx *session) error {
			result, err := tx.ExecContext(ctx, statement, args...)
			if err == nil {
				deleted, err = result.RowsAffected()
			}
			return err
		})
		if err != nil || deleted < s.stepRows {
			return err
		}
	}
}

// stagedFor is how long a report may be staged.
const stagedFor = time.Hour

// sweepStaged deletes what processes left that ended while they saved reports, and returns the number of reports.
func (s *Store) sweepStaged(ctx context.Context) (swept int, err error) {
	from, to := prefixRange(stagedPrefix)
	left, err := queryRows(ctx, s, "list staged reports", selectStaged, []any{from, to, millis{s.now().Add(-stagedFor)}}, scanValue[int64])
	for _, manifest := range left {
		if err := s.dropStaged(ctx, staging{action: "sweep staged reports"}, manifest); err != nil {
			return swept, err
		}
		swept++
	}
	return swept, err
}
