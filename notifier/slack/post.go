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

	"github.com/scanner-operator/scanner-operator/pkg/notify"
)

// Timeout bounds one request to Slack.
const Timeout = 15 * time.Second

// Bounds of Slack's Retry-After.
const (
	// defaultRetryAfter is for a 429 that does not say how long.
	defaultRetryAfter = 30 * time.Second
	minRetryAfter     = time.Second
	maxRetryAfter     = time.Hour
)

// maxAnswerBytes is more than Slack's answers have: "ok", or one word such as "no_service".
const maxAnswerBytes = 4 << 10

// Poster posts messages to Slack's incoming webhooks. It is safe for concurrent use.
type Poster struct {
	http *http.Client
}

// NewPoster returns a Poster that trusts the given certificates and honours the proxy function. It follows no
// redirects: an answer that leads elsewhere must not take a secret address along.
func NewPoster(roots *x509.CertPool, proxy func(*http.Request) (*url.URL, error)) *Poster {
	return &Poster{http: &http.Client{
		Transport: &http.Transport{
			Proxy:           proxy,
			DialContext:     (&net.Dialer{Timeout: Timeout}).DialContext,
			TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
			// On a connection of its own it is certain whether a request was sent.
			DisableKeepAlives: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Post sends a message to a webhook, once, and says what became of it. The webhook's address, which is a
// secret, is in nothing that it returns.
func (p *Poster) Post(ctx context.Context, webhook string, d notify.Digest) notify.Outcome {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	var sent atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { sent.Store(true) }})

	body, err := json.Marshal(Render(d))
	if err != nil {
		return notify.Outcome{Result: notify.Permanent, Reason: notify.ReasonReceiverRefused, Message: "the message cannot be encoded"}
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, webhook, bytes.NewReader(body))
	if err != nil {
		// The error would quote the address.
		return notify.Outcome{Result: notify.Permanent, Reason: notify.ReasonInvalidURL, Message: "the webhook's address is not a URL"}
	}
	request.Header.Set("Content-Type", "application/json")
	// slack-go's own poster is not used: it drops Slack's words and whether the request was sent.
	response, err := p.http.Do(request)
	if err != nil {
		return failed(err, sent.Load())
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswerBytes))
	if err != nil && response.StatusCode == http.StatusOK {
		// The status alone says that Slack took it.
		answer = nil
	}
	return answered(response, string(answer))
}

// answered reads Slack's answer (https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks#handling_errors).
func answered(response *http.Response, answer string) notify.Outcome {
	status := response.StatusCode
	switch {
	case status == http.StatusOK:
		return notify.Outcome{Result: notify.Delivered}
	case status == http.StatusTooManyRequests:
		wait := retryAfter(response.Header.Get("Retry-After"))
		return notify.Outcome{
			Result: notify.RateLimited, Reason: notify.ReasonReceiverLimited,
			Message: fmt.Sprintf("Slack asks to wait %s (429 Too Many Requests)", wait), RetryAfter: wait,
		}
	case status >= 500, status == http.StatusRequestTimeout, status == http.StatusTooEarly:
		return notify.Outcome{Result: notify.Temporary, Reason: notify.ReasonReceiverFailed, Message: slackSays(status, answer)}
	}
	message := slackSays(status, answer)
	if advice := adviceFor(status); advice != "" {
		message += "; " + advice
	}
	return notify.Outcome{Result: notify.Permanent, Reason: notify.ReasonReceiverRefused, Message: message}
}

// slackSays quotes Slack. Its words are short; anything else is the page of a proxy, and is not shown, since
// such pages like to repeat the address.
func slackSays(status int, answer string) string {
	answer = strings.TrimSpace(answer)
	says := fmt.Sprintf("Slack answers %d %s", status, http.StatusText(status))
	if answer == "" || len(answer) > 100 || strings.ContainsFunc(answer, func(r rune) bool { return !isWordRune(r) }) {
		return strings.TrimSpace(says)
	}
	return strings.TrimSpace(says) + ": " + answer
}

// isWordRune allows Slack's words, such as "invalid_blocks", and no address.
func isWordRune(r rune) bool {
	return r == '_' || r == '-' || r == ' ' || r == '.' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
}

func adviceFor(status int) string {
	switch {
	case status == http.StatusForbidden, status == http.StatusNotFound:
		return "the webhook was revoked or may not post there: make a new one in Slack and put its URL into the Secret"
	case status == http.StatusGone:
		return "its channel is gone: make a webhook for another one in Slack and put its URL into the Secret"
	case status >= 300 && status < 400:
		return "redirects are not followed: put the webhook's final URL into the Secret"
	}
	return ""
}

// retryAfter reads seconds (https://docs.slack.dev/apis/web-api/rate-limits) and bounds them.
func retryAfter(header string) time.Duration {
	seconds, err := strconv.ParseInt(strings.TrimSpace(header), 10, 32)
	if err != nil {
		return defaultRetryAfter
	}
	return min(max(time.Duration(seconds)*time.Second, minRetryAfter), maxRetryAfter)
}

// failed tells "not sent" from "sent, answer lost". In doubt it was sent.
func failed(err error, sent bool) notify.Outcome {
	if sent {
		return notify.Outcome{
			Result: notify.UnknownOutcome, Reason: notify.ReasonAnswerLost,
			Message: "the message was sent to Slack, but its answer was lost: " + reason(err),
		}
	}
	return notify.Outcome{
		Result: notify.Temporary, Reason: notify.ReasonNetwork,
		Message: "no connection to Slack: " + reason(err),
	}
}

// reason is an error of net/http without the address that it wraps around.
func reason(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "no answer in time"
	}
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err
	}
	return clip(err.Error(), 300)
}
