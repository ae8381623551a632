package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
)

// maxPageBytes bounds the texts of a page: what is in an image may make a single finding as large as 1 MiB.
const maxPageBytes = 4 << 20

const (
	selectReportState = `SELECT r.id, r.revision, r.data_version, r.matched_at, r.distro, d.version, d.tool
		FROM manifests m JOIN reports r ON r.manifest_id = m.id LEFT JOIN data_versions d ON d.engine = r.engine
		WHERE m.platform_digest = ? AND m.scope = ? AND r.engine = ?`

	// selectPassing lists what passes a filter in the order of finding.Worse, as numbers only.
	selectPassing = `SELECT f.id
		FROM findings f INDEXED BY findings_present CROSS JOIN vulnerabilities v ON v.id = f.vulnerability_id
		WHERE f.report_id = @report AND f.gone_at IS NULL
		AND (@severities = '' OR f.severity IN (SELECT value FROM json_each(NULLIF(@severities, ''))))
		AND (@fixable IS NULL OR f.fixable = @fixable) AND (@exploited IS NULL OR f.known_exploited = @exploited)
		AND (@package = '' OR f.package = @package)
		AND (@id = '' OR ` + isCalled + `)
		AND (@text = '' OR instr(lower(v.canonical_id || char(10) || f.aliases || char(10) || f.package || char(10) || v.description), lower(@text)) > 0)
		` + worst + `, f.type, f.purl`

	// isCalled says whether a finding's vulnerability has @id as its id or alias.
	isCalled = `(v.canonical_id = @id COLLATE NOCASE
		OR EXISTS (SELECT 1 FROM json_each(NULLIF(f.aliases, '')) alias WHERE alias.value = @id COLLATE NOCASE))`

	selectNumbered = selectFinding + `, f.first_seen
		FROM json_each(?) wanted CROSS JOIN findings f ON f.id = wanted.value CROSS JOIN vulnerabilities v ON v.id = f.vulnerability_id
		ORDER BY wanted.key`
)

// FindingsPage implements Views. The order may change within a report, since the probability of exploitation is one of
// the vulnerability and not of the finding: so a mark says which findings were before it, and not only how many.
func (s *SQLite) FindingsPage(ctx context.Context, subject Subject, f FindingFilter, from FindingMark, limit int) (page FindingPage, err error) {
	err = s.read(ctx, "list a page of findings of "+subject.PlatformDigest, func(ctx context.Context, q query) error {
		var row reportRow
		if err := q.QueryRowContext(ctx, selectReportState, reportArgs(subject)...).Scan(row.columns()...); err != nil {
			return orNotFound(err)
		}
		page.Report = row.state()
		if from != (FindingMark{}) && (from.Report != page.Report.ID || from.Revision != page.Report.Revision) {
			return ErrChanged
		}
		passing, err := listPassing(ctx, q, page.Report.ID, f)
		if err != nil {
			return err
		}
		page.Total = len(passing)
		if from.Count < 0 || from.Count > len(passing) || sumOf(passing[:from.Count]) != from.Sum {
			return ErrChanged
		}
		rest := passing[from.Count:]
		if page.Findings, err = listNumbered(ctx, q, rest[:min(len(rest), limit)]); err != nil {
			return err
		}
		if end := from.Count + len(page.Findings); end < len(passing) {
			page.Next = &FindingMark{Report: page.Report.ID, Revision: page.Report.Revision, Count: end, Sum: sumOf(passing[:end])}
		}
		return nil
	})
	if err != nil {
		return FindingPage{}, err
	}
	return page, nil
}

// listPassing lists the numbers of a report's findings that pass.
func listPassing(ctx context.Context, q query, report int64, f FindingFilter) ([]int64, error) {
	severities := ""
	if f.Severities != nil {
		numbers := make([]int, 0, len(f.Severities))
		for _, severity := range f.Severities {
			numbers = append(numbers, int(severity))
		}
		text, err := json.Marshal(numbers)
		if err != nil {
			return nil, err
		}
		severities = string(text)
	}
	rows, err := q.QueryContext(ctx, selectPassing,
		sql.Named("report", report), sql.Named("severities", severities), sql.Named("fixable", f.Fixable),
		sql.Named("exploited", f.KnownExploited), sql.Named("package", f.Package), sql.Named("id", f.ID), sql.Named("text", f.Text))
	return collect(rows, err, func(rows *sql.Rows) (id int64, err error) { return id, rows.Scan(&id) })
}

// listNumbered reads findings by their numbers, one at least and then as many as fit into a page.
func listNumbered(ctx context.Context, q query, numbers []int64) ([]SeenFinding, error) {
	wanted, err := json.Marshal(numbers)
	if err != nil {
		return nil, err
	}
	size := 0
	full := errors.New("the page is full")
	var findings []SeenFinding
	rows, err := q.QueryContext(ctx, selectNumbered, string(wanted))
	_, err = collect(rows, err, func(rows *sql.Rows) (struct{}, error) {
		var firstSeen millis
		f, err := scanFinding(rows, &firstSeen)
		if err != nil {
			return struct{}{}, err
		}
		if size += f.TextBytes(); size > maxPageBytes && len(findings) > 0 {
			return struct{}{}, full
		}
		findings = append(findings, SeenFinding{Finding: f, FirstSeen: firstSeen.Time})
		return struct{}{}, nil
	})
	if errors.Is(err, full) {
		err = nil
	}
	return findings, err
}

// sumOf is the same for the same numbers in any order, and hardly ever for others.
func sumOf(numbers []int64) (sum uint64) {
	for _, number := range numbers {
		sum += mixed(uint64(number))
	}
	return sum
}

// mixed spreads a number over 64 bits, by the finalizer of SplitMix64 (https://prng.di.unimi.it/splitmix64.c).
func mixed(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
