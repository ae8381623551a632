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
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// maxProducts bounds an OpenVEX document, which is made in memory. It names each repository of the image with each suppressed finding.
const maxProducts = 3 * maxDocumentFindings

// GetOpenVEX implements restv1.StrictServerInterface.
func (a operations) GetOpenVEX(ctx context.Context, r restv1.GetOpenVEXRequestObject) (restv1.GetOpenVEXResponseObject, error) {
	if _, _, err := a.locateReport(ctx, r.Namespace, r.Name, r.Params.Outdated); err != nil {
		return nil, err
	}
	document, err := a.renderDocument(ctx, r.Namespace, r.Name, r.Params.Outdated, writeOpenVEX)
	if err != nil {
		return nil, err
	}
	// The ETag is made from the document itself: the reason of an exception may change while the report and the findings do not.
	tag := fmt.Sprintf(`"%x"`, document.sum)
	if matchesETag(ptr.Deref(r.Params.IfNoneMatch, ""), tag) {
		document.close()
		document.slot.release()
		return notModified(tag), nil
	}
	document.contentType, document.tag = "application/json", tag
	return document, nil
}

// writeOpenVEX writes the document about the suppressed findings.
func writeOpenVEX(w io.Writer, found result, excepting store.ImageExceptions, findings []store.TrackedFinding) error {
	report := openvex.Report{Namespace: found.scan.Namespace, Key: found.key, MatchedAt: found.Report.MatchedAt}
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
		return tooLarge("%d suppressed findings in an image with %d repositories", len(report.Suppressed), len(report.Repositories))
	}
	return openvex.Write(w, report)
}

// VisitGetOpenVEXResponse implements restv1.GetOpenVEXResponseObject.
func (u notModified) VisitGetOpenVEXResponse(w http.ResponseWriter) error { return u.visit(w) }
