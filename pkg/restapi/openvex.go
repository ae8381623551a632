package restapi

import (
	"context"
	"io"
	"net/http"
	"slices"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/pkg/restapi/openvex"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// maxProducts bounds an OpenVEX document, which is made in memory. It names each repository of the image with each suppressed finding.
const maxProducts = 3 * maxDocumentFindings

// GetOpenVEX implements restv1.StrictServerInterface.
func (a operations) GetOpenVEX(ctx context.Context, r restv1.GetOpenVEXRequestObject) (restv1.GetOpenVEXResponseObject, error) {
	return a.hashedDocument(ctx, r.Namespace, r.Name, r.Params.Outdated, r.Params.IfNoneMatch, "application/json", wholeReport, writeOpenVEX)
}

// writeOpenVEX writes the document about the suppressed findings.
func writeOpenVEX(w io.Writer, found result, excepting store.ImageExceptions, findings []store.TrackedFinding, _ int) error {
	report := openvex.Report{
		Namespace: found.scan.Namespace, Repositories: repositoriesOf(excepting), Key: found.key, MatchedAt: found.Report.MatchedAt,
	}
	for _, f := range findings {
		if f.Exception != nil {
			report.Suppressed = append(report.Suppressed, openvex.SuppressedFinding{Finding: f.Finding, Exception: *f.Exception})
		}
	}
	if len(report.Suppressed)*len(report.Repositories) > maxProducts {
		return tooLarge("%d suppressed findings in an image with %d repositories", len(report.Suppressed), len(report.Repositories))
	}
	return openvex.Write(w, report)
}

// repositoriesOf returns the repositories in the names of an image, sorted.
func repositoriesOf(names store.ImageExceptions) (repositories []string) {
	for _, name := range names.Images {
		repositories = append(repositories, name.Reference.Repository)
	}
	slices.Sort(repositories)
	return slices.Compact(repositories)
}

// VisitGetOpenVEXResponse implements restv1.GetOpenVEXResponseObject.
func (u notModified) VisitGetOpenVEXResponse(w http.ResponseWriter) error { return u.visit(w) }
