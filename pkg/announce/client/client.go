// Package client sends messages and exports from the manager to the notifier, and announces the manager's epoch to it.
//
// Every attempt ends within its deadline with an outcome, and the outcome is honest: a message that may have been sent is never reported as
// not sent. The package knows nothing about receivers.
//
// Of several notifiers, only one sends. The Service connects to any of them. Another one names the address of the one that sends, and the
// client repeats its request there.
package client

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
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/export"
	"github.com/scanner-operator/scanner-operator/workerapi/text"
)

// Deadline bounds one attempt. It is longer than the notifier's own limit (at most 5 s of waiting for its budget and 15 s for the
// receiver), so that the notifier's answer normally arrives.
const Deadline = 30 * time.Second

// maxAnswerBytes bounds how much of an answer is read. An Outcome is far smaller.
const maxAnswerBytes = 64 << 10

// maxErrorBytes bounds the text of an error, so that the whole message stays below announce.MaxMessageBytes.
const maxErrorBytes = 512

// Config holds the notifier's address and the client's credentials.
type Config struct {
	// URL is the notifier's address without a path, such as "https://scanner-operator-notifier.scanner-operator-system.svc".
	URL string
	// CA returns the CA certificates to verify the notifier with. It is called for every connection, so that they can be rotated.
	CA func() (*x509.CertPool, error)
	// TokenFile holds the token for announce.NotifierAudience. It is read for every request, since the kubelet renews it.
	TokenFile string
	// Epoch returns the manager's epoch, which each delivery carries; nil for the epoch 0.
	Epoch func() int64
	// Deadline bounds one attempt; 0 means the constant Deadline.
	Deadline time.Duration
}

// Client implements announce.Sender and export.Sender. It is safe for concurrent use.
type Client struct {
	config Config
	http   *http.Client
}

// New returns a Client. It opens no connection.
func New(config Config) *Client {
	if config.Deadline == 0 {
		config.Deadline = Deadline
	}
	transport := &http.Transport{
		DialTLSContext: dialer(config.CA),
		// The notifier runs in the same cluster, which a proxy to the internet does not reach.
		Proxy: nil,
		// Messages are minutes apart, so that an open connection gains nothing. With a new connection it is certain whether the request was
		// sent.
		DisableKeepAlives: true,
	}
	return &Client{config: config, http: &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// senderKey is the context's key for the address to connect to, instead of that of the URL.
type senderKey struct{}

// dialer returns a function that connects over TLS, with the CA certificates at the time of the connection. The certificate is always
// verified for the host in the URL.
func dialer(ca func() (*x509.CertPool, error)) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		pool, err := ca()
		if err != nil {
			return nil, fmt.Errorf("certificates to trust: %w", err)
		}
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		if sender, named := ctx.Value(senderKey{}).(string); named {
			address = sender
		}
		d := tls.Dialer{Config: &tls.Config{RootCAs: pool, ServerName: host, MinVersion: tls.VersionTLS12}}
		return d.DialContext(ctx, network, address)
	}
}

// Send asks the notifier to deliver a message and waits for the outcome, at most for the deadline. The outcome has announce.ReasonDeposed if
// the notifier has seen a higher epoch than the manager's; the message was then certainly not sent.
func (c *Client) Send(ctx context.Context, d announce.Delivery) announce.Outcome {
	return c.deliver(ctx, announce.DeliveryPath, d)
}

// SendExport asks the notifier to send a document to a tool, as Send does with a message.
func (c *Client) SendExport(ctx context.Context, r export.Request) announce.Outcome {
	return c.deliver(ctx, export.Path, r, func(h http.Header) { h.Set(export.NamespaceHeader, r.Receiver.Namespace) })
}

func (c *Client) deliver(ctx context.Context, path string, value any, headers ...func(http.Header)) announce.Outcome {
	body, err := json.Marshal(value)
	if err != nil {
		return unavailable(fmt.Errorf("encode the message: %w", err))
	}
	var epoch int64
	if c.config.Epoch != nil {
		epoch = c.config.Epoch()
	}
	answer, err := c.do(ctx, func(ctx context.Context) (*http.Request, error) {
		request, err := c.request(ctx, http.MethodPost, path, body)
		if err == nil && epoch != 0 {
			request.Header.Set(announce.EpochHeader, strconv.FormatInt(epoch, 10))
		}
		for _, add := range headers {
			if err == nil {
				add(request.Header)
			}
		}
		return request, err
	})
	switch {
	case err != nil && answer.sent:
		return answerLost(err)
	case err != nil:
		return unavailable(err)
	}
	return answer.outcome(epoch)
}

// BeginEpoch announces the epoch of a manager that begins to lead, at least 1. From then on the notifier refuses the managers that led before,
// even if this one has nothing to send. The error is an announce.DeposedError, which matches announce.ErrDeposed, if the notifier has seen a
// higher epoch. Retry after any other error. Deliveries need not wait for that, since each one carries the epoch.
func (c *Client) BeginEpoch(ctx context.Context, epoch int64) error {
	answer, err := c.do(ctx, func(ctx context.Context) (*http.Request, error) {
		return c.request(ctx, http.MethodPut, announce.EpochPath+strconv.FormatInt(epoch, 10), nil)
	})
	switch deposed := answer.deposed(epoch); {
	case err != nil:
		return fmt.Errorf("announce epoch %d to the notifier: %w", epoch, err)
	case deposed != nil:
		return deposed
	case answer.status != http.StatusNoContent:
		return fmt.Errorf("announce epoch %d to the notifier: %w", epoch, answer.unexpected())
	}
	return nil
}

// answer is the notifier's answer to a request.
type answer struct {
	// sent is true once the notifier may have the request, also if there is no answer.
	sent   bool
	status int
	body   []byte
	// sender is the address of the notifier that sends, if the answer is that of a standby.
	sender string
}

// do sends a request and reads its answer, within the deadline. A request that a standby refuses is repeated once, at the notifier that
// sends.
func (c *Client) do(ctx context.Context, newRequest func(context.Context) (*http.Request, error)) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, c.config.Deadline)
	defer cancel()
	first, err := c.doOnce(ctx, newRequest)
	if err != nil || first.sender == "" {
		return first, err
	}
	return c.doOnce(context.WithValue(ctx, senderKey{}, first.sender), newRequest)
}

func (c *Client) doOnce(ctx context.Context, newRequest func(context.Context) (*http.Request, error)) (answer, error) {
	var sent atomic.Bool
	request, err := newRequest(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		// Once the headers are written, the notifier may have the message.
		WroteHeaders: func() { sent.Store(true) },
	}))
	if err != nil {
		return answer{}, err
	}
	response, err := c.http.Do(request)
	if err != nil {
		return answer{sent: sent.Load()}, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswerBytes))
	a := answer{sent: true, status: response.StatusCode, body: body}
	if sender, invalid := netip.ParseAddrPort(response.Header.Get(announce.SenderHeader)); a.status == http.StatusServiceUnavailable && invalid == nil {
		a.sender = sender.String()
	}
	return a, err
}

func (c *Client) request(ctx context.Context, method, path string, body []byte) (*http.Request, error) {
	token, err := os.ReadFile(c.config.TokenFile)
	if err != nil {
		return nil, fmt.Errorf("token for the notifier: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(c.config.URL, "/")+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("address of the notifier: %w", err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	return request, nil
}

// outcome decodes the answer to a delivery. announce.DeliveryPath documents the status codes.
func (a answer) outcome(epoch int64) announce.Outcome {
	switch a.status {
	case http.StatusOK, http.StatusTooManyRequests, http.StatusUnprocessableEntity, http.StatusBadGateway, http.StatusGatewayTimeout:
		var o announce.Outcome
		// A contradictory answer does not count as a delivery.
		if err := json.Unmarshal(a.body, &o); err == nil && announce.StatusCodes[o.Result] == a.status {
			return o
		}
		// A proxy between manager and notifier answered, or the notifier has another version.
		return answerLost(fmt.Errorf("status %d without an outcome", a.status))
	}
	if deposed := a.deposed(epoch); deposed != nil {
		return announce.Outcome{Result: announce.Temporary, Reason: announce.ReasonDeposed, Message: deposed.Error()}
	}
	return unavailable(a.unexpected())
}

// deposed returns the error if the notifier refuses the epoch; nil otherwise.
func (a answer) deposed(epoch int64) error {
	var refusal announce.EpochRefusal
	isRefusal := a.status == http.StatusConflict && json.Unmarshal(a.body, &refusal) == nil && refusal.Reason == announce.ReasonDeposed
	if isRefusal {
		return &announce.DeposedError{Epoch: epoch, Current: refusal.Epoch}
	}
	return nil
}

// unexpected returns the error for an answer that is no outcome: the notifier has not sent the message.
func (a answer) unexpected() error {
	switch a.status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return fmt.Errorf("the notifier does not accept the manager's token (status %d): see its flag --manager-service-account", a.status)
	case http.StatusBadRequest, http.StatusNotFound, http.StatusRequestEntityTooLarge:
		return fmt.Errorf("the notifier does not understand the manager (status %d): are both of the same version?", a.status)
	}
	if a.status == http.StatusServiceUnavailable {
		return fmt.Errorf("the notifier is not able to send: %s", strings.TrimSpace(string(a.body)))
	}
	return fmt.Errorf("the notifier answers with status %d: see its log", a.status)
}

func unavailable(err error) announce.Outcome {
	return announce.Outcome{Result: announce.Temporary, Reason: announce.ReasonNotifierUnavail, Message: "the notifier cannot be reached: " + errorText(err)}
}

func answerLost(err error) announce.Outcome {
	return announce.Outcome{Result: announce.UnknownOutcome, Reason: announce.ReasonAnswerLost, Message: "the notifier's answer was lost: " + errorText(err)}
}

// errorText returns an error's text for people, at most maxErrorBytes.
func errorText(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "no answer in time"
	}
	return text.Truncate(err.Error(), maxErrorBytes)
}
