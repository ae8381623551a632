package store

import (
	"context"
	"database/sql"
	"slices"
	"time"
)

const insertAnnouncedSources = `INSERT INTO announced_sources (scanner, source) SELECT @scanner, r.source FROM records(@rows, source text) r`

// SetAnnouncedSources sets the sources of external reports whose findings a Scanner announces. What was announced of a source that is no longer
// among them is withdrawn and not fixed. It writes nothing if they are the same, so it may be called at every reconcile.
func (s *Store) SetAnnouncedSources(ctx context.Context, scanner string, sources []string) error {
	const action = "set announced sources"
	sources = slices.Compact(slices.Sorted(slices.Values(sources)))
	same := false
	err := s.read(ctx, action, func(ctx context.Context, q query) error {
		before, err := announcedSources(ctx, q, scanner)
		same = slices.Equal(before, sources)
		return err
	})
	if err != nil || same {
		return err
	}
	defer s.unchanged.deleteScanner(scanner)
	return s.write(ctx, action, func(ctx context.Context, tx *session) error {
		before, err := announcedSources(ctx, tx, scanner)
		if err != nil {
			return err
		}
		for _, source := range before {
			if slices.Contains(sources, source) {
				continue
			}
			if err := releaseExternal(ctx, tx, externalRelease{at: s.now(), scanner: scanner, source: source}); err != nil {
				return err
			}
		}
		if _, err := tx.ExecContext(ctx, `DELETE FROM announced_sources WHERE scanner = ?`, scanner); err != nil {
			return err
		}
		rows := make([][]any, len(sources))
		for i, source := range sources {
			rows[i] = []any{source}
		}
		if err := tx.execRows(ctx, insertAnnouncedSources, rows, sql.Named("scanner", scanner)); err != nil {
			return err
		}
		return updateExternal(ctx, tx, selectExternalOfSources, sql.Named("sources", jsonArray(append(before, sources...))))
	})
}

// announcedSources lists the announced sources of a Scanner, sorted.
func announcedSources(ctx context.Context, q query, scanner string) ([]string, error) {
	return collect(ctx, q, `SELECT source FROM announced_sources WHERE scanner = ? ORDER BY source`, []any{scanner}, scanValue[string])
}

// externalRelease selects findings of external reports that a Scanner announces. Empty fields select all.
type externalRelease struct {
	at                        time.Time
	scanner                   string
	source, namespace, digest string // digest and namespace belong together
	report                    int64
	// from is the namespace that has left the Scanner's coverage; empty if the findings are withdrawn: then only another report brings them back.
	from string
}

// The statements of releaseExternal, for the workloads that run the images and for those that ran them last.
const (
	releaseExternalOf = `
		UPDATE announcements SET released_at = @at, released_from = @from
		WHERE fixed_at IS NULL AND released_at IS NULL AND receiver_id IN (SELECT id FROM receivers WHERE scanner = @scanner)
			AND (repository, canonical_id, package) IN (
				SELECT w.repository, v.canonical_id, f.package
				FROM announced_sources s
				ORDERED JOIN scanner_images si ON si.scanner = s.scanner
				ORDERED JOIN external_reports e ON e.namespace = si.namespace AND e.digest = si.digest AND e.source = s.source AND e.platform IN ('', si.platform)
				ORDERED JOIN `
	releaseExternalIn = ` w ON w.image_id = si.id
				ORDERED JOIN findings f ON f.report_id = e.report_id AND f.fixed_at IS NULL
				ORDERED JOIN vulnerabilities v ON v.id = f.vulnerability_id
				WHERE s.scanner = @scanner AND (@every_source = 1 OR s.source = @source) AND (@every_report = 1 OR e.report_id = @report)
					AND (@every_image = 1 OR si.namespace = @namespace AND si.digest = @digest))`
	releaseExternalRunning = releaseExternalOf + `workloads` + releaseExternalIn
	releaseExternalLeft    = releaseExternalOf + `left_workloads` + releaseExternalIn
)

// releaseExternal marks the announcements of findings as released. Those that another report has as well are marked as present by the next
// update of the records.
func releaseExternal(ctx context.Context, tx *session, r externalRelease) error {
	for _, statement := range []string{releaseExternalRunning, releaseExternalLeft} {
		_, err := tx.ExecContext(ctx, statement, sql.Named("at", millis{r.at}), sql.Named("from", r.from), sql.Named("scanner", r.scanner),
			sql.Named("every_source", r.source == ""), sql.Named("source", r.source), sql.Named("every_report", r.report == 0), sql.Named("report", r.report),
			sql.Named("every_image", r.digest == ""), sql.Named("namespace", r.namespace), sql.Named("digest", r.digest))
		if err != nil {
			return err
		}
	}
	return nil
}
