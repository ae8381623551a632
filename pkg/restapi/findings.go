package restapi

import (
	"context"
	"errors"
	"slices"
	"time"

	"k8s.io/utils/ptr"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// findingPosition is the position of a page of findings, and the store that it refers to.
type findingPosition struct {
	Store string              `json:"store"`
	Mark  store.FindingCursor `json:"mark"`
}

// ListFindings implements restv1.StrictServerInterface.
func (a operations) ListFindings(ctx context.Context, r restv1.ListFindingsRequestObject) (restv1.ListFindingsResponseObject, error) {
	found, err := a.locateFindings(ctx, r.Namespace, r.Name, r.Params)
	if err != nil {
		return nil, err
	}
	place := findingPosition{Store: a.Store.ID()}
	if err := decodeContinue(ctx, r.Params.Continue, &place); err != nil {
		return nil, err
	}
	if place.Store != a.Store.ID() {
		return nil, resultsReplaced()
	}
	page, err := a.findingsPage(ctx, &found, r.Params, place.Mark, limitOf(r.Params.Limit))
	if err != nil {
		return nil, err
	}
	answer := restv1.ListFindings200JSONResponse{
		Report: reportOf(&found, page.Report), Items: []restv1.Finding{}, Total: page.Total,
	}
	if answer.Report.Engine = engineNameOf(found.Engine); answer.Report.Engine != found.Engine {
		answer.Report.NotCovered, answer.Report.SBOM = nil, nil // these are the engine's
	}
	for _, f := range page.Findings {
		answer.Items = append(answer.Items, findingOf(f))
	}
	if page.Next != nil {
		answer.Continue, err = encodeContinue(ctx, findingPosition{Store: a.Store.ID(), Mark: *page.Next})
	}
	return answer, err
}

// locateFindings returns an ImageScan's results, with the subject that the parameters select: the engine's report, or that of another tool.
func (a operations) locateFindings(ctx context.Context, namespace, name string, p restv1.ListFindingsParams) (found result, err error) {
	if found, err = a.locate(ctx, namespace, name); err != nil {
		return result{}, err
	}
	if p.Source == nil {
		return found, found.requireReport(p.Outdated)
	}
	found.Subject, err = a.shownReport(ctx, found, *p.Source)
	return found, err
}

// findingsPage returns a page of the findings of an image that pass the parameters.
func (a operations) findingsPage(
	ctx context.Context, found *result, p restv1.ListFindingsParams, from store.FindingCursor, limit int,
) (page store.FindingPage, err error) {
	filter := filterOf(p)
	if filter.Exceptions, err = a.imageExceptions(ctx, found); err != nil {
		return page, err
	}
	err = a.query(ctx, func(ctx context.Context) (err error) {
		page, err = a.Store.FindingsPage(ctx, found.Subject, filter, from, limit)
		return err
	})
	switch {
	case errors.Is(err, store.ErrChanged):
		return page, resultsReplaced()
	case errors.Is(err, store.ErrNotFound):
		return page, found.notScanned("there is no result any more")
	}
	return page, err
}

// engineNameOf returns the name of an engine in responses: that of an external report has its source, but no namespace.
func engineNameOf(engine string) string {
	if source, isExternal := store.SourceOf(engine); isExternal {
		return "external:" + source
	}
	return engine
}

// filterOf converts parameters, which are already checked, to a filter of the store.
func filterOf(p restv1.ListFindingsParams) store.FindingFilter {
	f := store.FindingFilter{Fixable: p.Fixable, KnownExploited: p.KnownExploited, Suppressed: p.Suppressed, Gone: ptr.Deref(p.Gone, false),
		Package: ptr.Deref(p.Package, ""), ID: ptr.Deref(p.ID, ""), Text: ptr.Deref(p.Text, ""),
		FirstSeenSince: ptr.Deref(p.FirstSeenSince, time.Time{})}
	f.Severities = severitiesOf(p.MinSeverity, p.Severity)
	return f
}

// severitiesOf returns the severities that pass two parameters; nil for all.
func severitiesOf(minimum *restv1.MinSeverityFilter, named restv1.SeverityFilter) []finding.Severity {
	if minimum == nil && named == nil {
		return nil
	}
	severities := []finding.Severity{}
	least := finding.ParseSeverity(string(ptr.Deref(minimum, restv1.SeverityUnknown)))
	for _, severity := range finding.Severities() {
		if severity >= least && (named == nil || slices.Contains(named, restv1.Severity(severity.String()))) {
			severities = append(severities, severity)
		}
	}
	return severities
}

// reportOf describes the report that findings come from. state comes with the page, since the report may be newer than the located one.
func reportOf(found *result, state store.ReportState) restv1.Report {
	return restv1.Report{
		Engine: found.Engine, DataVersion: state.DataVersion, MatchTime: state.MatchedAt.UTC(), Current: state.Current,
		Distro: state.Distro, Phase: phaseOf(found.scan), NotCovered: found.scan.Status.NotCovered,
		SBOM: sbomOriginOf(found.scan.Status.SBOM),
	}
}

func findingOf(f store.TrackedFinding) restv1.Finding {
	answer := restv1.Finding{
		ID: f.ID, Aliases: f.Aliases, Severity: restv1.Severity(f.Severity.String()), Package: packageOf(f.Package), Paths: f.Paths,
		FixState: f.FixState, Fixable: f.Fixable(), FixVersions: f.FixVersions, FixAvailableTime: f.FixAvailable,
		Description: f.Description, URL: f.URL, CVSS: f.CVSS, EPSS: f.EPSS, KnownExploited: f.KnownExploited, FirstSeenTime: f.FirstSeen,
		LastSeenTime: f.LastSeen, FixedTime: f.FixedAt, FixSinceTime: f.FixSince, KnownExploitedSinceTime: f.ExploitedSince, Exception: exceptionOf(f.Exception), Source: f.Source,
	}
	for _, before := range f.Severities {
		answer.SeveritiesBefore = append(answer.SeveritiesBefore, restv1.SeverityBefore{
			Severity: restv1.Severity(before.Severity.String()), EndTime: before.Until,
		})
	}
	for _, advisory := range f.Advisories {
		a := restv1.Advisory{
			ID: advisory.ID, Source: advisory.Source, Severity: advisory.Severity, FixState: advisory.FixState, FixVersions: advisory.FixVersions,
			Analysis: advisory.Analysis,
		}
		for _, r := range advisory.Ratings {
			a.Ratings = append(a.Ratings, restv1.Rating{Source: r.Source, Version: r.Version, Vector: r.Vector, Score: r.Score})
		}
		answer.Advisories = append(answer.Advisories, a)
	}
	return answer
}

func packageOf(p finding.Package) restv1.Package {
	return restv1.Package{Name: p.Name, Version: p.Version, Type: p.Type, PURL: p.PURL}
}
