package store

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"slices"

	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// ErrTooManyCandidates means that the answer to a query would need too many findings in memory at once.
var ErrTooManyCandidates = errors.New("store: too many findings would have to be read at once")

// maxPreviewCandidates bounds the findings that PreviewSuppression, Workload and NamespaceChanges read, and so their memory to some 50 MiB each.
const maxPreviewCandidates = 100_000

// SuppressionQuery is an exception that may not exist yet.
type SuppressionQuery struct {
	// Namespaces whose images to look at.
	Namespaces []string
	// Exception has only what the exception would suppress.
	Exception exception.Set
	// InForce are the exceptions that are in force in these namespaces.
	InForce exception.Set
}

// SuppressionPreview is what an exception would suppress.
type SuppressionPreview struct {
	// Findings are the worst ones, in the order of finding.Worse.
	Findings []PreviewedFinding
	// Counts are of all of them. Total is their number, and Already that of those which exceptions in force suppress already.
	Counts         finding.Counts
	Total, Already int
	// Partly is the number of findings that it would suppress only in some images of a repository, or under some names. They stay, since others have
	// them too.
	Partly int
}

// PreviewedFinding is a vulnerability in a package of the images of a repository. Its finding is the worst of these images, without paths,
// description and advisories.
type PreviewedFinding struct {
	finding.Finding
	Repository string
	// Containers is the number of containers that run such an image.
	Containers int
	// By is an exception in force that suppresses it already; nil if there is none.
	By *exception.Exception
}

const (
	// selectReportedIn selects the workloads that run images in some namespaces with a report of the engine, and selectRunningIn also announced
	// reports of other tools about these images.
	selectReportedIn = selectWorkloads + runningReach + ` FROM texts(@namespaces) n
		ORDERED JOIN scanner_images si INDEXED BY scanner_images_by_namespace ON si.namespace = n.value
		ORDERED JOIN reports r ON r.manifest_id = si.manifest_id AND r.engine = si.engine
		ORDERED JOIN workloads w ON w.image_id = si.id AND w.namespace = si.namespace`
	selectRunningIn = selectReportedIn + `
		UNION ALL` + selectWorkloads + runningReach + ` FROM texts(@namespaces) n
		ORDERED JOIN external_reports e ON e.namespace = n.value
		ORDERED JOIN reports r ON r.id = e.report_id` + joinAnnounced + `
		ORDERED JOIN reports own ON own.manifest_id = si.manifest_id AND own.engine = si.engine
		ORDERED JOIN workloads w ON w.image_id = si.id AND w.namespace = si.namespace`

	// selectPreviewed selects the findings that an exception may suppress, and all others of the same vulnerabilities: another source may know the
	// vulnerability without the alias that the exception names.
	selectPreviewed = `WITH wanted AS (
		SELECT f.id FROM texts(@ids) named
		ORDERED JOIN vulnerability_names n ON n.name = named.value
		ORDERED JOIN vulnerabilities called ON called.id = n.vulnerability_id
		ORDERED JOIN vulnerabilities same ON same.canonical_id = called.canonical_id
		ORDERED JOIN findings f INDEXED BY findings_by_vulnerability
			ON f.vulnerability_id = same.id AND f.report_id IN (SELECT value FROM ids(@reports) i)
		WHERE f.gone_at IS NULL
		UNION
		SELECT f.id FROM ids(@reports) j
		ORDERED JOIN findings f INDEXED BY findings_present ON f.report_id = j.value
		WHERE f.gone_at IS NULL AND (@every = 1 OR f.package IN (SELECT value FROM texts(@packages) t)))
		SELECT f.report_id, v.canonical_id, CASE WHEN length(v.url) <= 256 THEN v.url ELSE '' END, v.epss, f.known_exploited, f.severity,
			f.aliases, f.package, f.version, f.type, f.fix_state, f.fix_versions
		FROM wanted ORDERED JOIN findings f ON f.id = wanted.id ORDERED JOIN vulnerabilities v ON v.id = f.vulnerability_id
		LIMIT @limit`
)

// PreviewSuppression returns what an exception would suppress in the images that run in some namespaces. A finding counts once for each image
// repository, vulnerability and package, and only if the exception suppresses it in all of the repository's images, alone or together with those in
// force. Total without Already is how many more findings a Scanner has as suppressed once the exception exists. It returns ErrTooManyCandidates if more
// than maxPreviewCandidates findings may be meant.
func (s *Store) PreviewSuppression(ctx context.Context, asked SuppressionQuery, limit int) (preview SuppressionPreview, err error) {
	err = s.read(ctx, "preview an exception", func(ctx context.Context, q query) error {
		preview = SuppressionPreview{}
		repositories, err := collectRunning(ctx, q, selectRunningIn, []any{sql.Named("namespaces", jsonArray(asked.Namespaces))})
		if err != nil {
			return err
		}
		ids, packages, every := asked.Exception.SearchBounds()
		found, err := readPreviewed(ctx, q, ids, packages, every, repositories)
		if err != nil {
			return err
		}
		for _, name := range slices.Sorted(maps.Keys(repositories.byName)) {
			if err := preview.add(ctx, repositories.byName[name], found, asked); err != nil {
				return err
			}
		}
		slices.SortStableFunc(preview.Findings, func(a, b PreviewedFinding) int { return finding.Worse(a.Finding, b.Finding) })
		preview.Findings = preview.Findings[:min(len(preview.Findings), limit)]
		return nil
	})
	if err != nil {
		return SuppressionPreview{}, err
	}
	return preview, nil
}

// collectRunning groups the workloads that a statement selects by repository.
func collectRunning(ctx context.Context, q query, statement string, args []any) (repositoryCollector, error) {
	repositories := repositoryCollector{byName: make(map[string]runningRepository)}
	err := eachRow(ctx, q, statement, args, func(rows *sql.Rows) error {
		var w foundWorkload
		err := rows.Scan(&w.report, &w.revision, &w.digest, &w.manifest, &w.Namespace, &w.Kind, &w.Name, &w.Container, &w.Repository, &w.Reference, &w.Receivers, &w.within)
		repositories.add(w)
		return err
	})
	return repositories, err
}

// readPreviewed reads the present findings of some repositories with one of the IDs or in one of the packages, or all, by the row ID of their
// report. It returns ErrTooManyCandidates above maxPreviewCandidates.
func readPreviewed(ctx context.Context, q query, ids, packages []string, every bool, repositories repositoryCollector) (map[int64][]finding.Finding, error) {
	reports := make(map[int64]bool)
	for _, r := range repositories.byName {
		for _, id := range r.ids() {
			reports[id] = true
		}
	}
	args := []any{
		sql.Named("ids", jsonArray(foldNames(ids))), sql.Named("packages", jsonArray(packages)), sql.Named("reports", idsOf(reports)), sql.Named("every", every),
		sql.Named("limit", maxPreviewCandidates+1),
	}
	n, found := 0, make(map[int64][]finding.Finding)
	err := eachRow(ctx, q, selectPreviewed, args, func(rows *sql.Rows) error {
		var report int64
		var f finding.Finding
		if n++; n > maxPreviewCandidates {
			return ErrTooManyCandidates
		}
		err := rows.Scan(&report, &f.ID, &f.URL, &f.EPSS, &f.KnownExploited, &f.Severity,
			(*list[string])(&f.Aliases), &f.Package.Name, &f.Package.Version, &f.Package.Type, &f.FixState, (*list[string])(&f.FixVersions))
		found[report] = append(found[report], f)
		return err
	})
	return found, err
}

// add adds what the exception would suppress in the images of a repository, together with those in force: other images, or other names of an image, may
// need both.
func (p *SuppressionPreview) add(ctx context.Context, r runningRepository, found map[int64][]finding.Finding, asked SuppressionQuery) error {
	groups := make(map[findingKey]*previewGroup)
	both := asked.InForce.With(asked.Exception)
	for _, report := range r.reports {
		names := report.imageNames()
		alone, before, after := asked.Exception.Compare(names), asked.InForce.Compare(names), both.Compare(names)
		for _, f := range found[report.id] {
			if err := ctx.Err(); err != nil {
				return err
			}
			k := keyOf(f)
			g := groups[k]
			if g == nil {
				g = &previewGroup{PreviewedFinding: PreviewedFinding{Finding: f, Repository: r.name}}
				groups[k] = g
			}
			if finding.Worse(f, g.Finding) < 0 {
				g.Finding = f
			}
			if by := before.SuppressedBy(f); by != nil {
				g.By = by
			} else {
				g.changes = true
			}
			by, _ := alone.ByName(f)
			g.isMeant = g.isMeant || by != nil
			if after.SuppressedBy(f) == nil {
				g.isKept = true
			}
			if by != nil {
				g.reports = append(g.reports, report.id)
			}
		}
	}
	for _, g := range groups {
		switch {
		case !g.isMeant:
			continue
		case g.isKept:
			p.Partly++
			continue
		case g.changes:
			g.By = nil
		default:
			p.Already++
		}
		p.Total++
		p.Counts.AddFinding(g.Finding)
		slices.Sort(g.reports)
		g.Containers = len(distinctWorkloads(r.workloadsRunning(slices.Compact(g.reports))))
		g.Package.Version, g.Package.Name, g.Aliases = cutRun(g.Package.Version), cutRun(g.Package.Name), nil
		p.Findings = append(p.Findings, g.PreviewedFinding)
	}
	return nil
}

// previewGroup is a vulnerability in a package of a repository's images. isMeant means that the exception applies to it in some image, isKept that it
// stays in some image, and changes that the exceptions in force leave it in some image.
type previewGroup struct {
	PreviewedFinding
	reports                  []int64
	isMeant, isKept, changes bool
}
