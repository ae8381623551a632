package store

import (
	"context"
	"database/sql"
	"slices"
)

// The tables running_manifests and namespace_vulnerabilities summarize which vulnerabilities run in which namespace. Every transaction that
// changes scanner_images or workloads calls updateRunning, and SaveReport calls countReported. Both add differences, since counting again
// would read all reports that have a vulnerability.

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

	// countReported adds what a report changes to the counts of the namespaces that run its image.
	countReported = insertCounts + `
		SELECT n.namespace, d.vulnerability, d.images * n.times, d.critical * n.times, d.high * n.times, d.medium * n.times, d.low * n.times,
			d.negligible * n.times, d.fixable * n.times
		FROM (SELECT namespace, 1 AS times FROM running_manifests WHERE manifest_id = @manifest AND engine = @engine
			UNION ALL SELECT '', count(*) FROM running_manifests WHERE manifest_id = @manifest AND engine = @engine HAVING count(*) > 0) n
		ORDERED JOIN records(@rows, vulnerability bigint, images bigint, critical bigint, high bigint, medium bigint, low bigint, negligible bigint,
			fixable bigint) d ON true
		WHERE true` + addCounts
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

// vulnerabilityFacts is what one report has of a vulnerability: the worst severity, and whether any of its findings is fixable.
type vulnerabilityFacts struct {
	severity int64
	fixable  bool
}

// factsByVulnerability collects facts of vulnerabilities, by the row ID of the vulnerability.
type factsByVulnerability map[int64]vulnerabilityFacts

func (f factsByVulnerability) add(vulnerability, severity int64, fixable bool) {
	known := f[vulnerability]
	f[vulnerability] = vulnerabilityFacts{max(known.severity, severity), known.fixable || fixable}
}

// changes returns the rows of countReported for a report that had the facts before, and has those of after.
func (before factsByVulnerability) changes(after factsByVulnerability) (rows [][]any) {
	for vulnerability, facts := range after {
		known, had := before[vulnerability]
		switch {
		case !had:
			rows = append(rows, append([]any{vulnerability}, facts.counts(nil)...))
		case known != facts:
			rows = append(rows, append([]any{vulnerability}, facts.counts(&known)...))
		}
	}
	for vulnerability, known := range before {
		if _, has := after[vulnerability]; !has {
			counts := known.counts(nil)
			for i, n := range counts {
				counts[i] = -n.(int)
			}
			rows = append(rows, append([]any{vulnerability}, counts...))
		}
	}
	return rows
}

// counts returns the columns images to fixable of one image with these facts, minus those of one that had the facts before.
func (f vulnerabilityFacts) counts(before *vulnerabilityFacts) []any {
	counts := []any{1, 0, 0, 0, 0, 0, 0}
	add := func(of vulnerabilityFacts, n int) {
		if of.severity > 0 {
			column := 6 - of.severity // critical, which is 5, is the first column after images
			counts[column] = counts[column].(int) + n
		}
		if of.fixable {
			counts[6] = counts[6].(int) + n
		}
	}
	add(f, 1)
	if before != nil {
		counts[0] = 0
		add(*before, -1)
	}
	return counts
}
