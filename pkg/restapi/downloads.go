package restapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/klauspost/compress/zstd"
	"k8s.io/utils/ptr"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/restapi/cyclonedx"
	"github.com/scanner-operator/scanner-operator/pkg/restapi/sarif"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// storedResponse is a response that streams an artifact of the store.
type storedResponse struct {
	content     io.ReadCloser // compressed with zstd
	size        int64
	contentType string
	compressed  bool
	tag         string
	vary        string // the header Vary
	slot        *downloadSlot
}

// VisitGetSBOMResponse implements restv1.GetSBOMResponseObject.
func (d *storedResponse) VisitGetSBOMResponse(w http.ResponseWriter) error { return d.visit(w) }

func (d *storedResponse) visit(w http.ResponseWriter) error {
	defer d.slot.release()
	defer d.content.Close()
	to := d.slot.writer(w)
	header := w.Header()
	// An error after the first byte aborts the connection. The caller notices by this that something is missing.
	header.Set("Content-Type", d.contentType)
	header.Set("ETag", d.tag)
	header.Set("Vary", d.vary)
	if d.compressed {
		header.Set("Content-Encoding", "zstd")
		header.Set("Content-Length", strconv.FormatInt(d.size, 10))
		_, err := io.Copy(to, d.content)
		return err
	}
	decoder, err := zstd.NewReader(d.content, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(workerapi.MaxWindowBytes))
	if err != nil {
		return err
	}
	defer decoder.Close()
	_, err = io.Copy(to, decoder)
	return err
}

// GetCycloneDX implements restv1.StrictServerInterface.
func (a operations) GetCycloneDX(ctx context.Context, r restv1.GetCycloneDXRequestObject) (restv1.GetCycloneDXResponseObject, error) {
	found, excepting, err := a.locateReport(ctx, r.Namespace, r.Name, r.Params.Outdated)
	if err != nil {
		return nil, err
	}
	tag, err := a.reportETag(ctx, found, excepting)
	if err != nil {
		return nil, err
	}
	if matchesETag(ptr.Deref(r.Params.IfNoneMatch, ""), tag) {
		return notModified(tag), nil
	}
	write := func(w io.Writer, found result, excepting store.ImageExceptions, findings []store.TrackedFinding, _ int) (err error) {
		if tag, err = a.reportETag(ctx, found, excepting); err != nil {
			return err
		}
		return cyclonedx.Write(w, cycloneDXReport(found, tag, findings))
	}
	document, err := a.renderDocument(ctx, r.Namespace, r.Name, r.Params.Outdated, wholeReport, write)
	if err != nil {
		return nil, err
	}
	document.contentType, document.tag = cyclonedx.MediaType+"; version=1.6", tag
	return document, nil
}

// writeDocument writes the findings of an image's report as a document. total is the number of all findings of the report.
type writeDocument func(w io.Writer, found result, excepting store.ImageExceptions, findings []store.TrackedFinding, total int) error

// renderDocument makes a document once the caller may download one. The findings are in memory only until it returns.
func (a operations) renderDocument(
	ctx context.Context, namespace, name string, outdated *restv1.Outdated, bound documentBound, write writeDocument,
) (_ *documentResponse, err error) {
	slot, err := a.downloads.acquire(ctx, callerOf(ctx).user.Username)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			slot.release()
		}
	}()
	finished, err := acquireBriefly(ctx, a.documents, tenantOf(ctx))
	if err != nil {
		return nil, err
	}
	defer finished()
	// The report may have been replaced while the request waited.
	found, excepting, err := a.locateReport(ctx, namespace, name, outdated)
	if err != nil {
		return nil, err
	}
	findings, total, err := a.readFindings(ctx, found, excepting, bound)
	if err != nil {
		return nil, err
	}
	document, err := renderToFile(func(w io.Writer) error { return write(w, found, excepting, findings, total) })
	return &documentResponse{renderedDocument: document, slot: slot}, err
}

// hashedResponse is a document, or the answer that the caller has it.
type hashedResponse interface {
	restv1.GetOpenVEXResponseObject
	restv1.GetSARIFResponseObject
}

// hashedDocument makes a document whose ETag is made from the document itself: the reason of an exception may change while the report and the
// findings do not.
func (a operations) hashedDocument(
	ctx context.Context, namespace, name string, outdated *restv1.Outdated, ifNoneMatch *restv1.IfNoneMatch, contentType string,
	bound documentBound, write writeDocument,
) (hashedResponse, error) {
	if _, _, err := a.locateReport(ctx, namespace, name, outdated); err != nil {
		return nil, err
	}
	document, err := a.renderDocument(ctx, namespace, name, outdated, bound, write)
	if err != nil {
		return nil, err
	}
	tag := fmt.Sprintf(`"%x"`, document.sum)
	if matchesETag(ptr.Deref(ifNoneMatch, ""), tag) {
		document.close()
		document.slot.release()
		return notModified(tag), nil
	}
	document.contentType, document.tag = contentType, tag
	return document, nil
}

// locateReport returns the location of an ImageScan's current report, and the exceptions that apply to its findings.
func (a operations) locateReport(ctx context.Context, namespace, name string, outdated *restv1.Outdated) (found result, e store.ImageExceptions, err error) {
	if found, err = a.locate(ctx, namespace, name); err != nil {
		return result{}, e, err
	}
	if err := found.requireReport(outdated); err != nil {
		return result{}, e, err
	}
	e, err = a.imageExceptions(ctx, &found)
	return found, e, err
}

// reportETag returns the ETag of the report as CycloneDX. It is weak, since a newer report of another image may have updated what is known
// of a vulnerability.
func (a operations) reportETag(ctx context.Context, found result, e store.ImageExceptions) (string, error) {
	tag := fmt.Sprintf(`W/"%.8s-%d.%d-%s`, a.Store.ID(), found.Report.ID, found.Report.Revision, exceptionsHash(e))
	if len(e.Announced.Sources) > 0 {
		var reports []store.ExternalState
		err := a.query(ctx, func(ctx context.Context) (err error) {
			reports, err = a.Store.ExternalReports(ctx, found.scan.Namespace, found.key.Digest)
			return err
		})
		if err != nil {
			return "", err
		}
		for _, r := range reports {
			if slices.Contains(e.Announced.Sources, r.Source) {
				tag += fmt.Sprintf("-%d", r.Text)
			}
		}
	}
	return tag + `"`, nil
}

// cycloneDXReport returns the content of the document.
func cycloneDXReport(found result, tag string, findings []store.TrackedFinding) cyclonedx.Report {
	report := cyclonedx.Report{
		Reference: found.reference(), Digest: found.key.Digest, PlatformDigest: found.PlatformDigest, Platform: found.key.Platform,
		Scope: string(found.Scope), Engine: found.Engine, Tool: found.Report.Tool, DataVersion: found.Report.DataVersion,
		MatchedAt: found.Report.MatchedAt, Distro: found.Report.Distro, Revision: tag,
		NotCovered: found.scan.Status.NotCovered, Exceptions: map[string]*exception.Exception{},
	}
	for _, f := range findings {
		report.Findings = append(report.Findings, f.Finding)
		if f.Exception != nil {
			report.Exceptions[f.Key()] = f.Exception
		}
	}
	return report
}

// documentBound bounds the findings of a document, in addition to maxDocumentBytes.
type documentBound struct {
	findings int
	// truncates means that a document leaves out the least urgent findings of a report that is too large. Otherwise it is refused.
	truncates bool
}

var (
	wholeReport   = documentBound{findings: maxDocumentFindings}
	worstFindings = documentBound{findings: sarif.MaxFindings, truncates: true}
)

// Bounds of a report as one document, which is made in memory. A report that reaches both bounds takes about 200 MiB.
const (
	maxDocumentFindings = 20_000
	// maxDocumentBytes bounds the findings as JSON, with the texts of their exceptions. A control character is one byte in the store and
	// six in a document.
	maxDocumentBytes = 24 << 20
	// documentPage is the number of findings that are read at once.
	documentPage = 5000
)

// readFindings reads a report page by page, worst first, and returns the number of all its findings as well. It detects a report that is too large
// before all of it is in memory.
func (a operations) readFindings(
	ctx context.Context, found result, excepting store.ImageExceptions, bound documentBound,
) (all []store.TrackedFinding, total int, err error) {
	var size byteCounter
	encoder := json.NewEncoder(&size)
	encoder.SetEscapeHTML(false)
	for place := (&store.FindingCursor{}); place != nil; {
		var page store.FindingPage
		err := a.query(ctx, func(ctx context.Context) (err error) {
			page, err = a.Store.FindingsPage(ctx, found.Subject, store.FindingFilter{Exceptions: excepting}, *place, documentPage)
			return err
		})
		switch {
		case errors.Is(err, store.ErrNotFound):
			return nil, 0, found.notScanned("there is no result any more")
		case errors.Is(err, store.ErrChanged), err == nil && (page.Report.ID != found.Report.ID || page.Report.Revision != found.Report.Revision):
			return nil, 0, unavailable("the report was replaced while it was read; retry later")
		case err != nil:
			return nil, 0, err
		case page.Total > bound.findings && !bound.truncates:
			return nil, 0, tooLarge("%d findings", page.Total)
		}
		total = page.Total
		for _, f := range page.Findings {
			if err := errors.Join(encoder.Encode(f.Finding), encoder.Encode(exceptionTexts(f.Exception))); err != nil {
				return nil, 0, err
			}
			switch {
			case size > maxDocumentBytes && !bound.truncates:
				return nil, 0, tooLarge("more than %d MiB of texts", maxDocumentBytes>>20)
			case size > maxDocumentBytes || len(all) == bound.findings:
				return all, total, nil
			}
			all = append(all, f)
		}
		place = page.Next
	}
	return all, total, nil
}

// exceptionTexts returns the texts of an exception that a document repeats with each finding that the exception covers.
func exceptionTexts(e *exception.Exception) []string {
	if e == nil {
		return nil
	}
	return []string{e.Reason, e.Action}
}

// tooLarge returns the refusal to make a document.
func tooLarge(format string, args ...any) *problem {
	return newProblem(restv1.ReasonTooLarge, "the report has "+format+", which is too much for one document: page through its findings instead", args...)
}

// byteCounter counts the bytes that are written to it.
type byteCounter int

// Write implements io.Writer.
func (w *byteCounter) Write(p []byte) (int, error) {
	*w += byteCounter(len(p))
	return len(p), nil
}

// notModified is the response with status 304, for a caller that already has the content with this ETag.
type notModified string

func (u notModified) visit(w http.ResponseWriter) error {
	w.Header().Set("ETag", string(u))
	w.WriteHeader(http.StatusNotModified)
	return nil
}

// VisitGetSBOMResponse implements restv1.GetSBOMResponseObject.
func (u notModified) VisitGetSBOMResponse(w http.ResponseWriter) error {
	w.Header().Set("Vary", sbomVary)
	return u.visit(w)
}

// VisitGetCycloneDXResponse implements restv1.GetCycloneDXResponseObject.
func (u notModified) VisitGetCycloneDXResponse(w http.ResponseWriter) error { return u.visit(w) }

// matchesETag reports whether an If-None-Match header names an ETag (RFC 9110, section 13.1.2: weak comparison).
func matchesETag(ifNoneMatch, tag string) bool {
	opaque := strings.TrimPrefix(tag, "W/")
	for candidate := range strings.SplitSeq(ifNoneMatch, ",") {
		candidate = strings.TrimSpace(candidate)
		if candidate == "*" || strings.TrimPrefix(candidate, "W/") == opaque {
			return true
		}
	}
	return false
}

// acceptsEncoding reports whether an Accept-Encoding header names a coding with a quality above 0 (RFC 9110, section 12.5.3). "*" does not count,
// since a caller that wants zstd names it.
func acceptsEncoding(acceptEncoding, coding string) bool {
	for candidate := range strings.SplitSeq(acceptEncoding, ",") {
		name, parameters, _ := strings.Cut(candidate, ";")
		if !strings.EqualFold(strings.TrimSpace(name), coding) {
			continue
		}
		quality, given := strings.CutPrefix(strings.ToLower(strings.TrimSpace(parameters)), "q=")
		q, err := strconv.ParseFloat(strings.TrimSpace(quality), 64)
		return !given || (err == nil && q > 0)
	}
	return false
}
