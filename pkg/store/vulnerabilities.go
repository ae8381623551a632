package store

import (
	"context"
	"database/sql"
	"slices"
	"time"
)

// vulnerability holds what all findings of a vulnerability share.
type vulnerability struct {
	description, url string
	cvss, epss       float64
	knownExploited   bool
}

// mergeVulnerabilities merges what a report's findings state about each vulnerability: the worst values, and the first description.
func mergeVulnerabilities(rows []*findingRow) (ids []string, byID map[string]*vulnerability) {
	byID = make(map[string]*vulnerability)
	for _, row := range rows {
		v, found := byID[row.ID]
		if !found {
			v = &vulnerability{}
			byID[row.ID] = v
			ids = append(ids, row.ID)
		}
		if v.description == "" && v.url == "" {
			v.description, v.url = row.Description, row.URL
		}
		v.cvss = max(v.cvss, row.CVSS)
		v.epss = max(v.epss, row.EPSS)
		v.knownExploited = v.knownExploited || row.KnownExploited
	}
	return ids, byID
}

const (
	// vulnerabilityBytes is what a vulnerability takes in the store besides its texts, its name and indexes included.
	vulnerabilityBytes = 200
	// nameBytes is what a name takes besides its text, which is in two indexes.
	nameBytes = 100

	// countStatements counts the bytes of vulnerabilities again, whose names are not known before those are saved.
	countStatements = `
		UPDATE vulnerabilities SET bytes = ` + statementBytes + ` WHERE id IN (SELECT value FROM ids(@ids) i) AND bytes <> ` + statementBytes + ``
	statementBytes = `(200 + octet_length(description) + octet_length(url) + coalesce((
		SELECT sum(100 + 2 * octet_length(n.name)) FROM vulnerability_names n WHERE n.vulnerability_id = vulnerabilities.id), 0))`

	selectVulnerabilities = `
		SELECT id, canonical_id, description, url, cvss, epss, known_exploited FROM vulnerabilities
		WHERE engine = @engine AND canonical_id IN (SELECT value FROM texts(@ids) i)`

	saveVulnerability = `
		INSERT INTO vulnerabilities (canonical_id, engine, description, url, cvss, epss, known_exploited, bytes, first_seen, known_exploited_since)
		SELECT r.id, @engine, r.description, r.url, r.cvss, r.epss, r.exploited, r.bytes, integer(@at), CASE WHEN r.exploited = 1 THEN integer(@at) END
		FROM records(@rows, id text, description text, url text, cvss double, epss double, exploited bigint, bytes bigint) r WHERE true
		ON CONFLICT (canonical_id, engine) DO UPDATE SET description = excluded.description, url = excluded.url, cvss = excluded.cvss,
			epss = excluded.epss, known_exploited = excluded.known_exploited, bytes = excluded.bytes, known_exploited_since =
			CASE WHEN excluded.known_exploited = 1 THEN coalesce(vulnerabilities.known_exploited_since, excluded.known_exploited_since) END`

	// spreadExploited updates "known exploited" in every finding of some vulnerabilities, including those of other images. Otherwise these
	// would change only at their next match. reviseReports comes with it, and counts the known exploited findings of the reports again.
	spreadExploited = `
		UPDATE findings SET known_exploited = (SELECT v.known_exploited FROM vulnerabilities v WHERE v.id = findings.vulnerability_id)
		WHERE vulnerability_id IN (SELECT value FROM ids(@ids) i)`
	reviseReports = `
		UPDATE reports SET revision = revision + 1, store_revision = ` + currentRevision + `, urgency = urgency % 1099511627776 + 1099511627776 * (
			SELECT count(*) FROM findings f INDEXED BY findings_present WHERE f.report_id = reports.id AND f.gone_at IS NULL AND f.known_exploited = 1 AND f.fixable = 1)
		WHERE id IN (SELECT report_id FROM findings WHERE vulnerability_id IN (SELECT value FROM ids(@ids) i))`
)

// bytes returns what the vulnerability counts, with its ID as its only name.
func (v vulnerability) bytes(id string) int64 {
	return vulnerabilityBytes + nameBytes + int64(len(v.description)+len(v.url)+2*len(id))
}

// vulnerabilityChanges is what a report changes in the shared rows of vulnerabilities.
type vulnerabilityChanges struct {
	byID    map[string]*vulnerability
	saved   map[string]int64 // row IDs of those that exist
	changed [][]any          // rows of saveVulnerability
	added   []string
	spread  []int64 // those whose findings change in other reports too
	more    int64   // bytes
}

// compareVulnerabilities compares the shared rows with a report, and sets the row ID of those that exist in each finding.
func compareVulnerabilities(ctx context.Context, q query, engine string, rows []*findingRow) (c vulnerabilityChanges, err error) {
	ids, byID := mergeVulnerabilities(rows)
	saved, before, err := knownVulnerabilities(ctx, q, engine, ids)
	if err != nil {
		return c, err
	}
	c.byID, c.saved = byID, saved
	for _, id := range ids {
		v, known := *byID[id], before[id]
		if known != nil && *known == v {
			continue
		}
		c.changed = append(c.changed, []any{id, v.description, v.url, v.cvss, v.epss, v.knownExploited, v.bytes(id)})
		c.more += v.bytes(id)
		if known != nil {
			c.more -= known.bytes(id)
		}
		switch {
		case known == nil:
			c.added = append(c.added, id)
		case known.knownExploited != v.knownExploited:
			c.spread = append(c.spread, saved[id])
		}
	}
	c.assign(rows)
	return c, nil
}

func (c vulnerabilityChanges) assign(rows []*findingRow) {
	for _, row := range rows {
		row.vulnerability, row.exploited = c.saved[row.ID], c.byID[row.ID].knownExploited
	}
}

// saveVulnerabilities updates the shared rows to the latest report, and sets the row ID of the vulnerability in each finding. The error is ErrOverBudget
// if there is no room for what it adds.
func saveVulnerabilities(ctx context.Context, tx *session, engine string, rows []*findingRow, at time.Time, left *room) error {
	c, err := compareVulnerabilities(ctx, tx, engine, rows)
	if err != nil {
		return err
	}
	if err := left.take(c.more); err != nil {
		return err
	}
	if err := tx.execRows(ctx, saveVulnerability, c.changed, sql.Named("engine", engine), sql.Named("at", millis{at})); err != nil {
		return err
	}
	fresh, _, err := knownVulnerabilities(ctx, tx, engine, c.added)
	if err != nil {
		return err
	}
	var names [][]any
	for id, row := range fresh {
		c.saved[id] = row
		names = append(names, []any{foldName(id), row})
	}
	if err := tx.execRows(ctx, insertNames, names); err != nil {
		return err
	}
	for _, statement := range []string{spreadExploited, reviseReports} {
		if err := tx.execIDs(ctx, statement, c.spread); err != nil {
			return err
		}
	}
	c.assign(rows)
	return nil
}

// knownVulnerabilities returns the row IDs of vulnerabilities, and what is stored of them.
func knownVulnerabilities(ctx context.Context, q query, engine string, ids []string) (rows map[string]int64, stored map[string]*vulnerability, err error) {
	rows, stored = make(map[string]int64, len(ids)), make(map[string]*vulnerability, len(ids))
	for page := range slices.Chunk(ids, maxRows) {
		err := eachRow(ctx, q, selectVulnerabilities, []any{sql.Named("engine", engine), sql.Named("ids", jsonArray(page))}, func(result *sql.Rows) error {
			var row int64
			var id string
			var v vulnerability
			err := result.Scan(&row, &id, &v.description, &v.url, &v.cvss, &v.epss, &v.knownExploited)
			rows[id], stored[id] = row, &v
			return err
		})
		if err != nil {
			return nil, nil, err
		}
	}
	return rows, stored, nil
}
