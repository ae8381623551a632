package store

import (
	"context"
	"database/sql"
	"errors"
	"slices"
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
	// FirstSeenSince is the earliest first-seen time; zero for any. It needs a sight of all namespaces.
	FirstSeenSince time.Time
	// Text is part of the ID, with any separators. Letters match in any case.
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
	// FirstSeen is when the store first recorded it. It is zero in a list of some namespaces, since others could have had it before.
	FirstSeen time.Time
	// Images is the number of running images that have it: a platform manifest counts once in each namespace. Several engines may find it
	// in different images of a namespace: there it is the number of the engine that finds it in most.
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
			AND v.epss >= @epss AND v.first_seen >= @since AND (@text = '' OR contains(fold(v.id), @text) OR contains(fold(v.id), @part))) `

	countPassing = withPassing + `SELECT count(*) FROM passing`

	selectPassingPage = withPassing + `
		SELECT v.id, v.severity, v.fixable, v.known_exploited, v.epss, v.cvss, v.first_seen, v.images, v.namespaces, v.urgency,
			(SELECT count(*) FROM passing)
		FROM passing v
		WHERE @id = '' OR v.urgency < @urgency OR v.urgency = @urgency AND (v.epss < @below OR v.epss = @below AND v.id > @id)
		ORDER BY v.urgency DESC, v.epss DESC, v.id LIMIT @limit`

	// countNamespaces counts the namespaces that have each of some vulnerabilities, and their images. The sums of all namespaces, which decide about the
	// order, have no such number, since in each namespace another engine may find the vulnerability in most images.
	countNamespaces = `
		SELECT n.id, count(*), integer(sum(n.images)) FROM (
			SELECT v.canonical_id AS id, c.namespace, max(c.images) AS images
			FROM texts(@ids) i NESTED JOIN vulnerabilities v ON v.canonical_id = i.value
			NESTED JOIN namespace_vulnerabilities c INDEXED BY namespace_vulnerabilities_by_vulnerability ON c.vulnerability_id = v.id
			WHERE c.namespace <> '' AND c.images > 0
			GROUP BY v.canonical_id, c.namespace) n
		GROUP BY n.id`
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
	if !f.FirstSeenSince.IsZero() && !seen.All {
		return VulnerabilitiesPage{}, errors.New("store: list vulnerabilities: the first-seen time is known of all namespaces only")
	}
	if !f.FirstSeenSince.IsZero() {
		since = f.FirstSeenSince.UnixMilli()
	}
	args := []any{
		sql.Named("summarized", seen.summarized()), sql.Named("every", f.Severities == nil), sql.Named("severities", jsonArray(severities)),
		sql.Named("fixable", wantedValue(f.Fixable)), sql.Named("exploited", wantedValue(f.KnownExploited)), sql.Named("epss", f.MinEPSS),
		sql.Named("since", since), sql.Named("text", foldName(f.Text)), sql.Named("part", foldName(finding.PartOfID(f.Text))),
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
			if seen.All {
				v.FirstSeen = firstSeen.Time
			}
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

// countNamespacesOf sets the numbers of namespaces and images of vulnerabilities that are listed for all namespaces.
func countNamespacesOf(ctx context.Context, q query, vulnerabilities []RunningVulnerability) error {
	ids, index := make([]string, len(vulnerabilities)), make(map[string]int, len(vulnerabilities))
	for i, v := range vulnerabilities {
		ids[i], index[v.ID] = v.ID, i
	}
	return eachRow(ctx, q, countNamespaces, []any{sql.Named("ids", jsonArray(ids))}, func(rows *sql.Rows) error {
		var id string
		var namespaces, images int
		err := rows.Scan(&id, &namespaces, &images)
		v := &vulnerabilities[index[id]]
		v.Namespaces, v.Images = namespaces, images
		return err
	})
}

// VulnerabilityDetails is what the store knows of a vulnerability, whether an image runs that has it or not.
type VulnerabilityDetails struct {
	// IDs are the canonical IDs of the vulnerabilities that an ID stands for, sorted: more than one if the ID is that of an advisory which
	// covers several. None means that no engine has ever reported it.
	IDs []string
	// Names are all IDs and aliases in lower case, sorted.
	Names            []string
	Description, URL string
	// RunningVulnerability has no ID. FirstSeen is when the first finding of an image that runs was recorded.
	RunningVulnerability
	// ExploitedSince is when the store first knew it to be exploited; zero if it is not.
	ExploitedSince time.Time
	// Packages of running images that have it, ordered by type, name and version, at most maxVulnerablePackages.
	Packages []VulnerablePackage
}

// VulnerablePackage is a package that has a vulnerability, and the versions that fix it.
type VulnerablePackage struct {
	finding.Package
	FixVersions []string
}

// maxVulnerablePackages bounds the packages of VulnerabilityDetails.
const maxVulnerablePackages = 100

const (
	// selectDetails selects the rows of a vulnerability, one for each engine and each canonical ID. What an external report states about it counts
	// only where the report does, and comes last.
	selectDetails = `SELECT v.id, v.canonical_id, v.description, v.url, v.cvss, v.epss, v.known_exploited, v.known_exploited_since
		FROM vulnerability_names n NESTED JOIN vulnerabilities v ON v.id = n.vulnerability_id
		WHERE n.name = @id AND (v.engine NOT LIKE '` + externalEngine + `%' OR EXISTS (
			SELECT 1 FROM namespace_vulnerabilities c INDEXED BY namespace_vulnerabilities_by_vulnerability WHERE c.vulnerability_id = v.id AND c.images > 0
				AND c.namespace <> '' AND (@every = 1 OR c.namespace IN (SELECT value FROM texts(@namespaces) t))))
		ORDER BY v.canonical_id, CASE WHEN v.engine LIKE '` + externalEngine + `%' THEN 1 ELSE 0 END, v.engine`

	selectNames = `SELECT DISTINCT n.name FROM ids(@rows) i NESTED JOIN vulnerability_names n INDEXED BY vulnerability_names_by_vulnerability ON n.vulnerability_id = i.value
		ORDER BY n.name LIMIT 100`

	// selectPresence selects the counts of each namespace, and the number of the engine that finds the vulnerability in most images.
	selectPresence = `
		SELECT max(c.images), max(CASE WHEN c.critical > 0 THEN 5 WHEN c.high > 0 THEN 4 WHEN c.medium > 0 THEN 3 WHEN c.low > 0 THEN 2 WHEN c.negligible > 0 THEN 1 ELSE 0 END),
			max(CASE WHEN c.fixable > 0 THEN 1 ELSE 0 END)
		FROM ids(@rows) i NESTED JOIN namespace_vulnerabilities c INDEXED BY namespace_vulnerabilities_by_vulnerability ON c.vulnerability_id = i.value
		WHERE c.images > 0 AND c.namespace <> '' AND (@every = 1 OR c.namespace IN (SELECT value FROM texts(@namespaces) t))
		GROUP BY c.namespace`

	selectVulnerablePackages = `
		SELECT f.type, substr(f.package, 1, 512), substr(f.version, 1, 512), f.fix_versions, min(f.first_seen)
		FROM ids(@rows) i NESTED JOIN findings f INDEXED BY findings_by_vulnerability ON f.vulnerability_id = i.value
		NESTED JOIN reports r ON r.id = f.report_id
		NESTED JOIN running_manifests u ON u.manifest_id = r.manifest_id AND u.engine = r.engine
		WHERE f.gone_at IS NULL AND (@every = 1 OR u.namespace IN (SELECT value FROM texts(@namespaces) t))
		GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4`
)

// Vulnerability returns what the store knows of the vulnerability with an ID or alias, in any case, and what of it runs in some namespaces.
// Exceptions make no difference. An unknown ID is no error. Unless the sight is of all namespaces, a vulnerability that does not run there is
// unknown, since it would be known of others.
func (s *Store) Vulnerability(ctx context.Context, seen Sight, id string) (d VulnerabilityDetails, err error) {
	err = s.read(ctx, "look up vulnerability "+id, func(ctx context.Context, q query) error {
		d = VulnerabilityDetails{}
		rows, err := d.read(ctx, q, seen, id)
		if err != nil || len(rows) == 0 {
			return err
		}
		args := append(seen.args(), sql.Named("rows", jsonArray(rows)))
		if d.Names, err = collect(ctx, q, selectNames, args, scanValue[string]); err != nil {
			return err
		}
		err = eachRow(ctx, q, selectPresence, args, func(rows *sql.Rows) error {
			var images int
			var severity finding.Severity
			var fixable bool
			err := rows.Scan(&images, &severity, &fixable)
			d.Namespaces++
			d.Images, d.Severity, d.Fixable = d.Images+images, max(d.Severity, severity), d.Fixable || fixable
			return err
		})
		if err != nil {
			return err
		}
		if d.Images == 0 && !seen.All {
			d = VulnerabilityDetails{}
			return nil
		}
		return eachRow(ctx, q, selectVulnerablePackages, args, func(rows *sql.Rows) error {
			var p VulnerablePackage
			var firstSeen millis
			err := rows.Scan(&p.Type, &p.Name, &p.Version, (*list[string])(&p.FixVersions), &firstSeen)
			if d.FirstSeen.IsZero() || firstSeen.Before(d.FirstSeen) {
				d.FirstSeen = firstSeen.Time
			}
			if len(d.Packages) < maxVulnerablePackages {
				d.Packages = append(d.Packages, p)
			}
			return err
		})
	})
	if err != nil {
		return VulnerabilityDetails{}, err
	}
	return d, nil
}

// read reads the rows of a vulnerability, and returns their IDs. If the ID is canonical, other vulnerabilities that have it as an alias are
// left out.
func (d *VulnerabilityDetails) read(ctx context.Context, q query, seen Sight, id string) (rows []int64, err error) {
	type named struct {
		row        int64
		canonical  string
		kev        millis
		exploited  bool
		text, url  string
		cvss, epss float64
	}
	all, err := collect(ctx, q, selectDetails, append(seen.args(), sql.Named("id", foldName(id))), func(rows *sql.Rows) (n named, err error) {
		err = rows.Scan(&n.row, &n.canonical, &n.text, &n.url, &n.cvss, &n.epss, &n.exploited, &n.kev)
		return n, err
	})
	isCanonical := func(n named) bool { return foldName(n.canonical) == foldName(id) }
	if slices.ContainsFunc(all, isCanonical) {
		all = slices.DeleteFunc(all, func(n named) bool { return !isCanonical(n) })
	}
	for _, n := range all {
		rows = append(rows, n.row)
		if !slices.Contains(d.IDs, n.canonical) {
			d.IDs = append(d.IDs, n.canonical)
		}
		if d.Description == "" && d.URL == "" {
			d.Description, d.URL = n.text, n.url
		}
		d.CVSS, d.EPSS, d.KnownExploited = max(d.CVSS, n.cvss), max(d.EPSS, n.epss), d.KnownExploited || n.exploited
		if n.exploited && !n.kev.IsZero() && (d.ExploitedSince.IsZero() || n.kev.Before(d.ExploitedSince)) {
			d.ExploitedSince = n.kev.Time
		}
	}
	return rows, err
}
