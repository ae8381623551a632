// Package defectdojo sends findings to DefectDojo (https://docs.defectdojo.com/import_data/import_intro/reimport): POST /api/v2/reimport-scan/.
//
// A reimport brings the test of a workload to the state of the report: it opens what is new, closes what is not in the report, and opens again what
// is back. The same report again changes nothing. The package knows nothing about Secrets, retries, or what a report has.
package defectdojo

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"mime/multipart"
	"net/http"
	"strconv"

	"github.com/scanner-operator/scanner-operator/notifier/receiver"
	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/export"
)

const reimportPath = "/api/v2/reimport-scan/"

// Exporter sends reports to DefectDojo. It is safe for concurrent use.
type Exporter struct {
	client *receiver.Client
}

// NewExporter returns an Exporter.
func NewExporter(network receiver.Network) *Exporter {
	return &Exporter{client: receiver.NewClient("DefectDojo", network)}
}

// Export sends a report, once, within export.DefectDojoTimeout. The outcome contains nothing of the address.
func (e *Exporter) Export(ctx context.Context, to receiver.Address, r export.Request) announce.Outcome {
	ctx, cancel := context.WithTimeout(ctx, export.DefectDojoTimeout)
	defer cancel()
	body, contentType, err := encode(r)
	if err != nil {
		return announce.Outcome{Result: announce.Permanent, Reason: announce.ReasonReceiverRefused, Message: "the report cannot be encoded"}
	}
	header := http.Header{
		"Authorization": {"Token " + to.Token}, "Content-Type": {contentType}, "Accept": {"application/json"}, "User-Agent": {"scanner-operator"},
	}
	to.Target = to.Target.Join(reimportPath)
	answer, none := e.client.Post(ctx, to, header, body)
	if none != nil {
		return *none
	}
	return e.outcome(answer, r.Project.DefectDojo)
}

// outcome converts an answer.
func (e *Exporter) outcome(answer receiver.Answer, p export.DefectDojoTest) announce.Outcome {
	var imported struct {
		TestID int `json:"test_id"`
	}
	_ = json.Unmarshal(answer.Body, &imported) // a proxy answers with something else
	if answer.IsOK() && answer.BodyError != nil {
		return *e.client.Failure(answer.BodyError, true)
	}
	if answer.IsOK() && (answer.Status != http.StatusCreated || imported.TestID == 0) {
		return announce.Outcome{
			Result: announce.Permanent, Reason: announce.ReasonReceiverRefused,
			Message: e.client.Quote(answer.Status, "") + " without the ID of a test; the key address of the Secret must have the URL of DefectDojo itself, without /api/v2",
		}
	}
	if answer.Status == http.StatusGatewayTimeout { // DefectDojo imports on
		return announce.Outcome{
			Result: announce.UnknownOutcome, Reason: announce.ReasonAnswerLost,
			Message: fmt.Sprintf("%s: a proxy before DefectDojo does not wait for the import; raise its timeout to %s (nginx: proxy_read_timeout)",
				e.client.Quote(answer.Status, ""), export.DefectDojoTimeout),
		}
	}
	if answer.Status == http.StatusRequestEntityTooLarge { // the limits are others than for messages
		return announce.Outcome{
			Result: announce.Permanent, Reason: announce.ReasonReceiverRefused,
			Message: fmt.Sprintf("%s; the report has %d KiB: raise the limit of DefectDojo (DD_SCAN_FILE_MAX_SIZE) or of the proxy before it "+
				"(nginx: client_max_body_size) to %d MiB", e.client.Quote(answer.Status, ""), (answer.Sent+1023)/1024, export.MaxDocumentBytes>>20+1),
		}
	}
	return e.client.Outcome(answer, receiver.Details(answer.Body), adviceFor(answer.Status, p))
}

// encode returns the form. DefectDojo creates products, engagements and tests that do not exist. scan_type selects the parser, and not what the test is
// called.
func encode(r export.Request) (body []byte, contentType string, err error) {
	var buffer bytes.Buffer
	form := multipart.NewWriter(&buffer)
	for _, field := range [][2]string{
		{"scan_type", "Generic Findings Import"}, {"auto_create_context", "true"}, {"product_type_name", r.Project.DefectDojo.ProductType},
		{"product_name", r.Project.DefectDojo.Product}, {"engagement_name", r.Project.DefectDojo.Engagement}, {"test_title", r.Project.DefectDojo.Test},
		{"close_old_findings", strconv.FormatBool(!r.KeepOld)}, {"do_not_reactivate", "false"}, {"minimum_severity", "Info"},
	} {
		if err := form.WriteField(field[0], field[1]); err != nil {
			return nil, "", err
		}
	}
	file, err := form.CreateFormFile("file", "findings.json") // DefectDojo goes by the extension
	if err == nil {
		_, err = file.Write(r.Document)
	}
	if err == nil {
		err = form.Close()
	}
	return buffer.Bytes(), form.FormDataContentType(), err
}

// adviceFor tells the user what to do about a status.
func adviceFor(status int, p export.DefectDojoTest) string {
	switch status {
	case http.StatusBadRequest:
		return fmt.Sprintf("if it says no more: the product %s must have the product type %q, or not exist, and DefectDojo must be version 2.50 or newer", p.Product, p.ProductType)
	case http.StatusUnauthorized:
		return "check the key token of the Secret: it holds the API v2 key of a DefectDojo user"
	case http.StatusForbidden:
		return fmt.Sprintf("the user of the token needs permission to import scans into the product %s, and to create what does not exist", p.Product)
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		return "the key address of the Secret must have the URL of DefectDojo itself, without /api/v2"
	}
	return ""
}
