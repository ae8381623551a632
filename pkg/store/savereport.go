package store

import (
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"database/sql/driver"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"slices"
	"strconv"
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
// nor gone. A large report is written in steps, between which others write (stageReport); it becomes visible with the last one. While others wait, the
// reports that count against the budget of one namespace take at most a quarter of the writers' time.
func (s *Store) SaveReport(ctx context.Context, r Report, leaseID string) (d Difference, err error) {
	if r.PlatformDigest == "" || r.Engine == "" {
		return Difference{}, errors.New("store: save report: the platform digest or engine is empty")
	}
	rows, err := rowsOf(r.Findings)
	if err != nil {
		return Difference{}, fmt.Errorf("store: save report of %s: %w", r.PlatformDigest, err)
	}
	namespace, err := s.namespaceOf(ctx, r.Subject)
	if err != nil {
		return Difference{}, err
	}
	action := "save report of " + r.PlatformDigest
	err = s.inSteps(ctx, staging{namespace: namespace, action: action, report: r, rows: rows}, func(ctx context.Context, tx *session, staged *stagedReport) error {
		change := newLossChange(r, s.now())
		var before previousReport
		if before, d, err = replaceReport(ctx, tx, r, rows, leaseID, change, nil, staged); err != nil {
			return err
		}
		change.present = len(rows) - before.present
		return change.save(ctx, tx)
	})
	if err != nil {
		return Difference{}, err
	}
	return d, nil
}

// namespaceOf returns the namespace against whose budget the findings of a subject count; empty if the image is not known.
func (s *Store) namespaceOf(ctx context.Context, of Subject) (namespace string, err error) {
	err = s.queryRow(ctx, "look up the namespace of "+of.PlatformDigest, `SELECT namespace FROM manifests WHERE platform_digest = ? AND scope = ?`,
		of.PlatformDigest, of.Scope).Scan(&namespace)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return "", err
	}
	return cmp.Or(string(of.Scope), namespace), nil
}

// replaceReport does what SaveReport does, but for the counts of lost findings, which it only collects. staged is what was written of it before; nil for
// nothing. The error is ErrOverBudget if the report adds more than there is room for.
func replaceReport(
	ctx context.Context, tx *session, r Report, rows []*findingRow, leaseID string, change *lossChange, left *room, staged *stagedReport,
) (before previousReport, d Difference, err error) {
	if before, err = findPreviousReport(ctx, tx, r.Subject); err == nil && before.manifest == 0 {
		before.manifest, err = insertManifest(ctx, tx, r.PlatformDigest, r.Scope, change.at)
	}
	if err != nil {
		return before, d, err
	}
	if err := endLease(ctx, tx, leaseID, before.manifest, r.Engine, change.at); err != nil {
		return before, d, err
	}
	first := before.first()
	var c *comparison
	if staged != nil {
		c, err = staged.publish(ctx, tx, &before, r, change)
	} else if err = saveVulnerabilities(ctx, tx, r.Engine, rows, change.at, left); err == nil {
		if c, err = compareReport(ctx, tx, before, r, rows, change); err == nil {
			err = c.requireRoom(ctx, tx, left)
		}
	}
	if err != nil {
		return before, d, err
	}
	if err := before.replace(ctx, tx, r, rows, change.at); err != nil {
		return before, d, err
	}
	c.First = first
	if err := c.save(ctx, tx, before.id); err != nil {
		return before, d, err
	}
	return before, c.Difference, tx.execRows(ctx, countReported, c.counts, sql.Named("manifest", before.manifest), sql.Named("engine", r.Engine))
}

// endLease ends the lease that a report was made under. An empty ID does nothing.
func endLease(ctx context.Context, tx *session, id string, manifest int64, engine string, now time.Time) error {
	if id == "" {
		return nil
	}
	result, err := tx.ExecContext(ctx, `DELETE FROM leases WHERE id = ? AND manifest_id = ? AND engine = ? AND until > ?`, id, manifest, engine, millis{now})
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); n > 0 || err != nil {
		return err
	}
	return ErrLeaseEnded
}

// previousReport is what a subject had before its report is saved: the row IDs of its manifest and its report, 0 for none, and what else the row has.
type previousReport struct {
	manifest, id int64
	matchedAt    millis
	present      int // number of findings
	// revision and kept change whenever the report's findings do.
	revision, kept int64
	// failed means that the subject could not be matched before. counted means that Jobs for it ended without a result.
	failed, counted bool
}

func (before previousReport) first() bool { return before.id == 0 }

func findPreviousReport(ctx context.Context, q query, of Subject) (before previousReport, err error) {
	err = q.QueryRowContext(ctx, `
		SELECT m.id, coalesce(r.id, 0), r.matched_at, coalesce(r.present, 0), coalesce(r.revision, 0), coalesce(r.kept_bytes, 0),
			EXISTS (SELECT 1 FROM match_failures f WHERE f.manifest_id = m.id AND f.engine = @engine),
			EXISTS (SELECT 1 FROM silent_ends e WHERE e.manifest_id = m.id AND e.engine = @engine)
		FROM manifests m LEFT JOIN reports r ON r.manifest_id = m.id AND r.engine = @engine WHERE m.platform_digest = @digest AND m.scope = @scope`,
		sql.Named("engine", of.Engine), sql.Named("digest", of.PlatformDigest), sql.Named("scope", of.Scope),
	).Scan(&before.manifest, &before.id, &before.matchedAt, &before.present, &before.revision, &before.kept, &before.failed, &before.counted)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return before, err
}

// replace writes the report's own row, and sets the ID of a new one. What could not be matched before now is, so its failure goes.
func (before *previousReport) replace(ctx context.Context, tx *session, r Report, rows []*findingRow, now time.Time) (err error) {
	if before.failed {
		if _, err := tx.ExecContext(ctx, `DELETE FROM match_failures WHERE manifest_id = ? AND engine = ?`, before.manifest, r.Engine); err != nil {
			return err
		}
	}
	if before.counted {
		if err := clearSilentEnds(ctx, tx, before.manifest, r.Engine); err != nil {
			return err
		}
	}
	values := []any{r.DataVersion, millis{orNow(r.MatchedAt, now)}, r.Distro, list[string](r.NotCovered), len(rows), bytesOf(rows), urgencyOf(rows)}
	if before.first() {
		before.id, err = tx.insert(ctx, `
			INSERT INTO reports (revision, store_revision, manifest_id, engine, data_version, matched_at, distro, not_covered, present, bytes, urgency)
			VALUES (1, `+currentRevision+`, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			append([]any{before.manifest, r.Engine}, values...)...)
		return err
	}
	_, err = tx.ExecContext(ctx, `
		UPDATE reports SET revision = revision + 1, store_revision = `+currentRevision+`, data_version = ?, matched_at = ?, distro = ?, not_covered = ?, present = ?, bytes = ?,
			urgency = ? WHERE id = ?`,
		append(values, before.id)...)
	return err
}

// findingRow is a finding with the further values of its row.
type findingRow struct {
	finding.Finding
	key           [sha256.Size]byte
	columns       []any // values of findingColumns
	content       int64
	bytes         int64 // of texts, in the row and its indexes
	vulnerability int64 // its row, once saveVulnerabilities knows it
	exploited     bool  // what the report's findings state together about the vulnerability
}

// rowsOf converts findings to rows. It merges findings with the same key, which callers should not pass.
func rowsOf(findings []finding.Finding) ([]*findingRow, error) {
	rows := make([]*findingRow, 0, len(findings))
	seen := make(map[[sha256.Size]byte]bool, len(findings))
	for _, f := range findings {
		f = f.Clean()
		row := &findingRow{Finding: f, key: f.KeySum()}
		if seen[row.key] {
			return rowsOf(mergeClean(findings))
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

// mergeClean merges findings whose keys are equal once they are clean.
func mergeClean(findings []finding.Finding) []finding.Finding {
	cleaned := make([]finding.Finding, len(findings))
	for i, f := range findings {
		cleaned[i] = f.Clean()
	}
	return finding.Merge(cleaned)
}

// findingColumns are the columns that an engine's report determines for each finding. What it reports about the vulnerability is in the table
// of vulnerabilities. declareFindingColumns declares them for the macro records.
const (
	findingColumns        = `package, version, type, purl, paths, severity, fixable, fix_state, fix_versions, fix_available, aliases, advisories`
	declareFindingColumns = `package text, version text, type text, purl text, paths bytes, severity bigint, fixable bigint, fix_state text,
		fix_versions text, fix_available bigint, aliases text, advisories text`
)

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
	var text []byte
	switch value := column.(type) {
	case []byte:
		text = value
	case string:
		text = []byte(value)
	case int64:
		text = strconv.AppendInt(nil, value, 10)
	default:
		text = fmt.Append(nil, value)
	}
	var prefix [8]byte
	binary.BigEndian.PutUint64(prefix[:], uint64(len(text)))
	_, _ = sum.Write(prefix[:])
	_, _ = sum.Write(text)
	return int64(len(text))
}

// bytesOf returns what findings count in the budget of their namespace: the bytes of their columns, but findingBytes for each at least.
func bytesOf(rows []*findingRow) (bytes int64) {
	for _, row := range rows {
		bytes += max(findingBytes, row.bytes)
	}
	return bytes
}

// urgencyOf returns how urgent the findings are that an update ends: the number of known exploited ones times 2^40, of critical ones times
// 2^20, and of high ones.
func urgencyOf(rows []*findingRow) (urgency int64) {
	for _, row := range rows {
		switch {
		case !row.Fixable():
			continue
		case row.Severity == finding.Critical:
			urgency += 1 << 20
		case row.Severity == finding.High:
			urgency++
		}
		if row.exploited {
			urgency += 1 << 40
		}
	}
	return urgency
}

// knownFinding is a row that the report had before.
type knownFinding struct {
	id       int64
	content  int64
	severity finding.Severity
	gone     bool
	// vulnerability is its row, and fixable tells whether an update ended the finding.
	vulnerability int64
	fixable       bool
	// unconfirmed means that the finding disappeared with other data than the new report's, and that no report has confirmed it as
	// fixed.
	unconfirmed bool
	seen        bool // present in the new report
	// fixedByDataAfter is the time after which other data must have been made to confirm the fix; zero if any other data does.
	fixedByDataAfter millis
	// goneWith is the version of the data with which the finding disappeared, and the day.
	goneWith lossDay
	history  list[SeverityBefore]
}

func knownFindings(ctx context.Context, q query, report int64, dataVersion string) (map[[sha256.Size]byte]*knownFinding, error) {
	known := make(map[[sha256.Size]byte]*knownFinding)
	err := eachRow(ctx, q, `
		SELECT "key", id, content, severity, gone_at IS NOT NULL, gone_at IS NOT NULL AND fixed_at IS NULL AND gone_data_version <> ?,
			coalesce(gone_data_version, ''), coalesce(whole(gone_at, 86400000), 0), fixed_by_data_after, severity_history, vulnerability_id, fixable
		FROM findings WHERE report_id = ?`, []any{dataVersion, report}, func(rows *sql.Rows) error {
		var k knownFinding
		var key sql.RawBytes
		if err := rows.Scan(&key, &k.id, &k.content, &k.severity, &k.gone, &k.unconfirmed, &k.goneWith.version, &k.goneWith.day, &k.fixedByDataAfter, &k.history,
			&k.vulnerability, &k.fixable); err != nil {
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

// comparison is how a report differs from the one before: an unchanged finding costs no write.
type comparison struct {
	Difference
	findingWriter
	// counts are rows of countReported.
	counts [][]any
}

// compareReport reads the findings of the report before. Each row of the new report must have its vulnerability.
func compareReport(ctx context.Context, q query, before previousReport, r Report, rows []*findingRow, change *lossChange) (c *comparison, err error) {
	known := make(map[[sha256.Size]byte]*knownFinding)
	if !before.first() {
		if known, err = knownFindings(ctx, q, before.id, r.DataVersion); err != nil {
			return nil, err
		}
	}
	renamed, err := findRenamed(ctx, q, known, rows)
	if err != nil {
		return nil, err
	}
	c = &comparison{findingWriter: findingWriter{losses: change, lastSeen: before.matchedAt, dataVersion: r.DataVersion, fixedByDataAfter: r.Evidence.After}}
	factsBefore, factsAfter := make(factsByVulnerability), make(factsByVulnerability)
	for _, k := range known {
		if !k.gone {
			factsBefore.add(k.vulnerability, k.severity, k.fixable)
		}
	}
	for _, row := range rows {
		factsAfter.add(row.vulnerability, row.Severity, row.Fixable())
		k := known[row.key]
		if old := renamed[row]; old != nil {
			k = old
		}
		switch {
		case k == nil:
			c.New++
			c.add(row)
			continue
		case k.gone:
			c.New++
		default:
			c.Still++
		}
		if k.gone || k.content != row.content || renamed[row] != nil {
			c.change(k, row)
		}
	}
	c.counts = factsBefore.changes(factsAfter)
	c.Gone, err = c.markMissing(ctx, q, known, r)
	return c, err
}

// maxSeverities bounds the severity history of a finding.
const maxSeverities = 10

// findingWriter collects what to write of a report's findings.
type findingWriter struct {
	losses *lossChange
	// lastSeen, dataVersion and fixedByDataAfter are what is recorded with findings that are gone.
	lastSeen         millis
	dataVersion      string
	fixedByDataAfter time.Time
	// added and changed are rows of insertFindings and updateFindings, names those of insertNames.
	added, changed, names  [][]any
	addedRows, changedRows []*findingRow
	// gone and fixed are row IDs.
	gone, fixed []int64
	// returned means that a finding is present again.
	returned bool
}

// rows returns how many rows are to be written.
func (w *findingWriter) rows() int {
	return len(w.added) + len(w.changed) + len(w.names) + len(w.gone) + len(w.fixed)
}

const (
	declareWritten = `key bytes, vulnerability bigint, known_exploited bigint, content bigint, ` + declareFindingColumns

	insertFindings = `
		INSERT INTO findings (report_id, "key", vulnerability_id, known_exploited, content, first_seen, fixable_since, ` + findingColumns + `)
		SELECT @report, r.key, r.vulnerability, r.known_exploited, r.content, @now, CASE WHEN r.fixable = 1 THEN integer(@now) END, r.package, r.version, r.type,
			r.purl, r.paths, r.severity, r.fixable, r.fix_state, r.fix_versions, r.fix_available, r.aliases, r.advisories
		FROM records(@rows, ` + declareWritten + `) r`

	updateFindings = `
		UPDATE findings SET "key" = r.key, vulnerability_id = r.vulnerability, known_exploited = r.known_exploited, content = r.content,
			fixable_since = CASE WHEN r.fixable = 1 THEN coalesce(fixable_since, @now) END, package = r.package, version = r.version, type = r.type,
			purl = r.purl, paths = r.paths, severity = r.severity, fixable = r.fixable, fix_state = r.fix_state, fix_versions = r.fix_versions,
			fix_available = r.fix_available, aliases = r.aliases, advisories = r.advisories, severity_history = r.history, gone_at = NULL,
			last_seen = NULL, gone_data_version = NULL, fixed_by_data_after = NULL, fixed_at = NULL
		FROM records(@rows, ` + declareWritten + `, id bigint, history text) r WHERE findings.id = r.id`

	markGone = `UPDATE findings SET last_seen = @last_seen, gone_at = @now, gone_data_version = @data_version, fixed_by_data_after = @after
		WHERE id IN (SELECT value FROM ids(@ids) i)`
	// countKept counts the bytes of the findings that are gone, as bytesOf counts those that are present. An external report has rows of its own.
	countKept = `
		UPDATE reports SET kept_bytes = 2048 * (SELECT count(*) FROM external_reports e WHERE e.report_id = reports.id) + coalesce((
			SELECT sum(greatest(320, 2 * octet_length(f.package) + octet_length(f.version) + octet_length(f.type) + octet_length(f.purl) + octet_length(f.paths)
				+ octet_length(f.fix_state) + octet_length(f.fix_versions) + octet_length(f.aliases) + octet_length(f.advisories)))
			FROM findings f WHERE f.report_id = reports.id AND f.gone_at IS NOT NULL), 0)
		WHERE id IN (SELECT value FROM ids(@ids) i)`
	markFindingsFixed = `UPDATE findings SET fixed_at = @now WHERE id IN (SELECT value FROM ids(@ids) i)`

	// insertNames makes vulnerabilities searchable by an ID. Names are folded (foldName).
	insertNames = `INSERT INTO vulnerability_names (name, vulnerability_id) SELECT r.name, r.id FROM records(@rows, name text, id bigint) r WHERE true
		ON CONFLICT DO NOTHING`
)

func (row *findingRow) values() []any {
	return append([]any{row.key[:], row.vulnerability, row.exploited, row.content}, row.columns...)
}

func (w *findingWriter) add(row *findingRow) {
	w.added, w.addedRows = append(w.added, row.values()), append(w.addedRows, row)
	w.addAliases(row)
}

// change updates the row of a finding, present or gone, to what the report has: also its ID, and with it the key.
func (w *findingWriter) change(k *knownFinding, row *findingRow) {
	if k.severity != row.Severity {
		k.history = append(k.history, SeverityBefore{Severity: k.severity, Until: w.losses.at.UTC()})
		k.history = k.history[max(0, len(k.history)-maxSeverities):]
	}
	if k.gone {
		w.losses.count(k.goneWith, -1)
		w.returned = true
	}
	w.changed, w.changedRows = append(w.changed, append(row.values(), k.id, k.history)), append(w.changedRows, row)
	w.addAliases(row)
}

// addAliases makes a finding's vulnerability searchable by the finding's aliases.
func (w *findingWriter) addAliases(row *findingRow) {
	for _, alias := range row.Aliases {
		w.names = append(w.names, []any{foldName(alias), row.vulnerability})
	}
}

const selectKnownNames = `SELECT vulnerability_id, name FROM vulnerability_names WHERE vulnerability_id IN (SELECT value FROM ids(@ids) i)`

// requireRoom returns ErrOverBudget if there is no room for the new findings and names. It writes nothing, so that refused reports leave no trace.
func (w *findingWriter) requireRoom(ctx context.Context, q query, left *room) error {
	if left == nil {
		return nil
	}
	type named struct {
		vulnerability int64
		name          string
	}
	names, bytes := map[named]bool{}, bytesOf(w.addedRows)
	var vulnerabilities []int64
	for _, row := range w.names {
		vulnerability := row[1].(int64)
		names[named{vulnerability, row[0].(string)}] = true
		vulnerabilities = append(vulnerabilities, vulnerability)
	}
	slices.Sort(vulnerabilities)
	for page := range slices.Chunk(slices.Compact(vulnerabilities), maxRows) {
		err := eachRow(ctx, q, selectKnownNames, []any{sql.Named("ids", jsonArray(page))}, func(rows *sql.Rows) error {
			var known named
			err := rows.Scan(&known.vulnerability, &known.name)
			delete(names, known)
			return err
		})
		if err != nil {
			return err
		}
	}
	for n := range names {
		bytes += nameBytes + 2*int64(len(n.name))
	}
	return left.take(bytes)
}

// markMissing collects the findings that the report lacks: as gone, or as fixed if the report confirms that. It returns how many of them
// were present before.
func (w *findingWriter) markMissing(ctx context.Context, q query, known map[[sha256.Size]byte]*knownFinding, r Report) (gone int, err error) {
	var unconfirmed []*knownFinding
	for _, k := range known {
		switch {
		case k.seen:
		case !k.gone:
			w.gone = append(w.gone, k.id)
		case k.unconfirmed:
			unconfirmed = append(unconfirmed, k)
		}
	}
	if n := len(w.gone); n > 0 {
		w.losses.count(lossDay{r.DataVersion, dayOf(w.losses.at)}, n)
	}
	w.fixed, err = confirmFixed(ctx, q, unconfirmed, r.Evidence)
	return len(w.gone), err
}

// writtenRows returns the rows whose vulnerabilities must exist.
func (w *findingWriter) writtenRows() []*findingRow { return slices.Concat(w.addedRows, w.changedRows) }

// save writes what was collected to a report, and counts its findings that are gone.
func (w *findingWriter) save(ctx context.Context, tx *session, report int64) error {
	if err := w.write(ctx, tx, report); err != nil || len(w.gone) == 0 && !w.returned {
		return err
	}
	return tx.execIDs(ctx, countKept, []int64{report})
}

func (w *findingWriter) write(ctx context.Context, tx *session, report int64) error {
	now := sql.Named("now", millis{w.losses.at})
	if err := tx.execRows(ctx, insertFindings, w.added, sql.Named("report", report), now); err != nil {
		return err
	}
	if err := tx.execRows(ctx, updateFindings, w.changed, now); err != nil {
		return err
	}
	if err := tx.execRows(ctx, insertNames, w.names); err != nil {
		return err
	}
	err := tx.execIDs(ctx, markGone, w.gone, now, sql.Named("last_seen", w.lastSeen), sql.Named("data_version", w.dataVersion),
		sql.Named("after", millis{w.fixedByDataAfter}))
	if err != nil {
		return err
	}
	return tx.execIDs(ctx, markFindingsFixed, w.fixed, now)
}
