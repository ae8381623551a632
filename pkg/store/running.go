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
}

// reports lists the reports of the repository's images as JSON, for json_each.
func (r runningRepository) reports() (string, error) {
	ids, err := json.Marshal(slices.Sorted(maps.Keys(r.workloads)))
	return string(ids), err
}

// state names the present findings of the repository's images: while it is the same, so are they.
func (r runningRepository) state() string {
	var state strings.Builder
	for _, id := range slices.Sorted(maps.Keys(r.revisions)) {
		fmt.Fprintf(&state, "%d@%d ", id, r.revisions[id])
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
	rows, err := q.QueryContext(ctx, selectRunning, scanner, engine, engine)
	_, err = collect(rows, err, func(rows *sql.Rows) (struct{}, error) {
		var report, revision int64
		var digest string
		var w Workload
		err := rows.Scan(&report, &revision, &digest, &w.Namespace, &w.Kind, &w.Name, &w.Container, &w.Repository, &w.Reference, &w.Receivers)
		if err != nil || !route.passes(w) {
			return struct{}{}, err
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
	return slices.SortedFunc(maps.Values(byName), func(a, b runningRepository) int { return cmp.Compare(a.name, b.name) }), nil
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
