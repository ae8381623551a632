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

// runningRepository is an image repository that runs for a Scanner, with the workloads of its images.
type runningRepository struct {
	name      string
	workloads map[int64][]Workload // by the report of the image
	revisions map[int64]int64      // of these reports
	digests   map[int64][]string   // of each workload's image, in the order of workloads
	// otherReports are the reports of the repository's other images, with their revisions. Their findings are not announced, but do not
	// count as fixed either.
	otherReports map[int64]int64
}

// reports returns the row IDs of the images' reports as JSON, for json_each.
func (r runningRepository) reports() string { return idsOf(r.workloads) }

// allReports also includes otherReports.
func (r runningRepository) allReports() string {
	return jsonArray(slices.Concat(slices.Sorted(maps.Keys(r.workloads)), slices.Sorted(maps.Keys(r.otherReports))))
}

// state returns a text that identifies the present findings of the repository's images: while it is equal, so are they.
func (r runningRepository) state() string {
	var state strings.Builder
	for _, id := range slices.Sorted(maps.Keys(r.revisions)) {
		fmt.Fprintf(&state, "%d@%d ", id, r.revisions[id])
	}
	for _, id := range slices.Sorted(maps.Keys(r.otherReports)) {
		fmt.Fprintf(&state, "beside %d@%d ", id, r.otherReports[id])
	}
	return state.String()
}

// stateWithExceptions returns the state together with everything that determines which findings exceptions suppress.
func (r runningRepository) stateWithExceptions(set exception.Set) string {
	if set.Key() == "" {
		return r.state()
	}
	var names strings.Builder
	for _, id := range slices.Sorted(maps.Keys(r.workloads)) {
		for _, img := range r.imageNames(id) {
			fmt.Fprintf(&names, "%d %q %s ", id, img.Reference.String(), img.Digest)
		}
	}
	return fmt.Sprintf("%s%s %s", r.state(), names.String(), set.Key())
}

// imageNames returns how the repository's workloads name a report's image, each name once and in order.
func (r runningRepository) imageNames(report int64) []exception.Image {
	var names []exception.Image
	for i, w := range r.workloads[report] {
		names = append(names, imageNamed(w.Reference, r.digests[report][i]))
	}
	compare := func(a, b exception.Image) int {
		return cmp.Or(cmp.Compare(a.Reference.String(), b.Reference.String()), cmp.Compare(a.Digest, b.Digest))
	}
	slices.SortFunc(names, compare)
	return slices.CompactFunc(names, func(a, b exception.Image) bool { return compare(a, b) == 0 })
}

// suppressed returns the repository's present findings that exceptions suppress, by the findings' row IDs.
func (r runningRepository) suppressed(ctx context.Context, q query, set exception.Set) (map[int64]*exception.Exception, error) {
	if set.Key() == "" {
		return nil, nil
	}
	names := make(map[int64][]exception.Image)
	for report := range r.workloads {
		names[report] = r.imageNames(report)
	}
	return suppressedFindings(ctx, q, presentCandidates, set, names)
}

// allWorkloads returns all workloads of the repository.
func (r runningRepository) allWorkloads() []Workload {
	var all []Workload
	for _, workloads := range r.workloads {
		all = append(all, workloads...)
	}
	return distinctWorkloads(all)
}

// selectRunningAndKept selects the workloads that run a Scanner's images with a report, and those that ran them last and are not
// superseded. The last column is foundWorkload.within.
const (
	selectWorkloads = `
		SELECT r.id, r.revision, si.digest, w.namespace, w.kind, w.name, w.container, w.repository, w.reference, w.receivers, `
	ofScanner = ` w ON w.image_id = si.id
		WHERE si.scanner = @scanner AND (@engine = '' OR si.engine = @engine)`
	ofReports = `
		FROM scanner_images si
		CROSS JOIN reports r ON r.manifest_id = si.manifest_id AND r.engine = si.engine
		CROSS JOIN `
	selectRunningAndKept = selectWorkloads + `0` + ofReports + `workloads` + ofScanner + `
		UNION ALL` + selectWorkloads + `CASE WHEN @in_use AND ` + isRecentColumn + ` THEN 1 ELSE 2 END` + ofReports + `left_workloads` + ofScanner + ` AND w.superseded = 0`
)

// foundWorkload is a row of selectRunningAndKept.
type foundWorkload struct {
	Workload
	report, revision int64
	digest           string
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
		err := rows.Scan(&w.report, &w.revision, &w.digest, &w.Namespace, &w.Kind, &w.Name, &w.Container, &w.Repository, &w.Reference, &w.Receivers, &w.within)
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
		maps.DeleteFunc(r.otherReports, func(report, _ int64) bool { return r.workloads[report] != nil })
		found.byName[name] = r
	}
	return slices.SortedFunc(maps.Values(found.byName), func(a, b runningRepository) int { return cmp.Compare(a.name, b.name) }), nil
}

// repositoryCollector groups workloads by repository.
type repositoryCollector struct {
	byName map[string]runningRepository
	// otherReports is runningRepository.otherReports by repository.
	otherReports map[string]map[int64]int64
}

func (c repositoryCollector) add(w foundWorkload) {
	r, found := c.byName[w.Repository]
	if !found {
		r = runningRepository{
			name: w.Repository, workloads: make(map[int64][]Workload), revisions: make(map[int64]int64), digests: make(map[int64][]string),
		}
		c.byName[w.Repository] = r
	}
	r.workloads[w.report] = append(r.workloads[w.report], w.Workload)
	r.digests[w.report] = append(r.digests[w.report], w.digest)
	r.revisions[w.report] = w.revision
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
