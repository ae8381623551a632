package restapi

import (
	"context"
	"slices"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/spreadsheet"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// The columns of the lists. Left out are lists of objects, and descriptions, which can have 64 KiB.
var (
	findingFields = []string{
		"id", "aliases", "severity", "knownExploited", "epss", "cvss", "package.name", "package.version", "package.type", "package.purl", "paths",
		"fixable", "fixState", "fixVersions", "firstSeenTime", "lastSeenTime", "fixAvailableTime", "fixSinceTime", "fixedTime", "knownExploitedSinceTime",
		"exception.kind", "exception.name", "exception.status", "exception.justification", "exception.reason", "exception.expirationTime", "exception.source", "exception.signer", "url",
	}
	countFields = []string{"critical", "high", "medium", "low", "negligible", "unknown", "fixable", "knownExploited", "suppressed"}

	findingColumns        = spreadsheet.NewColumns[restv1.Finding](append(slices.Clone(findingFields), "source")...)
	runningFindingColumns = spreadsheet.NewColumns[restv1.RunningFinding](slices.Concat(
		[]string{"namespace", "image", "digest", "platform", "workloads", "workloadCount", "imageScan", "scanner.kind", "scanner.name", "engine"},
		within("finding", findingFields))...)
	vulnerabilityColumns = spreadsheet.NewColumns[restv1.Vulnerability](
		"id", "severity", "knownExploited", "epss", "cvss", "fixable", "images", "namespaces", "firstSeenTime")
	workloadColumns = spreadsheet.NewColumns[restv1.Workload](
		"namespace", "kind", "name", "container", "image", "digest", "platform", "vulnerability", "severity", "knownExploited",
		"package.name", "package.version", "package.type", "package.purl", "fixable", "fixState", "fixVersions", "engines",
		"exception.kind", "exception.name", "exception.status", "exception.justification", "exception.reason", "exception.expirationTime", "exception.source", "exception.signer")
	runningWorkloadColumns = spreadsheet.NewColumns[restv1.RunningWorkload](slices.Concat(
		[]string{"namespace", "kind", "name", "containers", "images", "toActOn"}, within("findings", countFields),
		within("notCovered", []string{"pending", "failed", "newScanners", "partlyAnalysed", "ecosystems"}))...)
	imageScanColumns = spreadsheet.NewColumns[restv1.ImageScan](slices.Concat(
		[]string{"namespace", "name", "references", "digest", "platform", "platformDigest", "scanner.kind", "scanner.name", "engine", "phase", "attempts"},
		within("findings", countFields), []string{"notCovered", "workloads", "workloadCount", "scanTime", "nextAttemptTime", "unusedSinceTime"})...)
)

// within returns the names of fields in a field.
func within(field string, names []string) []string {
	all := make([]string, len(names))
	for i, name := range names {
		all[i] = field + "." + name
	}
	return all
}

// ExportFindings implements restv1.StrictServerInterface.
func (a operations) ExportFindings(ctx context.Context, r restv1.ExportFindingsRequestObject) (restv1.ExportFindingsResponseObject, error) {
	p := restv1.ListFindingsParams{
		Source: r.Params.Source, MinSeverity: r.Params.MinSeverity, Severity: r.Params.Severity, Fixable: r.Params.Fixable,
		KnownExploited: r.Params.KnownExploited, Package: r.Params.Package, ID: r.Params.ID, Text: r.Params.Text,
		FirstSeenSince: r.Params.FirstSeenSince, Suppressed: r.Params.Suppressed, Gone: r.Params.Gone, Outdated: r.Params.Outdated,
	}
	found, err := a.locateFindings(ctx, r.Namespace, r.Name, p)
	if err != nil {
		return nil, err
	}
	return csvList[restv1.Finding]{
		name:       []string{"findings", r.Namespace, r.Name},
		incomplete: p.Source == nil && (phaseOf(found.scan) == restv1.PhaseFailed || len(found.scan.Status.NotCovered) > 0),
		columns:    findingColumns, raw: r.Params.Raw,
		read: func(ctx context.Context, pass func([]restv1.Finding) error) error {
			found, err := a.locateFindings(ctx, r.Namespace, r.Name, p)
			if err != nil {
				return err
			}
			return passPages(pass, func(from store.FindingCursor) ([]restv1.Finding, *store.FindingCursor, error) {
				page, err := a.findingsPage(ctx, &found, p, from, exportPage)
				return converted(page.Findings, findingOf), page.Next, err
			})
		},
	}.respond(ctx, a)
}

// ExportRunningFindings implements restv1.StrictServerInterface.
func (a operations) ExportRunningFindings(
	ctx context.Context, r restv1.ExportRunningFindingsRequestObject,
) (restv1.ExportRunningFindingsResponseObject, error) {
	p := restv1.ListRunningFindingsParams{
		Namespace: r.Params.Namespace, MinSeverity: r.Params.MinSeverity, Severity: r.Params.Severity, Fixable: r.Params.Fixable,
		KnownExploited: r.Params.KnownExploited, Package: r.Params.Package, ID: r.Params.ID, Text: r.Params.Text,
		FirstSeenSince: r.Params.FirstSeenSince, Suppressed: r.Params.Suppressed, Image: r.Params.Image, Workload: r.Params.Workload, Outdated: r.Params.Outdated,
	}
	seen, incomplete, err := a.exportedSight(ctx, p.Namespace)
	if err != nil {
		return nil, err
	}
	return csvList[restv1.RunningFinding]{
		name: []string{"findings", seen.name()}, incomplete: incomplete, columns: runningFindingColumns, raw: r.Params.Raw,
		read: func(ctx context.Context, pass func([]restv1.RunningFinding) error) error {
			reader := a.newRunningReader(p, exportPage)
			for scan, err := range a.runningScans(ctx, seen, p, runningPosition{}) {
				if err == nil {
					err = passPages(pass, func(from runningPosition) ([]restv1.RunningFinding, *runningPosition, error) {
						reader.items, reader.bytes = reader.items[:0], 0
						next, err := reader.image(ctx, scan, from)
						return reader.items, next, err
					})
				}
				if err != nil {
					return err
				}
			}
			return nil
		},
	}.respond(ctx, a)
}

// ExportVulnerabilities implements restv1.StrictServerInterface.
func (a operations) ExportVulnerabilities(
	ctx context.Context, r restv1.ExportVulnerabilitiesRequestObject,
) (restv1.ExportVulnerabilitiesResponseObject, error) {
	seen, incomplete, err := a.exportedSight(ctx, r.Params.Namespace)
	if err != nil {
		return nil, err
	}
	filter, err := vulnerabilityFilterOf(restv1.ListVulnerabilitiesParams{
		MinSeverity: r.Params.MinSeverity, Severity: r.Params.Severity, Fixable: r.Params.Fixable, KnownExploited: r.Params.KnownExploited,
		MinEPSSPercent: r.Params.MinEPSSPercent, FirstSeenSince: r.Params.FirstSeenSince, Text: r.Params.Text,
	}, seen)
	if err != nil {
		return nil, err
	}
	return csvList[restv1.Vulnerability]{
		name: []string{"vulnerabilities", seen.name()}, incomplete: incomplete, columns: vulnerabilityColumns, raw: r.Params.Raw,
		read: func(ctx context.Context, pass func([]restv1.Vulnerability) error) error {
			return passPages(pass, func(after store.VulnerabilityCursor) ([]restv1.Vulnerability, *store.VulnerabilityCursor, error) {
				// The store compares all vulnerabilities for each page, and each is small.
				page, err := a.Store.VulnerabilitiesPage(ctx, seen.inStore(), filter, after, 10*exportPage)
				return converted(page.Vulnerabilities, vulnerabilityOf), page.Next, err
			})
		},
	}.respond(ctx, a)
}

// ExportWorkloads implements restv1.StrictServerInterface.
func (a operations) ExportWorkloads(ctx context.Context, r restv1.ExportWorkloadsRequestObject) (restv1.ExportWorkloadsResponseObject, error) {
	seen, incomplete, err := a.exportedSight(ctx, r.Params.Namespace)
	if err != nil {
		return nil, err
	}
	id, _ := finding.ParseID(r.ID, a.Clock.Now())
	return csvList[restv1.Workload]{
		name: []string{"workloads", id, seen.name()}, incomplete: incomplete, columns: workloadColumns, raw: r.Params.Raw,
		read: func(ctx context.Context, pass func([]restv1.Workload) error) error {
			return passPages(pass, func(after store.RunCursor) ([]restv1.Workload, *store.RunCursor, error) {
				page, err := a.runsPage(ctx, seen, id, after, exportPage)
				return converted(page.Runs, workloadOf), page.Next, err
			})
		},
	}.respond(ctx, a)
}

// ExportRunningWorkloads implements restv1.StrictServerInterface.
func (a operations) ExportRunningWorkloads(
	ctx context.Context, r restv1.ExportRunningWorkloadsRequestObject,
) (restv1.ExportRunningWorkloadsResponseObject, error) {
	seen, incomplete, err := a.exportedSight(ctx, r.Params.Namespace)
	if err != nil {
		return nil, err
	}
	return csvList[restv1.RunningWorkload]{
		name: []string{"workloads", seen.name()}, incomplete: incomplete, columns: runningWorkloadColumns, raw: r.Params.Raw,
		read: func(ctx context.Context, pass func([]restv1.RunningWorkload) error) error {
			return passPages(pass, func(after store.WorkloadCursor) ([]restv1.RunningWorkload, *store.WorkloadCursor, error) {
				items, page, err := a.workloadsPage(ctx, seen, r.Params.Text, after, exportPage)
				return items, page.Next, err
			})
		},
	}.respond(ctx, a)
}

// ExportImageScans implements restv1.StrictServerInterface.
func (a operations) ExportImageScans(ctx context.Context, r restv1.ExportImageScansRequestObject) (restv1.ExportImageScansResponseObject, error) {
	if err := a.authorizer.requireAccess(ctx, callerOf(ctx).user, verbList, resourceImageScans, r.Namespace, ""); err != nil {
		return nil, err
	}
	p := restv1.ListImageScansParams{Scanner: r.Params.Scanner, ScannerKind: r.Params.ScannerKind, Phase: r.Params.Phase}
	return csvList[restv1.ImageScan]{
		name: []string{"images", r.Namespace}, columns: imageScanColumns, raw: r.Params.Raw,
		read: func(ctx context.Context, pass func([]restv1.ImageScan) error) error {
			scans, err := a.passingScans(ctx, r.Namespace, p)
			if err != nil {
				return err
			}
			for page := range slices.Chunk(scans, exportPage) {
				if err := pass(converted(page, imageScanOf)); err != nil {
					return err
				}
			}
			return nil
		},
	}.respond(ctx, a)
}

// exportedSight returns what the caller may see, and whether there are images of it about which a list knows nothing or not all.
func (a operations) exportedSight(ctx context.Context, namespace *restv1.NamespaceFilter) (seen sight, incomplete bool, err error) {
	if seen, err = a.sightOf(ctx, namespace); err != nil {
		return sight{}, false, err
	}
	coverage, err := a.coverageOf(ctx, seen)
	missing := coverage.NotCovered
	return seen, coverage.Scanners == 0 || missing.Pending+missing.Failed+missing.NewScanners+missing.StaleScanners+missing.PartlyAnalysed > 0, err
}

// name returns the namespaces of a sight for the name of a file.
func (s sight) name() string {
	switch {
	case s.namespace != "":
		return s.namespace
	case s.all:
		return "all-namespaces"
	}
	return "some-namespaces"
}

// passPages passes on a list page by page. page returns the items from a position on, and the position of the next page; nil after the last one.
func passPages[T, Position any](pass func([]T) error, page func(from Position) ([]T, *Position, error)) error {
	for next := new(Position); next != nil; {
		items, following, err := page(*next)
		if err == nil {
			err = pass(items)
		}
		if err != nil {
			return err
		}
		next = following
	}
	return nil
}

// converted converts each value of a list.
func converted[From, To any](list []From, convert func(From) To) []To {
	all := make([]To, len(list))
	for i := range list {
		all[i] = convert(list[i])
	}
	return all
}
