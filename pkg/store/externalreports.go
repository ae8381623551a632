package store

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"database/sql/driver"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// ExternalKey identifies an external report: what another program, the source, found in an image. It counts in one namespace.
type ExternalKey struct {
	Namespace string
	// Digest of the image as nodes report it. Platform is empty for every platform of the image.
	Digest, Platform string
	// Source is the name that the namespace gives to the program, at most 63 bytes.
	Source string
}

// externalEngine is the prefix of the engines of external reports.
const externalEngine = "external:"

// Subject returns what the report is about. Neither the scope nor the engine is that of another namespace, or of an engine that the operator
// runs: what a source states about a vulnerability changes no other report.
func (k ExternalKey) Subject() Subject {
	return Subject{
		PlatformDigest: k.Digest, Scope: Scope(externalEngine + k.Namespace + ":" + k.Platform),
		Engine: externalEngine + k.Namespace + "/" + k.Source,
	}
}

// SourceOf returns the source of an external report by the name of its engine. isExternal is false for an engine that the operator runs.
func SourceOf(engine string) (source string, isExternal bool) {
	name, isExternal := strings.CutPrefix(engine, externalEngine)
	_, source, _ = strings.Cut(name, "/")
	return source, isExternal
}

func (k ExternalKey) artifact() Artifact { return Artifact("report:" + k.Source) }

func (k ExternalKey) args() []any { return []any{k.Namespace, k.Digest, k.Platform, k.Source} }

// ExternalReport is an external report to save.
type ExternalReport struct {
	ExternalKey
	// SerialNumber and Version identify the document, and Time is when it was made. SerialNumber may be empty.
	SerialNumber string
	Version      int64
	Time         time.Time
	// Tool is the program and its version, at most 255 bytes.
	Tool string
	// TextSum is a hash of the document.
	TextSum string
	// User who saves the report.
	User     string
	Findings []finding.Finding
	// Text is the document in any form. It is read from its beginning to its end, and again after a conflict.
	Text io.ReadSeeker
	// Budget is how many bytes may count against the namespace; 0 for no limit.
	Budget int64
}

// ExternalState is an external report that is saved, without its findings.
type ExternalState struct {
	ExternalKey
	SerialNumber string
	Version      int64
	Time         time.Time
	Tool         string
	SavedAt      time.Time
	User         string
	// Findings is the number of its findings.
	Findings int
	// Text permanently identifies the text that OpenExternalReport returns now. TextSum is that of the document.
	Text             int64
	TextSum, content string
	report           int64
}

// ErrSuperseded means that the store has a newer document of the same source.
var ErrSuperseded = errors.New("there is a newer report of this source")

// errUnchanged ends a transaction in which there is nothing to do.
var errUnchanged = errors.New("unchanged")

const (
	selectExternal = `
		SELECT e.namespace, e.digest, e.platform, e.source, e.serial_number, e.document_version, e.made_at, e.tool, e.saved_at, e.saved_by, e.text_sum, e.content,
			r.present, a.id, r.id
		FROM external_reports e JOIN reports r ON r.id = e.report_id JOIN artifacts a ON a.manifest_id = r.manifest_id AND a.name = 'report:' || e.source
		WHERE e.namespace = ? AND e.digest = ? `
	// selectExternalReport selects one report, and selectExternalReports those of an image in a namespace.
	selectExternalReport  = selectExternal + `AND e.platform = ? AND e.source = ?`
	selectExternalReports = selectExternal + `ORDER BY e.source, e.platform`

	saveExternalReport = `
		INSERT INTO external_reports (report_id, namespace, digest, platform, source, text_sum, content, serial_number, document_version, made_at, tool, saved_at, saved_by)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (report_id) DO UPDATE SET text_sum = excluded.text_sum, content = excluded.content, serial_number = excluded.serial_number,
			document_version = excluded.document_version, made_at = excluded.made_at, tool = excluded.tool, saved_at = excluded.saved_at, saved_by = excluded.saved_by`
)

// maxGoneExternal bounds the findings of an external report that are gone and still stored: each report could bring others.
const maxGoneExternal = 10_000

// deleteOldest deletes the findings of a report that are gone, but for the latest. Without an end, an offset needs a limit: maxGone.
const (
	deleteOldest = `DELETE FROM findings WHERE id IN (
		SELECT old.id FROM (SELECT id FROM findings WHERE report_id = ? AND gone_at IS NOT NULL ORDER BY gone_at DESC, id LIMIT ? OFFSET ?) AS old)`
	maxGone = 1 << 40
)

// scanExternal reads a row of selectExternal.
func scanExternal(row row) (e ExternalState, err error) {
	var made, saved millis
	err = row.Scan(&e.Namespace, &e.Digest, &e.Platform, &e.Source, &e.SerialNumber, &e.Version, &made, &e.Tool, &saved, &e.User, &e.TextSum, &e.content, &e.Findings, &e.Text, &e.report)
	e.Time, e.SavedAt = made.Time, saved.Time
	return e, err
}

// SavedExternal is the result of SaveExternalReport.
type SavedExternal struct {
	// ExternalState is what the store has now.
	ExternalState
	Difference
	// Unchanged means that the store had the same content, and nothing was written.
	Unchanged bool
}

// SaveExternalReport saves an external report as a whole, in the place of the source's former one. If the store has the same content, it writes
// nothing. It does not save a report that is older than the one in the store: the error is ErrSuperseded, and the result is what the store has.
// check gets the former report, nil if there is none, and may be called twice; its error is wrapped. The error is ErrOverBudget if the report does
// not fit into the namespace's budget.
//
// A document is older than another one with the same serial number if its version is lower, and than any other document if its time is earlier.
func (s *Store) SaveExternalReport(ctx context.Context, r ExternalReport, check func(before *ExternalState) error) (saved SavedExternal, err error) {
	action := "save external report " + r.Source + " of " + r.Digest
	rows, err := rowsOf(r.Findings)
	if err != nil {
		return saved, fmt.Errorf("store: %s: %w", action, err)
	}
	content := r.contentOf(rows)
	decide := func(ctx context.Context, q query) error {
		before, err := findExternal(ctx, q, r.ExternalKey)
		if err != nil {
			return err
		}
		if err := check(before); err != nil || before == nil {
			return err
		}
		saved = SavedExternal{ExternalState: *before}
		switch {
		case before.content == content:
			return errUnchanged
		case r.isOlder(before):
			return ErrSuperseded
		}
		return nil
	}
	// Without anything to write, no writer is waited for.
	err = s.read(ctx, action, decide)
	if err == nil {
		of := staging{namespace: r.Namespace, action: action, report: r.report(), rows: rows, external: &r}
		err = s.inSteps(ctx, of, func(ctx context.Context, tx *session, staged *stagedReport) error {
			if err := decide(ctx, tx); err != nil {
				return err
			}
			if saved.Difference, err = s.replaceExternal(ctx, tx, r, rows, content, staged); err != nil {
				return err
			}
			saved.ExternalState, err = scanExternal(tx.QueryRowContext(ctx, selectExternalReport, r.args()...))
			return err
		})
	}
	if errors.Is(err, errUnchanged) {
		saved.Difference, saved.Unchanged, err = Difference{Still: saved.Findings}, true, nil
	}
	return saved, err
}

// contentOf returns a hash of all that counts in the report: reports with the same hash are the same. rows are its findings.
func (r ExternalReport) contentOf(rows []*findingRow) string {
	sum := sha256.New()
	columns := []driver.Value{r.SerialNumber, r.Version, r.Time.UnixNano(), r.Tool}
	for _, row := range rows {
		columns = append(columns, row.key[:], row.content, row.Description, row.URL, row.CVSS, row.EPSS, row.KnownExploited)
		for _, column := range columns {
			hashColumn(sum, column)
		}
		columns = columns[:0]
	}
	for _, column := range columns { // without findings
		hashColumn(sum, column)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

func (r ExternalReport) isOlder(before *ExternalState) bool {
	if r.SerialNumber != "" && r.SerialNumber == before.SerialNumber && r.Version != before.Version {
		return r.Version < before.Version
	}
	return r.Time.UnixMilli() < before.Time.UnixMilli()
}

// findExternal returns an external report; nil if there is none.
func findExternal(ctx context.Context, q query, k ExternalKey) (*ExternalState, error) {
	e, err := scanExternal(q.QueryRowContext(ctx, selectExternalReport, k.args()...))
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return &e, err
}

// report returns the report without its findings.
func (r ExternalReport) report() Report {
	return Report{Subject: r.Subject(), DataVersion: r.Time.UTC().Format(time.RFC3339Nano) + " " + r.SerialNumber, MatchedAt: r.Time}
}

// replaceExternal writes the report, its findings and its text.
func (s *Store) replaceExternal(
	ctx context.Context, tx *session, r ExternalReport, rows []*findingRow, content string, staged *stagedReport,
) (d Difference, err error) {
	now := s.now()
	report := r.report()
	var left *room
	if staged == nil {
		if left, err = r.room(ctx, tx); err != nil {
			return d, err
		}
	}
	before, d, err := replaceReport(ctx, tx, report, rows, "", newLossChange(report, now), left, staged) // what an external report loses is no anomaly of an engine
	if err != nil {
		return d, err
	}
	if d.Gone > 0 {
		if err := deleteOldestGone(ctx, tx, before.id, report.Engine); err != nil {
			return d, err
		}
	}
	if _, err := tx.ExecContext(ctx, `UPDATE manifests SET namespace = ?, last_used = ? WHERE id = ?`, r.Namespace, millis{now}, before.manifest); err != nil {
		return d, err
	}
	if _, err := tx.ExecContext(ctx, `DELETE FROM artifacts WHERE manifest_id = ? AND name = ?`, before.manifest, r.artifact()); err != nil {
		return d, err
	}
	if _, err := r.Text.Seek(0, io.SeekStart); err != nil {
		return d, err
	}
	if err := writeArtifact(ctx, tx, before.manifest, r.artifact(), r.Text); err != nil {
		return d, err
	}
	_, err = tx.ExecContext(ctx, saveExternalReport, append(append([]any{before.id}, r.args()...),
		r.TextSum, content, r.SerialNumber, r.Version, millis{r.Time}, r.Tool, millis{now}, r.User)...)
	if err != nil {
		return d, err
	}
	if err := updateExternalOfImages(ctx, tx, [2]string{r.Namespace, r.Digest}); err != nil {
		return d, err
	}
	if staged != nil {
		rows = staged.writtenRows() // the others are counted
	}
	// Neither the names of the vulnerabilities nor the findings that are gone are known before.
	if err := countStated(ctx, tx, rows); err != nil {
		return d, err
	}
	if err := tx.execIDs(ctx, countKept, []int64{before.id}); err != nil || r.Budget == 0 {
		return d, err
	}
	used, err := storedBytes(ctx, tx, r.Namespace)
	if err == nil && used > r.Budget {
		err = fmt.Errorf("%w: %d of %d bytes would be used", ErrOverBudget, used, r.Budget)
	}
	return d, err
}

// deleteOldestGone deletes the findings of a report that are gone, but for the latest, and what the source states about their vulnerabilities.
func deleteOldestGone(ctx context.Context, tx *session, report int64, engine string) error {
	result, err := tx.ExecContext(ctx, deleteOldest, report, maxGone, maxGoneExternal)
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n == 0 {
		return err
	}
	return sweepStatements(ctx, tx, engine)
}

// countStated counts the bytes of the vulnerabilities of findings.
func countStated(ctx context.Context, tx *session, rows []*findingRow) error {
	vulnerabilities := make([]int64, 0, len(rows))
	for _, row := range rows {
		vulnerabilities = append(vulnerabilities, row.vulnerability)
	}
	slices.Sort(vulnerabilities)
	return tx.execIDs(ctx, countStatements, slices.Compact(vulnerabilities))
}

// room returns how much the report may add to what the store has for the namespace, besides its text; nil without a budget.
func (r ExternalReport) room(ctx context.Context, q query) (*room, error) {
	if r.Budget == 0 {
		return nil, nil
	}
	used, err := storedBytes(ctx, q, r.Namespace)
	if err != nil {
		return nil, err
	}
	var replaced int64
	of := r.Subject()
	err = q.QueryRowContext(ctx, `SELECT coalesce(sum(a.size), 0) FROM manifests m JOIN artifacts a ON a.manifest_id = m.id
		WHERE m.platform_digest = ? AND m.scope = ? AND a.name = ?`, of.PlatformDigest, of.Scope, r.artifact()).Scan(&replaced)
	if err != nil {
		return nil, err
	}
	text, err := r.Text.Seek(0, io.SeekEnd)
	left := room(r.Budget)
	if err == nil {
		err = left.take(used - replaced + text)
	}
	return &left, err
}

// sweepStatements deletes what a source states about vulnerabilities of which it has no findings any more.
func sweepStatements(ctx context.Context, tx *session, engine string) error {
	_, err := tx.ExecContext(ctx, `DELETE FROM vulnerabilities WHERE engine = ?
		AND NOT EXISTS (SELECT 1 FROM findings f WHERE f.vulnerability_id = vulnerabilities.id)`, engine)
	return err
}

// ExternalReport returns an external report without its findings, or ErrNotFound.
func (s *Store) ExternalReport(ctx context.Context, k ExternalKey) (e ExternalState, err error) {
	return scanExternal(s.queryRow(ctx, "look up external report "+k.Source+" of "+k.Digest, selectExternalReport, k.args()...))
}

// ExternalReports lists the external reports of an image in a namespace, by source and platform.
func (s *Store) ExternalReports(ctx context.Context, namespace, digest string) ([]ExternalState, error) {
	return queryRows(ctx, s, "list external reports of "+digest, selectExternalReports, []any{namespace, digest},
		func(rows *sql.Rows) (ExternalState, error) { return scanExternal(rows) })
}

// Platforms lists the platforms of an image that scanners have in a namespace, sorted.
func (s *Store) Platforms(ctx context.Context, namespace, digest string) ([]string, error) {
	return queryRows(ctx, s, "list platforms of "+digest, `SELECT DISTINCT platform FROM scanner_images WHERE digest = ? AND namespace = ? ORDER BY platform`,
		[]any{digest, namespace}, scanValue[string])
}

// OpenExternalReport returns a reader of the text of an external report, as OpenArtifact does.
func (s *Store) OpenExternalReport(ctx context.Context, k ExternalKey) (io.ReadCloser, int64, error) {
	of := k.Subject()
	return s.OpenArtifact(ctx, of.PlatformDigest, of.Scope, k.artifact())
}

// DeleteExternalReport deletes an external report with its findings, which are withdrawn and not fixed. It returns ErrNotFound if there is none.
// check is as in SaveExternalReport.
func (s *Store) DeleteExternalReport(ctx context.Context, k ExternalKey, check func(before *ExternalState) error) error {
	return s.write(ctx, "delete external report "+k.Source+" of "+k.Digest, func(ctx context.Context, tx *session) error {
		before, err := findExternal(ctx, tx, k)
		if err == nil && before == nil {
			err = ErrNotFound
		}
		if err != nil {
			return err
		}
		if err := check(before); err != nil {
			return err
		}
		scanners, err := collect(ctx, tx, `SELECT scanner FROM announced_sources WHERE source = ? ORDER BY scanner`, []any{k.Source}, scanValue[string])
		if err != nil {
			return err
		}
		for _, scanner := range scanners {
			if err := releaseExternal(ctx, tx, externalRelease{at: s.now(), scanner: scanner, report: before.report}); err != nil {
				return err
			}
		}
		if _, err := tx.ExecContext(ctx, `DELETE FROM artifacts WHERE id = ?`, before.Text); err != nil {
			return err
		}
		running, err := collect(ctx, tx, selectRunningReport, []any{before.report}, scanRunning)
		if err != nil {
			return err
		}
		if err := recordRunning(ctx, tx, deleteRunning, running, -1); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `DELETE FROM reports WHERE id = ?`, before.report); err != nil {
			return err
		}
		if err := sweepStatements(ctx, tx, k.Subject().Engine); err != nil {
			return err
		}
		return markChanged(ctx, tx, k.Namespace)
	})
}
