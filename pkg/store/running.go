package store

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/scanner-operator/scanner-operator/pkg/exception"
)

// reach says which images count as running.
type reach int

const (
	// reachRunning are the images that workloads run now.
	reachRunning reach = iota
	// reachInUse are those too whose last pods have ended recently.
	reachInUse
	// reachKept are all that the Scanner still has, but for those that a rollout has replaced.
	reachKept
)

// runningRepository is an image repository that runs for a Scanner, and who runs which of its images.
type runningRepository struct {
	name      string
	workloads map[int64][]Workload // by the image's report
	revisions map[int64]int64      // of these reports
	digests   map[int64][]string   // of the image of each workload, in the order of workloads
	// beside are the reports of its other images, with their revisions: nothing is told of them, but what they have is not fixed.
	beside map[int64]int64
}

// reports lists the reports of the repository's images as JSON, for json_each.
func (r runningRepository) reports() (string, error) {
	ids, err := json.Marshal(slices.Sorted(maps.Keys(r.workloads)))
	return string(ids), err
}

// allReports is the same with the reports beside them.
func (r runningRepository) allReports() (string, error) {
	ids, err := json.Marshal(slices.Concat(slices.Sorted(maps.Keys(r.workloads)), slices.Sorted(maps.Keys(r.beside))))
	return string(ids), err
}

// state names the present findings of the repository's images: while it is the same, so are they.
func (r runningRepository) state() string {
	var state strings.Builder
	for _, id := range slices.Sorted(maps.Keys(r.revisions)) {
		fmt.Fprintf(&state, "%d@%d ", id, r.revisions[id])
	}
	for _, id := range slices.Sorted(maps.Keys(r.beside)) {
		fmt.Fprintf(&state, "beside %d@%d ", id, r.beside[id])
	}
	return state.String()
}

// covers names also what decides which of them exceptions cover.
func (r runningRepository) covers(set exception.Set) string {
	if set.Key() == "" {
		return r.state()
	}
	var names strings.Builder
	for _, id := range slices.Sorted(maps.Keys(r.workloads)) {
		for _, img := range r.names(id) {
			fmt.Fprintf(&names, "%d %q %s ", id, img.Reference.String(), img.Digest)
		}
	}
	return fmt.Sprintf("%s%s %s", r.state(), names.String(), set.Key())
}

// names are how the repository's workloads name a report's image, each once and in order.
func (r runningRepository) names(report int64) []exception.Image {
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

// covered returns the present findings that exceptions cover in the repository, by the findings' ids.
func (r runningRepository) covered(ctx context.Context, q query, set exception.Set) (map[int64]*exception.Exception, error) {
	if set.Key() == "" {
		return nil, nil
	}
	names := make(map[int64][]exception.Image)
	for report := range r.workloads {
		names[report] = r.names(report)
	}
	return covered(ctx, q, set, names)
}

// everyone lists all workloads of the repository.
func (r runningRepository) everyone() []Workload {
	var all []Workload
	for _, workloads := range r.workloads {
		all = append(all, workloads...)
	}
	return distinctWorkloads(all)
}

const (
	selectWorkloads = `
		SELECT r.id, r.revision, si.digest, w.namespace, w.kind, w.name, w.container, w.repository, w.reference, w.receivers
		FROM scanner_images si
		CROSS JOIN reports r ON r.manifest_id = si.manifest_id AND r.engine = si.engine `
	ofScanner     = ` w ON w.image_id = si.id WHERE si.scanner = ? AND (? = '' OR si.engine = ?)`
	selectRunning = selectWorkloads + `CROSS JOIN workloads` + ofScanner
	// selectRecent and selectKept list what ran for a Scanner, with the workloads that ran it last.
	selectRecent = selectWorkloads + `CROSS JOIN left_workloads` + ofScanner + ` AND ` + isRecent
	selectKept   = selectWorkloads + `CROSS JOIN left_workloads` + ofScanner + ` AND w.superseded = 0`
)

// selectWithin lists the workloads that count, by reach.
var selectWithin = map[reach][]string{
	reachRunning: {selectRunning}, reachInUse: {selectRunning, selectRecent}, reachKept: {selectRunning, selectKept},
}

// running lists what is within reach for a Scanner and has a report by an engine (empty for any), by repository: of the workloads that
// pass a route.
func running(ctx context.Context, q query, scanner, engine string, route *Route, within reach) ([]runningRepository, error) {
	found := repositoryCollector{route: route, byName: make(map[string]runningRepository), beside: make(map[string]map[int64]int64)}
	for _, statement := range selectWithin[within] {
		if err := found.collect(ctx, q, statement, scanner, engine, found.add); err != nil {
			return nil, err
		}
	}
	if within != reachKept {
		// A pod that is moved to another node, and a CronJob between two runs, fix nothing; a rollout does.
		if err := found.collect(ctx, q, selectKept, scanner, engine, found.note); err != nil {
			return nil, err
		}
	}
	for name, r := range found.byName {
		r.beside = found.beside[name]
		maps.DeleteFunc(r.beside, func(report, _ int64) bool { return r.workloads[report] != nil })
		found.byName[name] = r
	}
	return slices.SortedFunc(maps.Values(found.byName), func(a, b runningRepository) int { return cmp.Compare(a.name, b.name) }), nil
}

// repositoryCollector gathers rows of selectWorkloads by repository.
type repositoryCollector struct {
	route  *Route
	byName map[string]runningRepository
	// beside is runningRepository.beside by repository.
	beside map[string]map[int64]int64
}

// foundWorkload is a row of selectWorkloads.
type foundWorkload struct {
	Workload
	report, revision int64
	digest           string
}

func (c repositoryCollector) collect(ctx context.Context, q query, statement, scanner, engine string, each func(foundWorkload)) error {
	rows, err := q.QueryContext(ctx, statement, scanner, engine, engine)
	_, err = collect(rows, err, func(rows *sql.Rows) (struct{}, error) {
		var w foundWorkload
		err := rows.Scan(&w.report, &w.revision, &w.digest, &w.Namespace, &w.Kind, &w.Name, &w.Container, &w.Repository, &w.Reference, &w.Receivers)
		if err == nil {
			each(w)
		}
		return struct{}{}, err
	})
	return err
}

// add takes in a workload that concerns the receiver; of any other only its image's report is noted.
func (c repositoryCollector) add(w foundWorkload) {
	if !c.route.passes(w.Workload) {
		c.note(w)
		return
	}
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

func (c repositoryCollector) note(w foundWorkload) {
	if c.beside[w.Repository] == nil {
		c.beside[w.Repository] = make(map[int64]int64)
	}
	c.beside[w.Repository][w.report] = w.revision
}

// nameOf is a workload's container whatever image of a repository it runs.
func nameOf(w Workload) Workload {
	w.Reference, w.Receivers, w.Completes = "", "", false
	return w
}

// passes says whether a workload concerns the receiver. All do without a route.
func (r *Route) passes(w Workload) bool {
	if r == nil {
		return true
	}
	named := slices.DeleteFunc(strings.Split(w.Receivers, ","), func(name string) bool { return !slices.Contains(r.Known, name) })
	if len(named) == 0 {
		return r.Unassigned
	}
	return slices.Contains(named, r.Receiver)
}
