package rest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/klauspost/compress/zstd"
	"k8s.io/utils/ptr"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/pkg/cyclonedx"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// maxWindow bounds the memory of a zstd decoder. It is that of the ingest API, which takes nothing with a larger one.
const maxWindow = 64 << 20

// GetSBOM implements restv1.StrictServerInterface.
func (a operations) GetSBOM(ctx context.Context, r restv1.GetSBOMRequestObject) (restv1.GetSBOMResponseObject, error) {
	found, err := a.locate(ctx, r.Namespace, r.Name)
	if err != nil {
		return nil, err
	}
	if found.SBOM == 0 {
		return nil, found.notScanned("there is no SBOM yet")
	}
	compressed := accepts(ptr.Deref(r.Params.AcceptEncoding, ""), "zstd")
	tag := fmt.Sprintf(`"%.8s-%d"`, a.Store.ID(), found.SBOM)
	if compressed {
		tag = fmt.Sprintf(`"%.8s-%d-zstd"`, a.Store.ID(), found.SBOM)
	}
	if matches(ptr.Deref(r.Params.IfNoneMatch, ""), tag) {
		return unchanged(tag), nil
	}
	// Given back when the SBOM is sent: each takes a decoder's memory, and a processor while it is decompressed.
	if err := a.downloads.acquire(ctx); err != nil {
		return nil, err
	}
	sbom, size, err := a.Store.OpenArtifact(ctx, found.PlatformDigest, found.Scope, store.ArtifactSBOM)
	if err != nil {
		a.downloads.release()
		if errors.Is(err, store.ErrNotFound) {
			return nil, found.notScanned("there is no SBOM any more")
		}
		return nil, err
	}
	return &download{content: sbom, size: size, compressed: compressed, tag: tag, done: a.downloads.release}, nil
}

// download sends an SBOM in pieces.
type download struct {
	content    io.ReadCloser // zstd
	size       int64
	compressed bool
	tag        string
	done       func()
}

// VisitGetSBOMResponse implements restv1.GetSBOMResponseObject.
func (d *download) VisitGetSBOMResponse(w http.ResponseWriter) error {
	defer d.done()
	defer d.content.Close()
	header := w.Header()
	// An error after the first byte breaks the connection off, which is how the caller notices that something is missing.
	header.Set("Content-Type", "application/vnd.syft+json")
	header.Set("ETag", d.tag)
	header.Set("Vary", "Accept-Encoding")
	if d.compressed {
		header.Set("Content-Encoding", "zstd")
		header.Set("Content-Length", strconv.FormatInt(d.size, 10))
		_, err := io.Copy(w, d.content)
		return err
	}
	decoder, err := zstd.NewReader(d.content, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		return err
	}
	defer decoder.Close()
	_, err = io.Copy(w, decoder)
	return err
}

// GetCycloneDX implements restv1.StrictServerInterface.
func (a operations) GetCycloneDX(ctx context.Context, r restv1.GetCycloneDXRequestObject) (restv1.GetCycloneDXResponseObject, error) {
	found, err := a.locate(ctx, r.Namespace, r.Name)
	if err != nil {
		return nil, err
	}
	if err := found.reported(r.Params.Outdated); err != nil {
		return nil, err
	}
	// Weak: what is known of a vulnerability may have been told by another image's newer report meanwhile.
	tag := fmt.Sprintf(`W/"%.8s-%d.%d"`, a.Store.ID(), found.Report.ID, found.Report.Revision)
	if matches(ptr.Deref(r.Params.IfNoneMatch, ""), tag) {
		return unchanged(tag), nil
	}
	// From here until it is sent the document counts as one of few: all of it is in memory.
	if err := a.documents.acquire(ctx); err != nil {
		return nil, err
	}
	report := cyclonedx.Report{
		Reference: found.reference(), Digest: found.key.Digest, PlatformDigest: found.PlatformDigest, Platform: found.key.Platform,
		Scope: string(found.Scope), Engine: found.Engine, Tool: found.Report.Tool, DataVersion: found.Report.DataVersion,
		MatchedAt: found.Report.MatchedAt, Distro: found.Report.Distro,
	}
	if report.Findings, err = a.allFindings(ctx, found); err != nil {
		a.documents.release()
		return nil, err
	}
	return &documentAnswer{report: report, tag: tag, done: a.documents.release}, nil
}

// maxDocumentBytes bounds the texts of a report that is written as one document, which is made in memory.
const maxDocumentBytes = 48 << 20

// allFindings reads a report at once.
func (a operations) allFindings(ctx context.Context, found result) (findings []finding.Finding, err error) {
	err = a.query(ctx, func() (err error) {
		findings, err = a.Store.Findings(ctx, found.Subject)
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		return nil, found.notScanned("there is no result any more")
	}
	size := 0
	for i := range findings {
		if size += findings[i].TextBytes(); size > maxDocumentBytes {
			return nil, refuse(restv1.ReasonTooLarge, "the report has more than %d MiB of texts, which is too much for one document: page through its findings instead", maxDocumentBytes>>20)
		}
	}
	return findings, err
}

// documentAnswer writes a report as CycloneDX.
type documentAnswer struct {
	report cyclonedx.Report
	tag    string
	done   func()
}

// VisitGetCycloneDXResponse implements restv1.GetCycloneDXResponseObject.
func (d *documentAnswer) VisitGetCycloneDXResponse(w http.ResponseWriter) error {
	defer d.done()
	w.Header().Set("Content-Type", cyclonedx.MediaType+"; version=1.6")
	w.Header().Set("ETag", d.tag)
	return cyclonedx.Write(w, d.report)
}

// unchanged says that the caller has it already.
type unchanged string

func (u unchanged) visit(w http.ResponseWriter) error {
	w.Header().Set("ETag", string(u))
	w.WriteHeader(http.StatusNotModified)
	return nil
}

// VisitGetSBOMResponse implements restv1.GetSBOMResponseObject.
func (u unchanged) VisitGetSBOMResponse(w http.ResponseWriter) error {
	w.Header().Set("Vary", "Accept-Encoding")
	return u.visit(w)
}

// VisitGetCycloneDXResponse implements restv1.GetCycloneDXResponseObject.
func (u unchanged) VisitGetCycloneDXResponse(w http.ResponseWriter) error { return u.visit(w) }

// matches says whether If-None-Match names a tag (RFC 9110, section 13.1.2: the weak comparison).
func matches(ifNoneMatch, tag string) bool {
	opaque := strings.TrimPrefix(tag, "W/")
	for candidate := range strings.SplitSeq(ifNoneMatch, ",") {
		candidate = strings.TrimSpace(candidate)
		if candidate == "*" || strings.TrimPrefix(candidate, "W/") == opaque {
			return true
		}
	}
	return false
}

// accepts says whether Accept-Encoding names a coding, and not only to refuse it (RFC 9110, section 12.5.3). "*" is taken
// for other codings: who wants zstd says so.
func accepts(acceptEncoding, coding string) bool {
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
