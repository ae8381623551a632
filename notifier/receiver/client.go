package receiver

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/egress"
	"github.com/scanner-operator/scanner-operator/workerapi/text"
)

// Timeout bounds one delivery to a receiver. Receivers that send two requests for one message send both within it.
const Timeout = 15 * time.Second

// Bounds of a receiver's Retry-After.
const (
	// defaultRetryAfter applies to an answer that requests a wait without a usable Retry-After.
	defaultRetryAfter = 30 * time.Second
	minRetryAfter     = time.Second
	maxRetryAfter     = time.Hour
)

// Bounds of what is read of an answer, in bytes. Slack's API answers with the message that was posted.
const (
	maxAnswerBytes       = 1 << 20
	maxAnswerHeaderBytes = 64 << 10
)

// Network holds the network settings for requests to receivers.
type Network struct {
	// Roots returns the CA certificates to trust for the next connection; nil for the system's.
	Roots func() *x509.CertPool
	// Proxy returns the proxy for a request; nil to use no proxy at all. A proxy resolves the receiver's name itself, so that it decides about
	// addresses. Its own address is not checked.
	Proxy func(*http.Request) (*url.URL, error)
}

// authorities returns the CA certificates to trust now; nil for the system's.
func (n Network) authorities() *x509.CertPool {
	if n.Roots == nil {
		return nil
	}
	return n.Roots()
}

// Trusting returns a function for Network.Roots that always returns the same certificates.
func Trusting(roots *x509.CertPool) func() *x509.CertPool {
	return func() *x509.CertPool { return roots }
}

// Client sends requests to receivers of one type. It is safe for concurrent use.
type Client struct {
	name    string
	network Network
	// roundTripper returns what sends one request: transport, but in tests.
	roundTripper func(request *http.Request, to Address) http.RoundTripper
}

// NewClient returns a Client whose outcomes call the receiver by a name, such as "Slack" or "the webhook".
func NewClient(name string, network Network) *Client {
	c := &Client{name: name, network: network}
	c.roundTripper = func(request *http.Request, to Address) http.RoundTripper { return c.transport(request, to) }
	return c
}

// Answer is a receiver's answer to a request.
type Answer struct {
	Status int
	Header http.Header
	// Body is the beginning of the body. BodyError is set if it could not be read to its end or its bound.
	Body      []byte
	BodyError error
	// Sent is the size of the request's body in bytes.
	Sent int
}

// Post sends a body to the address's target with POST, once, within the context's deadline. Of the address's credentials it uses the certificates
// only. It returns the answer, or an outcome if there is none. The outcome does not contain the target's URL or a header.
func (c *Client) Post(ctx context.Context, to Address, header http.Header, body []byte) (Answer, *announce.Outcome) {
	return c.PostStream(ctx, to, header, bytes.NewReader(body), len(body))
}

// PostStream is Post for a body of size bytes that is not in memory as a whole.
func (c *Client) PostStream(ctx context.Context, to Address, header http.Header, body io.Reader, size int) (Answer, *announce.Outcome) {
	var sent, isLate atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		WroteHeaders: func() { sent.Store(true) },
		// A server can answer when its request ends, and then means nothing by it. net/http uses such an answer if it comes while the connection
		// is being closed.
		GotFirstResponseByte: func() { isLate.Store(ctx.Err() != nil) },
	})
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, to.Target.URL(), body)
	if err != nil {
		// err quotes the address.
		return Answer{}, &announce.Outcome{Result: announce.Permanent, Reason: announce.ReasonInvalidURL, Message: "the address of " + c.name + " is not a URL"}
	}
	request.Header, request.ContentLength = header, int64(size)
	client := &http.Client{
		Transport:     c.roundTripper(request, to),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	response, err := client.Do(request)
	if err != nil {
		return Answer{}, c.Failure(err, sent.Load())
	}
	defer response.Body.Close()
	if isLate.Load() {
		return Answer{}, c.Failure(context.DeadlineExceeded, true)
	}
	// The status counts, even if the body cannot be read.
	beginning, err := io.ReadAll(io.LimitReader(response.Body, maxAnswerBytes))
	return Answer{Status: response.StatusCode, Header: response.Header, Body: beginning, BodyError: err, Sent: size}, nil
}

// transport returns a transport for one request. With a new connection for each request it is certain whether the request was sent.
func (c *Client) transport(request *http.Request, to Address) *http.Transport {
	dialer := &net.Dialer{Timeout: Timeout, Control: to.Target.Control}
	transport := &http.Transport{
		TLSClientConfig:        c.network.TLS(to.Certificates),
		DisableKeepAlives:      true,
		MaxResponseHeaderBytes: maxAnswerHeaderBytes,
	}
	if c.network.Proxy != nil {
		proxy, err := c.network.Proxy(request)
		transport.Proxy = func(*http.Request) (*url.URL, error) { return proxy, err }
		if proxy != nil {
			dialer.Control = nil
			// The receiver's certificates say nothing about a proxy with TLS, which belongs to the administrator.
			transport.DialTLSContext = (&tls.Dialer{NetDialer: dialer, Config: c.network.TLS(Certificates{})}).DialContext
		}
	}
	transport.DialContext = dialer.DialContext
	return transport
}

// Outcome converts an answer by its status. word is what the answer says about a failure, by Word or Details; "" for nothing. advice tells the user what to
// do about a status; "" for no advice.
func (c *Client) Outcome(a Answer, word, advice string) announce.Outcome {
	switch {
	case a.IsOK() && a.isPage():
		return c.Foreign(a)
	case a.IsOK():
		return announce.Outcome{Result: announce.Delivered}
	case a.IsRateLimited():
		return c.RateLimited(a.Header)
	case IsTemporary(a.Status):
		return announce.Outcome{Result: announce.Temporary, Reason: announce.ReasonReceiverFailed, Message: c.Quote(a.Status, word)}
	case a.Status >= 300 && a.Status < 400:
		advice = cmp.Or(advice, "redirects are not followed: put the final URL into the Secret")
	case a.Status == http.StatusRequestEntityTooLarge:
		advice = fmt.Sprintf("the message has %d KiB, more than the receiver or a proxy in front of it accepts: raise the limit there to 1 MiB "+
			"(nginx: client_max_body_size)", (a.Sent+1023)/1024)
	}
	message := c.Quote(a.Status, word)
	if advice != "" {
		message += "; " + advice
	}
	return announce.Outcome{Result: announce.Permanent, Reason: announce.ReasonReceiverRefused, Message: message}
}

// Foreign returns the outcome for an answer that reports success, and that no receiver of the type gives. A proxy that blocks or signs in answers
// so, often with a page of its own. Whether the receiver has the message is not known. An answer that is cut short may have been the receiver's.
func (c *Client) Foreign(a Answer) announce.Outcome {
	if a.BodyError != nil {
		return *c.Failure(a.BodyError, true)
	}
	return announce.Outcome{
		Result: announce.UnknownOutcome, Reason: announce.ReasonAnswerLost,
		Message: fmt.Sprintf("the message was sent, but the answer is not one of %[1]s: is there a proxy between the notifier and %[1]s, or is the address another server's?", c.name),
	}
}

// IsOK reports whether the status is one of success. What the receiver means by it may also depend on the body.
func (a Answer) IsOK() bool { return a.Status >= 200 && a.Status < 300 }

// isPage reports whether the answer is a page for people, which no receiver of messages gives.
func (a Answer) isPage() bool {
	const byteOrderMark = "\xef\xbb\xbf"
	text := bytes.TrimSpace(bytes.TrimPrefix(a.Body, []byte(byteOrderMark)))
	return bytes.HasPrefix(text, []byte("<")) && pageElement.Match(text[:min(len(text), 2048)])
}

// pageElement matches an element at the beginning of pages, before which there can be comments and instructions.
var pageElement = regexp.MustCompile(`(?i)<(!doctype html|html|head|body|meta|script)[\s>]`)

// IsRateLimited reports whether an answer requests a wait.
func (a Answer) IsRateLimited() bool {
	return a.Status == http.StatusTooManyRequests || a.Status == http.StatusServiceUnavailable && a.Header.Get("Retry-After") != ""
}

// RateLimited returns the outcome for an answer that requests a wait.
func (c *Client) RateLimited(header http.Header) announce.Outcome {
	wait := retryAfter(header.Get("Retry-After"))
	return announce.Outcome{
		Result: announce.RateLimited, Reason: announce.ReasonReceiverLimited,
		Message: fmt.Sprintf("%s requests a wait of %s", c.name, wait), RetryAfter: wait,
	}
}

// IsTemporary reports whether a status is about a problem that ends without the user.
func IsTemporary(status int) bool {
	return status >= 500 || status == http.StatusRequestTimeout || status == http.StatusTooEarly
}

// Quote returns a receiver's status, and what the answer says by Word or Details.
func (c *Client) Quote(status int, word string) string {
	quoted := strings.TrimSpace(fmt.Sprintf("%s answers %d %s", c.name, status, http.StatusText(status)))
	if word != "" {
		quoted += ": " + word
	}
	return quoted
}

// IsWord reports whether a text can be one or a few words such as "invalid_blocks", so that it may be quoted.
func IsWord(text string) bool {
	return text != "" && len(text) <= 100 && !strings.ContainsFunc(text, func(r rune) bool { return !isWordRune(r) })
}

func isWordRune(r rune) bool {
	return r == '_' || r == '-' || r == ' ' || r == '.' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
}

// retryAfter parses a number of seconds (https://www.rfc-editor.org/rfc/rfc9110#field.retry-after) and bounds it. A date counts as no number: the
// clock of the receiver is not known.
func retryAfter(header string) time.Duration {
	seconds, err := strconv.ParseInt(strings.TrimSpace(header), 10, 32)
	if err != nil {
		return defaultRetryAfter
	}
	return min(max(time.Duration(seconds)*time.Second, minRetryAfter), maxRetryAfter)
}

// Failure returns the outcome for an error without an answer: Permanent for an address that is not allowed, Temporary if the message was
// certainly not sent, and UnknownOutcome otherwise.
func (c *Client) Failure(err error, sent bool) *announce.Outcome {
	switch {
	case errors.Is(err, egress.ErrAddress):
		return &announce.Outcome{
			Result: announce.Permanent, Reason: announce.ReasonInvalidURL,
			Message: fmt.Sprintf("the host of %s has an address that may not be connected to: %s. %s", c.name, reason(err), AskForNetwork),
		}
	case isAlert(err, certificateAlerts...):
		return &announce.Outcome{
			Result: announce.Permanent, Reason: announce.ReasonReceiverRefused,
			Message: fmt.Sprintf("%s requires a client certificate that it accepts (%s): check %s", c.name, reason(err), clientKeys),
		}
	case sent:
		return &announce.Outcome{
			Result: announce.UnknownOutcome, Reason: announce.ReasonAnswerLost,
			Message: fmt.Sprintf("the message was sent to %[1]s, but %[1]s's answer was lost: %[2]s", c.name, reason(err)),
		}
	}
	message := fmt.Sprintf("no connection to %s: %s", c.name, reason(err))
	if _, isUnknown := errors.AsType[x509.UnknownAuthorityError](err); isUnknown {
		message += "; if its certificate is from a CA of your own, put that CA's certificate into the key " + AuthoritiesKey + " of the Secret"
	} else if isAlert(err, handshakeFailure) {
		message += "; if it requires a client certificate, check " + clientKeys
	}
	return &announce.Outcome{Result: announce.Temporary, Reason: announce.ReasonNetwork, Message: message}
}

const clientKeys = "the keys " + ClientCertificateKey + " and " + ClientKeyKey + " of the Secret"

// certificateAlerts are those with which a server refuses a client for its certificate, or because it has none
// (https://www.rfc-editor.org/rfc/rfc8446#section-6.2). With TLS 1.3, the client gets them after it has sent the request, which the server does not read.
var certificateAlerts = []tls.AlertError{42, 43, 44, 45, 46, 48, 49, 116}

// handshakeFailure has many causes. With TLS 1.2, one of them is that the client has no certificate.
const handshakeFailure tls.AlertError = 40

// isAlert reports whether a server has ended the connection with one of some alerts.
func isAlert(err error, alerts ...tls.AlertError) bool {
	remote, found := errors.AsType[*net.OpError](err)
	return found && remote.Op == "remote error" && slices.ContainsFunc(alerts, func(a tls.AlertError) bool { return a.Error() == remote.Err.Error() })
}

// Advice about the administrator's list of hosts and networks.
const (
	AskForHost    = "Have the administrator add the host to the notifier's --allowed-webhook-hosts (Helm: notifier.allowedWebhookHosts)"
	AskForNetwork = "If that is right, have the administrator add the network to the notifier's --allowed-webhook-hosts (Helm: notifier.allowedWebhookHosts)"
)

// reason returns the text of a net/http error without the URL that url.Error adds.
func reason(err error) string {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
		return "no answer in time"
	}
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err
	}
	return text.Truncate(err.Error(), 300)
}
