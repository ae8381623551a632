package store

import (
	"context"
	"database/sql"
	"errors"
	"slices"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// News implements Announcements. The filter is for findings: a repository's vulnerability in a package is news if
// any of its findings passes and is described by the worst that does, with the workloads that have such a one. An
// empty UnknownPolicy is UnknownIfFixable.
func (s *SQLite) News(ctx context.Context, scanner, receiver string, f NewsFilter, limit int) (news []News, total int, err error) {
	err = s.read(ctx, "list news", func(ctx context.Context, q query) error {
		repositories, err := running(ctx, q, scanner, f.Engine)
		if err != nil {
			return err
		}
		search, err := newNewsSearch(ctx, q, scanner, receiver, f)
		if err != nil {
			return err
		}
		for _, r := range repositories {
			if limit > 0 && len(news) >= limit {
				// What will not be listed is only counted: that needs no look at the findings' rows.
				n, err := search.count(ctx, r)
				if err != nil {
					return err
				}
				total += n
				continue
			}
			found, err := search.list(ctx, r)
			if err != nil {
				return err
			}
			total += len(found)
			news = append(news, found...)
		}
		return nil
	})
	if err != nil {
		return nil, 0, err
	}
	if limit > 0 && len(news) > limit {
		news = slices.Clip(news[:limit])
	}
	return news, total, nil
}

// wanted are the present findings of some reports that pass a filter, each once: three ranges of one index.
// @severity is 1 at least. @fixable and @unknown are 0 for all findings, 1 for fixable ones, 2 for none.
const wanted = `
	wanted AS (
		SELECT f.id, f.vulnerability_id, f.package, f.report_id FROM json_each(@reports) j
		CROSS JOIN findings f INDEXED BY findings_present ON f.report_id = j.value
		WHERE f.gone_at IS NULL AND f.known_exploited = 1
		UNION ALL
		SELECT f.id, f.vulnerability_id, f.package, f.report_id FROM json_each(@reports) j
		CROSS JOIN findings f INDEXED BY findings_present ON f.report_id = j.value
		WHERE f.gone_at IS NULL AND f.known_exploited = 0 AND f.severity >= @severity AND f.fixable >= @fixable
		UNION ALL
		SELECT f.id, f.vulnerability_id, f.package, f.report_id FROM json_each(@reports) j
		CROSS JOIN findings f INDEXED BY findings_present ON f.report_id = j.value
		WHERE f.gone_at IS NULL AND f.known_exploited = 0 AND f.severity = 0 AND f.fixable >= @unknown
	)`

const unannounced = `
	NOT EXISTS (SELECT 1 FROM announcements a WHERE a.receiver_id = @receiver AND a.repository = @repository
		AND a.canonical_id = v.canonical_id AND a.package = wanted.package)`

const countNews = `WITH ` + wanted + `
	SELECT count(*) FROM (
		SELECT DISTINCT v.canonical_id, wanted.package
		FROM wanted CROSS JOIN vulnerabilities v ON v.id = wanted.vulnerability_id
		WHERE ` + unannounced + `)`

const listNews = `WITH ` + wanted + selectFinding + `, f.first_seen, f.report_id
	FROM wanted CROSS JOIN vulnerabilities v ON v.id = wanted.vulnerability_id CROSS JOIN findings f ON f.id = wanted.id
	WHERE ` + unannounced

// newsSearch looks for what one receiver wants to know and was not told.
type newsSearch struct {
	q    query
	args []any
}

func newNewsSearch(ctx context.Context, q query, scanner, receiver string, f NewsFilter) (*newsSearch, error) {
	var id int64
	err := q.QueryRowContext(ctx, `SELECT id FROM receivers WHERE scanner = ? AND name = ?`, scanner, receiver).Scan(&id)
	// A receiver that is not known was told nothing, as was 0, which no receiver has.
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, err
	}
	const all, ifFixable, none = 0, 1, 2
	fixable := all
	if f.OnlyFixable {
		fixable = ifFixable
	}
	unknown := ifFixable
	switch f.Unknown {
	case UnknownAlways:
		unknown = fixable
	case UnknownNever:
		unknown = none
	}
	return &newsSearch{q: q, args: []any{
		sql.Named("receiver", id),
		sql.Named("severity", max(int64(f.MinSeverity), int64(finding.Negligible))),
		sql.Named("fixable", fixable),
		sql.Named("unknown", unknown),
	}}, nil
}

// of gives the parameters for one repository.
func (s *newsSearch) of(r runningRepository) ([]any, error) {
	reports, err := r.reports()
	return append(slices.Clone(s.args), sql.Named("reports", reports), sql.Named("repository", r.name)), err
}

func (s *newsSearch) count(ctx context.Context, r runningRepository) (n int, err error) {
	args, err := s.of(r)
	if err != nil {
		return 0, err
	}
	err = s.q.QueryRowContext(ctx, countNews, args...).Scan(&n)
	return n, err
}

// list returns the news of one repository, worst first.
func (s *newsSearch) list(ctx context.Context, r runningRepository) ([]News, error) {
	args, err := s.of(r)
	if err != nil {
		return nil, err
	}
	byKey := make(map[AnnouncementKey]*News)
	rows, err := s.q.QueryContext(ctx, listNews, args...)
	_, err = collect(rows, err, func(rows *sql.Rows) (struct{}, error) {
		var firstSeen millis
		var report int64
		f, err := scanFinding(rows, &firstSeen, &report)
		if err != nil {
			return struct{}{}, err
		}
		key := AnnouncementKey{Repository: r.name, ID: f.ID, Package: f.Package.Name}
		n, found := byKey[key]
		if !found {
			n = &News{Repository: r.name, Finding: f, FirstSeen: firstSeen.Time}
			byKey[key] = n
		}
		if finding.Worse(f, n.Finding) < 0 {
			n.Finding = f
		}
		if firstSeen.Before(n.FirstSeen) {
			n.FirstSeen = firstSeen.Time
		}
		n.Workloads = append(n.Workloads, r.workloads[report]...)
		return struct{}{}, nil
	})
	if err != nil {
		return nil, err
	}
	news := make([]News, 0, len(byKey))
	for _, n := range byKey {
		n.Workloads = distinctWorkloads(n.Workloads)
		news = append(news, *n)
	}
	slices.SortFunc(news, func(a, b News) int { return finding.Worse(a.Finding, b.Finding) })
	return news, nil
}
