package store

import (
	"cmp"
	"context"
	"database/sql"
	"slices"

	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
)

// WorkloadQuery selects a workload, such as a Deployment.
type WorkloadQuery struct {
	Namespace, Kind, Name string
	// Scanner is the UID of the Scanner whose images count; empty for those of all.
	Scanner string
	// Exceptions are in force in the namespace.
	Exceptions exception.Set
}

// WorkloadDetails are the images of a workload and their findings.
type WorkloadDetails struct {
	// Images are ordered by container, reference, digest, platform and scanner. An image that nobody scans is not among them.
	Images []WorkloadImage
	// Findings are the worst ones, in the order of finding.Worse. Exceptions suppress some of them.
	Findings []WorkloadFinding
	// Counts are of all findings that no exception suppresses; Suppressed is the number of the others.
	Counts     finding.Counts
	Suppressed int
}

// WorkloadImage is an image that a container of a workload runs, and a scanner that has it.
type WorkloadImage struct {
	Container, Reference string
	Key                  image.Key
	// Scanner is the UID of the Scanner or ClusterScanner.
	Scanner string
}

// WorkloadFinding is a vulnerability in a package of the images of a workload, with the worst values of these images. It has no paths,
// description and advisories, and no URL of more than 256 characters.
type WorkloadFinding struct {
	finding.Finding
	// Containers run such an image, sorted.
	Containers []string
	// Exception suppresses it in all these images; nil if none does.
	Exception *exception.Exception
}

const (
	selectRunBy = `SELECT DISTINCT si.scanner, si.namespace, si.digest, si.platform
		FROM workloads w NESTED JOIN scanner_images si ON si.id = w.image_id AND si.namespace = w.namespace
		WHERE w.name = @name AND (@kind = '' OR fold(w.kind) = @kind)
			AND (@every = 1 OR w.namespace IN (SELECT value FROM texts(@namespaces) t))`

	ofWorkloads = `
		FROM records(@workloads, namespace text, kind text, name text) k
		NESTED JOIN workloads w ON w.name = k.name AND w.namespace = k.namespace AND w.kind = k.kind
		NESTED JOIN scanner_images si ON si.id = w.image_id AND si.namespace = w.namespace`
	ofAskedScanner = `
		WHERE (@scanner = '' OR si.scanner = @scanner)`

	selectImagesOfWorkloads = `SELECT w.namespace, w.kind, w.name, w.container, substr(w.reference, 1, 512), si.digest, si.platform, si.scanner` + ofWorkloads + ofAskedScanner + `
		ORDER BY 1, 2, 3, 4, 5, 6, 7, 8`

	selectReportsOfWorkloads = selectWorkloads + runningReach + ofWorkloads + `
		NESTED JOIN reports r ON r.manifest_id = si.manifest_id AND r.engine = si.engine` + ofAskedScanner + `
		UNION ALL` + selectWorkloads + runningReach + ofWorkloads + `
		NESTED JOIN announced_sources s ON s.scanner = si.scanner
		NESTED JOIN external_reports e ON e.namespace = si.namespace AND e.digest = si.digest AND e.source = s.source AND e.platform IN ('', si.platform)
		NESTED JOIN reports r ON r.id = e.report_id` + ofAskedScanner
)

// ImagesRunBy returns the images that workloads with a name run in some namespaces, without order. kind is in any case; empty for all.
func (s *Store) ImagesRunBy(ctx context.Context, seen Sight, kind, name string) ([]ScannerImage, error) {
	args := append(seen.args(), sql.Named("kind", foldName(kind)), sql.Named("name", name))
	return queryRows(ctx, s, "list the images of workloads", selectRunBy, args, func(rows *sql.Rows) (i ScannerImage, err error) {
		err = rows.Scan(&i.Scanner, &i.Namespace, &i.Key.Digest, (*platform)(&i.Key.Platform))
		return i, err
	})
}

// Workload returns the images that a workload runs now, and their findings by all engines and announced external reports, at most limit of them.
// Details without images mean that no scanner has an image of such a workload. It returns ErrTooManyCandidates if the images have more than
// maxPreviewCandidates findings.
func (s *Store) Workload(ctx context.Context, asked WorkloadQuery, limit int) (details WorkloadDetails, err error) {
	args := []any{sql.Named("workloads", jsonArray([][3]string{{asked.Namespace, asked.Kind, asked.Name}})), sql.Named("scanner", asked.Scanner)}
	err = s.read(ctx, "read workload", func(ctx context.Context, q query) error {
		details = WorkloadDetails{}
		details.Images, err = collect(ctx, q, selectImagesOfWorkloads, args, func(rows *sql.Rows) (WorkloadImage, error) {
			var namespace, kind, name string
			return scanWorkloadImage(rows, &namespace, &kind, &name)
		})
		if err != nil {
			return err
		}
		repositories, err := collectRunning(ctx, q, selectReportsOfWorkloads, args)
		if err != nil {
			return err
		}
		found, err := readPreviewed(ctx, q, nil, nil, true, repositories)
		if err != nil {
			return err
		}
		details.add(repositories, found, asked.Exceptions)
		details.Findings = details.Findings[:min(len(details.Findings), limit)]
		return nil
	})
	if err != nil {
		return WorkloadDetails{}, err
	}
	return details, nil
}

// scanWorkloadImage scans a row of selectImagesOfWorkloads.
func scanWorkloadImage(rows *sql.Rows, namespace, kind, name *string) (i WorkloadImage, err error) {
	err = rows.Scan(namespace, kind, name, &i.Container, &i.Reference, &i.Key.Digest, (*platform)(&i.Key.Platform), &i.Scanner)
	return i, err
}

// add merges the findings of all images, and counts them.
func (d *WorkloadDetails) add(repositories repositoryCollector, found map[int64][]finding.Finding, inForce exception.Set) {
	type group struct {
		WorkloadFinding
		isKept bool // in at least one image
	}
	groups := make(map[findingKey]*group)
	for _, r := range repositories.byName {
		for _, report := range r.reports {
			names := inForce.Compare(report.imageNames())
			for _, f := range found[report.id] {
				k := keyOf(f)
				g := groups[k]
				if g == nil {
					g = &group{WorkloadFinding: WorkloadFinding{Finding: f}}
					groups[k] = g
				}
				if finding.Worse(f, g.Finding) < 0 {
					g.Finding = f
				}
				by := names.SuppressedBy(f)
				g.isKept = g.isKept || by == nil
				// The exception must not depend on the order of the images.
				if by != nil && (g.Exception == nil || by.UID < g.Exception.UID) {
					g.Exception = by
				}
				for _, w := range report.workloads {
					if i, known := slices.BinarySearch(g.Containers, w.Container); !known {
						g.Containers = slices.Insert(g.Containers, i, w.Container)
					}
				}
			}
		}
	}
	for _, g := range groups {
		if g.isKept {
			g.Exception = nil
			d.Counts.AddFinding(g.Finding)
		} else {
			d.Suppressed++
		}
		g.Package.Version, g.Package.Name, g.Aliases = cutRun(g.Package.Version), cutRun(g.Package.Name), nil
		d.Findings = append(d.Findings, g.WorkloadFinding)
	}
	slices.SortFunc(d.Findings, func(a, b WorkloadFinding) int {
		return cmp.Or(finding.Worse(a.Finding, b.Finding), slices.Compare(a.Containers, b.Containers))
	})
}
