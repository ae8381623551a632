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
)

// runningRepository is an image repository that runs for a Scanner, and who runs which of its images.
type runningRepository struct {
	name      string
	workloads map[int64][]Workload // by the image's report
	revisions map[int64]int64      // of these reports
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

const selectRunning = `
	SELECT r.id, r.revision, w.namespace, w.kind, w.name, w.container, w.repository, w.reference
	FROM scanner_images si
	CROSS JOIN reports r ON r.manifest_id = si.manifest_id AND r.engine = si.engine
	CROSS JOIN workloads w ON w.image_id = si.id
	WHERE si.scanner = ? AND (? = '' OR si.engine = ?)`

// running lists what runs for a Scanner and has a report by an engine (empty for any), by repository.
func running(ctx context.Context, q query, scanner, engine string) ([]runningRepository, error) {
	byName := make(map[string]runningRepository)
	rows, err := q.QueryContext(ctx, selectRunning, scanner, engine, engine)
	_, err = collect(rows, err, func(rows *sql.Rows) (struct{}, error) {
		var report, revision int64
		var w Workload
		err := rows.Scan(&report, &revision, &w.Namespace, &w.Kind, &w.Name, &w.Container, &w.Repository, &w.Reference)
		r, found := byName[w.Repository]
		if !found {
			r = runningRepository{name: w.Repository, workloads: make(map[int64][]Workload), revisions: make(map[int64]int64)}
			byName[w.Repository] = r
		}
		r.workloads[report] = append(r.workloads[report], w)
		r.revisions[report] = revision
		return struct{}{}, err
	})
	if err != nil {
		return nil, err
	}
	return slices.SortedFunc(maps.Values(byName), func(a, b runningRepository) int { return cmp.Compare(a.name, b.name) }), nil
}
