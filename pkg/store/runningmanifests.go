package store

import (
	"cmp"
	"context"
	"database/sql"
	"slices"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// The tables running_manifests and namespace_vulnerabilities summarize which vulnerabilities run in which namespace. Every transaction that
// changes scanner_images or workloads calls updateRunning, and SaveReport calls countReported. Both add differences, since counting again
// would read all reports that have a vulnerability. External reports that a Scanner announces count as well, under their own manifests:
// what changes external_reports, announced_sources, or which images run, calls updateExternal.

// anyNamespace stands for all namespaces in updateRunning. It is also the namespace in which namespace_vulnerabilities has the sums.
const anyNamespace = ""

const (
	// isRunning is the condition on scanner_images for images that a workload of their namespace runs.
	isRunning = `unjoined(EXISTS (SELECT 1 FROM workloads w WHERE w.image_id = si.id AND w.namespace = si.namespace))`

	// selectStarted selects what runs and is not recorded, and selectStopped what is recorded and does not run, with the report if there
	// is one.
	selectStarted = `
		SELECT DISTINCT si.manifest_id, si.engine, si.namespace, coalesce(r.id, 0)
		FROM ids(@manifests) i NESTED JOIN scanner_images si ON si.manifest_id = i.value
		NESTED LEFT JOIN reports r ON r.manifest_id = si.manifest_id AND r.engine = si.engine
		WHERE (@namespace = '' OR si.namespace = @namespace) AND ` + isRunning + `
			AND unjoined(NOT EXISTS (
				SELECT 1 FROM running_manifests u WHERE u.manifest_id = si.manifest_id AND u.engine = si.engine AND u.namespace = si.namespace))`
	selectStopped = `
		SELECT u.manifest_id, u.engine, u.namespace, coalesce(r.id, 0)
		FROM ids(@manifests) i NESTED JOIN running_manifests u ON u.manifest_id = i.value
		NESTED LEFT JOIN reports r ON r.manifest_id = u.manifest_id AND r.engine = u.engine
		WHERE (@namespace = '' OR u.namespace = @namespace)
			AND unjoined(NOT EXISTS (SELECT 1 FROM scanner_images si INDEXED BY scanner_images_by_manifest
				WHERE si.manifest_id = u.manifest_id AND si.engine = u.engine AND si.namespace = u.namespace AND ` + isRunning + `))`

	// selectRunningReport selects the records of a report.
	selectRunningReport = `SELECT u.manifest_id, u.engine, u.namespace, r.id
		FROM reports r JOIN running_manifests u ON u.manifest_id = r.manifest_id AND u.engine = r.engine WHERE r.id = ?`

	insertRunning = `INSERT INTO running_manifests (manifest_id, engine, namespace)
		SELECT r.manifest, r.engine, r.namespace FROM records(@rows, manifest bigint, engine text, namespace text) r`
	deleteRunning = `DELETE FROM running_manifests WHERE (manifest_id, engine, namespace) IN (
		SELECT r.manifest, r.engine, r.namespace FROM records(@rows, manifest bigint, engine text, namespace text) r)`
)

const (
	insertCounts = `INSERT INTO namespace_vulnerabilities (namespace, vulnerability_id, images, critical, high, medium, low, negligible, fixable) `
	addCounts    = ` ON CONFLICT (namespace, vulnerability_id) DO UPDATE SET images = namespace_vulnerabilities.images + excluded.images,
			critical = namespace_vulnerabilities.critical + excluded.critical, high = namespace_vulnerabilities.high + excluded.high,
			medium = namespace_vulnerabilities.medium + excluded.medium, low = namespace_vulnerabilities.low + excluded.low,
			negligible = namespace_vulnerabilities.negligible + excluded.negligible, fixable = namespace_vulnerabilities.fixable + excluded.fixable`

	// countRunning adds the vulnerabilities of reports to the counts of namespaces, times a number that is negative for what has stopped.
	countRunning = insertCounts + `
		SELECT u.namespace, p.vulnerability_id, integer(sum(u.times)),
			integer(sum(CASE WHEN p.severity = 5 THEN u.times ELSE 0 END)), integer(sum(CASE WHEN p.severity = 4 THEN u.times ELSE 0 END)),
			integer(sum(CASE WHEN p.severity = 3 THEN u.times ELSE 0 END)), integer(sum(CASE WHEN p.severity = 2 THEN u.times ELSE 0 END)),
			integer(sum(CASE WHEN p.severity = 1 THEN u.times ELSE 0 END)), integer(sum(p.fixable * u.times))
		FROM (SELECT f.report_id, f.vulnerability_id, max(f.severity) AS severity, max(f.fixable) AS fixable
			FROM ids(@reports) i ORDERED JOIN findings f INDEXED BY findings_present ON f.report_id = i.value
			WHERE f.gone_at IS NULL GROUP BY f.report_id, f.vulnerability_id) p
		ORDERED JOIN records(@rows, report bigint, namespace text, times bigint) u ON u.report = p.report_id
		WHERE true GROUP BY u.namespace, p.vulnerability_id` + addCounts

	// countReported adds what a report changes to the counts of the namespaces that run its image. had and has are numbers of
	// vulnerabilityFacts. The rows are materialized, since otherwise SQLite parses them for each column and each namespace.
	countReported = insertCounts + `
		WITH d AS MATERIALIZED (SELECT r.vulnerability, r.had, r.has FROM records(@rows, vulnerability bigint, had bigint, has bigint) r)
		SELECT n.namespace, d.vulnerability, (CASE WHEN d.has < 0 THEN 0 ELSE 1 END - CASE WHEN d.had < 0 THEN 0 ELSE 1 END) * n.times,
			(CASE WHEN whole(d.has, 2) = 5 THEN 1 ELSE 0 END - CASE WHEN whole(d.had, 2) = 5 THEN 1 ELSE 0 END) * n.times,
			(CASE WHEN whole(d.has, 2) = 4 THEN 1 ELSE 0 END - CASE WHEN whole(d.had, 2) = 4 THEN 1 ELSE 0 END) * n.times,
			(CASE WHEN whole(d.has, 2) = 3 THEN 1 ELSE 0 END - CASE WHEN whole(d.had, 2) = 3 THEN 1 ELSE 0 END) * n.times,
			(CASE WHEN whole(d.has, 2) = 2 THEN 1 ELSE 0 END - CASE WHEN whole(d.had, 2) = 2 THEN 1 ELSE 0 END) * n.times,
			(CASE WHEN whole(d.has, 2) = 1 THEN 1 ELSE 0 END - CASE WHEN whole(d.had, 2) = 1 THEN 1 ELSE 0 END) * n.times,
			(CASE WHEN d.has % 2 = 1 THEN 1 ELSE 0 END - CASE WHEN d.had % 2 = 1 THEN 1 ELSE 0 END) * n.times
		FROM (SELECT namespace, 1 AS times FROM running_manifests WHERE manifest_id = @manifest AND engine = @engine
			UNION ALL SELECT '', count(*) FROM running_manifests WHERE manifest_id = @manifest AND engine = @engine HAVING count(*) > 0) n
		ORDERED JOIN d ON true
		WHERE true` + addCounts
)

// joinAnnounced joins external reports e with the images si of the Scanners that announce them.
const joinAnnounced = `
		NESTED JOIN scanner_images si INDEXED BY scanner_images_by_digest
			ON si.digest = e.digest AND si.namespace = e.namespace AND e.platform IN ('', si.platform)
		NESTED JOIN announced_sources s ON s.scanner = si.scanner AND s.source = e.source`

const (
	// selectExternalOf selects the external reports whose record in running_manifests is wrong. runs is 1 for those that should have one.
	selectExternalOf = `
		SELECT x.manifest, x.engine, x.namespace, x.report, x.runs FROM (
			SELECT r.manifest_id AS manifest, r.engine, e.namespace, r.id AS report,
				CASE WHEN EXISTS (
					SELECT 1 FROM scanner_images si INDEXED BY scanner_images_by_digest
					ORDERED JOIN announced_sources s ON s.scanner = si.scanner
					ORDERED JOIN workloads w ON w.image_id = si.id AND w.namespace = si.namespace
					WHERE si.digest = e.digest AND si.namespace = e.namespace AND e.platform IN ('', si.platform) AND s.source = e.source)
					THEN 1 ELSE 0 END AS runs,
				CASE WHEN EXISTS (
					SELECT 1 FROM running_manifests u WHERE u.manifest_id = r.manifest_id AND u.engine = r.engine AND u.namespace = e.namespace)
					THEN 1 ELSE 0 END AS recorded
			FROM external_reports e JOIN reports r ON r.id = e.report_id
			WHERE `
	selectExternalOfImages  = selectExternalOf + `(e.namespace, e.digest) IN (SELECT i.namespace, i.digest FROM records(@images, namespace text, digest text) i)` + isWrong
	selectExternalOfSources = selectExternalOf + `e.source IN (SELECT value FROM texts(@sources) t)` + isWrong
	isWrong                 = `) x WHERE x.runs <> x.recorded`
)

// runningManifest is a row of running_manifests that is to be inserted or deleted, and the manifest's report; 0 for none.
type runningManifest struct {
	manifest  int64
	engine    string
	namespace string
	report    int64
}

// runningBatch is how many rows of running_manifests one statement counts.
const runningBatch = 200

// updateRunning brings the record of which manifests run up to date, and counts the vulnerabilities of those that have started or stopped.
// manifests are row IDs; 0 is ignored. Only rows of the namespace are looked at, or those of all namespaces with anyNamespace.
func updateRunning(ctx context.Context, tx *session, namespace string, manifests ...int64) error {
	slices.Sort(manifests)
	manifests = slices.DeleteFunc(slices.Compact(manifests), func(id int64) bool { return id == 0 })
	for page := range slices.Chunk(manifests, maxRows) {
		args := []any{sql.Named("manifests", jsonArray(page)), sql.Named("namespace", namespace)}
		for _, change := range []struct {
			selected, recorded string
			times              int
		}{{selectStopped, deleteRunning, -1}, {selectStarted, insertRunning, 1}} {
			changed, err := collect(ctx, tx, change.selected, args, scanRunning)
			if err != nil {
				return err
			}
			for batch := range slices.Chunk(changed, runningBatch) {
				if err := recordRunning(ctx, tx, change.recorded, batch, change.times); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// updateExternalOfImages calls updateExternal for the reports of some images: pairs of a namespace and a digest.
func updateExternalOfImages(ctx context.Context, tx *session, images ...[2]string) error {
	for page := range slices.Chunk(images, maxRows) {
		if err := updateExternal(ctx, tx, selectExternalOfImages, sql.Named("images", jsonArray(page))); err != nil {
			return err
		}
	}
	return nil
}

// updateExternal brings the record of which announced external reports run up to date, and counts their vulnerabilities. which is one of the
// statements selectExternalOf….
func updateExternal(ctx context.Context, tx *session, which string, args ...any) error {
	var started, stopped []runningManifest
	err := eachRow(ctx, tx, which, args, func(rows *sql.Rows) error {
		var r runningManifest
		var runs bool
		err := rows.Scan(&r.manifest, &r.engine, &r.namespace, &r.report, &runs)
		if runs {
			started = append(started, r)
		} else {
			stopped = append(stopped, r)
		}
		return err
	})
	if err != nil {
		return err
	}
	var namespaces []string
	for _, r := range slices.Concat(started, stopped) {
		namespaces = append(namespaces, r.namespace)
	}
	slices.Sort(namespaces)
	if err := markChanged(ctx, tx, slices.Compact(namespaces)...); err != nil {
		return err
	}
	for batch := range slices.Chunk(stopped, runningBatch) {
		if err := recordRunning(ctx, tx, deleteRunning, batch, -1); err != nil {
			return err
		}
	}
	for batch := range slices.Chunk(started, runningBatch) {
		if err := recordRunning(ctx, tx, insertRunning, batch, 1); err != nil {
			return err
		}
	}
	return nil
}

func scanRunning(rows *sql.Rows) (r runningManifest, err error) {
	err = rows.Scan(&r.manifest, &r.engine, &r.namespace, &r.report)
	return r, err
}

// recordRunning inserts or deletes rows of running_manifests, and counts the vulnerabilities of their reports as often as times.
func recordRunning(ctx context.Context, tx *session, statement string, changed []runningManifest, times int) error {
	var records, counted [][]any
	everywhere := make(map[int64]int)
	for _, r := range changed {
		records = append(records, []any{r.manifest, r.engine, r.namespace})
		if r.report != 0 {
			counted = append(counted, []any{r.report, r.namespace, times})
			everywhere[r.report] += times
		}
	}
	if err := tx.execRows(ctx, statement, records); err != nil {
		return err
	}
	for report, sum := range everywhere {
		counted = append(counted, []any{report, anyNamespace, sum})
	}
	return tx.execRows(ctx, countRunning, counted, sql.Named("reports", idsOf(everywhere)))
}

// vulnerabilityFacts is what one report has of a vulnerability: twice the worst severity, plus 1 if any of its findings is fixable.
type vulnerabilityFacts int

// noFacts are those of a report that does not have the vulnerability.
const noFacts vulnerabilityFacts = -1

// factsByVulnerability has facts by the row ID of the vulnerability.
type factsByVulnerability map[int64]vulnerabilityFacts

func (f factsByVulnerability) add(vulnerability int64, severity finding.Severity, fixable bool) {
	known := max(f[vulnerability], 0)
	facts := 2 * max(known/2, vulnerabilityFacts(severity))
	if fixable || known%2 == 1 {
		facts++
	}
	f[vulnerability] = facts
}

// changes returns the rows of countReported for a report that had the facts before, and has those of after, in the order of the primary key.
func (f factsByVulnerability) changes(after factsByVulnerability) (rows [][]any) {
	for vulnerability, has := range after {
		had, known := f[vulnerability]
		if !known {
			had = noFacts
		}
		if had != has {
			rows = append(rows, []any{vulnerability, int(had), int(has)})
		}
	}
	for vulnerability, had := range f {
		if _, has := after[vulnerability]; !has {
			rows = append(rows, []any{vulnerability, int(had), int(noFacts)})
		}
	}
	slices.SortFunc(rows, func(a, b []any) int { return cmp.Compare(a[0].(int64), b[0].(int64)) })
	return rows
}
