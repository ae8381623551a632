package rest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"slices"

	"k8s.io/utils/ptr"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/pkg/openvex"
)

// maxProducts bounds an OpenVEX document, which is made in memory: it names each repository of the image with each vulnerability.
const maxProducts = 3 * maxDocumentFindings

// GetOpenVEX implements restv1.StrictServerInterface.
func (a operations) GetOpenVEX(ctx context.Context, r restv1.GetOpenVEXRequestObject) (restv1.GetOpenVEXResponseObject, error) {
	found, err := a.locate(ctx, r.Namespace, r.Name)
	if err != nil {
		return nil, err
	}
	if err := found.reported(r.Params.Outdated); err != nil {
		return nil, err
	}
	release, err := a.documents.acquire(ctx, callerOf(ctx).user.Username)
	if err != nil {
		return nil, err
	}
	defer release()
	excepting, err := a.excepting(ctx, &found)
	if err != nil {
		return nil, err
	}
	findings, err := a.allFindings(ctx, found, excepting)
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
			report.Excepted = append(report.Excepted, openvex.Excepted{Finding: f.Finding, Exception: *f.Exception})
		}
	}
	if len(report.Excepted)*len(report.Repositories) > maxProducts {
		return nil, tooLarge("%d excepted findings in an image with %d repositories", len(report.Excepted), len(report.Repositories))
	}
	var document bytes.Buffer
	if err := openvex.Write(&document, report); err != nil {
		return nil, err
	}
	// Made of the document itself: an exception's reason may change, and neither the report nor the finding does.
	tag := fmt.Sprintf(`"%x"`, sha256.Sum256(document.Bytes()))
	if matches(ptr.Deref(r.Params.IfNoneMatch, ""), tag) {
		return unchanged(tag), nil
	}
	return vexAnswer{document: document.Bytes(), tag: tag}, nil
}

// vexAnswer is an OpenVEX document.
type vexAnswer struct {
	document []byte
	tag      string
}

// VisitGetOpenVEXResponse implements restv1.GetOpenVEXResponseObject.
func (v vexAnswer) VisitGetOpenVEXResponse(w http.ResponseWriter) error {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("ETag", v.tag)
	_, err := w.Write(v.document)
	return err
}

// VisitGetOpenVEXResponse implements restv1.GetOpenVEXResponseObject.
func (u unchanged) VisitGetOpenVEXResponse(w http.ResponseWriter) error { return u.visit(w) }
