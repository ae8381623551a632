package store

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/action"
	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// ActionsQuery selects what there is to act on in some namespaces.
type ActionsQuery struct {
	Seen Sight
	// Exceptions are in force in these namespaces. Each applies only to images in the namespaces that it is for.
	Exceptions exception.Set
}

// ActionCursor is a position in the order of repositories: the last one before it. The zero value is the beginning.
type ActionCursor struct {
	Urgency int64
	// Repository is empty at the beginning of the list.
	Repository string
}

// RepositoryActions is what there is to act on in the images of one repository that run in some namespaces.
type RepositoryActions struct {
	Repository string
	// Workloads run images that have such a finding, and no exception suppresses it for them. Each comes once, ordered by namespace, kind and name.
	Workloads []Workload
	// Actions has at least one, the most urgent first.
	Actions []action.Action[ActionableFinding]
}

// ActionableFinding is a finding that an update ends. Of several images of a repository with the same vulnerability in the same package it is
// the worst. Finding has no paths, description or advisories.
type ActionableFinding struct {
	finding.Finding
	// Since is when all that makes the finding worth acting on was known: that it is there, and that an update ends it.
	Since time.Time
}

// ActionsPage is one page of repositories.
type ActionsPage struct {
	// Repositories can be fewer than the limit, also if there is a next page: all findings of the others are suppressed.
	Repositories []RepositoryActions
	// Total is the number of repositories with a finding to act on, suppressed or not.
	Total int
	// Next is the beginning of the next page; nil if this is the last one.
	Next *ActionCursor
}

// leastToActOn is the lowest severity of a finding that is worth acting on. A known exploited vulnerability always is.
const leastToActOn = finding.High

const (
	ofActing = `
			ORDERED JOIN workloads w ON w.image_id = si.id AND w.namespace = si.namespace
			WHERE r.urgency > 0`
	ofActingEngines = `
			ORDERED JOIN reports r ON r.manifest_id = si.manifest_id AND r.engine = si.engine` + ofActing
	ofActingExternal = `
			ORDERED JOIN reports r ON r.id = e.report_id` + joinAnnounced + ofActing + `) a
		GROUP BY a.repository) `
	selectActingImages = `
			SELECT w.repository, r.urgency, si.id AS image FROM `
	withActing = `WITH acting AS MATERIALIZED (
		SELECT a.repository, max(a.urgency) AS urgency, id_array(a.image) AS images FROM (` + selectActingImages
	selectActing = `SELECT a.repository, a.urgency, a.images, (SELECT count(*) FROM acting) FROM acting a
		WHERE @repository = '' OR a.urgency < @urgency OR a.urgency = @urgency AND a.repository > @repository
		ORDER BY a.urgency DESC, a.repository LIMIT @limit`

	selectActingEverywhere = withActing + `scanner_images si` + ofActingEngines + `
			UNION ALL` + selectActingImages + `external_reports e` + ofActingExternal + selectActing
	selectActingIn = withActing + `texts(@namespaces) n ORDERED JOIN scanner_images si INDEXED BY scanner_images_by_namespace ON si.namespace = n.value` + ofActingEngines + `
			UNION ALL` + selectActingImages + `texts(@namespaces) n ORDERED JOIN external_reports e ON e.namespace = n.value` + ofActingExternal + selectActing

	selectRunningImages = selectWorkloads + runningReach + ` FROM ids(@images) i
		NESTED JOIN scanner_images si ON si.id = i.value
		NESTED JOIN reports r ON r.manifest_id = si.manifest_id AND r.engine = si.engine
		NESTED JOIN workloads w ON w.image_id = si.id AND w.namespace = si.namespace
		UNION ALL` + selectWorkloads + runningReach + ` FROM ids(@images) i
		NESTED JOIN scanner_images si ON si.id = i.value
		NESTED JOIN announced_sources s ON s.scanner = si.scanner
		NESTED JOIN external_reports e ON e.namespace = si.namespace AND e.digest = si.digest AND e.source = s.source AND e.platform IN ('', si.platform)
		NESTED JOIN reports r ON r.id = e.report_id
		NESTED JOIN workloads w ON w.image_id = si.id AND w.namespace = si.namespace`

	selectActionable = `WITH` + passingFindings + `
		SELECT f.id, f.report_id, v.canonical_id, v.epss, v.cvss, f.known_exploited, f.severity, substr(f.package, 1, 512), substr(f.version, 1, 512), f.type,
			f.fix_state, f.fix_versions, f.first_seen, coalesce(f.fixable_since, f.first_seen)
		FROM wanted ORDERED JOIN findings f ON f.id = wanted.id ORDERED JOIN vulnerabilities v ON v.id = f.vulnerability_id
		WHERE wanted.fixable = 1`
)

// ActionsPage lists the repositories whose images run in some namespaces and have a finding that is known exploited or at least of high severity
// and that an update ends, with these updates. The repository with the most urgent image comes first: the one with most known exploited findings,
// then most critical and most high ones, suppressed or not.
func (s *Store) ActionsPage(ctx context.Context, asked ActionsQuery, after ActionCursor, limit int) (page ActionsPage, err error) {
	err = s.read(ctx, "list actions", func(ctx context.Context, q query) error {
		page = ActionsPage{}
		repositories, err := page.readActing(ctx, q, asked.Seen, after, limit)
		if err != nil || len(repositories) == 0 {
			return err
		}
		found, err := readActionable(ctx, q, repositories)
		if err != nil {
			return err
		}
		for _, r := range repositories {
			suppressed, err := r.suppressed(ctx, q, asked.Exceptions)
			if err != nil {
				return err
			}
			findings, workloads := r.actionable(found, suppressed)
			actions, _ := action.Group(findings, func(f ActionableFinding) (string, *finding.Finding) { return r.name, &f.Finding })
			if len(actions) > 0 {
				page.Repositories = append(page.Repositories, RepositoryActions{Repository: r.name, Workloads: workloads, Actions: actions})
			}
		}
		return nil
	})
	if err != nil {
		return ActionsPage{}, err
	}
	return page, nil
}

// readActing reads the repositories of a page, in order, and sets the total and the next page.
func (page *ActionsPage) readActing(ctx context.Context, q query, seen Sight, after ActionCursor, limit int) (repositories []runningRepository, err error) {
	statement := selectActingIn
	if seen.All {
		statement = selectActingEverywhere
	}
	args := append(seen.args(), sql.Named("repository", after.Repository), sql.Named("urgency", after.Urgency), sql.Named("limit", limit+1))
	var cursors []ActionCursor
	var images []int64
	err = eachRow(ctx, q, statement, args, func(rows *sql.Rows) error {
		var cursor ActionCursor
		var ids list[int64]
		err := rows.Scan(&cursor.Repository, &cursor.Urgency, &ids, &page.Total)
		if len(cursors) < limit {
			images = append(images, ids...)
		}
		cursors = append(cursors, cursor)
		return err
	})
	if err != nil {
		return nil, err
	}
	if len(cursors) > limit {
		cursors, page.Next = cursors[:limit], &cursors[limit-1]
	}
	collector := repositoryCollector{byName: make(map[string]runningRepository)}
	slices.Sort(images)
	err = eachRow(ctx, q, selectRunningImages, []any{sql.Named("images", jsonArray(slices.Compact(images)))}, func(rows *sql.Rows) error {
		var w foundWorkload
		err := rows.Scan(&w.report, &w.revision, &w.digest, &w.manifest, &w.Namespace, &w.Kind, &w.Name, &w.Container, &w.Repository, &w.Reference, &w.Receivers, &w.within)
		collector.add(w)
		return err
	})
	for _, cursor := range cursors {
		repositories = append(repositories, collector.byName[cursor.Repository])
	}
	return repositories, err
}

// actionableRow is a finding of one report.
type actionableRow struct {
	ActionableFinding
	id int64
}

// readActionable reads what there is to act on in the reports of repositories, by the row ID of the report.
func readActionable(ctx context.Context, q query, repositories []runningRepository) (map[int64][]actionableRow, error) {
	reports := make(map[int64]bool)
	for _, r := range repositories {
		for _, id := range r.ids() {
			reports[id] = true
		}
	}
	// Findings of unknown severity do not pass, whatever their fix.
	args := append(ChangeFilter{MinSeverity: leastToActOn, Unknown: UnknownNever, OnlyFixable: true}.args(),
		sql.Named("reports", idsOf(reports)), sql.Named("suppressed", "[]"))
	found := make(map[int64][]actionableRow)
	err := eachRow(ctx, q, selectActionable, args, func(rows *sql.Rows) error {
		var f actionableRow
		var report int64
		var firstSeen, fixableSince millis
		err := rows.Scan(&f.id, &report, &f.ID, &f.EPSS, &f.CVSS, &f.KnownExploited, &f.Severity, &f.Package.Name, &f.Package.Version, &f.Package.Type,
			&f.FixState, (*list[string])(&f.FixVersions), &firstSeen, &fixableSince)
		f.Since = firstSeen.Time
		if f.Since.Before(fixableSince.Time) {
			f.Since = fixableSince.Time
		}
		found[report] = append(found[report], f)
		return err
	})
	return found, err
}

// actionable returns the findings of the repository that are not suppressed, each vulnerability and package once, and the workloads that they concern.
func (r *runningRepository) actionable(found map[int64][]actionableRow, suppressed suppressions) ([]ActionableFinding, []Workload) {
	worst := make(map[findingKey]ActionableFinding)
	var concerned affected
	for _, id := range r.ids() {
		for _, f := range found[id] {
			if suppressed.whole[f.id] != nil {
				continue
			}
			concerned.add(id, suppressed.byName[f.id])
			k := keyOf(f.Finding)
			known, had := worst[k]
			since := f.Since
			if had && known.Since.Before(since) {
				since = known.Since
			}
			if !had || finding.Worse(f.Finding, known.Finding) < 0 {
				known = f.ActionableFinding
			}
			known.Since = since
			worst[k] = known
		}
	}
	findings := make([]ActionableFinding, 0, len(worst))
	for _, f := range worst {
		findings = append(findings, f)
	}
	slices.SortFunc(findings, func(a, b ActionableFinding) int {
		return cmp.Or(finding.Worse(a.Finding, b.Finding), a.Since.Compare(b.Since))
	})
	return findings, r.workloadsOf(concerned)
}
