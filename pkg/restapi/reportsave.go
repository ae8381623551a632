package restapi

import (
	"context"
	"encoding/json"
	"errors"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/ptr"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/restapi/cyclonedx"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// handlers are the operations, with those whose bodies are streams.
type handlers struct {
	restv1.ServerInterface
	api *API
}

// PutExternalReport implements restv1.ServerInterface.
func (h handlers) PutExternalReport(w http.ResponseWriter, r *http.Request, namespace, digest, source string, params restv1.PutExternalReportParams) {
	k := externalKey(namespace, digest, source, params.Platform)
	saved, document, err := h.api.putReport(w, r, k, params)
	if err != nil {
		h.api.writeError(w, r, err)
		return
	}
	w.Header().Set("ETag", h.api.externalETag(saved.ExternalState))
	if saved.Unchanged {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	status := http.StatusOK
	if saved.First {
		status = http.StatusCreated
		w.Header().Set("Location", r.URL.RequestURI())
	}
	result := restv1.SavedReport{Findings: saved.Findings, New: saved.New, Still: saved.Still, Gone: saved.Gone, IgnoredCount: document.IgnoredCount}
	for _, i := range document.Ignored {
		result.Ignored = append(result.Ignored, restv1.IgnoredPart{Pointer: i.Pointer, Reason: i.Reason})
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// If the caller is gone, the report is saved anyway.
	_ = json.NewEncoder(w).Encode(result)
}

// PutExternalReport implements restv1.StrictServerInterface. It is never called: handlers reads the body as a stream.
func (a operations) PutExternalReport(context.Context, restv1.PutExternalReportRequestObject) (restv1.PutExternalReportResponseObject, error) {
	return nil, errors.New("the body is read as a stream")
}

// putReport saves the report in a request's body. The document is nil if nothing has changed.
func (a *API) putReport(
	w http.ResponseWriter, r *http.Request, k store.ExternalKey, params restv1.PutExternalReportParams,
) (saved store.SavedExternal, document *cyclonedx.Document, err error) {
	ctx, user := r.Context(), callerOf(r.Context()).user
	if err := a.authorizer.requireAccess(ctx, user, verbUpdate, resourceReports, k.Namespace, k.Source); err != nil {
		return saved, nil, err
	}
	if err := checkMediaType(r.Header.Get("Content-Type")); err != nil {
		return saved, nil, err
	}
	if err := a.checkPlatform(ctx, k); err != nil {
		return saved, nil, err
	}
	release, err := a.writes.acquire(ctx, user.Username)
	if err != nil {
		return saved, nil, err
	}
	defer release()
	body, err := receiveBody(w, r, string(ptr.Deref(params.ContentEncoding, "")))
	if err != nil {
		return saved, nil, err
	}
	defer body.close()
	check := a.precondition(params.IfMatch, params.IfNoneMatch)
	if before, err := a.sameText(ctx, k, body.sum, check); before != nil || err != nil {
		return store.SavedExternal{ExternalState: ptr.Deref(before, store.ExternalState{}), Unchanged: true}, nil, err
	}
	// The findings are in memory from here on.
	leave, err := a.Store.AcquireSlot(ctx, a.saving, tenantOf(ctx), k.Namespace)
	if err != nil {
		return saved, nil, err
	}
	defer leave()
	if document, err = cyclonedx.Decode(body.text(), a.Clock.Now()); err != nil {
		return saved, nil, refuseDocument(err)
	}
	report := externalReport(k, document, body)
	report.User, report.Budget = user.Username, a.ReportBudget
	saved, err = a.Store.SaveExternalReport(ctx, report, check)
	switch {
	case errors.Is(err, store.ErrSuperseded):
		return saved, nil, newProblem(restv1.ReasonSuperseded, "%s has saved a newer report: version %d of %s", k.Source, saved.Version, saved.Time.Format(time.RFC3339))
	case errors.Is(err, store.ErrOverBudget):
		return saved, nil, storageFull(k.Namespace)
	case err != nil:
		return saved, nil, err
	}
	if !saved.Unchanged {
		a.Wake(ctx, k.Digest)
		a.Log.Info("Saved an external report", "user", user.Username, "namespace", k.Namespace, "digest", k.Digest, "platform", k.Platform, "source", k.Source,
			"findings", saved.Findings, "new", saved.New, "gone", saved.Gone)
	}
	return saved, document, nil
}

// checkMediaType refuses a body that is not CycloneDX in JSON, before it is read.
func checkMediaType(contentType string) error {
	mediaType, parameters, err := mime.ParseMediaType(contentType)
	if err != nil || mediaType != cyclonedx.MediaType {
		return newProblem(restv1.ReasonUnsupportedMediaType, "Content-Type must be %s", cyclonedx.MediaType)
	}
	if version, given := parameters["version"]; given && !slices.Contains(cyclonedx.SpecVersions, version) {
		return newProblem(restv1.ReasonUnsupportedReport, "the supported versions of CycloneDX are %s", strings.Join(cyclonedx.SpecVersions, ", "))
	}
	return nil
}

// checkPlatform refuses a report without a platform on an image that runs on several.
func (a *API) checkPlatform(ctx context.Context, k store.ExternalKey) error {
	if k.Platform != "" {
		return nil
	}
	return a.query(ctx, func(ctx context.Context) error {
		platforms, err := a.Store.Platforms(ctx, k.Namespace, k.Digest)
		if err == nil && len(platforms) > 1 {
			p := newProblem(restv1.ReasonPlatformRequired, "the image runs on %s: say by the parameter platform which of them the report is about", strings.Join(platforms, ", "))
			p.Field = "platform"
			return p
		}
		return err
	})
}

// sameText returns the report that a source has saved if its document has this checksum.
func (a *API) sameText(ctx context.Context, k store.ExternalKey, sum string, check func(*store.ExternalState) error) (same *store.ExternalState, err error) {
	err = a.query(ctx, func(ctx context.Context) error {
		e, err := a.Store.ExternalReport(ctx, k)
		if errors.Is(err, store.ErrNotFound) || err == nil && e.TextSum != sum {
			return nil
		}
		if err == nil {
			same, err = &e, check(&e)
		}
		return err
	})
	return same, err
}

// refuseDocument returns the refusal of a document, or of a body that cannot be read.
func refuseDocument(err error) error {
	var wrong *cyclonedx.DocumentError
	if !errors.As(err, &wrong) {
		return err
	}
	reason := restv1.ReasonInvalidReport
	switch {
	case errors.Is(err, cyclonedx.ErrUnsupported):
		reason = restv1.ReasonUnsupportedReport
	case errors.Is(err, cyclonedx.ErrLimit):
		reason = restv1.ReasonLimitExceeded
	}
	p := newProblem(reason, "%v", wrong)
	p.Field = wrong.Pointer
	return p
}

// maxTool bounds the name of a tool in bytes.
const maxTool = 255

// externalReport returns what is saved of a document.
func externalReport(k store.ExternalKey, document *cyclonedx.Document, body *reportBody) store.ExternalReport {
	return store.ExternalReport{
		ExternalKey: k, SerialNumber: document.SerialNumber, Version: document.Version, Time: document.Timestamp, Tool: finding.TruncateText(document.Tool, maxTool),
		TextSum: body.sum, Findings: document.Findings, Text: body.compressed,
	}
}
