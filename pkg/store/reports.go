package store

import (
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
)

// Summary is a report without its findings.
type Summary struct {
	Subject
	DataVersion string
	MatchedAt   time.Time
	NotCovered  []string
	Counts      finding.Counts
	// Top are the worst findings by finding.Worse, at most five.
	Top []finding.Finding
	// Suppressed is the number of suppressed findings. They are neither in Counts nor in Top.
	Suppressed int
}

// ImageExceptions determines which findings of an image are suppressed: those that exceptions cover under each of the image's names.
type ImageExceptions struct {
	Exceptions exception.Set
	Images     []exception.Image
	// Announced are the reports of other tools that a Summary counts, and FindingsPage lists.
	Announced AnnouncedReports
}

// topFindings is how many findings a Summary lists.
const topFindings = 5

// selectFinding selects the columns that scanFinding reads, of findings f and vulnerabilities v.
const selectFinding = `SELECT v.canonical_id, v.description, v.url, v.cvss, v.epss, f.known_exploited, f.severity,
	f.package, f.version, f.type, f.purl, f.paths, f.fix_state, f.fix_versions, f.fix_available, f.aliases, f.advisories `

// scanFinding scans a row of selectFinding. more are the destinations of further columns.
func scanFinding(rows *sql.Rows, more ...any) (finding.Finding, error) {
	var f finding.Finding
	var fixAvailable millis
	err := rows.Scan(append([]any{
		&f.ID, &f.Description, &f.URL, &f.CVSS, &f.EPSS, &f.KnownExploited, &f.Severity,
		&f.Package.Name, &f.Package.Version, &f.Package.Type, &f.Package.PURL, (*paths)(&f.Paths),
		&f.FixState, (*list[string])(&f.FixVersions), &fixAvailable, (*list[string])(&f.Aliases), (*list[finding.Advisory])(&f.Advisories),
	}, more...)...)
	f.FixAvailable = fixAvailable.Time
	return f, err
}

// scanOnlyFinding scans a row of selectFinding without further columns.
func scanOnlyFinding(rows *sql.Rows) (finding.Finding, error) { return scanFinding(rows) }

// fromPresent selects the present findings of one report, and butFor excludes some of them. worst orders them as finding.Worse
// does; likelihood has the same bounds as the bands there.
const (
	fromPresent = `FROM findings f INDEXED BY findings_present ORDERED JOIN vulnerabilities v ON v.id = f.vulnerability_id
		WHERE f.report_id = ? AND f.gone_at IS NULL `
	butFor = `AND f.id NOT IN (SELECT value FROM ids(?) i) `
	worst  = `ORDER BY f.known_exploited DESC, ` + likelihood + ` DESC, f.severity DESC, f.fixable DESC, v.epss DESC,
		v.canonical_id, f.package, f.version, f.paths `
	likelihood = `CASE WHEN v.epss >= 0.5 THEN 2 WHEN v.epss >= 0.1 THEN 1 ELSE 0 END`

	// worstID selects the row ID of the worst finding of a group: the maximum of a number of the urgency and the row ID. An ID has up to 55 bits.
	worstID = `max((((f.known_exploited * 4 + ` + likelihood + `) * 8 + f.severity) * 2 + f.fixable) * 36028797018963968 + f.id) % 36028797018963968`
)

// Summary returns the current report without its findings, or ErrNotFound. Suppressed findings are only counted. A vulnerability in a package that
// only announced reports have counts once, with its worst finding.
func (s *Store) Summary(ctx context.Context, subject Subject, e ImageExceptions) (Summary, error) {
	summary := Summary{Subject: subject}
	err := s.read(ctx, "summarise "+subject.PlatformDigest, func(ctx context.Context, q query) error {
		report, manifest, matchedAt := int64(0), int64(0), millis{}
		err := q.QueryRowContext(ctx, `SELECT r.id, m.id, r.data_version, r.matched_at, r.not_covered `+fromReport, reportArgs(subject)...).
			Scan(&report, &manifest, &summary.DataVersion, &matchedAt, (*list[string])(&summary.NotCovered))
		if err != nil {
			return orNotFound(err)
		}
		summary.MatchedAt = matchedAt.Time
		suppressed, err := suppressedFindings(ctx, q, presentCandidates, e.Exceptions, map[int64][]exception.Image{report: withManifest(e.Images, manifest)})
		if err != nil {
			return err
		}
		summary.Suppressed = len(suppressed.whole)
		args := []any{report, idsOf(suppressed.whole)}
		if summary.Counts, err = sumCounts(ctx, q, countReport, args); err != nil {
			return err
		}
		summary.Top, err = collect(ctx, q, selectFinding+fromPresent+butFor+worst+`LIMIT ?`, append(args, topFindings), scanOnlyFinding)
		if err != nil {
			return err
		}
		return summary.addAnnounced(ctx, q, report, withManifest(e.Images, manifest), e, suppressed)
	})
	if err != nil {
		return Summary{}, err
	}
	return summary, nil
}

const fromReport = `FROM manifests m JOIN reports r ON r.manifest_id = m.id
	WHERE m.platform_digest = ? AND m.scope = ? AND r.engine = ?`

func reportArgs(s Subject) []any { return []any{s.PlatformDigest, s.Scope, s.Engine} }

const selectHasReport = `SELECT EXISTS (SELECT 1 FROM reports WHERE engine = ? AND manifest_id = ` + resolveManifest + `)`

// HasReport reports whether an engine has a report of an image in a credential scope, even while the image is to be cataloged again.
func (s *Store) HasReport(ctx context.Context, engine string, key image.Key, scope Scope) (has bool, err error) {
	err = s.queryRow(ctx, "find a report of "+key.String(), selectHasReport, append([]any{engine}, resolveManifestArgs(key, scope)...)...).Scan(&has)
	return has, err
}

// countReport counts a report's present findings except some.
const countReport = `SELECT severity, count(*), sum(fixable), sum(known_exploited)
	FROM findings f INDEXED BY findings_present WHERE report_id = ? AND gone_at IS NULL ` + butFor + `GROUP BY severity`

// sumCounts adds up rows of severity, number of findings, number of fixable ones, number of known exploited ones, and other numbers.
func sumCounts(ctx context.Context, q query, statement string, args []any, others ...*int) (total finding.Counts, err error) {
	err = eachRow(ctx, q, statement, args, func(rows *sql.Rows) error {
		var severity finding.Severity
		var n, fixable, knownExploited int
		into := []any{&severity, &n, &fixable, &knownExploited}
		more := make([]int, len(others))
		for i := range more {
			into = append(into, &more[i])
		}
		err := rows.Scan(into...)
		for i := range more {
			*others[i] += more[i]
		}
		total.Add(severity, n)
		total.Fixable += fixable
		total.KnownExploited += knownExploited
		return err
	})
	return total, err
}

// Findings returns the current findings of a subject, worst first; ErrNotFound if there is no report.
func (s *Store) Findings(ctx context.Context, subject Subject) (findings []finding.Finding, err error) {
	err = s.read(ctx, "list findings of "+subject.PlatformDigest, func(ctx context.Context, q query) error {
		var report int64
		if err := q.QueryRowContext(ctx, `SELECT r.id `+fromReport, reportArgs(subject)...).Scan(&report); err != nil {
			return orNotFound(err)
		}
		findings, err = collect(ctx, q, selectFinding+fromPresent, []any{report}, scanOnlyFinding)
		return err
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(findings, finding.Worse)
	return findings, nil
}
