package store

import (
	"context"
	"database/sql"
	"maps"
	"slices"

	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
)

// AnnouncedReports selects what announced sources have reported on an image. The zero value selects nothing.
type AnnouncedReports struct {
	Namespace string
	Image     image.Key
	Sources   []string
}

const (
	selectAnnouncedReports = `SELECT report_id FROM external_reports
		WHERE namespace = @namespace AND digest = @digest AND platform IN ('', @platform) AND source IN (SELECT value FROM texts(@sources) t)`

	// onlyAnnounced are the findings of announced reports whose vulnerability the engine's report lacks in the package.
	onlyAnnounced = `
		FROM ids(@announced) j
		ORDERED JOIN findings f INDEXED BY findings_present ON f.report_id = j.value
		ORDERED JOIN vulnerabilities v ON v.id = f.vulnerability_id
		WHERE f.gone_at IS NULL AND unjoined(NOT EXISTS (
			SELECT 1 FROM vulnerabilities ov NESTED JOIN findings o INDEXED BY findings_by_vulnerability ON o.vulnerability_id = ov.id AND o.report_id = @report
			WHERE ov.canonical_id = v.canonical_id AND o.package = f.package AND o.gone_at IS NULL`

	// selectOnlyAnnounced selects the worst of each vulnerability and package. Suppressed findings make no difference.
	selectOnlyAnnounced = `SELECT ` + worstID + onlyAnnounced + ` AND o.id NOT IN (SELECT value FROM ids(@suppressed) i)))
			AND f.id NOT IN (SELECT value FROM ids(@suppressed) i)
		GROUP BY group_key(v.canonical_id, f.package)`

	// countOnlySuppressed counts the vulnerabilities in packages all of whose findings are suppressed.
	countOnlySuppressed = `SELECT count(*) FROM (SELECT 1` + onlyAnnounced + `))
		GROUP BY group_key(v.canonical_id, f.package)
		HAVING min(CASE WHEN f.id IN (SELECT value FROM ids(@suppressed) i) THEN 1 ELSE 0 END) = 1) AS suppressed`

	countFindings = `SELECT f.severity, count(*), sum(f.fixable), sum(f.known_exploited)` + ofFindings + ` GROUP BY f.severity`
	worstFindings = selectFinding + ofFindings + ` ` + worst + `LIMIT @limit`
)

// addAnnounced adds what only announced reports have to the summary of the engine's report, whose findings own suppresses.
func (s *Summary) addAnnounced(ctx context.Context, q query, report int64, names []exception.Image, e ImageExceptions, own suppressions) error {
	if len(e.Announced.Sources) == 0 {
		return nil
	}
	reports, err := collect(ctx, q, selectAnnouncedReports, []any{
		sql.Named("namespace", e.Announced.Namespace), sql.Named("digest", e.Announced.Image.Digest), sql.Named("platform", platform(e.Announced.Image.Platform)),
		sql.Named("sources", jsonArray(e.Announced.Sources)),
	}, scanValue[int64])
	if err != nil || len(reports) == 0 {
		return err
	}
	byReport := make(map[int64][]exception.Image, len(reports))
	for _, id := range reports {
		byReport[id] = names
	}
	suppressed, err := suppressedFindings(ctx, q, presentCandidates, e.Exceptions, byReport)
	if err != nil {
		return err
	}
	ids := maps.Clone(own.whole)
	if ids == nil {
		ids = make(map[int64]*exception.Exception)
	}
	maps.Copy(ids, suppressed.whole)
	args := []any{sql.Named("report", report), sql.Named("announced", jsonArray(reports)), sql.Named("suppressed", idsOf(ids))}
	only, err := collect(ctx, q, selectOnlyAnnounced, args, scanValue[int64])
	if err != nil {
		return err
	}
	onlySuppressed := 0
	if err := q.QueryRowContext(ctx, countOnlySuppressed, args...).Scan(&onlySuppressed); err != nil {
		return err
	}
	s.Suppressed += onlySuppressed
	args = []any{sql.Named("findings", jsonArray(only)), sql.Named("limit", topFindings)}
	counts, err := sumCounts(ctx, q, countFindings, args)
	if err != nil {
		return err
	}
	s.Counts = s.Counts.Plus(counts)
	top, err := collect(ctx, q, worstFindings, args, scanOnlyFinding)
	s.Top = slices.SortedFunc(slices.Values(append(s.Top, top...)), finding.Worse)
	s.Top = s.Top[:min(len(s.Top), topFindings)]
	return err
}
