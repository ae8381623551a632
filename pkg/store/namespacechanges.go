package store

import (
	"context"
	"database/sql"
	"slices"
	"strings"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/announce/diff"
	"github.com/scanner-operator/scanner-operator/pkg/announce/evidence"
	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// ChangesQuery selects what has changed in the images that run in a namespace.
type ChangesQuery struct {
	Namespace string
	Since     time.Time
	// Exceptions are in force in the namespace.
	Exceptions exception.Set
	// EngineGaps is what each engine covers in no image, by the engine's name. Other gaps of a report leave its image without a complete result.
	EngineGaps map[string][]string
}

// NamespaceChanges are the changes in a namespace, by the kind of change.
type NamespaceChanges struct {
	// Changes are diff.ChangeNew, then diff.ChangeFixAvailable, then diff.ChangeFixed, each in the order of finding.Worse and at most as many as
	// the limit.
	Changes []NamespaceChange
	// Totals are the numbers of all.
	Totals map[diff.Change]int
	// Unknown are the repositories that run an image without a complete report, or whose data has an anomaly, sorted. Nothing counts as fixed there that
	// this may concern.
	Unknown []string
}

// NamespaceChange is a change of a vulnerability in a package of the images of a repository. Its finding is the worst of these images, without
// paths, description and advisories.
type NamespaceChange struct {
	Change diff.Change
	finding.Finding
	Repository string
	// At is when the store recorded the change.
	At time.Time
	// Exception suppresses the finding in all these images; nil if none does. What is fixed has none.
	Exception *exception.Exception
}

const (
	imagesInNamespace = ` FROM scanner_images si INDEXED BY scanner_images_by_namespace`

	// selectLeftIn selects the reports of images that nothing runs, with when a rollout replaced the image; 0 if none did.
	selectLeftIn = `SELECT w.repository, r.id, r.engine, max(CASE WHEN w.superseded = 1 THEN coalesce(w.left_at, 0) ELSE 0 END)` + imagesInNamespace + `
		ORDERED JOIN reports r ON r.manifest_id = si.manifest_id AND r.engine = si.engine
		ORDERED JOIN left_workloads w ON w.image_id = si.id AND w.namespace = si.namespace
		WHERE si.namespace = @namespace GROUP BY w.repository, r.id, r.engine`

	// selectEnginesIn selects the engines of the running images of each repository, with their Scanners.
	selectEnginesIn = `SELECT DISTINCT w.repository, si.scanner, si.engine` + imagesInNamespace + `
		ORDERED JOIN workloads w ON w.image_id = si.id AND w.namespace = si.namespace
		WHERE si.namespace = @namespace`

	// selectGapsIn selects what the reports on the running images of each repository do not cover. The engine is empty for an image without a report.
	selectGapsIn = `SELECT w.repository, coalesce(r.engine, ''), coalesce(r.not_covered, '')` + imagesInNamespace + `
		ORDERED JOIN workloads w ON w.image_id = si.id AND w.namespace = si.namespace
		NESTED LEFT JOIN reports r ON r.manifest_id = si.manifest_id AND r.engine = si.engine
		WHERE si.namespace = @namespace`

	// selectChanged selects the findings of some reports that may have changed: of running images those since a time, of replaced ones all.
	selectChanged = `SELECT f.report_id, v.canonical_id, v.epss, f.known_exploited, f.severity, f.aliases, f.package, f.version, f.type, f.fix_state, f.fix_versions,
			f.first_seen, f.fixable_since, f.fixed_at
		FROM ids(@reports) j ORDERED JOIN findings f ON f.report_id = j.value ORDERED JOIN vulnerabilities v ON v.id = f.vulnerability_id
		WHERE f.gone_at IS NULL AND (f.first_seen >= @since OR f.fixable_since >= @since) OR f.fixed_at >= @since
		UNION ALL
		SELECT f.report_id, v.canonical_id, v.epss, f.known_exploited, f.severity, f.aliases, f.package, f.version, f.type, f.fix_state, f.fix_versions,
			f.first_seen, f.fixable_since, f.fixed_at
		FROM ids(@replaced) j ORDERED JOIN findings f ON f.report_id = j.value ORDERED JOIN vulnerabilities v ON v.id = f.vulnerability_id
		WHERE f.gone_at IS NULL
		LIMIT @limit`

	// selectNamedIn selects the findings of some vulnerabilities in some reports, as far as they decide what a change is.
	selectNamedIn = `SELECT f.report_id, v.canonical_id, f.package, f.first_seen, coalesce(f.fixable_since, CASE WHEN f.fixable = 1 THEN f.first_seen END), f.fixed_at, f.type
		FROM texts(@ids) named NESTED JOIN vulnerabilities v ON v.canonical_id = named.value
		NESTED JOIN findings f INDEXED BY findings_by_vulnerability
			ON f.vulnerability_id = v.id AND f.report_id IN (SELECT value FROM ids(@reports) i)`
)

// changedFinding is a finding of one report.
type changedFinding struct {
	finding.Finding
	firstSeen, fixableSince, fixedAt millis
}

// NamespaceChanges returns what has changed in the images that run in a namespace since a time: once for each image repository, vulnerability and
// package, as messages count it. A finding that an earlier image of the repository had is not new. What a rollout or newer data has ended is
// fixed, unless an image of the repository still has it. A rollout is known as long as the Scanner keeps the replaced image. The reports of other
// tools make no difference. It returns ErrTooManyCandidates if more than maxPreviewCandidates findings may have changed.
func (s *Store) NamespaceChanges(ctx context.Context, asked ChangesQuery, limit int) (changes NamespaceChanges, err error) {
	engines, withAnomaly, err := s.enginesIn(ctx, asked.Namespace)
	if err != nil {
		return NamespaceChanges{}, err
	}
	err = s.read(ctx, "list changes of a namespace", func(ctx context.Context, q query) error {
		changes = NamespaceChanges{Totals: make(map[diff.Change]int)}
		c := changeCollector{asked: asked, gaps: make(map[string]evidence.Gap), engines: engines, lastEngine: make(map[int64]string), running: make(map[int64][]string), kept: make(map[int64][]string), replaced: make(map[int64]map[string]millis), comparisons: make(map[compared]*exception.Comparison)}
		if err := c.readReports(ctx, q); err != nil {
			return err
		}
		if err := c.readGaps(ctx, q); err != nil {
			return err
		}
		for _, repository := range withAnomaly {
			c.gaps[repository] = evidence.AnyPackages
		}
		for repository := range c.gaps {
			changes.Unknown = insertSorted(changes.Unknown, repository)
		}
		if err := c.readChanged(ctx, q); err != nil {
			return err
		}
		if err := c.readNamed(ctx, q); err != nil {
			return err
		}
		for _, change := range c.changes() {
			if changes.Totals[change.Change]++; changes.Totals[change.Change] <= limit {
				changes.Changes = append(changes.Changes, change)
			}
		}
		return nil
	})
	if err != nil {
		return NamespaceChanges{}, err
	}
	return changes, nil
}

// enginesIn returns the engines of the images of each repository that runs in a namespace, and the repositories that an anomaly of their data concerns.
func (s *Store) enginesIn(ctx context.Context, namespace string) (engines map[string]map[string]bool, withAnomaly []string, err error) {
	type use struct{ repository, scanner, engine string }
	uses, err := queryRows(ctx, s, "list the engines of a namespace", selectEnginesIn, []any{sql.Named("namespace", namespace)}, func(rows *sql.Rows) (u use, err error) {
		return u, rows.Scan(&u.repository, &u.scanner, &u.engine)
	})
	engines = make(map[string]map[string]bool)
	known := make(map[use]bool)
	for _, u := range uses {
		if engines[u.repository] == nil {
			engines[u.repository] = make(map[string]bool)
		}
		engines[u.repository][u.engine] = true
		data := use{scanner: u.scanner, engine: u.engine}
		hasAnomaly, found := known[data]
		if !found {
			if hasAnomaly, err = s.hasAnomaly(ctx, u.scanner, u.engine); err != nil {
				return nil, nil, err
			}
			known[data] = hasAnomaly
		}
		if hasAnomaly {
			withAnomaly = insertSorted(withAnomaly, u.repository)
		}
	}
	return engines, withAnomaly, err
}

// repositoryFinding identifies what counts once.
type repositoryFinding struct{ repository, id, pkg string }

// findingLife is what the reports of a repository say about one vulnerability in one package.
type findingLife struct {
	// worst is the worst finding that may have changed, of a running image if there is one.
	worst     changedFinding
	isRunning bool
	// present means that an image of the repository still has it. firstSeen and fixableSince are the earliest ones; fixableSince is zero if no fix
	// is known. endedAt is when it was last fixed or replaced.
	present bool
	// sameEngine means that an engine in use for the repository knew it, and types are those of the packages that have it or had it.
	sameEngine                       bool
	types                            []string
	firstSeen, fixableSince, endedAt time.Time
	suppressed                       *exception.Exception
	isKept                           bool // in at least one running image
}

type changeCollector struct {
	asked        ChangesQuery
	repositories repositoryCollector
	// running and kept have the repositories of reports of images that run, and of images that nothing runs and no rollout has replaced. replaced has those
	// that a rollout has replaced, and when.
	running, kept map[int64][]string
	replaced      map[int64]map[string]millis
	lives         map[repositoryFinding]*findingLife
	// engines are those of the running images of each repository, and lastEngine that of the report of an image that nothing runs.
	engines     map[string]map[string]bool
	lastEngine  map[int64]string
	comparisons map[compared]*exception.Comparison
	// gaps are what the images that run leave open, by repository.
	gaps map[string]evidence.Gap
}

// compared identifies an image under its names in a repository.
type compared struct {
	report     int64
	repository string
}

// readReports reads the reports of the images that run in the namespace, and of those that ran there before.
func (c *changeCollector) readReports(ctx context.Context, q query) (err error) {
	args := []any{sql.Named("namespace", c.asked.Namespace)}
	c.repositories, err = collectRunning(ctx, q, selectReportedIn, []any{sql.Named("namespaces", jsonArray([]string{c.asked.Namespace}))})
	if err != nil {
		return err
	}
	for name, r := range c.repositories.byName {
		for _, id := range r.ids() {
			c.running[id] = append(c.running[id], name)
		}
	}
	return eachRow(ctx, q, selectLeftIn, args, func(rows *sql.Rows) error {
		var repository, engine string
		var report int64
		var at millis
		if err := rows.Scan(&repository, &report, &engine, &at); err != nil || slices.Contains(c.running[report], repository) {
			return err
		}
		c.lastEngine[report] = engine
		if at.UnixMilli() <= 0 {
			c.kept[report] = append(c.kept[report], repository)
			return nil
		}
		if c.replaced[report] == nil {
			c.replaced[report] = make(map[string]millis)
		}
		c.replaced[report][repository] = at
		return nil
	})
}

// readGaps reads what the reports on the running images leave open.
func (c *changeCollector) readGaps(ctx context.Context, q query) error {
	return eachRow(ctx, q, selectGapsIn, []any{sql.Named("namespace", c.asked.Namespace)}, func(rows *sql.Rows) error {
		var repository, engine string
		var gaps list[string]
		err := rows.Scan(&repository, &engine, &gaps)
		gap := evidence.GapOf(evidence.ImageGaps(gaps, c.asked.EngineGaps[engine]))
		if engine == "" {
			gap = evidence.AnyPackages
		}
		if gap != evidence.NoGap {
			c.gaps[repository] = max(c.gaps[repository], gap)
		}
		return err
	})
}

// repositoriesOf returns the repositories that have an image with a report, whether it runs or not.
func (c *changeCollector) repositoriesOf(report int64) []string {
	all := slices.Concat(c.running[report], c.kept[report])
	for name := range c.replaced[report] {
		all = append(all, name)
	}
	return all
}

// readChanged reads the findings that may have changed.
func (c *changeCollector) readChanged(ctx context.Context, q query) error {
	replaced := make(map[int64]bool)
	for report, repositories := range c.replaced {
		for _, at := range repositories {
			replaced[report] = replaced[report] || !at.Before(c.asked.Since)
		}
		if !replaced[report] {
			delete(replaced, report)
		}
	}
	args := []any{
		sql.Named("reports", idsOf(c.running)), sql.Named("replaced", idsOf(replaced)), sql.Named("since", millis{c.asked.Since}), sql.Named("limit", maxPreviewCandidates+1),
	}
	c.lives = make(map[repositoryFinding]*findingLife)
	n := 0
	return eachRow(ctx, q, selectChanged, args, func(rows *sql.Rows) error {
		if n++; n > maxPreviewCandidates {
			return ErrTooManyCandidates
		}
		var report int64
		var f changedFinding
		err := rows.Scan(&report, &f.ID, &f.EPSS, &f.KnownExploited, &f.Severity, (*list[string])(&f.Aliases), &f.Package.Name, &f.Package.Version, &f.Package.Type,
			&f.FixState, (*list[string])(&f.FixVersions), &f.firstSeen, &f.fixableSince, &f.fixedAt)
		if err != nil {
			return err
		}
		for _, repository := range c.repositoriesOf(report) {
			key := repositoryFinding{repository, f.ID, f.Package.Name}
			isRunning := slices.Contains(c.running[report], repository) && f.fixedAt.IsZero()
			life := c.lives[key]
			if life == nil {
				life = &findingLife{worst: f, isRunning: isRunning}
				c.lives[key] = life
			}
			if isRunning && !life.isRunning || isRunning == life.isRunning && finding.Worse(f.Finding, life.worst.Finding) < 0 {
				life.worst, life.isRunning = f, isRunning
			}
			if isRunning {
				r := c.repositories.byName[repository]
				i, _ := r.find(report)
				named := compared{report, repository}
				if c.comparisons[named] == nil {
					c.comparisons[named] = c.asked.Exceptions.Compare(r.reports[i].imageNames())
				}
				by := c.comparisons[named].SuppressedBy(f.Finding)
				life.isKept = life.isKept || by == nil
				if by != nil && (life.suppressed == nil || by.UID < life.suppressed.UID) {
					life.suppressed = by
				}
			}
		}
		return nil
	})
}

// readNamed reads all findings of the vulnerabilities that may have changed, also of images that ran before: they decide what is new and what
// is fixed.
func (c *changeCollector) readNamed(ctx context.Context, q query) error {
	ids, reports := make(map[string]bool), make(map[int64]bool)
	for key := range c.lives {
		ids[key.id] = true
	}
	for report := range c.running {
		reports[report] = true
	}
	for report := range c.kept {
		reports[report] = true
	}
	for report := range c.replaced {
		reports[report] = true
	}
	named := make([]string, 0, len(ids))
	for id := range ids {
		named = append(named, id)
	}
	slices.Sort(named)
	args := []any{sql.Named("ids", jsonArray(named)), sql.Named("reports", idsOf(reports))}
	return eachRow(ctx, q, selectNamedIn, args, func(rows *sql.Rows) error {
		var report int64
		var key repositoryFinding
		var firstSeen, fixableSince, fixedAt millis
		var kind string
		if err := rows.Scan(&report, &key.id, &key.pkg, &firstSeen, &fixableSince, &fixedAt, &kind); err != nil {
			return err
		}
		for _, repository := range c.repositoriesOf(report) {
			key.repository = repository
			if life := c.lives[key]; life != nil {
				life.add(firstSeen, fixableSince, fixedAt, c.replaced[report][repository])
				life.types = insertSorted(life.types, kind)
				life.sameEngine = life.sameEngine || slices.Contains(c.running[report], repository) || c.engines[repository][c.lastEngine[report]]
			}
		}
		return nil
	})
}

// add adds what one report says. replacedAt is when a rollout has replaced its image; zero if none has.
func (l *findingLife) add(firstSeen, fixableSince, fixedAt, replacedAt millis) {
	if l.firstSeen.IsZero() || firstSeen.Before(l.firstSeen) {
		l.firstSeen = firstSeen.Time
	}
	if !fixableSince.IsZero() && (l.fixableSince.IsZero() || fixableSince.Before(l.fixableSince)) {
		l.fixableSince = fixableSince.Time
	}
	ended := fixedAt.Time
	if ended.IsZero() {
		ended = replacedAt.Time
	}
	l.present = l.present || ended.IsZero()
	if ended.After(l.endedAt) {
		l.endedAt = ended
	}
}

// changes returns what has changed, in order.
func (c *changeCollector) changes() []NamespaceChange {
	byKind := make(map[diff.Change][]NamespaceChange)
	for key, life := range c.lives {
		change := NamespaceChange{Finding: life.worst.Finding, Repository: key.repository}
		_, isRunning := c.repositories.byName[key.repository]
		// What other tools report makes no difference. An anomaly is a gap here.
		isKnown := isRunning && !c.gaps[key.repository].Concerns(life.types)
		facts := evidence.Facts{Present: life.present, Complete: isKnown, DataTrusted: isKnown, SameEngine: life.sameEngine, SourcesReported: true}
		switch {
		case life.isRunning && !life.firstSeen.Before(c.asked.Since):
			change.Change, change.At = diff.ChangeNew, life.firstSeen
		case life.isRunning && !life.fixableSince.Before(c.asked.Since):
			change.Change, change.At = diff.ChangeFixAvailable, life.fixableSince
		case !life.endedAt.Before(c.asked.Since) && evidence.Of(facts) == evidence.ProvenAbsent:
			change.Change, change.At = diff.ChangeFixed, life.endedAt
		default:
			continue
		}
		if life.isRunning && !life.isKept {
			change.Exception = life.suppressed
		}
		change.Aliases, change.Package.Name, change.Package.Version = nil, cutRun(change.Package.Name), cutRun(change.Package.Version)
		byKind[change.Change] = append(byKind[change.Change], change)
	}
	var all []NamespaceChange
	for _, kind := range []diff.Change{diff.ChangeNew, diff.ChangeFixAvailable, diff.ChangeFixed} {
		slices.SortFunc(byKind[kind], func(a, b NamespaceChange) int {
			if order := finding.Worse(a.Finding, b.Finding); order != 0 {
				return order
			}
			return strings.Compare(a.Repository, b.Repository)
		})
		all = append(all, byKind[kind]...)
	}
	return all
}
