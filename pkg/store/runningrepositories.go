package store

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/scanner-operator/scanner-operator/pkg/exception"
)

// reach is which images count as running. Each reach includes the ones before it. The statements use the numbers.
type reach int

const (
	// reachRunning are the images that workloads run now.
	reachRunning reach = iota
	// reachInUse also includes images whose last pods have ended recently.
	reachInUse
	// reachKept includes all images that the Scanner still has, except those that a rollout has replaced.
	reachKept
)

// runningRepository is an image repository that runs for a Scanner, with the workloads of its images. A scanner of a whole cluster has many
// thousands of them in memory at once: they take little.
type runningRepository struct {
	name string
	// reports are those of the images that run, in the order of their row IDs.
	reports []runningReport
	// otherReports are the reports of the repository's other images, with their revisions. Their findings are not announced, but do not
	// count as fixed either.
	otherReports map[int64]int64
}

// runningReport is a report, with the workloads that run its image.
type runningReport struct {
	id, revision int64
	workloads    []runningWorkload
}

// runningWorkload is a workload, with the digest of the image that it runs and the row ID of the manifest, 0 while that is not known.
type runningWorkload struct {
	Workload
	digest   string
	manifest int64
}

// add adds a workload that runs an image with a report.
func (r *runningRepository) add(report, revision int64, w runningWorkload) {
	i, found := r.find(report)
	if !found {
		r.reports = slices.Insert(r.reports, i, runningReport{id: report, revision: revision})
	}
	r.reports[i].workloads = append(r.reports[i].workloads, w)
}

// find returns the index of a report, or where to insert it.
func (r *runningRepository) find(report int64) (index int, found bool) {
	return slices.BinarySearchFunc(r.reports, report, func(known runningReport, id int64) int { return cmp.Compare(known.id, id) })
}

// reportIDs returns the row IDs of the images' reports as a parameter for the macro ids.
func (r *runningRepository) reportIDs() string { return jsonArray(r.ids()) }

// allReportIDs also includes otherReports.
func (r *runningRepository) allReportIDs() string {
	return jsonArray(slices.Concat(r.ids(), slices.Sorted(maps.Keys(r.otherReports))))
}

func (r *runningRepository) ids() []int64 {
	ids := make([]int64, len(r.reports))
	for i := range r.reports {
		ids[i] = r.reports[i].id
	}
	return ids
}

// state returns a text that identifies the present findings of the repository's images: while it is equal, so are they.
func (r *runningRepository) state() string {
	var state strings.Builder
	for _, report := range r.reports {
		fmt.Fprintf(&state, "%d@%d ", report.id, report.revision)
	}
	for _, id := range slices.Sorted(maps.Keys(r.otherReports)) {
		fmt.Fprintf(&state, "beside %d@%d ", id, r.otherReports[id])
	}
	return state.String()
}

// stateWithExceptions returns the state together with everything that determines which findings exceptions suppress.
func (r *runningRepository) stateWithExceptions(set exception.Set) string {
	if set = r.exceptionsOf(set); set.Key() == "" {
		return r.state()
	}
	var names strings.Builder
	for _, report := range r.reports {
		for _, img := range report.imageNames() {
			fmt.Fprintf(&names, "%d %q %s %s %d ", report.id, img.Reference.String(), img.Digest, img.Namespace, img.Manifest)
		}
	}
	return fmt.Sprintf("%s%s %s", r.state(), names.String(), set.Key())
}

// imageNames returns how the workloads name the report's image in each namespace, each name once and in order.
func (r runningReport) imageNames() []exception.Image {
	var names []exception.Image
	for _, w := range r.workloads {
		names = append(names, w.imageName())
	}
	slices.SortFunc(names, compareNames)
	return slices.CompactFunc(names, func(a, b exception.Image) bool { return compareNames(a, b) == 0 })
}

func compareNames(a, b exception.Image) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Reference.String(), b.Reference.String()), cmp.Compare(a.Digest, b.Digest), cmp.Compare(a.Manifest, b.Manifest))
}

// imageName returns how the workload names its image.
func (w runningWorkload) imageName() exception.Image {
	name := imageNamed(w.Reference, w.digest)
	name.Namespace, name.Manifest = w.Namespace, w.manifest
	return name
}

// namedUnder returns the workloads that run the image under one of some names: those for which under is true, in the order of imageNames.
func (r runningReport) namedUnder(under []bool) (all []Workload) {
	names := r.imageNames()
	for _, w := range r.workloads {
		if i, found := slices.BinarySearchFunc(names, w.imageName(), compareNames); found && under[i] {
			all = append(all, w.Workload)
		}
	}
	return all
}

// suppressed returns the repository's present findings that exceptions suppress. The names are those of imageNames.
func (r *runningRepository) suppressed(ctx context.Context, q query, set exception.Set) (suppressions, error) {
	if set = r.exceptionsOf(set); set.Key() == "" {
		return suppressions{}, nil
	}
	names := make(map[int64][]exception.Image)
	for _, report := range r.reports {
		names[report.id] = report.imageNames()
	}
	return suppressedFindings(ctx, q, presentCandidates, set, names)
}

// exceptionsOf returns the exceptions that apply to a namespace that runs the repository, and the statements about its images, so that others
// cost nothing.
func (r *runningRepository) exceptionsOf(set exception.Set) exception.Set {
	if set.Key() == "" {
		return set
	}
	return set.In(r.namespaces()).About(r.manifests())
}

// manifests returns the manifests of the images that run.
func (r *runningRepository) manifests() map[int64]bool {
	seen := make(map[int64]bool)
	for _, report := range r.reports {
		for _, w := range report.workloads {
			seen[w.manifest] = true
		}
	}
	return seen
}

// namespaces returns the namespaces that run the repository.
func (r *runningRepository) namespaces() map[string]bool {
	seen := make(map[string]bool)
	for _, report := range r.reports {
		for _, w := range report.workloads {
			seen[w.Namespace] = true
		}
	}
	return seen
}

// byNamespace returns the part of the repository that runs in each namespace, without otherReports.
func (r *runningRepository) byNamespace() map[string]runningRepository {
	parts := make(map[string]runningRepository)
	for _, report := range r.reports {
		for _, w := range report.workloads {
			part := parts[w.Namespace]
			part.name = r.name
			part.add(report.id, report.revision, w)
			parts[w.Namespace] = part
		}
	}
	return parts
}

// within returns the part of the repository that runs in some namespaces, without otherReports.
func (r *runningRepository) within(namespaces map[string]bool) runningRepository {
	part := runningRepository{name: r.name}
	for _, report := range r.reports {
		for _, w := range report.workloads {
			if namespaces[w.Namespace] {
				part.add(report.id, report.revision, w)
			}
		}
	}
	return part
}

// affected are the workloads that a finding concerns: those that run an image which has it, and none of whose exceptions suppresses it there.
type affected struct {
	// reports are those that have the finding, and only the names of an image under which it is not suppressed, if it is under others.
	reports []int64
	only    map[int64][]bool
}

// add adds a finding of one of the reports. byName is that of suppressions.
func (a *affected) add(report int64, byName []*exception.Exception) {
	i, known := slices.BinarySearch(a.reports, report)
	if !known {
		a.reports = slices.Insert(a.reports, i, report)
	}
	switch {
	case byName == nil:
		delete(a.only, report)
		return
	case known && a.only[report] == nil:
		return // another finding of the report is suppressed under no name
	case a.only == nil:
		a.only = make(map[int64][]bool)
	}
	under := a.only[report]
	if under == nil {
		under = make([]bool, len(byName))
		a.only[report] = under
	}
	for i, by := range byName {
		under[i] = under[i] || by == nil
	}
}

// workloadsOf returns the workloads of affected, each once.
func (r *runningRepository) workloadsOf(a affected) []Workload {
	if len(a.only) == 0 {
		return distinctWorkloads(r.workloadsRunning(a.reports))
	}
	var all []Workload
	for _, id := range a.reports {
		i, found := r.find(id)
		if !found {
			continue
		}
		if under := a.only[id]; under != nil {
			all = append(all, r.reports[i].namedUnder(under)...)
		} else {
			all = append(all, r.workloadsRunning([]int64{id})...)
		}
	}
	return distinctWorkloads(all)
}

// workloadsRunning returns the workloads that run the images of some reports.
func (r *runningRepository) workloadsRunning(reports []int64) (all []Workload) {
	for _, id := range reports {
		if i, found := r.find(id); found {
			for _, w := range r.reports[i].workloads {
				all = append(all, w.Workload)
			}
		}
	}
	return all
}

// allWorkloads returns all workloads of the repository.
func (r *runningRepository) allWorkloads() []Workload {
	return distinctWorkloads(r.workloadsRunning(r.ids()))
}

// selectRunningAndKept selects the workloads that run a Scanner's images with a report, and those that ran them last and are not
// superseded. The last column is foundWorkload.within.
const (
	selectWorkloads = `
		SELECT r.id, r.revision, si.digest, coalesce(si.manifest_id, 0), w.namespace, w.kind, w.name, w.container, w.repository, w.reference, w.receivers, `
	ofScanner = ` w ON w.image_id = si.id
		WHERE si.scanner = @scanner AND (@engine = '' OR si.engine = @engine)`
	ofReports = `
		FROM scanner_images si
		ORDERED JOIN reports r ON r.manifest_id = si.manifest_id AND r.engine = si.engine
		ORDERED JOIN `
	// ofExternalReports are the reports of other tools that the Scanner announces, of images that its engine has a report of: without one,
	// nothing proves what else is in the image.
	ofExternalReports = `
		FROM announced_sources s
		ORDERED JOIN scanner_images si ON si.scanner = s.scanner
		ORDERED JOIN external_reports e ON e.namespace = si.namespace AND e.digest = si.digest AND e.source = s.source AND e.platform IN ('', si.platform)
		ORDERED JOIN reports r ON r.id = e.report_id
		ORDERED JOIN reports own ON own.manifest_id = si.manifest_id AND own.engine = si.engine
		ORDERED JOIN `
	runningReach         = `0`
	keptReach            = `CASE WHEN @in_use = 1 AND ` + isRecentColumn + ` THEN 1 ELSE 2 END`
	isNotSuperseded      = ` AND w.superseded = 0`
	selectRunningAndKept = selectWorkloads + runningReach + ofReports + `workloads` + ofScanner + `
		UNION ALL` + selectWorkloads + keptReach + ofReports + `left_workloads` + ofScanner + isNotSuperseded + `
		UNION ALL` + selectWorkloads + runningReach + ofExternalReports + `workloads` + ofScanner + ` AND s.scanner = @scanner
		UNION ALL` + selectWorkloads + keptReach + ofExternalReports + `left_workloads` + ofScanner + isNotSuperseded + ` AND s.scanner = @scanner`
)

// foundWorkload is a row of selectRunningAndKept.
type foundWorkload struct {
	Workload
	report, revision int64
	digest           string
	manifest         int64
	// within is the first reach in which the image counts as running because of the workload. Without @in_use, it is never reachInUse.
	within reach
}

// loadRunning lists the repositories with images that are within reach for a Scanner and have a report by an engine (empty for any).
// It includes only workloads that pass the route. The result is ordered by name.
func loadRunning(ctx context.Context, q query, scanner, engine string, route *Route, within reach) ([]runningRepository, error) {
	found := repositoryCollector{byName: make(map[string]runningRepository), otherReports: make(map[string]map[int64]int64)}
	args := []any{sql.Named("scanner", scanner), sql.Named("engine", engine), sql.Named("in_use", within == reachInUse)}
	err := eachRow(ctx, q, selectRunningAndKept, args, func(rows *sql.Rows) error {
		var w foundWorkload
		err := rows.Scan(&w.report, &w.revision, &w.digest, &w.manifest, &w.Namespace, &w.Kind, &w.Name, &w.Container, &w.Repository, &w.Reference, &w.Receivers, &w.within)
		if w.within <= within && route.passes(w.Workload) {
			found.add(w)
		} else {
			found.addOtherReport(w)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	for name, r := range found.byName {
		r.otherReports = found.otherReports[name]
		maps.DeleteFunc(r.otherReports, func(report, _ int64) bool {
			_, runs := r.find(report)
			return runs
		})
		found.byName[name] = r
	}
	return slices.SortedFunc(maps.Values(found.byName), func(a, b runningRepository) int { return cmp.Compare(a.name, b.name) }), nil
}

const (
	// selectSilent selects the announced sources that have no report about an image of a repository. The last column is foundWorkload.within.
	selectSilentOf = `SELECT DISTINCT w.repository, w.namespace, w.receivers, s.source, `
	ofSilent       = `
		FROM announced_sources s
		ORDERED JOIN scanner_images si ON si.scanner = s.scanner
		ORDERED JOIN `
	hasNoReport = ` AND s.scanner = @scanner AND unjoined(NOT EXISTS (
			SELECT 1 FROM external_reports e WHERE e.namespace = si.namespace AND e.digest = si.digest AND e.source = s.source AND e.platform IN ('', si.platform)))`
	selectSilent = selectSilentOf + runningReach + ofSilent + `workloads` + ofScanner + hasNoReport + `
		UNION ALL ` + selectSilentOf + keptReach + ofSilent + `left_workloads` + ofScanner + isNotSuperseded + hasNoReport
)

// silentSources returns the announced sources of each repository that have no report about one of its images, sorted. The images are those that
// loadRunning finds, with or without a report.
func silentSources(ctx context.Context, q query, scanner, engine string, route *Route, within reach) (map[string][]string, error) {
	silent := make(map[string][]string)
	args := []any{sql.Named("scanner", scanner), sql.Named("engine", engine), sql.Named("in_use", within == reachInUse)}
	err := eachRow(ctx, q, selectSilent, args, func(rows *sql.Rows) error {
		var w foundWorkload
		var source string
		err := rows.Scan(&w.Repository, &w.Namespace, &w.Receivers, &source, &w.within)
		if w.within <= within && route.passes(w.Workload) {
			silent[w.Repository] = insertSorted(silent[w.Repository], source)
		}
		return err
	})
	return silent, err
}

// repositoryCollector groups workloads by repository.
type repositoryCollector struct {
	byName map[string]runningRepository
	// otherReports is runningRepository.otherReports by repository.
	otherReports map[string]map[int64]int64
}

func (c repositoryCollector) add(w foundWorkload) {
	r := c.byName[w.Repository]
	r.name = w.Repository
	r.add(w.report, w.revision, runningWorkload{w.Workload, w.digest, w.manifest})
	c.byName[w.Repository] = r
}

// addOtherReport adds the report of an image that nothing within reach runs, or that does not concern the receiver. A pod that moves to
// another node, or a CronJob between two runs, fixes nothing; a rollout does.
func (c repositoryCollector) addOtherReport(w foundWorkload) {
	if c.otherReports[w.Repository] == nil {
		c.otherReports[w.Repository] = make(map[int64]int64)
	}
	c.otherReports[w.Repository][w.report] = w.revision
}

// containerKey returns what identifies a workload's container: the workload without the image reference, receivers and Completes.
func containerKey(w Workload) Workload {
	w.Reference, w.Receivers, w.Completes = "", "", false
	return w
}
