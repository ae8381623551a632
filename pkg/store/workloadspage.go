package store

import (
	"context"
	"database/sql"

	"github.com/scanner-operator/scanner-operator/pkg/exception"
)

// WorkloadsQuery selects the workloads in some namespaces.
type WorkloadsQuery struct {
	Seen Sight
	// Text is part of the name or of the reference of an image; empty for all. Letters match in any case.
	Text string
	// Exceptions are in force in these namespaces. Each applies only to images in the namespaces that it is for.
	Exceptions exception.Set
}

// WorkloadCursor is a position in the order of workloads: the last one before it. The zero value is the beginning.
type WorkloadCursor struct {
	Urgency         int64
	Namespace, Kind string
	// Name is empty at the beginning of the list.
	Name string
}

// RunningWorkload is a workload that runs an image which a scanner has.
type RunningWorkload struct {
	Namespace, Kind, Name string
	// Images are as in WorkloadDetails.
	Images []WorkloadImage
	// Totals counts a vulnerability in a package once in all images of the workload.
	Totals
}

// WorkloadsPage is one page of workloads.
type WorkloadsPage struct {
	Workloads []RunningWorkload
	// Total is the number of all that pass the filter.
	Total int
	// Next is the beginning of the next page; nil if this is the last one.
	Next *WorkloadCursor
}

const (
	withListed = `WITH listed AS MATERIALIZED (
		SELECT l.namespace, l.kind, l.name, max(l.urgency) AS urgency FROM (
			SELECT w.namespace, w.kind, w.name,
				coalesce((SELECT r.urgency FROM reports r WHERE r.manifest_id = si.manifest_id AND r.engine = si.engine), 0) AS urgency
			FROM `
	ofListed = `
			ORDERED JOIN workloads w ON w.image_id = si.id AND w.namespace = si.namespace
			WHERE @text = '' OR contains(fold(w.name || ' ' || w.reference), @text)
			UNION ALL SELECT w.namespace, w.kind, w.name, r.urgency FROM `
	ofListedExternal = `
			ORDERED JOIN reports r ON r.id = e.report_id` + joinAnnounced + `
			ORDERED JOIN workloads w ON w.image_id = si.id AND w.namespace = si.namespace
			WHERE @text = '' OR contains(fold(w.name || ' ' || w.reference), @text)) l
		GROUP BY l.namespace, l.kind, l.name)
		SELECT l.urgency, l.namespace, l.kind, l.name, (SELECT count(*) FROM listed) FROM listed l
		WHERE @name = '' OR l.urgency < @urgency OR l.urgency = @urgency AND (l.namespace, l.kind, l.name) > (@namespace, @kind, @name)
		ORDER BY l.urgency DESC, l.namespace, l.kind, l.name LIMIT @limit`

	selectListedEverywhere = withListed + `scanner_images si` + ofListed + `external_reports e` + ofListedExternal
	selectListedIn         = withListed + `texts(@namespaces) n ORDERED JOIN scanner_images si INDEXED BY scanner_images_by_namespace ON si.namespace = n.value` + ofListed +
		`texts(@namespaces) n ORDERED JOIN external_reports e ON e.namespace = n.value` + ofListedExternal
)

// WorkloadsPage lists the workloads that run images in some namespaces, starting after a cursor. Those with the most urgent image come first, as in
// ActionsPage, and then by namespace, kind and name. Total is 0 on a page after the last workload.
func (s *Store) WorkloadsPage(ctx context.Context, asked WorkloadsQuery, after WorkloadCursor, limit int) (page WorkloadsPage, err error) {
	statement := selectListedIn
	if asked.Seen.All {
		statement = selectListedEverywhere
	}
	args := append(asked.Seen.args(), sql.Named("text", foldName(asked.Text)), sql.Named("urgency", after.Urgency), sql.Named("namespace", after.Namespace),
		sql.Named("kind", after.Kind), sql.Named("name", after.Name), sql.Named("limit", limit+1))
	err = s.read(ctx, "list workloads", func(ctx context.Context, q query) error {
		page = WorkloadsPage{}
		cursors, err := collect(ctx, q, statement, args, func(rows *sql.Rows) (c WorkloadCursor, err error) {
			err = rows.Scan(&c.Urgency, &c.Namespace, &c.Kind, &c.Name, &page.Total)
			return c, err
		})
		if err != nil || len(cursors) == 0 {
			return err
		}
		if len(cursors) > limit {
			cursors, page.Next = cursors[:limit], &cursors[limit-1]
		}
		return page.read(ctx, q, s, cursors, asked.Exceptions)
	})
	if err != nil {
		return WorkloadsPage{}, err
	}
	return page, nil
}

// read reads the workloads of a page.
func (page *WorkloadsPage) read(ctx context.Context, q query, s *Store, cursors []WorkloadCursor, exceptions exception.Set) error {
	type key struct{ namespace, kind, name string }
	keys, index := make([][3]string, len(cursors)), make(map[key]int, len(cursors))
	page.Workloads = make([]RunningWorkload, len(cursors))
	for i, c := range cursors {
		page.Workloads[i] = RunningWorkload{Namespace: c.Namespace, Kind: c.Kind, Name: c.Name}
		keys[i], index[key{c.Namespace, c.Kind, c.Name}] = [3]string{c.Namespace, c.Kind, c.Name}, i
	}
	args := []any{sql.Named("workloads", jsonArray(keys)), sql.Named("scanner", "")}
	err := eachRow(ctx, q, selectImagesOfWorkloads, args, func(rows *sql.Rows) error {
		var of key
		i, err := scanWorkloadImage(rows, &of.namespace, &of.kind, &of.name)
		w := &page.Workloads[index[of]]
		w.Images = append(w.Images, i)
		return err
	})
	if err != nil {
		return err
	}
	repositories, err := collectRunning(ctx, q, selectReportsOfWorkloads, args)
	if err != nil {
		return err
	}
	// What runs in a workload is counted as if it were one repository.
	parts := make([]runningRepository, len(cursors))
	for _, r := range repositories.byName {
		for _, report := range r.reports {
			for _, w := range report.workloads {
				parts[index[key{w.Namespace, w.Kind, w.Name}]].add(report.id, report.revision, w)
			}
		}
	}
	for i := range parts {
		if page.Workloads[i].Totals, err = s.countRepository(ctx, q, parts[i], exceptions); err != nil {
			return err
		}
	}
	return nil
}
