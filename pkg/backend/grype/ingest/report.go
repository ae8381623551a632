package ingest

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"

	"github.com/scanner-operator/scanner-operator/workerapi"
)

// receiveReport decodes a compressed report finding by finding, so that its JSON is never in memory as a whole. digest is the announced
// digest of the body as sent.
func receiveReport(sent io.Reader, digest string, contentLimit int64) (report workerapi.Report, err error) {
	sum := sha256.New()
	body := io.TeeReader(sent, sum)
	content, err := decompress(body, contentLimit)
	if err != nil {
		return report, refuse(http.StatusBadRequest, "the body is not zstd: %v", err)
	}
	defer content.Close()
	if err := decodeWhole(content, &report); err != nil {
		return report, err
	}
	// Decoding may stop before the end of the body.
	if _, err := io.Copy(io.Discard, body); err != nil {
		return report, err
	}
	if got := digestOf(sum); got != digest {
		return report, refuse(http.StatusBadRequest, "the body has the digest %s, but %s was announced", got, digest)
	}
	return report, nil
}

// decodeWhole decodes exactly one report. A truncated report or trailing data is an error. Decoding errors become refusals.
func decodeWhole(content io.Reader, report *workerapi.Report) error {
	reader := &reportReader{pieces: &pieceReader{from: content}, report: report}
	reader.json = json.NewDecoder(reader.pieces)
	var refused *refusal
	err := reader.read()
	switch {
	case err == nil:
	case errors.As(err, &refused), isTooLarge(err), errors.Is(err, os.ErrDeadlineExceeded):
		return err
	default:
		return refuse(http.StatusBadRequest, "the body is not a whole report: %v", err)
	}
	if report.Database.Built.IsZero() {
		return refuse(http.StatusUnprocessableEntity, "database.built: a report must say which data it was made with")
	}
	return nil
}

// reportReader decodes a report from a stream in pieces of bounded size.
type reportReader struct {
	pieces  *pieceReader
	json    *json.Decoder
	report  *workerapi.Report
	entries int // entries in the lists of all findings
}

func (r *reportReader) read() error {
	if err := r.expect('{'); err != nil {
		return err
	}
	for r.json.More() {
		r.pieces.next()
		name, err := r.json.Token()
		if err != nil {
			return err
		}
		if err := r.field(name); err != nil {
			return err
		}
	}
	if err := r.expect('}'); err != nil {
		return err
	}
	r.pieces.next()
	if _, err := r.json.Token(); !errors.Is(err, io.EOF) {
		if err == nil {
			return errors.New("something follows it")
		}
		return err
	}
	return nil
}

// field decodes one field of the report. Unknown fields, such as those of newer workers, are skipped.
func (r *reportReader) field(name json.Token) error {
	var into any
	switch name {
	case "database":
		into = &r.report.Database
	case "tool":
		into = &r.report.Tool
	case "distro":
		into = &r.report.Distro
	case "ignored":
		into = &r.report.Ignored
	case "notCovered":
		return r.notCovered()
	case "findings":
		return r.findings()
	default:
		into = new(json.RawMessage)
	}
	return r.json.Decode(into)
}

// notCovered decodes what the report does not cover.
func (r *reportReader) notCovered() error {
	if err := r.json.Decode(&r.report.NotCovered); err != nil {
		return err
	}
	tooLong := func(gap string) bool { return len(gap) > workerapi.MaxNotCoveredBytes }
	if gaps := r.report.NotCovered; len(gaps) > workerapi.MaxNotCovered || slices.ContainsFunc(gaps, tooLong) {
		return refuse(http.StatusRequestEntityTooLarge, "notCovered: at most %d texts of %d bytes", workerapi.MaxNotCovered, workerapi.MaxNotCoveredBytes)
	}
	return nil
}

// findings decodes the findings one by one; null is an empty list.
func (r *reportReader) findings() error {
	start, err := r.json.Token()
	if err != nil || start == nil {
		return err
	}
	if start != json.Delim('[') {
		return fmt.Errorf("findings: a list is expected, not %v", start)
	}
	for r.json.More() {
		r.pieces.next()
		var finding workerapi.Finding
		if err := r.json.Decode(&finding); err != nil {
			return err
		}
		r.entries += len(finding.Aliases) + len(finding.FixVersions) + len(finding.CVSS) + len(finding.MatchTypes) +
			len(finding.Package.Upstreams) + len(finding.Locations)
		if len(r.report.Findings) == workerapi.MaxReportFindings || r.entries > workerapi.MaxReportListEntries {
			return refuse(http.StatusRequestEntityTooLarge, "findings: at most %d, with at most %d entries in their lists",
				workerapi.MaxReportFindings, workerapi.MaxReportListEntries)
		}
		r.report.Findings = append(r.report.Findings, finding)
	}
	return r.expect(']')
}

func (r *reportReader) expect(delimiter json.Delim) error {
	token, err := r.json.Token()
	if err != nil {
		return err
	}
	if token != delimiter {
		return fmt.Errorf("%v is expected, not %v", delimiter, token)
	}
	return nil
}

// pieceReader bounds the bytes of one piece, because json.Decoder buffers a value until it is complete.
type pieceReader struct {
	from io.Reader
	read int
}

// next starts another piece.
func (p *pieceReader) next() { p.read = 0 }

// Read implements io.Reader.
func (p *pieceReader) Read(b []byte) (int, error) {
	if p.read > workerapi.MaxFindingBytes {
		return 0, refuse(http.StatusRequestEntityTooLarge, "a part of the document has more than %d bytes", workerapi.MaxFindingBytes)
	}
	n, err := p.from.Read(b)
	p.read += n
	return n, err
}
