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

// selectLeft lists what ran for a Scanner and is kept, with the workloads that ran it last.
const selectLeft = `
	SELECT r.id, r.revision, w.namespace, w.kind, w.name, w.container, w.repository
	FROM scanner_images si
	CROSS JOIN reports r ON r.manifest_id = si.manifest_id AND r.engine = si.engine
	CROSS JOIN left_workloads w ON w.image_id = si.id
	WHERE si.scanner = ? AND (? = '' OR si.engine = ?)`

const selectRunning = `
	SELECT r.id, r.revision, si.digest, w.namespace, w.kind, w.name, w.container, w.repository, w.reference, w.receivers
	FROM scanner_images si
	CROSS JOIN reports r ON r.manifest_id = si.manifest_id AND r.engine = si.engine
	CROSS JOIN workloads w ON w.image_id = si.id
	WHERE si.scanner = ? AND (? = '' OR si.engine = ?)`

// running lists what runs for a Scanner and has a report by an engine (empty for any), by repository: of the workloads that
// pass a route.
func running(ctx context.Context, q query, scanner, engine string, route *Route) ([]runningRepository, error) {
	byName := make(map[string]runningRepository)
	beside := besideRunning{reports: make(map[string]map[int64]int64), running: make(map[Workload]bool)}
	rows, err := q.QueryContext(ctx, selectRunning, scanner, engine, engine)
	_, err = collect(rows, err, func(rows *sql.Rows) (struct{}, error) {
		var report, revision int64
		var digest string
		var w Workload
		err := rows.Scan(&report, &revision, &digest, &w.Namespace, &w.Kind, &w.Name, &w.Container, &w.Repository, &w.Reference, &w.Receivers)
		if err != nil {
			return struct{}{}, err
		}
		beside.running[nameOf(w)] = true
		if !route.passes(w) {
			beside.note(w.Repository, report, revision)
			return struct{}{}, nil
		}
		r, found := byName[w.Repository]
		if !found {
			r = runningRepository{
				name: w.Repository, workloads: make(map[int64][]Workload), revisions: make(map[int64]int64), digests: make(map[int64][]string),
			}
			byName[w.Repository] = r
		}
		r.workloads[report] = append(r.workloads[report], w)
		r.digests[report] = append(r.digests[report], digest)
		r.revisions[report] = revision
		return struct{}{}, nil
	})
	if err != nil {
		return nil, err
	}
	if err := beside.addLeft(ctx, q, scanner, engine); err != nil {
		return nil, err
	}
	for name, r := range byName {
		r.beside = beside.reports[name]
		maps.DeleteFunc(r.beside, func(report, _ int64) bool { return r.workloads[report] != nil })
		byName[name] = r
	}
	return slices.SortedFunc(maps.Values(byName), func(a, b runningRepository) int { return cmp.Compare(a.name, b.name) }), nil
}

// besideRunning collects runningRepository.beside by repository.
type besideRunning struct {
	reports map[string]map[int64]int64
	// running has the workloads that run, as nameOf has them.
	running map[Workload]bool
}

func (b besideRunning) note(repository string, report, revision int64) {
	if b.reports[repository] == nil {
		b.reports[repository] = make(map[int64]int64)
	}
	b.reports[repository][report] = revision
}

// addLeft adds images that nothing runs now, but for those whose workloads all run another image of the repository: a pod that is
// moved to another node, and a CronJob between two runs, fix nothing; a rollout does.
func (b besideRunning) addLeft(ctx context.Context, q query, scanner, engine string) error {
	rows, err := q.QueryContext(ctx, selectLeft, scanner, engine, engine)
	_, err = collect(rows, err, func(rows *sql.Rows) (struct{}, error) {
		var report, revision int64
		var w Workload
		err := rows.Scan(&report, &revision, &w.Namespace, &w.Kind, &w.Name, &w.Container, &w.Repository)
		if err == nil && !b.running[w] {
			b.note(w.Repository, report, revision)
		}
		return struct{}{}, err
	})
	return err
}

// nameOf is a workload's container whatever image of a repository it runs.
func nameOf(w Workload) Workload {
	w.Reference, w.Receivers = "", ""
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
