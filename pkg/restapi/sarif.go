package restapi

import (
	"context"
	"io"
	"net/http"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/pkg/restapi/sarif"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// GetSARIF implements restv1.StrictServerInterface.
func (a operations) GetSARIF(ctx context.Context, r restv1.GetSARIFRequestObject) (restv1.GetSARIFResponseObject, error) {
	return a.hashedDocument(ctx, r.Namespace, r.Name, r.Params.Outdated, r.Params.IfNoneMatch, sarif.MediaType, worstFindings, a.writeSARIF)
}

// writeSARIF writes the log with the findings.
func (a operations) writeSARIF(w io.Writer, found result, excepting store.ImageExceptions, findings []store.TrackedFinding, total int) error {
	report := sarif.Report{
		Cluster: a.ClusterName, Reference: found.reference(), Repositories: repositoriesOf(excepting), Key: found.key, PlatformDigest: found.PlatformDigest,
		Engine: found.Engine, Tool: found.Report.Tool, DataVersion: found.Report.DataVersion, MatchedAt: found.Report.MatchedAt, Distro: found.Report.Distro,
		NotCovered: found.scan.Status.NotCovered, Findings: make([]sarif.Finding, len(findings)), Total: total,
	}
	for i, f := range findings {
		report.Findings[i] = sarif.Finding{Finding: f.Finding, FirstSeen: f.FirstSeen, Exception: f.Exception, Source: f.Source}
	}
	return sarif.Write(w, report)
}

// VisitGetSARIFResponse implements restv1.GetSARIFResponseObject.
func (a *documentResponse) VisitGetSARIFResponse(w http.ResponseWriter) error { return a.visit(w) }

// VisitGetSARIFResponse implements restv1.GetSARIFResponseObject.
func (u notModified) VisitGetSARIFResponse(w http.ResponseWriter) error { return u.visit(w) }
