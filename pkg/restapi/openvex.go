package restapi

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"

	"k8s.io/utils/ptr"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/pkg/restapi/openvex"
)

// maxProducts bounds an OpenVEX document, which is made in memory. It names each repository of the image with each suppressed finding.
const maxProducts = 3 * maxDocumentFindings

// GetOpenVEX implements restv1.StrictServerInterface.
func (a operations) GetOpenVEX(ctx context.Context, r restv1.GetOpenVEXRequestObject) (restv1.GetOpenVEXResponseObject, error) {
	if _, _, err := a.locateReport(ctx, r.Namespace, r.Name, r.Params.Outdated); err != nil {
		return nil, err
	}
	slot, err := a.downloads.acquire(ctx, callerOf(ctx).user.Username)
	if err != nil {
		return nil, err
	}
	document, err := a.renderOpenVEX(ctx, r)
	if err != nil {
		slot.release()
		return nil, err
	}
	// The ETag is made from the document itself: the reason of an exception may change while the report and the findings do not.
	tag := fmt.Sprintf(`"%x"`, document.sum)
	if matchesETag(ptr.Deref(r.Params.IfNoneMatch, ""), tag) {
		document.close()
		slot.release()
		return notModified(tag), nil
	}
	return &documentResponse{renderedDocument: document, contentType: "application/json", tag: tag, slot: slot}, nil
}

// renderOpenVEX makes the document. The findings are in memory only until it returns. The report may have been replaced while the request
// waited.
func (a operations) renderOpenVEX(ctx context.Context, r restv1.GetOpenVEXRequestObject) (*renderedDocument, error) {
	if err := a.documents.acquireBriefly(ctx); err != nil {
		return nil, err
	}
	defer a.documents.release()
	found, excepting, err := a.locateReport(ctx, r.Namespace, r.Name, r.Params.Outdated)
	if err != nil {
		return nil, err
	}
	findings, err := a.readAllFindings(ctx, found, excepting)
	if err != nil {
		return nil, err
	}
	report := openvex.Report{Namespace: r.Namespace, Key: found.key, MatchedAt: found.Report.MatchedAt}
	for _, name := range excepting.Images {
		report.Repositories = append(report.Repositories, name.Reference.Repository)
	}
	slices.Sort(report.Repositories)
	report.Repositories = slices.Compact(report.Repositories)
	for _, f := range findings {
		if f.Exception != nil {
			report.Suppressed = append(report.Suppressed, openvex.SuppressedFinding{Finding: f.Finding, Exception: *f.Exception})
		}
	}
	if len(report.Suppressed)*len(report.Repositories) > maxProducts {
		return nil, tooLarge("%d suppressed findings in an image with %d repositories", len(report.Suppressed), len(report.Repositories))
	}
	return renderToFile(func(w io.Writer) error { return openvex.Write(w, report) })
}

// VisitGetOpenVEXResponse implements restv1.GetOpenVEXResponseObject.
func (u notModified) VisitGetOpenVEXResponse(w http.ResponseWriter) error { return u.visit(w) }
