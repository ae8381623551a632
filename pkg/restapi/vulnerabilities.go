package restapi

import (
	"context"
	"time"

	"k8s.io/utils/ptr"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// ListVulnerabilities implements restv1.StrictServerInterface.
func (a operations) ListVulnerabilities(
	ctx context.Context, r restv1.ListVulnerabilitiesRequestObject,
) (restv1.ListVulnerabilitiesResponseObject, error) {
	seen, err := a.sightOf(ctx, r.Params.Namespace)
	if err != nil {
		return nil, err
	}
	var after store.VulnerabilityCursor
	if err := decodeContinue(ctx, r.Params.Continue, &after); err != nil {
		return nil, err
	}
	filter, err := vulnerabilityFilterOf(r.Params, seen)
	if err != nil {
		return nil, err
	}
	var page store.VulnerabilitiesPage
	err = a.query(ctx, func(ctx context.Context) (err error) {
		page, err = a.Store.VulnerabilitiesPage(ctx, seen.inStore(), filter, after, limitOf(r.Params.Limit))
		return err
	})
	if err != nil {
		return nil, err
	}
	answer := restv1.ListVulnerabilities200JSONResponse{Items: []restv1.Vulnerability{}, Total: page.Total}
	if answer.Coverage, err = a.coverageOf(ctx, seen); err != nil {
		return nil, err
	}
	for _, v := range page.Vulnerabilities {
		answer.Items = append(answer.Items, vulnerabilityOf(v))
	}
	if page.Next != nil {
		answer.Continue, err = encodeContinue(ctx, page.Next)
	}
	return answer, err
}

// vulnerabilityFilterOf converts parameters, which are already checked, to a filter of the store.
func vulnerabilityFilterOf(p restv1.ListVulnerabilitiesParams, seen sight) (store.VulnerabilityFilter, error) {
	if p.FirstSeenSince != nil && !seen.all {
		return store.VulnerabilityFilter{}, invalidParameter("firstSeenSince", "it is only for callers that may list imagescans in all namespaces, and without namespace")
	}
	return store.VulnerabilityFilter{
		Severities: severitiesOf(p.MinSeverity, p.Severity), Fixable: p.Fixable, KnownExploited: p.KnownExploited,
		MinEPSS: float64(ptr.Deref(p.MinEPSSPercent, 0)) / 100, Text: ptr.Deref(p.Text, ""), FirstSeenSince: ptr.Deref(p.FirstSeenSince, time.Time{}),
	}, nil
}

func vulnerabilityOf(v store.RunningVulnerability) restv1.Vulnerability {
	return restv1.Vulnerability{
		ID: v.ID, Severity: restv1.Severity(v.Severity.String()), Fixable: v.Fixable, KnownExploited: v.KnownExploited, EPSS: v.EPSS, CVSS: v.CVSS,
		FirstSeenTime: utcOf(v.FirstSeen), Images: v.Images, Namespaces: v.Namespaces,
	}
}

// utcOf returns a time in UTC; the zero time, which a response omits, as it is.
func utcOf(at time.Time) time.Time {
	if at.IsZero() {
		return at
	}
	return at.UTC()
}

// GetVulnerability implements restv1.StrictServerInterface.
func (a operations) GetVulnerability(ctx context.Context, r restv1.GetVulnerabilityRequestObject) (restv1.GetVulnerabilityResponseObject, error) {
	seen, err := a.sightOf(ctx, r.Params.Namespace)
	if err != nil {
		return nil, err
	}
	id, _ := finding.ParseID(r.ID, a.Clock.Now())
	var v store.VulnerabilityDetails
	err = a.query(ctx, func(ctx context.Context) (err error) {
		v, err = a.Store.Vulnerability(ctx, seen.inStore(), id)
		return err
	})
	if err != nil {
		return nil, err
	}
	answer := restv1.GetVulnerability200JSONResponse{
		Ids: append([]string{}, v.IDs...), Names: v.Names, Description: v.Description, URL: v.URL, Severity: restv1.Severity(v.Severity.String()), Fixable: v.Fixable,
		KnownExploited: v.KnownExploited, EPSS: v.EPSS, CVSS: v.CVSS, Images: v.Images, Namespaces: v.Namespaces, Packages: []restv1.VulnerablePackage{},
		FirstSeenTime: utcOf(v.FirstSeen), KnownExploitedSinceTime: utcOf(v.ExploitedSince),
	}
	for _, p := range v.Packages {
		answer.Packages = append(answer.Packages, restv1.VulnerablePackage{Name: p.Name, Version: p.Version, Type: p.Type, FixVersions: p.FixVersions})
	}
	answer.Coverage, err = a.coverageOf(ctx, seen)
	return answer, err
}
