package store

import (
	"context"
	"database/sql"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// Sight is the namespaces whose results a caller may see.
type Sight struct {
	// All means every namespace. Otherwise Namespaces lists them.
	All        bool
	Namespaces []string
}

// summarized returns the namespaces whose counts in namespace_vulnerabilities cover the sight.
func (s Sight) summarized() string {
	if s.All {
		return jsonArray([]string{anyNamespace})
	}
	return jsonArray(s.Namespaces)
}

// args returns the parameters @every and @namespaces of a statement on the rows of the namespaces themselves.
func (s Sight) args() []any {
	return []any{sql.Named("every", s.All), sql.Named("namespaces", jsonArray(s.Namespaces))}
}

// VulnerabilityFilter selects vulnerabilities of running images. The zero value selects all.
type VulnerabilityFilter struct {
	// Severities to include; nil for all.
	Severities []finding.Severity
	// Fixable and KnownExploited include only vulnerabilities with this value; nil for both values.
	Fixable, KnownExploited *bool
	// MinEPSS is the least probability of exploitation.
	MinEPSS float64
	// FirstSeenSince is the earliest first-seen time; zero for any.
	FirstSeenSince time.Time
	// Text is part of the ID. Letters match in any case.
	Text string
}

// RunningVulnerability is a vulnerability that running images have.
type RunningVulnerability struct {
	ID string
	// Severity is the worst of its findings in running images. Fixable means that an update ends at least one of them.
	Severity finding.Severity
	Fixable  bool
	// KnownExploited, EPSS and CVSS are the worst that an engine reports.
	KnownExploited bool
	EPSS, CVSS     float64
	// FirstSeen is when the store first recorded it, in any namespace.
	FirstSeen time.Time
	// Images is the number of running images that have it: a platform manifest counts once in each namespace. Several engines may find it
	// in different images: then it is the number of the engine that finds it in most.
	Images int
	// Namespaces is the number of namespaces that run one of these images.
	Namespaces int
}

// VulnerabilityCursor is a position in the order of vulnerabilities: the last one before it. The zero value is the beginning.
type VulnerabilityCursor struct {
	Urgency int64
	EPSS    float64
	// ID is empty at the beginning of the list.
	ID string
}

// VulnerabilitiesPage is one page of vulnerabilities.
type VulnerabilitiesPage struct {
	Vulnerabilities []RunningVulnerability
	// Total is the number of all that pass the filter.
	Total int
	// Next is the beginning of the next page; nil if this is the last one.
	Next *VulnerabilityCursor
}

const (
	// withPassing has one row for each vulnerability that passes a filter. The same vulnerability has a row in the tables for each engine. urgency
	// has the order of finding.Worse.
	withPassing = `WITH present AS (
		SELECT c.namespace, v.canonical_id AS id, max(c.images) AS images,
			max(CASE WHEN c.critical > 0 THEN 5 WHEN c.high > 0 THEN 4 WHEN c.medium > 0 THEN 3 WHEN c.low > 0 THEN 2 WHEN c.negligible > 0 THEN 1 ELSE 0 END) AS severity,
			max(CASE WHEN c.fixable > 0 THEN 1 ELSE 0 END) AS fixable, max(v.known_exploited) AS known_exploited,
			max(v.epss) AS epss, max(v.cvss) AS cvss, min(v.first_seen) AS first_seen
		FROM texts(@summarized) n
		ORDERED JOIN namespace_vulnerabilities c ON c.namespace = n.value
		ORDERED JOIN vulnerabilities v ON v.id = c.vulnerability_id
		WHERE c.images > 0
		GROUP BY c.namespace, v.canonical_id),
	merged AS (
		SELECT v.id, integer(sum(v.images)) AS images, count(*) AS namespaces, max(v.severity) AS severity, max(v.fixable) AS fixable,
			max(v.known_exploited) AS known_exploited, max(v.epss) AS epss, max(v.cvss) AS cvss, min(v.first_seen) AS first_seen
		FROM present v GROUP BY v.id),
	passing AS MATERIALIZED (
		SELECT v.*, ((v.known_exploited * 4 + ` + likelihood + `) * 8 + v.severity) * 2 + v.fixable AS urgency
		FROM merged v
		WHERE (@every = 1 OR v.severity IN (SELECT value FROM ids(@severities) i))
			AND (@fixable < 0 OR v.fixable = @fixable) AND (@exploited < 0 OR v.known_exploited = @exploited)
			AND v.epss >= @epss AND v.first_seen >= @since AND (@text = '' OR contains(fold(v.id), @text))) `

	countPassing = withPassing + `SELECT count(*) FROM passing`

	selectPassingPage = withPassing + `
		SELECT v.id, v.severity, v.fixable, v.known_exploited, v.epss, v.cvss, v.first_seen, v.images, v.namespaces, v.urgency,
			(SELECT count(*) FROM passing)
		FROM passing v
		WHERE @id = '' OR v.urgency < @urgency OR v.urgency = @urgency AND (v.epss < @below OR v.epss = @below AND v.id > @id)
		ORDER BY v.urgency DESC, v.epss DESC, v.id LIMIT @limit`

	// countNamespaces counts the namespaces that have each of some vulnerabilities.
	countNamespaces = `
		SELECT v.canonical_id, count(DISTINCT c.namespace)
		FROM texts(@ids) i NESTED JOIN vulnerabilities v ON v.canonical_id = i.value
		NESTED JOIN namespace_vulnerabilities c INDEXED BY namespace_vulnerabilities_by_vulnerability ON c.vulnerability_id = v.id
		WHERE c.namespace <> '' AND c.images > 0
		GROUP BY v.canonical_id`
)

// VulnerabilitiesPage lists the vulnerabilities of the images that run in some namespaces, worst first (finding.Worse), starting after a
// cursor. Exceptions make no difference. A vulnerability that stays as it is comes on exactly one page, whatever others change.
func (s *Store) VulnerabilitiesPage(
	ctx context.Context, seen Sight, f VulnerabilityFilter, after VulnerabilityCursor, limit int,
) (page VulnerabilitiesPage, err error) {
	severities := make([]int, 0, len(f.Severities))
	for _, severity := range f.Severities {
		severities = append(severities, int(severity))
	}
	since := int64(0)
	if !f.FirstSeenSince.IsZero() {
		since = f.FirstSeenSince.UnixMilli()
	}
	args := []any{
		sql.Named("summarized", seen.summarized()), sql.Named("every", f.Severities == nil), sql.Named("severities", jsonArray(severities)),
		sql.Named("fixable", wantedValue(f.Fixable)), sql.Named("exploited", wantedValue(f.KnownExploited)), sql.Named("epss", f.MinEPSS),
		sql.Named("since", since), sql.Named("text", foldName(f.Text)),
	}
	// One row more than the limit shows whether there is a next page.
	pageArgs := append([]any{
		sql.Named("id", after.ID), sql.Named("urgency", after.Urgency), sql.Named("below", after.EPSS), sql.Named("limit", limit+1),
	}, args...)
	err = s.read(ctx, "list vulnerabilities", func(ctx context.Context, q query) error {
		page = VulnerabilitiesPage{}
		var cursors []VulnerabilityCursor
		page.Vulnerabilities, err = collect(ctx, q, selectPassingPage, pageArgs, func(rows *sql.Rows) (v RunningVulnerability, err error) {
			var firstSeen millis
			var urgency int64
			err = rows.Scan(&v.ID, &v.Severity, &v.Fixable, &v.KnownExploited, &v.EPSS, &v.CVSS, &firstSeen, &v.Images, &v.Namespaces, &urgency, &page.Total)
			v.FirstSeen = firstSeen.Time
			cursors = append(cursors, VulnerabilityCursor{Urgency: urgency, EPSS: v.EPSS, ID: v.ID})
			return v, err
		})
		if err != nil {
			return err
		}
		if len(page.Vulnerabilities) > limit {
			page.Vulnerabilities, page.Next = page.Vulnerabilities[:limit], &cursors[limit-1]
		}
		if len(page.Vulnerabilities) == 0 {
			return q.QueryRowContext(ctx, countPassing, args...).Scan(&page.Total)
		}
		if seen.All {
			return countNamespacesOf(ctx, q, page.Vulnerabilities)
		}
		return nil
	})
	if err != nil {
		return VulnerabilitiesPage{}, err
	}
	return page, nil
}

// countNamespacesOf sets the number of namespaces of vulnerabilities that are counted in all.
func countNamespacesOf(ctx context.Context, q query, vulnerabilities []RunningVulnerability) error {
	ids, index := make([]string, len(vulnerabilities)), make(map[string]int, len(vulnerabilities))
	for i, v := range vulnerabilities {
		ids[i], index[v.ID] = v.ID, i
	}
	return eachRow(ctx, q, countNamespaces, []any{sql.Named("ids", jsonArray(ids))}, func(rows *sql.Rows) error {
		var id string
		var n int
		err := rows.Scan(&id, &n)
		vulnerabilities[index[id]].Namespaces = n
		return err
	})
}
