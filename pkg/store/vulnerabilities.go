package store

import (
	"context"
	"database/sql"
	"errors"
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

// saveVulnerabilities updates the shared rows to the latest report, and sets the row ID of the vulnerability in each finding.
func saveVulnerabilities(ctx context.Context, tx *sql.Tx, engine string, rows []*findingRow, at time.Time) error {
	ids, byID := mergeVulnerabilities(rows)
	lookup, err := tx.PrepareContext(ctx, `
		SELECT id, description, url, cvss, epss, known_exploited FROM vulnerabilities WHERE canonical_id = ? AND engine = ?`)
	if err != nil {
		return err
	}
	defer lookup.Close()
	saved := make(map[string]int64, len(ids))
	err = bulk(ctx, len(ids), func(ctx context.Context, i int) error {
		var id int64
		var before vulnerability
		now := *byID[ids[i]]
		err := lookup.QueryRowContext(ctx, ids[i], engine).
			Scan(&id, &before.description, &before.url, &before.cvss, &before.epss, &before.knownExploited)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			id, err = insertVulnerability(ctx, tx, ids[i], engine, now, at)
		case err == nil && before != now:
			err = updateVulnerability(ctx, tx, id, before, now, at)
		}
		saved[ids[i]] = id
		return err
	})
	for _, row := range rows {
		row.vulnerability = saved[row.ID]
	}
	return err
}

func insertVulnerability(ctx context.Context, tx *sql.Tx, canonicalID, engine string, v vulnerability, at time.Time) (id int64, err error) {
	err = tx.QueryRowContext(ctx, `
		INSERT INTO vulnerabilities (canonical_id, engine, description, url, cvss, epss, known_exploited, known_exploited_since)
		VALUES (?, ?, ?, ?, ?, ?, ?7, CASE WHEN ?7 THEN ?8 END) RETURNING id`,
		canonicalID, engine, v.description, v.url, v.cvss, v.epss, v.knownExploited, millis{at}).Scan(&id)
	if err != nil {
		return 0, err
	}
	_, err = tx.ExecContext(ctx, insertName, canonicalID, id)
	return id, err
}

// insertName makes a vulnerability searchable by an ID.
const insertName = `INSERT INTO vulnerability_names (name, vulnerability_id) VALUES (?, ?) ON CONFLICT DO NOTHING`

// updateVulnerability also updates "known exploited" in every finding of the vulnerability, including those of other images.
// Otherwise these would change only at their next match.
func updateVulnerability(ctx context.Context, tx *sql.Tx, id int64, before, now vulnerability, at time.Time) error {
	if _, err := tx.ExecContext(ctx, `
		UPDATE vulnerabilities SET description = ?, url = ?, cvss = ?, epss = ?, known_exploited = ?5,
			known_exploited_since = CASE WHEN ?5 THEN coalesce(known_exploited_since, ?6) END WHERE id = ?7`,
		now.description, now.url, now.cvss, now.epss, now.knownExploited, millis{at}, id); err != nil {
		return err
	}
	if before.knownExploited == now.knownExploited {
		return nil
	}
	if _, err := tx.ExecContext(ctx, `UPDATE findings SET known_exploited = ? WHERE vulnerability_id = ?`, now.knownExploited, id); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, `
		UPDATE reports SET revision = revision + 1 WHERE id IN (SELECT report_id FROM findings WHERE vulnerability_id = ?)`, id)
	return err
}
