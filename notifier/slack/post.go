package slack

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/workerapi/text"
)

// Timeout bounds one request to Slack.
const Timeout = 15 * time.Second

// Bounds of Slack's Retry-After.
const (
	// defaultRetryAfter applies to a 429 without a usable Retry-After.
	defaultRetryAfter = 30 * time.Second
	minRetryAfter     = time.Second
	maxRetryAfter     = time.Hour
)

// maxAnswerBytes bounds how much of an answer is read. Slack answers "ok", or one word such as "no_service".
const maxAnswerBytes = 4 << 10

// Poster posts messages to Slack's incoming webhooks. It is safe for concurrent use.
type Poster struct {
	http *http.Client
}

// NewPoster returns a Poster that trusts the given CA certificates and uses the proxy function. It follows no redirects, since that would
// send the secret address to another server.
func NewPoster(roots *x509.CertPool, proxy func(*http.Request) (*url.URL, error)) *Poster {
	return &Poster{http: newHTTPClient(roots, proxy)}
}

func newHTTPClient(roots *x509.CertPool, proxy func(*http.Request) (*url.URL, error)) *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			Proxy:           proxy,
			DialContext:     (&net.Dialer{Timeout: Timeout}).DialContext,
			TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
			// With a new connection for each request it is certain whether the request was sent.
			DisableKeepAlives: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// traceSent returns a context for a request, and whether the request's headers were sent.
func traceSent(ctx context.Context) (context.Context, *atomic.Bool) {
	sent := &atomic.Bool{}
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { sent.Store(true) }}), sent
}

// Post sends a message to a webhook, once, within Timeout. The outcome does not contain the webhook's address, which is a secret.
func (p *Poster) Post(ctx context.Context, webhook string, d announce.Delivery) announce.Outcome {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	ctx, sent := traceSent(ctx)
	body, err := json.Marshal(Render(d.Message))
	if err != nil {
		return announce.Outcome{Result: announce.Permanent, Reason: announce.ReasonReceiverRefused, Message: "the message cannot be encoded"}
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, webhook, bytes.NewReader(body))
	if err != nil {
		// err quotes the address.
		return announce.Outcome{Result: announce.Permanent, Reason: announce.ReasonInvalidURL, Message: "the webhook's address is not a URL"}
	}
	request.Header.Set("Content-Type", "application/json")
	// slack-go's own client is not used: it discards Slack's answer and whether the request was sent.
	response, err := p.http.Do(request)
	if err != nil {
		return requestError(err, sent.Load())
	}
	defer response.Body.Close()
	answer, _ := io.ReadAll(io.LimitReader(response.Body, maxAnswerBytes)) // the status counts, even if the body cannot be read
	return outcomeOf(response, string(answer))
}

// outcomeOf converts Slack's answer (https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks#handling_errors).
func outcomeOf(response *http.Response, answer string) announce.Outcome {
	status := response.StatusCode
	switch {
	case status == http.StatusOK:
		return announce.Outcome{Result: announce.Delivered}
	case status == http.StatusTooManyRequests:
		return rateLimited(response.Header)
	case isTemporary(status):
		return announce.Outcome{Result: announce.Temporary, Reason: announce.ReasonReceiverFailed, Message: quoteSlack(status, answer)}
	}
	message := quoteSlack(status, answer)
	if advice := adviceFor(status); advice != "" {
		message += "; " + advice
	}
	return announce.Outcome{Result: announce.Permanent, Reason: announce.ReasonReceiverRefused, Message: message}
}

// rateLimited returns the outcome for an answer that requests a wait.
func rateLimited(header http.Header) announce.Outcome {
	wait := retryAfter(header.Get("Retry-After"))
	return announce.Outcome{
		Result: announce.RateLimited, Reason: announce.ReasonReceiverLimited,
		Message: fmt.Sprintf("Slack requests a wait of %s (429 Too Many Requests)", wait), RetryAfter: wait,
	}
}

// isTemporary reports whether a status is about a problem that ends without the user.
func isTemporary(status int) bool {
	return status >= 500 || status == http.StatusRequestTimeout || status == http.StatusTooEarly
}

// quoteSlack quotes Slack's answer. Slack's answers are short. Anything else comes from a proxy and is not quoted, since it could contain
// the address.
func quoteSlack(status int, answer string) string {
	answer = strings.TrimSpace(answer)
	says := fmt.Sprintf("Slack answers %d %s", status, http.StatusText(status))
	if !isWord(answer) {
		return strings.TrimSpace(says)
	}
	return strings.TrimSpace(says) + ": " + answer
}

// isWord reports whether a text can be one of Slack's answers, so that it may be quoted.
func isWord(text string) bool {
	return text != "" && len(text) <= 100 && !strings.ContainsFunc(text, func(r rune) bool { return !isWordRune(r) })
}

// isWordRune reports whether r occurs in Slack's answers, such as "invalid_blocks". Addresses contain other characters too.
func isWordRune(r rune) bool {
	return r == '_' || r == '-' || r == ' ' || r == '.' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
}

func adviceFor(status int) string {
	switch {
	case status == http.StatusForbidden, status == http.StatusNotFound:
		return "the webhook was revoked or may not post there: create a new one in Slack and put its URL into the Secret"
	case status == http.StatusGone:
		return "its channel no longer exists: create a webhook for another channel in Slack and put its URL into the Secret"
	case status >= 300 && status < 400:
		return "redirects are not followed: put the webhook's final URL into the Secret"
	}
	return ""
}

// retryAfter parses a number of seconds (https://docs.slack.dev/apis/web-api/rate-limits) and bounds it.
func retryAfter(header string) time.Duration {
	seconds, err := strconv.ParseInt(strings.TrimSpace(header), 10, 32)
	if err != nil {
		return defaultRetryAfter
	}
	return min(max(time.Duration(seconds)*time.Second, minRetryAfter), maxRetryAfter)
}

// requestError returns Temporary if the message was certainly not sent, and UnknownOutcome otherwise.
func requestError(err error, sent bool) announce.Outcome {
	if sent {
		return announce.Outcome{
			Result: announce.UnknownOutcome, Reason: announce.ReasonAnswerLost,
			Message: "the message was sent to Slack, but Slack's answer was lost: " + reason(err),
		}
	}
	return announce.Outcome{
		Result: announce.Temporary, Reason: announce.ReasonNetwork,
		Message: "no connection to Slack: " + reason(err),
	}
}

// reason returns the text of a net/http error without the address that url.Error adds.
func reason(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "no answer in time"
	}
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err
	}
	return text.Truncate(err.Error(), 300)
}
