package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"database/sql/driver"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"maps"
	"slices"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// Report is all findings that an engine has for an image.
type Report struct {
	Subject
	DataVersion string
	MatchedAt   time.Time
	Distro      string
	// NotCovered names contents that the image has or may have and for which the engine never has findings.
	NotCovered []string
	// Evidence is what the report's data proves about findings that the report lacks.
	Evidence Evidence
	// Findings are merged (finding.Merge). Nil and empty are equal: the image has no findings.
	Findings []finding.Finding
}

// Difference is how a report changed the findings of its subject.
type Difference struct {
	New, Still, Gone int
	// First means that the subject had no report before.
	First bool
}

// SeverityBefore is a severity that a finding had until a time.
type SeverityBefore struct {
	Severity finding.Severity `json:"severity"`
	Until    time.Time        `json:"until"`
}

// SaveReport replaces a subject's report, and updates the lifetime of its findings in the same transaction: findings that are
// present for the first time get a first-seen time, those that are gone a gone time. The transaction also ends the lease leaseID of
// the subject; an empty leaseID means that there is none. It returns ErrLeaseEnded if the lease is not held. A report without a time
// gets the current time. The first-seen, gone and fixed times of findings are the store's own; the last-seen time is the report's. A
// finding that is present again counts as new and keeps its first-seen time. A finding whose ID has merely changed is neither new
// nor gone. All writers wait while a report is saved: 50,000 findings take some seconds at most.
func (s *Store) SaveReport(ctx context.Context, r Report, leaseID string) (d Difference, err error) {
	if r.PlatformDigest == "" || r.Engine == "" {
		return Difference{}, errors.New("store: save report: the platform digest or engine is empty")
	}
	rows, err := rowsOf(r.Findings)
	if err != nil {
		return Difference{}, fmt.Errorf("store: save report of %s: %w", r.PlatformDigest, err)
	}
	err = s.write(ctx, "save report of "+r.PlatformDigest, func(ctx context.Context, tx *sql.Tx) error {
		now := s.now()
		change := &lossChange{engine: r.Engine, scope: r.Scope, at: now, missing: make(map[lossDay]int)}
		manifest, err := ensureManifest(ctx, tx, r.PlatformDigest, r.Scope, now)
		if err != nil {
			return err
		}
		if err := endLease(ctx, tx, leaseID, manifest, r.Engine, now); err != nil {
			return err
		}
		before, err := replaceReport(ctx, tx, manifest, r, rows, now)
		if err != nil {
			return err
		}
		if err := saveVulnerabilities(ctx, tx, r.Engine, rows, now); err != nil {
			return err
		}
		if d, err = saveFindings(ctx, tx, before, r, rows, change); err != nil {
			return err
		}
		d.First = before.first
		change.present = len(rows) - before.present
		return change.save(ctx, tx)
	})
	if err != nil {
		return Difference{}, err
	}
	return d, nil
}

// endLease ends the lease that a report was made under. An empty ID does nothing.
func endLease(ctx context.Context, tx *sql.Tx, id string, manifest int64, engine string, now time.Time) error {
	if id == "" {
		return nil
	}
	var one int
	return orLeaseEnded(tx.QueryRowContext(ctx, `
		DELETE FROM leases WHERE id = ? AND manifest_id = ? AND engine = ? AND until > ? RETURNING 1`,
		id, manifest, engine, millis{now}).Scan(&one))
}

// previousReport is a report's row ID, and the values of its row before the row was replaced.
type previousReport struct {
	id        int64
	first     bool // there was no report
	matchedAt millis
	present   int // number of findings
}

// replaceReport writes the report's own row. What could not be matched before now is, so its failure goes.
func replaceReport(ctx context.Context, tx *sql.Tx, manifest int64, r Report, rows []*findingRow, now time.Time) (before previousReport, err error) {
	err = tx.QueryRowContext(ctx, `SELECT matched_at, present FROM reports WHERE manifest_id = ? AND engine = ?`, manifest, r.Engine).
		Scan(&before.matchedAt, &before.present)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return before, err
	}
	before.first = err != nil
	if _, err := tx.ExecContext(ctx, `DELETE FROM match_failures WHERE manifest_id = ? AND engine = ?`, manifest, r.Engine); err != nil {
		return before, err
	}
	if err := clearSilentEnds(ctx, tx, manifest, r.Engine); err != nil {
		return before, err
	}
	err = tx.QueryRowContext(ctx, `
		INSERT INTO reports (revision, manifest_id, engine, data_version, matched_at, distro, not_covered, present, bytes) VALUES (1, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (manifest_id, engine) DO UPDATE SET revision = revision + 1, data_version = excluded.data_version,
			matched_at = excluded.matched_at, distro = excluded.distro, not_covered = excluded.not_covered, present = excluded.present,
			bytes = excluded.bytes
		RETURNING id`, manifest, r.Engine, r.DataVersion, millis{orNow(r.MatchedAt, now)}, r.Distro, list[string](r.NotCovered), len(rows),
		bytesOf(rows)).Scan(&before.id)
	return before, err
}

// findingRow is a finding with the further values of its row.
type findingRow struct {
	finding.Finding
	key           [sha256.Size]byte
	columns       []any // values of findingColumnNames
	content       int64
	bytes         int64 // of texts, in the row and its indexes
	vulnerability int64 // its row, once saveVulnerabilities knows it
}

// rowsOf converts findings to rows. It merges findings with the same key, which callers should not pass.
func rowsOf(findings []finding.Finding) ([]*findingRow, error) {
	rows := make([]*findingRow, 0, len(findings))
	seen := make(map[[sha256.Size]byte]bool, len(findings))
	for _, f := range findings {
		row := &findingRow{Finding: f, key: f.KeySum()}
		if seen[row.key] {
			return rowsOf(finding.Merge(findings))
		}
		seen[row.key] = true
		rows = append(rows, row)
	}
	for _, row := range rows {
		if err := row.fill(); err != nil {
			return nil, fmt.Errorf("finding %s: %w", row.ID, err)
		}
	}
	return rows, nil
}

// findingColumnNames are the columns that an engine's report determines for each finding. What it reports about the vulnerability
// is in the table of vulnerabilities.
const findingColumnNames = `package, version, type, purl, paths, severity, fixable, fix_state, fix_versions, fix_available, aliases, advisories`

func (row *findingRow) fill() error {
	row.columns = []any{
		row.Package.Name, row.Package.Version, row.Package.Type, row.Package.PURL, paths(row.Paths),
		int64(row.Severity), row.Fixable(), row.FixState, list[string](row.FixVersions), millis{row.FixAvailable},
		list[string](row.Aliases), list[finding.Advisory](row.Advisories),
	}
	sum := sha256.New()
	for i, column := range row.columns {
		value, err := driver.DefaultParameterConverter.ConvertValue(column)
		if err != nil {
			return err
		}
		row.columns[i] = value
		row.bytes += hashColumn(sum, value)
	}
	row.bytes += int64(len(row.Package.Name)) // findings_present has it once more
	// The first 64 bits: that a change goes unseen has a chance of one in 10^19.
	row.content = int64(binary.BigEndian.Uint64(sum.Sum(nil)))
	return nil
}

// hashColumn writes a column with its length, so that no two lists of columns look alike, and returns the length. A hash's Write never fails.
func hashColumn(sum hash.Hash, column driver.Value) (length int64) {
	var text bytes.Buffer
	switch value := column.(type) {
	case []byte:
		text.Write(value)
	case string:
		text.WriteString(value)
	default:
		fmt.Fprint(&text, value)
	}
	_, _ = sum.Write(binary.BigEndian.AppendUint64(nil, uint64(text.Len())))
	_, _ = sum.Write(text.Bytes())
	return int64(text.Len())
}

// bytesOf returns what findings count in the budget of their namespace: the bytes of their columns, but findingBytes for each at least.
func bytesOf(rows []*findingRow) (bytes int64) {
	for _, row := range rows {
		bytes += max(findingBytes, row.bytes)
	}
	return bytes
}

// knownFinding is a row that the report had before.
type knownFinding struct {
	id       int64
	content  int64
	severity finding.Severity
	gone     bool
	// unconfirmed means that the finding disappeared with other data than the new report's, and that no report has confirmed it as
	// fixed.
	unconfirmed bool
	seen        bool // present in the new report
	// fixedByDataAfter is the time after which other data must have been made to confirm the fix; zero if any other data does.
	fixedByDataAfter millis
	// goneWith is the version of the data with which the finding disappeared, and the day.
	goneWith lossDay
}

func knownFindings(ctx context.Context, tx *sql.Tx, report int64, dataVersion string) (map[[sha256.Size]byte]*knownFinding, error) {
	known := make(map[[sha256.Size]byte]*knownFinding)
	err := eachRow(ctx, tx, `
		SELECT key, id, content, severity, gone_at IS NOT NULL, gone_at IS NOT NULL AND fixed_at IS NULL AND gone_data_version <> ?,
			coalesce(gone_data_version, ''), coalesce(gone_at / 86400000, 0), fixed_by_data_after
		FROM findings WHERE report_id = ?`, []any{dataVersion, report}, func(rows *sql.Rows) error {
		var k knownFinding
		var key sql.RawBytes
		if err := rows.Scan(&key, &k.id, &k.content, &k.severity, &k.gone, &k.unconfirmed, &k.goneWith.version, &k.goneWith.day, &k.fixedByDataAfter); err != nil {
			return err
		}
		if len(key) != sha256.Size {
			return fmt.Errorf("finding %d: its key has %d bytes", k.id, len(key))
		}
		known[[sha256.Size]byte(key)] = &k
		return nil
	})
	return known, err
}

// saveFindings writes the differences to the report's previous findings: an unchanged finding costs no write.
func saveFindings(ctx context.Context, tx *sql.Tx, before previousReport, r Report, rows []*findingRow, change *lossChange) (d Difference, err error) {
	known, err := knownFindings(ctx, tx, before.id, r.DataVersion)
	if err != nil {
		return Difference{}, err
	}
	renamed, err := findRenamed(ctx, tx, known, rows)
	if err != nil {
		return Difference{}, err
	}
	writer, err := prepareFindings(ctx, tx, change)
	if err != nil {
		return Difference{}, err
	}
	defer writer.close()
	err = bulk(ctx, len(rows), func(ctx context.Context, i int) error {
		row := rows[i]
		k := known[row.key]
		if old := renamed[row]; old != nil {
			k = old
			if err := writer.rename(ctx, k, row); err != nil {
				return err
			}
		}
		if k == nil {
			d.New++
			return writer.add(ctx, before.id, row)
		}
		if k.gone {
			d.New++
		} else {
			d.Still++
		}
		if k.gone || k.content != row.content || renamed[row] != nil {
			return writer.change(ctx, k, row)
		}
		return nil
	})
	if err != nil {
		return Difference{}, err
	}
	d.Gone, err = writer.markMissing(ctx, known, before, r)
	return d, err
}

// maxSeverities bounds the severity history of a finding.
const maxSeverities = 10

// findingWriter holds the prepared statements that run once per finding.
type findingWriter struct {
	now                                                                        time.Time
	losses                                                                     *lossChange
	adds, changes, renames, goes, confirms, names, history, writes, advisories *sql.Stmt
}

func prepareFindings(ctx context.Context, tx *sql.Tx, losses *lossChange) (*findingWriter, error) {
	w := findingWriter{now: losses.at, losses: losses}
	for _, statement := range []struct {
		into **sql.Stmt
		text string
	}{
		{&w.adds, `INSERT INTO findings (report_id, key, vulnerability_id, known_exploited, content, first_seen, fixable_since, ` + findingColumnNames + `)
			VALUES (?, ?, ?, (SELECT known_exploited FROM vulnerabilities WHERE id = ?3), ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`},
		{&w.changes, `UPDATE findings SET gone_at = NULL, last_seen = NULL, gone_data_version = NULL, fixed_by_data_after = NULL, fixed_at = NULL, content = ?,
			fixable_since = CASE WHEN ? THEN coalesce(fixable_since, ?) END,
			(` + findingColumnNames + `) = (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) WHERE id = ?`},
		{&w.renames, `UPDATE findings SET key = ?, vulnerability_id = ?, known_exploited = (SELECT known_exploited FROM vulnerabilities WHERE id = ?2)
			WHERE id = ?`},
		{&w.goes, `UPDATE findings SET last_seen = ?, gone_at = ?, gone_data_version = ?, fixed_by_data_after = ? WHERE id = ?`},
		{&w.confirms, `UPDATE findings SET fixed_at = ? WHERE id = ?`},
		{&w.names, insertName},
		{&w.history, `SELECT severity_history FROM findings WHERE id = ?`},
		{&w.writes, `UPDATE findings SET severity_history = ? WHERE id = ?`},
		{&w.advisories, `SELECT advisories FROM findings WHERE id = ?`},
	} {
		var err error
		if *statement.into, err = tx.PrepareContext(ctx, statement.text); err != nil { //nolint:sqlclosecheck // findingWriter.close does it
			w.close()
			return nil, err
		}
	}
	return &w, nil
}

func (w *findingWriter) add(ctx context.Context, report int64, row *findingRow) error {
	var fixableSince millis
	if row.Fixable() {
		fixableSince.Time = w.now
	}
	args := append([]any{report, row.key[:], row.vulnerability, row.content, millis{w.now}, fixableSince}, row.columns...)
	if _, err := w.adds.ExecContext(ctx, args...); err != nil {
		return err
	}
	return w.saveAliases(ctx, row)
}

// change updates the row of a finding, present or gone, to what the report has.
func (w *findingWriter) change(ctx context.Context, k *knownFinding, row *findingRow) error {
	if k.severity != row.Severity {
		if err := w.appendSeverity(ctx, k); err != nil {
			return err
		}
	}
	if k.gone {
		w.losses.count(k.goneWith, -1)
	}
	args := append([]any{row.content, row.Fixable(), millis{w.now}}, row.columns...)
	if _, err := w.changes.ExecContext(ctx, append(args, k.id)...); err != nil {
		return err
	}
	return w.saveAliases(ctx, row)
}

// appendSeverity appends a row's current severity to its severity history.
func (w *findingWriter) appendSeverity(ctx context.Context, k *knownFinding) error {
	var severities list[SeverityBefore]
	if err := w.history.QueryRowContext(ctx, k.id).Scan(&severities); err != nil {
		return err
	}
	severities = append(severities, SeverityBefore{Severity: k.severity, Until: w.now.UTC()})
	_, err := w.writes.ExecContext(ctx, severities[max(0, len(severities)-maxSeverities):], k.id)
	return err
}

// rename changes the vulnerability of a row, and with it the row's key.
func (w *findingWriter) rename(ctx context.Context, k *knownFinding, row *findingRow) error {
	_, err := w.renames.ExecContext(ctx, row.key[:], row.vulnerability, k.id)
	return err
}

// markMissing marks the findings that the report lacks: as gone, or as fixed if the report confirms that. It returns how many of them
// were present before.
func (w *findingWriter) markMissing(ctx context.Context, known map[[sha256.Size]byte]*knownFinding, before previousReport, r Report) (gone int, err error) {
	missing := slices.Collect(maps.Values(known))
	return gone, bulk(ctx, len(missing), func(ctx context.Context, i int) (err error) {
		switch k := missing[i]; {
		case k.seen:
		case !k.gone:
			gone++
			w.losses.count(lossDay{r.DataVersion, dayOf(w.now)}, 1)
			_, err = w.goes.ExecContext(ctx, before.matchedAt, millis{w.now}, r.DataVersion, millis{r.Evidence.After}, k.id)
		case k.unconfirmed:
			var fixed bool
			if fixed, err = w.isFixed(ctx, k, r.Evidence); err == nil && fixed {
				_, err = w.confirms.ExecContext(ctx, millis{w.now}, k.id)
			}
		}
		return err
	})
}

// saveAliases makes a finding's vulnerability searchable by the finding's aliases.
func (w *findingWriter) saveAliases(ctx context.Context, row *findingRow) error {
	for _, alias := range row.Aliases {
		if _, err := w.names.ExecContext(ctx, alias, row.vulnerability); err != nil {
			return err
		}
	}
	return nil
}

// close closes the statements. It ignores errors, since they repeat those of the statements' execution.
func (w *findingWriter) close() {
	for _, statement := range []*sql.Stmt{w.adds, w.changes, w.renames, w.goes, w.confirms, w.names, w.history, w.writes, w.advisories} {
		if statement != nil {
			_ = statement.Close()
		}
	}
}
