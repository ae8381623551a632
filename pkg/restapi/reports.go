package restapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"k8s.io/utils/ptr"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/restapi/cyclonedx"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// externalKey returns what identifies a report.
func externalKey(namespace, digest, source string, platform *string) store.ExternalKey {
	return store.ExternalKey{Namespace: namespace, Digest: digest, Source: source, Platform: ptr.Deref(platform, "")}
}

// externalETag returns the ETag of a report as it was saved.
func (a *API) externalETag(e store.ExternalState) string {
	return fmt.Sprintf(`"%.8s-%d"`, a.Store.ID(), e.Text)
}

func noSuchReport(k store.ExternalKey) *problem {
	platform := ""
	if k.Platform != "" {
		platform = " on " + k.Platform
	}
	return newProblem(restv1.ReasonNotFound, "%s has saved no report of %s%s in namespace %s", k.Source, k.Digest, platform, k.Namespace)
}

// ListExternalReports implements restv1.StrictServerInterface.
func (a operations) ListExternalReports(ctx context.Context, r restv1.ListExternalReportsRequestObject) (restv1.ListExternalReportsResponseObject, error) {
	if err := a.authorizer.requireAccess(ctx, callerOf(ctx).user, verbList, resourceReports, r.Namespace, ""); err != nil {
		return nil, err
	}
	var reports []store.ExternalState
	err := a.query(ctx, func(ctx context.Context) (err error) {
		reports, err = a.Store.ExternalReports(ctx, r.Namespace, r.Digest)
		return err
	})
	if err != nil {
		return nil, err
	}
	list := restv1.ListExternalReports200JSONResponse{Items: []restv1.ExternalReport{}}
	for _, e := range reports {
		list.Items = append(list.Items, restv1.ExternalReport{
			Source: e.Source, Platform: e.Platform, Findings: e.Findings, Tool: e.Tool, SerialNumber: e.SerialNumber, DocumentVersion: e.Version,
			DocumentTime: e.Time, SavedTime: e.SavedAt, User: e.User,
		})
	}
	return list, nil
}

// shownReport returns the report of a source on an image that the image's scanner shows: the one on the image's platform, else the one on every
// platform.
func (a operations) shownReport(ctx context.Context, found result, source string) (store.Subject, error) {
	k := store.ExternalKey{Namespace: found.scan.Namespace, Digest: found.key.Digest, Source: source}
	shown := found.scanner.Settings().ExternalReports
	isListed := slices.ContainsFunc(shown.Sources, func(s v1alpha1.ReportSource) bool { return s.Name == source })
	if !isListed && shown.Others == v1alpha1.OtherSourcesIgnore {
		return store.Subject{}, newProblem(restv1.ReasonNotFound, "the %s %s ignores the reports of %s (spec.externalReports)", found.scan.Spec.ScannerRef.Kind, found.scan.Spec.ScannerRef.Name, source)
	}
	for _, k.Platform = range []string{found.key.Platform.String(), ""} {
		err := a.query(ctx, func(ctx context.Context) error {
			_, err := a.Store.ExternalReport(ctx, k)
			return err
		})
		if !errors.Is(err, store.ErrNotFound) {
			return k.Subject(), err
		}
	}
	return store.Subject{}, noSuchReport(k)
}

// GetExternalReport implements restv1.StrictServerInterface.
func (a operations) GetExternalReport(ctx context.Context, r restv1.GetExternalReportRequestObject) (restv1.GetExternalReportResponseObject, error) {
	if err := a.authorizer.requireAccess(ctx, callerOf(ctx).user, verbGet, resourceReports, r.Namespace, r.Source); err != nil {
		return nil, err
	}
	k := externalKey(r.Namespace, r.Digest, r.Source, r.Params.Platform)
	compressed := acceptsEncoding(ptr.Deref(r.Params.AcceptEncoding, ""), "zstd")
	tag, err := a.locateExternal(ctx, k, compressed)
	if err != nil {
		return nil, err
	}
	if matchesETag(ptr.Deref(r.Params.IfNoneMatch, ""), tag) {
		return notModified(tag), nil
	}
	slot, err := a.downloads.acquire(ctx, callerOf(ctx).user.Username)
	if err != nil {
		return nil, err
	}
	// As with an SBOM, the report may have been replaced during the wait.
	if tag, err = a.locateExternal(ctx, k, compressed); err != nil {
		slot.release()
		return nil, err
	}
	text, size, err := a.Store.OpenExternalReport(ctx, k)
	if err != nil {
		slot.release()
		if errors.Is(err, store.ErrNotFound) {
			return nil, noSuchReport(k)
		}
		return nil, err
	}
	return &storedResponse{content: text, size: size, contentType: cyclonedx.MediaType, compressed: compressed, tag: tag, vary: "Accept-Encoding", slot: slot}, nil
}

// locateExternal returns the ETag of a report in the form in which it is sent.
func (a operations) locateExternal(ctx context.Context, k store.ExternalKey, compressed bool) (tag string, err error) {
	err = a.query(ctx, func(ctx context.Context) error {
		e, err := a.Store.ExternalReport(ctx, k)
		tag = a.externalETag(e)
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		return "", noSuchReport(k)
	}
	if compressed {
		tag = strings.TrimSuffix(tag, `"`) + `-zstd"`
	}
	return tag, err
}

// DeleteExternalReport implements restv1.StrictServerInterface.
func (a operations) DeleteExternalReport(ctx context.Context, r restv1.DeleteExternalReportRequestObject) (restv1.DeleteExternalReportResponseObject, error) {
	user := callerOf(ctx).user
	if err := a.authorizer.requireAccess(ctx, user, verbDelete, resourceReports, r.Namespace, r.Source); err != nil {
		return nil, err
	}
	k := externalKey(r.Namespace, r.Digest, r.Source, r.Params.Platform)
	release, err := a.writes.acquire(ctx, user.Username)
	if err != nil {
		return nil, err
	}
	defer release()
	err = a.Store.DeleteExternalReport(ctx, k, a.precondition(r.Params.IfMatch, nil))
	if errors.Is(err, store.ErrNotFound) {
		return nil, noSuchReport(k)
	}
	if err != nil {
		return nil, err
	}
	a.Wake(ctx, k.Digest)
	a.Log.Info("Withdrew an external report", "user", user.Username, "namespace", k.Namespace, "digest", k.Digest, "platform", k.Platform, "source", k.Source)
	return restv1.DeleteExternalReport204Response{}, nil
}

// precondition returns the check of the headers If-Match and If-None-Match (RFC 9110, section 13.1) against the report that a source has saved.
func (a *API) precondition(ifMatch, ifNoneMatch *string) func(before *store.ExternalState) error {
	return func(before *store.ExternalState) error {
		matches := func(header *string) bool { return before != nil && matchesETag(*header, a.externalETag(*before)) }
		switch {
		case ifMatch != nil && !matches(ifMatch):
			return newProblem(restv1.ReasonPreconditionFailed, "If-Match: the report is another one now, or there is none; get it again")
		case ifNoneMatch != nil && matches(ifNoneMatch):
			return newProblem(restv1.ReasonPreconditionFailed, "If-None-Match: the source has saved a report already")
		}
		return nil
	}
}

// VisitGetExternalReportResponse implements restv1.GetExternalReportResponseObject.
func (d *storedResponse) VisitGetExternalReportResponse(w http.ResponseWriter) error {
	return d.visit(w)
}

// VisitGetExternalReportResponse implements restv1.GetExternalReportResponseObject.
func (u notModified) VisitGetExternalReportResponse(w http.ResponseWriter) error {
	w.Header().Set("Vary", "Accept-Encoding")
	return u.visit(w)
}
