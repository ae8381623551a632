package connect

import (
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
)

// noOperation is how the REST API begins the detail of a refusal if it has no operation at a path.
const noOperation = "there is nothing at this path"

const (
	// maxAnswerBytes bounds what is read of an answer in JSON: a page has at most 500 items.
	maxAnswerBytes = 64 << 20
	// maxProblemBytes bounds what is read of a refusal.
	maxProblemBytes = 64 << 10
	// maxAttempts bounds how often a request is sent that the API answers with "retry later".
	maxAttempts = 4
	// maxRetryAfter bounds how long the API may have the caller wait before the next attempt.
	maxRetryAfter = 30 * time.Second
)

// Problem is a refusal of the REST API.
type Problem struct{ restv1.Problem }

// Error implements error.
func (p *Problem) Error() string { return p.Detail }

// IsReason reports whether an error is a refusal of the REST API for this reason.
func IsReason(err error, reason restv1.Reason) bool {
	var p *Problem
	return errors.As(err, &p) && p.Reason == reason
}

// Doer sends requests. It returns a refusal as a *Problem, and any other response that is not the API's as an error.
//
// A GET that the API refuses with 503 and Retry-After is sent again after that time, at most three times: the API answers so when too many
// requests arrive at once.
type Doer struct{ *http.Client }

// Do implements restclient.HTTPRequestDoer.
func (d *Doer) Do(r *http.Request) (*http.Response, error) {
	for attempt := 1; ; attempt++ {
		response, err := d.Client.Do(r)
		var unknown x509.UnknownAuthorityError
		if errors.As(err, &unknown) {
			return nil, fmt.Errorf("%w; --server-ca FILE names the certificates that verify the server", err)
		}
		if err != nil {
			return nil, err
		}
		if response.StatusCode < 300 || response.StatusCode == http.StatusNotModified {
			if kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type")); kind == "application/json" {
				response.Body = &boundedBody{ReadCloser: response.Body, left: maxAnswerBytes}
			}
			return response, nil
		}
		err = refusal(response)
		delay, retry := retryAfter(response)
		if !retry || r.Method != http.MethodGet || attempt == maxAttempts {
			return nil, err
		}
		timer := time.NewTimer(delay)
		select {
		case <-r.Context().Done():
			timer.Stop()
			return nil, err
		case <-timer.C:
		}
	}
}

// boundedBody fails when an answer has more bytes than left. Answers in JSON are read into memory; SBOMs and documents are not.
type boundedBody struct {
	io.ReadCloser
	left int64
}

// Read implements io.Reader.
func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, fmt.Errorf("the answer has more than %d MiB: is the address that of the operator's REST API?", maxAnswerBytes>>20)
	}
	return n, err
}

// retryAfter returns when the API would accept the request.
func retryAfter(response *http.Response) (time.Duration, bool) {
	seconds, err := strconv.Atoi(response.Header.Get("Retry-After"))
	delay := time.Duration(seconds) * time.Second
	return delay, err == nil && response.StatusCode == http.StatusServiceUnavailable && delay >= 0 && delay <= maxRetryAfter
}

// refusal reads a response that is no success, and closes it.
func refusal(response *http.Response) error {
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxProblemBytes))
	if err != nil {
		return err
	}
	var p Problem
	kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if kind == "application/problem+json" && json.Unmarshal(text, &p.Problem) == nil && p.Detail != "" {
		if p.Reason == restv1.ReasonNotFound && strings.HasPrefix(p.Detail, noOperation) {
			return fmt.Errorf("%w; the operator has another version than this plugin (kubectl scanner version), and knows no such request", &p)
		}
		return &p
	}
	host := response.Request.URL.Host
	if location, err := response.Location(); err == nil {
		return fmt.Errorf("%s redirects to %s, as a login page does; the token was not sent there. Name the address of the REST API itself", host, location.Host)
	}
	return fmt.Errorf("%s answers %s, and not as the operator's REST API does: is the address right?", host, response.Status)
}
