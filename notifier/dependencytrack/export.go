// Package dependencytrack sends SBOMs to Dependency-Track (https://docs.dependencytrack.org/usage/cicd): POST /api/v1/bom.
//
// An upload brings a project to the state of the SBOM: components that are not in it any more are deleted. The same SBOM again changes nothing.
// Dependency-Track answers when it has the SBOM, and analyzes it later. The package knows nothing about Secrets, retries, or what an SBOM has.
package dependencytrack

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"

	"github.com/klauspost/compress/zstd"

	"github.com/scanner-operator/scanner-operator/notifier/receiver"
	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/export"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

const uploadPath = "/api/v1/bom"

// Exporter sends SBOMs to Dependency-Track. It is safe for concurrent use.
type Exporter struct {
	client *receiver.Client
}

// NewExporter returns an Exporter.
func NewExporter(network receiver.Network) *Exporter {
	return &Exporter{client: receiver.NewClient("Dependency-Track", network)}
}

// Export sends an SBOM, once, within export.DependencyTrackTimeout. The outcome contains nothing of the address. Only the compressed SBOM is in memory as a
// whole: it is decompressed while it is sent.
func (e *Exporter) Export(ctx context.Context, to receiver.Address, r export.Request) announce.Outcome {
	ctx, cancel := context.WithTimeout(ctx, export.DependencyTrackTimeout)
	defer cancel()
	sbom, size, err := open(r.Document)
	if err != nil {
		return announce.Outcome{Result: announce.Permanent, Reason: export.ReasonSBOMNotSent, Message: r.Project.DependencyTrack.Name + ": " + err.Error()}
	}
	defer sbom.Close()
	before, after, contentType, err := encode(r.Project.DependencyTrack)
	if err != nil {
		return announce.Outcome{Result: announce.Permanent, Reason: announce.ReasonReceiverRefused, Message: "the SBOM cannot be encoded"}
	}
	header := http.Header{
		"X-Api-Key": {to.Token}, "Content-Type": {contentType}, "Accept": {"application/json"}, "User-Agent": {"scanner-operator"},
	}
	body := io.MultiReader(bytes.NewReader(before), sbom, bytes.NewReader(after))
	to.Target = to.Target.Join(uploadPath)
	answer, none := e.client.PostStream(ctx, to, header, body, len(before)+size+len(after))
	if none != nil {
		return *none
	}
	return e.outcome(answer, r.Project.DependencyTrack)
}

// outcome converts an answer.
func (e *Exporter) outcome(answer receiver.Answer, p export.DependencyTrackProject) announce.Outcome {
	var accepted struct {
		Token string `json:"token"`
	}
	_ = json.Unmarshal(answer.Body, &accepted) // a proxy answers with something else
	if answer.IsOK() && answer.BodyError != nil {
		return *e.client.Failure(answer.BodyError, true)
	}
	refused := announce.Outcome{Result: announce.Permanent, Reason: announce.ReasonReceiverRefused}
	switch {
	case answer.IsOK() && accepted.Token == "":
		refused.Message = e.client.Quote(answer.Status, "") + " without a token; " + adviceOnAddress
		return refused
	case answer.Status == http.StatusRequestEntityTooLarge: // the limits are others than for messages
		refused.Message = fmt.Sprintf("%s; the SBOM of %s has %d MiB: raise the limit of the proxy before Dependency-Track (nginx: client_max_body_size) to %d MiB",
			e.client.Quote(answer.Status, ""), p.Name, answer.Sent>>20+1, export.MaxSBOMBytes>>20+1)
		return refused
	}
	return e.client.Outcome(answer, receiver.Details(answer.Body), adviceFor(answer.Status, p))
}

// open returns a reader of an SBOM, and its size in bytes. It decompresses the SBOM twice: the size belongs into a header of the request. The error,
// for people, means that the SBOM is damaged, or has more than export.MaxSBOMBytes.
func open(compressed []byte) (sbom io.ReadCloser, size int, err error) {
	errDamaged := errors.New("the stored SBOM is damaged: have the image scanned again")
	measured, err := decompress(compressed)
	if err != nil {
		return nil, 0, errDamaged
	}
	defer measured.Close()
	n, err := io.Copy(io.Discard, io.LimitReader(measured, export.MaxSBOMBytes+1))
	switch {
	case err != nil:
		return nil, 0, errDamaged
	case n > export.MaxSBOMBytes:
		return nil, 0, fmt.Errorf("the SBOM has more than the %d MiB that an export can have", export.MaxSBOMBytes>>20)
	}
	sbom, err = decompress(compressed)
	return sbom, int(n), err
}

func decompress(compressed []byte) (io.ReadCloser, error) {
	decoder, err := zstd.NewReader(bytes.NewReader(compressed),
		zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(workerapi.MaxWindowBytes))
	if err != nil {
		return nil, err
	}
	return decoder.IOReadCloser(), nil
}

// encode returns the form without the SBOM: what comes before it, and what comes after it. Dependency-Track creates a project that does not exist.
func encode(p export.DependencyTrackProject) (before, after []byte, contentType string, err error) {
	var buffer bytes.Buffer
	form := multipart.NewWriter(&buffer)
	for _, field := range [][2]string{{"projectName", p.Name}, {"projectVersion", p.Version}, {"autoCreate", "true"}} {
		if err := form.WriteField(field[0], field[1]); err != nil {
			return nil, nil, "", err
		}
	}
	if _, err := form.CreatePart(textproto.MIMEHeader{
		"Content-Disposition": {`form-data; name="bom"; filename="bom.json"`}, "Content-Type": {"application/json"},
	}); err != nil {
		return nil, nil, "", err
	}
	size := buffer.Len()
	if err := form.Close(); err != nil {
		return nil, nil, "", err
	}
	return buffer.Bytes()[:size], buffer.Bytes()[size:], form.FormDataContentType(), nil
}

const adviceOnAddress = "the key address of the Secret must have the URL of Dependency-Track's API server, without /api"

// adviceFor tells the user what to do about a status.
func adviceFor(status int, p export.DependencyTrackProject) string {
	switch status {
	case http.StatusBadRequest:
		return fmt.Sprintf("the SBOM of %s is not accepted. If it names a part of the SBOM, such as a license that it does not know, update Dependency-Track or relax its "+
			"validation (BOM_VALIDATION_MODE). Else it must be version 4.11.4 or newer, and no collection project may have this name", p.Name)
	case http.StatusUnauthorized: // also if a project may not be created
		return "check the key token of the Secret: it holds an API key of a team with the permissions BOM_UPLOAD and PROJECT_CREATION_UPLOAD"
	case http.StatusForbidden:
		return fmt.Sprintf("the team of the API key needs the permission BOM_UPLOAD, and access to the project %s", p.Name)
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		return adviceOnAddress
	}
	return ""
}
