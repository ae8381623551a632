package restapi

import (
	"context"
	"errors"
	"fmt"
	"mime"
	"slices"
	"strconv"
	"strings"

	"k8s.io/utils/ptr"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// sbomVary are the headers of a request that select one of the forms of an SBOM.
const sbomVary = "Accept, Accept-Encoding"

// sbomFormat is a format of SBOMs.
type sbomFormat struct {
	name restv1.SBOMFormat
	// mediaType has the version, if the format's media type does not imply one.
	mediaType, version string
	artifact           store.Artifact
	// id returns the document's permanent ID; 0 if there is none.
	id func(store.Location) int64
}

// sbomFormats are all formats. The first one is the default.
var sbomFormats = []sbomFormat{
	{restv1.FormatSyft, "application/vnd.syft+json", "", store.ArtifactSBOM, func(l store.Location) int64 { return l.SBOM }},
	{restv1.FormatCycloneDX, "application/vnd.cyclonedx+json", "1.6", store.ArtifactCycloneDX, func(l store.Location) int64 { return l.CycloneDX }},
	{restv1.FormatSPDX, "application/spdx+json", "2.3", store.ArtifactSPDX, func(l store.Location) int64 { return l.SPDX }},
}

// contentType returns the media type with its version.
func (f sbomFormat) contentType() string {
	if f.version == "" {
		return f.mediaType
	}
	return f.mediaType + "; version=" + f.version
}

// selectSBOMFormat returns the format that a request names, with precedence for its parameter.
func selectSBOMFormat(p restv1.GetSBOMParams) (sbomFormat, error) {
	if p.Format != nil {
		return sbomFormats[slices.IndexFunc(sbomFormats, func(f sbomFormat) bool { return f.name == *p.Format })], nil
	}
	return acceptedSBOMFormat(ptr.Deref(p.Accept, ""))
}

// acceptedSBOMFormat returns the format that an Accept header prefers (RFC 9110, section 12.5.1): of those with the highest quality the one that it
// names most precisely.
func acceptedSBOMFormat(accept string) (sbomFormat, error) {
	if strings.TrimSpace(accept) == "" {
		return sbomFormats[0], nil
	}
	var best sbomFormat
	var bestQuality float64
	var bestPrecision int
	for _, format := range sbomFormats {
		quality, precision := format.accepted(accept)
		if quality > bestQuality || quality == bestQuality && precision > bestPrecision && quality > 0 {
			best, bestQuality, bestPrecision = format, quality, precision
		}
	}
	if bestQuality == 0 {
		known := make([]string, len(sbomFormats))
		for i, format := range sbomFormats {
			known[i] = format.contentType()
		}
		p := newProblem(restv1.ReasonNotAcceptable, "Accept names no media type that an SBOM can have: %s", strings.Join(known, ", "))
		p.Field = "Accept"
		return sbomFormat{}, p
	}
	return best, nil
}

// accepted returns the quality of the media range that names the format most precisely, and how precise it is; 0 if none names it.
func (f sbomFormat) accepted(accept string) (quality float64, precision int) {
	for text := range strings.SplitSeq(accept, ",") {
		mediaRange, parameters, err := mime.ParseMediaType(text)
		if err != nil {
			continue
		}
		p := f.precisionOf(mediaRange)
		if version := parameters["version"]; version != "" && version != f.version {
			p = 0
		}
		q := 1.0
		if given, found := parameters["q"]; found {
			if q, err = strconv.ParseFloat(given, 64); err != nil {
				continue
			}
		}
		if p > precision {
			quality, precision = q, p
		}
	}
	return quality, precision
}

// precisionOf returns how precisely a media range names the format; 0 if it does not. Syft's format is the one for programs that accept any JSON.
func (f sbomFormat) precisionOf(mediaRange string) int {
	switch {
	case mediaRange == f.mediaType:
		return 4
	case mediaRange == "application/json" && f.name == restv1.FormatSyft:
		return 3
	case mediaRange == "application/*":
		return 2
	case mediaRange == "*/*":
		return 1
	}
	return 0
}

// GetSBOM implements restv1.StrictServerInterface.
func (a operations) GetSBOM(ctx context.Context, r restv1.GetSBOMRequestObject) (restv1.GetSBOMResponseObject, error) {
	format, err := selectSBOMFormat(r.Params)
	if err != nil {
		return nil, err
	}
	compressed := acceptsEncoding(ptr.Deref(r.Params.AcceptEncoding, ""), "zstd")
	found, tag, err := a.locateSBOM(ctx, r.Namespace, r.Name, format, compressed)
	if err != nil {
		return nil, err
	}
	if matchesETag(ptr.Deref(r.Params.IfNoneMatch, ""), tag) {
		return notModified(tag), nil
	}
	// The slot is released when the SBOM is sent. Each download needs the memory of a decoder, and a processor while it is decompressed.
	slot, err := a.downloads.acquire(ctx, callerOf(ctx).user.Username)
	if err != nil {
		return nil, err
	}
	// The SBOM may have been replaced during the wait, and the ETag promises each byte of it.
	if found, tag, err = a.locateSBOM(ctx, r.Namespace, r.Name, format, compressed); err != nil {
		slot.release()
		return nil, err
	}
	sbom, size, err := a.Store.OpenArtifact(ctx, found.PlatformDigest, found.Scope, format.artifact)
	if err != nil {
		slot.release()
		if errors.Is(err, store.ErrNotFound) {
			return nil, found.notScanned("there is no SBOM any more")
		}
		return nil, err
	}
	return &storedResponse{
		content: sbom, size: size, contentType: format.contentType(), compressed: compressed, tag: tag, vary: sbomVary, slot: slot,
	}, nil
}

// locateSBOM returns the location of an ImageScan's current SBOM in a format, and the ETag of the form in which it is sent.
func (a operations) locateSBOM(ctx context.Context, namespace, name string, format sbomFormat, compressed bool) (found result, tag string, err error) {
	if found, err = a.locate(ctx, namespace, name); err != nil {
		return result{}, "", err
	}
	id := format.id(found.Location)
	switch {
	case found.SBOM == 0 && found.scan.Status.Engine == v1alpha1.BackendClair:
		return result{}, "", found.notScanned("there is no SBOM: Clair does not make one, Grype does")
	case found.SBOM == 0:
		return result{}, "", found.notScanned("there is no SBOM yet")
	case id == 0:
		return result{}, "", formatNotStored(namespace, name, format.name)
	}
	tag = fmt.Sprintf(`"%.8s-%d"`, a.Store.ID(), id)
	if compressed {
		tag = fmt.Sprintf(`"%.8s-%d-zstd"`, a.Store.ID(), id)
	}
	return found, tag, nil
}

// formatNotStored returns the refusal of a format that the image's catalog lacks.
func formatNotStored(namespace, name string, format restv1.SBOMFormat) *problem {
	return newProblem(restv1.ReasonFormatNotStored, "the image was cataloged without an SBOM as %s. The operator's configuration must name the format "+
		"(grype.catalog.additionalFormats). Then have the image scanned again: \"Scan again\" in the web UI, or "+
		"DELETE /api/v1/namespaces/%s/imagescans/%s/report", format, namespace, name)
}

// sbomFormatsOf returns the formats in which there is an SBOM of the image.
func (a operations) sbomFormatsOf(ctx context.Context, scan *v1alpha1.ImageScan) (formats []restv1.SBOMFormat, err error) {
	found, err := a.locateScan(ctx, scan)
	switch {
	case isNotScanned(err):
		return nil, nil
	case err != nil:
		return nil, err
	}
	for _, format := range sbomFormats {
		if format.id(found.Location) != 0 {
			formats = append(formats, format.name)
		}
	}
	return formats, nil
}

// sbomOriginOf returns where the list of packages comes from; nil if the ImageScan does not say that.
func sbomOriginOf(origin *v1alpha1.SBOMOrigin) *restv1.SBOMOrigin {
	if origin == nil {
		return nil
	}
	converted := &restv1.SBOMOrigin{Source: restv1.SBOMSource(origin.Source), Signer: origin.Signer, Uploader: origin.Uploader, Message: origin.Message}
	if origin.UploadTime != nil {
		converted.UploadTime = origin.UploadTime.UTC()
	}
	return converted
}
