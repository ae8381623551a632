package store

import (
	"context"
	"database/sql"
	"slices"
	"strings"

	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
)

// RunsQuery selects the containers that run an image with a vulnerability.
type RunsQuery struct {
	// ID of the vulnerability, canonical or an alias, in any case.
	ID string
	// Namespaces to search, unless All is true.
	Namespaces []string
	All        bool
	// Exceptions returns the exceptions that are in force in a namespace; nil for none.
	Exceptions func(namespace string) exception.Set
}

// RunCursor is a position in the order of runs: the last run before it.
type RunCursor struct {
	Namespace, Kind, Name, Container, Reference, Digest, Platform string
	// Key is the finding's key (finding.Key, in upper case), the same for all engines. It is empty at the beginning of the list.
	Key string
}

// Run is a container that runs an image with a vulnerability in one of its packages. Texts that come from pods and images are
// truncated to maxRunText characters.
type Run struct {
	Namespace, Kind, Name, Container, Reference string
	Key                                         image.Key
	// Engines that found it, sorted.
	Engines []string
	// Finding has no aliases, paths, description or advisories. If engines differ, it is the worst of their findings.
	Finding finding.Finding
	// Exception that suppresses the finding; nil if none does.
	Exception *exception.Exception
}

// RunsPage is one page of runs.
type RunsPage struct {
	Runs []Run
	// Total is the number of all runs.
	Total int
	// Next is the beginning of the next page; nil if this is the last one.
	Next *RunCursor
}

// maxRunText bounds texts that have no other bound: a pod's author can give its owner any kind, and an image any package name.
const maxRunText = 512 // also in withRuns and selectRuns

const (
	// selectCalled selects the findings with an ID or alias, and inSight those of images in some namespaces.
	selectCalled = `
			SELECT f.id AS finding, r.engine, si.id AS image
			FROM vulnerability_names n
			NESTED JOIN vulnerabilities v ON v.id = n.vulnerability_id
			NESTED JOIN findings f ON f.vulnerability_id = v.id
			NESTED JOIN reports r ON r.id = f.report_id`
	inSight = `
			WHERE n.name = @id AND f.gone_at IS NULL AND (@every = 1 OR si.namespace IN (SELECT value FROM texts(@namespaces) t)) AND ` + isCalled + `
`
	// withRuns selects each container and finding once, however many Scanners have the image and whichever engines and announced external reports have found it:
	// findings with the same key are one finding. Of several it takes the worst.
	withRuns = `WITH runs AS (
		SELECT w.namespace, substr(w.kind, 1, 253) AS kind, substr(w.name, 1, 253) AS name, w.container,
			substr(w.reference, 1, 512) AS reference, si.digest, si.platform, hexed(f."key") AS finding_key,
			CASE WHEN count(DISTINCT coalesce(si.manifest_id, 0)) = 1 THEN max(coalesce(si.manifest_id, 0)) ELSE 0 END AS manifest,
			` + worstID + ` AS finding, joined(c.engine) AS engines
		FROM (` + selectCalled + `
			NESTED JOIN scanner_images si ON si.manifest_id = r.manifest_id AND si.engine = r.engine` + inSight + `
			UNION ALL` + selectCalled + `
			NESTED JOIN external_reports e ON e.report_id = r.id` + joinAnnounced + inSight + `) c
		NESTED JOIN findings f ON f.id = c.finding NESTED JOIN vulnerabilities v ON v.id = f.vulnerability_id
		NESTED JOIN scanner_images si ON si.id = c.image
		NESTED JOIN workloads w ON w.image_id = si.id AND w.namespace = si.namespace
		GROUP BY 1, 2, 3, 4, 5, 6, 7, 8) `

	countRuns = withRuns + `SELECT count(*) FROM runs`

	selectRuns = withRuns + `SELECT runs.namespace, runs.kind, runs.name, runs.container, runs.reference, runs.digest, runs.platform, runs.finding_key,
			runs.engines, v.canonical_id, f.severity, f.known_exploited, f.package, f.version, f.type,
			substr(f.purl, 1, 512), f.fix_state, f.fix_versions, f.aliases, runs.manifest
		FROM runs NESTED JOIN findings f ON f.id = runs.finding NESTED JOIN vulnerabilities v ON v.id = f.vulnerability_id
		WHERE (runs.namespace, runs.kind, runs.name, runs.container, runs.reference, runs.digest, runs.platform, runs.finding_key)
			> (@namespace, @kind, @name, @container, @reference, @digest, @platform, @key)
		ORDER BY runs.namespace, runs.kind, runs.name, runs.container, runs.reference, runs.digest, runs.platform, runs.finding_key
		LIMIT @limit`
)

// RunsPage lists the containers that run an image with a vulnerability, in the order of RunCursor's fields, starting after a cursor. A
// run that exists throughout is on exactly one page, whatever other runs come and go.
func (s *Store) RunsPage(ctx context.Context, asked RunsQuery, after RunCursor, limit int) (page RunsPage, err error) {
	args := append(calledArgs(asked.ID), sql.Named("every", asked.All), sql.Named("namespaces", jsonArray(asked.Namespaces)))
	// One row more than the limit shows whether there is a next page.
	pageArgs := slices.Concat(args, []any{
		sql.Named("namespace", after.Namespace), sql.Named("kind", after.Kind), sql.Named("name", after.Name),
		sql.Named("container", after.Container), sql.Named("reference", after.Reference), sql.Named("digest", after.Digest),
		sql.Named("platform", after.Platform), sql.Named("key", after.Key), sql.Named("limit", limit+1),
	})
	err = s.read(ctx, "list who runs "+asked.ID, func(ctx context.Context, q query) error {
		if err := q.QueryRowContext(ctx, countRuns, args...).Scan(&page.Total); err != nil {
			return err
		}
		suppress := suppressRuns(asked.Exceptions)
		var cursors []RunCursor
		page.Runs, err = collect(ctx, q, selectRuns, pageArgs, func(rows *sql.Rows) (Run, error) {
			run, manifest, cursor, err := scanRun(rows)
			cursors = append(cursors, cursor)
			suppress(&run, manifest)
			return run, err
		})
		if err == nil && len(page.Runs) > limit {
			page.Runs, page.Next = page.Runs[:limit], &cursors[limit-1]
		}
		return err
	})
	if err != nil {
		return RunsPage{}, err
	}
	return page, nil
}

// scanRun scans a run. Its finding still has the aliases and the untruncated texts. manifest is the row ID of the image's manifest; 0 if it is not
// known, or if scanners have the image in different credential scopes.
func scanRun(rows *sql.Rows) (run Run, manifest int64, cursor RunCursor, err error) {
	f, engines := &run.Finding, ""
	err = rows.Scan(&cursor.Namespace, &cursor.Kind, &cursor.Name, &cursor.Container, &cursor.Reference, &cursor.Digest, &cursor.Platform, &cursor.Key,
		&engines, &f.ID, &f.Severity, &f.KnownExploited, &f.Package.Name, &f.Package.Version, &f.Package.Type,
		&f.Package.PURL, &f.FixState, (*list[string])(&f.FixVersions), (*list[string])(&f.Aliases), &manifest)
	if err != nil {
		return run, manifest, cursor, err
	}
	run.Namespace, run.Kind, run.Name, run.Container, run.Reference = cursor.Namespace, cursor.Kind, cursor.Name, cursor.Container, cursor.Reference
	run.Key.Digest = cursor.Digest
	run.Engines = strings.Split(engines, ",")
	slices.Sort(run.Engines)
	return run, manifest, cursor, (*platform)(&run.Key.Platform).Scan(cursor.Platform)
}

// suppressRuns returns a function that sets the exception of a run, and reduces its finding to what a Run has. It calls exceptions
// once per namespace.
func suppressRuns(exceptions func(namespace string) exception.Set) func(run *Run, manifest int64) {
	inForce := make(map[string]exception.Set)
	return func(run *Run, manifest int64) {
		set, known := inForce[run.Namespace]
		if !known && exceptions != nil {
			set = exceptions(run.Namespace)
			inForce[run.Namespace] = set
		}
		img := imageNamed(run.Reference, run.Key.Digest)
		img.Manifest = manifest
		run.Exception = set.SuppressedBy(img, run.Finding)
		run.Finding.Aliases = nil
		for _, text := range []*string{&run.Finding.Package.Name, &run.Finding.Package.Version, &run.Finding.Package.Type} {
			*text = cutRun(*text)
		}
	}
}

// cutRun returns the first maxRunText characters. A longer text is copied, so that the page does not keep the whole text in memory.
func cutRun(text string) string {
	n := 0
	for i := range text {
		if n++; n > maxRunText {
			return strings.Clone(text[:i])
		}
	}
	return text
}
