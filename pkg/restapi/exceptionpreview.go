package restapi

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/utils/ptr"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// maxPreviewed is the number of findings in a preview, which the OpenAPI document defines.
const maxPreviewed = 100

// PreviewException implements restv1.StrictServerInterface.
func (a operations) PreviewException(ctx context.Context, r restv1.PreviewExceptionRequestObject) (restv1.PreviewExceptionResponseObject, error) {
	candidate, err := candidateOf(r.Params)
	if err != nil {
		return nil, err
	}
	seen, err := a.sightOf(ctx, r.Params.Namespace)
	if err != nil {
		return nil, err
	}
	asked := store.SuppressionQuery{Namespaces: seen.scannedNamespaces(), Exception: exception.NewSet([]exception.Exception{candidate}, a.Clock.Now())}
	if asked.InForce, _, err = a.exceptions().InForceIn(ctx, asked.Namespaces); err != nil {
		return nil, fmt.Errorf("reading exceptions: %w", err)
	}
	var preview store.SuppressionPreview
	err = a.query(ctx, func(ctx context.Context) (err error) {
		preview, err = a.Store.PreviewSuppression(ctx, asked, maxPreviewed)
		return err
	})
	if errors.Is(err, store.ErrTooManyCandidates) {
		return nil, newProblem(restv1.ReasonTooLarge, "too many findings would have to be compared: name a namespace, a vulnerability, or a package without * and ?")
	}
	if err != nil {
		return nil, err
	}
	answer := restv1.PreviewException200JSONResponse{
		Items: []restv1.PreviewedFinding{}, Total: preview.Total, Findings: totalsOf(store.Totals{Counts: preview.Counts}), AlreadySuppressed: preview.Already,
		Partly: preview.Partly,
	}
	for i := range preview.Findings {
		f := &preview.Findings[i]
		answer.Items = append(answer.Items, restv1.PreviewedFinding{
			ID: f.ID, Severity: restv1.Severity(f.Severity.String()), KnownExploited: f.KnownExploited, Fixable: f.Fixable(), Package: packageOf(f.Package),
			Repository: f.Repository, Containers: f.Containers, Exception: exceptionOf(f.By),
		})
	}
	answer.Coverage, err = a.coverageOf(ctx, seen)
	return answer, err
}

// candidateOf returns the exception that a request describes.
func candidateOf(p restv1.PreviewExceptionParams) (exception.Exception, error) {
	e := exception.Exception{UID: "preview", Namespace: ptr.Deref(p.Namespace, ""), Vulnerabilities: p.Vulnerability, Images: p.Image}
	selector := exception.Package{Name: ptr.Deref(p.Package, ""), Version: ptr.Deref(p.PackageVersion, ""), Type: ptr.Deref(p.PackageType, "")}
	if selector != (exception.Package{}) {
		e.Packages = []exception.Package{selector}
	}
	if len(e.Vulnerabilities)+len(e.Packages) == 0 {
		return e, invalidParameter("vulnerability", "vulnerability or package is needed: spec.images.exclude of the Scanner is for everything in an image")
	}
	return e, nil
}
