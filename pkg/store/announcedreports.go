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

	// selectOnlySuppressed selects the worst of each vulnerability and package all of whose findings are suppressed.
	selectOnlySuppressed = `SELECT ` + worstID + onlyAnnounced + `))
		GROUP BY group_key(v.canonical_id, f.package)
		HAVING min(CASE WHEN f.id IN (SELECT value FROM ids(@suppressed) i) THEN 1 ELSE 0 END) = 1`

	// selectReplaced selects the findings of the engine's report with the same vulnerability and package as some announced ones.
	selectReplaced = `SELECT o.id FROM ids(@findings) j
		ORDERED JOIN findings f ON f.id = j.value
		ORDERED JOIN vulnerabilities v ON v.id = f.vulnerability_id
		NESTED JOIN vulnerabilities ov ON ov.canonical_id = v.canonical_id
		NESTED JOIN findings o INDEXED BY findings_by_vulnerability ON o.vulnerability_id = ov.id AND o.report_id = @report
		WHERE o.package = f.package AND o.gone_at IS NULL`

	countFindings = `SELECT f.severity, count(*), sum(f.fixable), sum(f.known_exploited)` + ofFindings + ` GROUP BY f.severity`
	worstFindings = selectFinding + ofFindings + ` ` + worst + `LIMIT @limit`
)

// addedFindings are what announced reports add to the findings of the engine's report on an image. A vulnerability in a package counts once. While the
// engine has a finding of it that is not suppressed, announced reports add none.
type addedFindings struct {
	// open and suppressed have the worst finding of each vulnerability and package.
	open, suppressed []int64
	// replaced are suppressed findings of the engine's report of what is open: the image does not have them.
	replaced map[int64]bool
	// by has the exceptions that suppress findings of announced reports.
	by map[int64]*exception.Exception
}

// announcedOn returns what announced reports add to the findings of a report, of which own are suppressed. names are those of the image.
func announcedOn(ctx context.Context, q query, report int64, names []exception.Image, e ImageExceptions, own suppressions) (found addedFindings, err error) {
	if len(e.Announced.Sources) == 0 {
		return found, nil
	}
	reports, err := collect(ctx, q, selectAnnouncedReports, []any{
		sql.Named("namespace", e.Announced.Namespace), sql.Named("digest", e.Announced.Image.Digest), sql.Named("platform", platform(e.Announced.Image.Platform)),
		sql.Named("sources", jsonArray(e.Announced.Sources)),
	}, scanValue[int64])
	if err != nil || len(reports) == 0 {
		return found, err
	}
	byReport := make(map[int64][]exception.Image, len(reports))
	for _, id := range reports {
		byReport[id] = names
	}
	theirs, err := suppressedFindings(ctx, q, presentCandidates, e.Exceptions, byReport)
	if err != nil {
		return found, err
	}
	found.by = theirs.whole
	ids := make(map[int64]*exception.Exception, len(own.whole)+len(theirs.whole))
	maps.Copy(ids, own.whole)
	maps.Copy(ids, theirs.whole)
	args := []any{sql.Named("report", report), sql.Named("announced", jsonArray(reports)), sql.Named("suppressed", idsOf(ids))}
	if found.open, err = collect(ctx, q, selectOnlyAnnounced, args, scanValue[int64]); err != nil {
		return found, err
	}
	if len(theirs.whole) > 0 {
		if found.suppressed, err = collect(ctx, q, selectOnlySuppressed, args, scanValue[int64]); err != nil {
			return found, err
		}
	}
	if len(own.whole) == 0 || len(found.open) == 0 {
		return found, nil
	}
	replaced, err := collect(ctx, q, selectReplaced, []any{sql.Named("findings", jsonArray(found.open)), sql.Named("report", report)}, scanValue[int64])
	found.replaced = make(map[int64]bool, len(replaced))
	for _, id := range replaced {
		found.replaced[id] = true
	}
	return found, err
}

// addAnnounced adds what announced reports add to the summary of the engine's report, whose findings own suppresses.
func (s *Summary) addAnnounced(ctx context.Context, q query, report int64, names []exception.Image, e ImageExceptions, own suppressions) error {
	found, err := announcedOn(ctx, q, report, names, e, own)
	if err != nil {
		return err
	}
	s.Suppressed += len(found.suppressed) - len(found.replaced)
	if len(found.open) == 0 {
		return nil
	}
	args := []any{sql.Named("findings", jsonArray(found.open)), sql.Named("limit", topFindings)}
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
