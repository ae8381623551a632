package ingest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/scanner-operator/scanner-operator/registry/failure"
	"github.com/scanner-operator/scanner-operator/worker/clock"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// Deadline is how long a call is retried while the server is unavailable. It is longer than a restart of
// the manager with a change of leader, and shorter than anyone would wait for the result.
const Deadline = 10 * time.Minute

// Bounds of one request: attemptTimeout includes large uploads, and shortTimeout long polls, which take at most a minute.
const (
	attemptTimeout = 5 * time.Minute
	shortTimeout   = 90 * time.Second
)

// silence is how long a connection may be silent before a ping, and how long the answer to the ping may take. If the server's node is gone,
// nothing ends its connections, and a long poll would otherwise wait for attemptTimeout.
const silence = 20 * time.Second

// Config describes how to connect to the ingest API.
type Config struct {
	// Server is the base URL of the API, https only.
	Server string
	// CA is the PEM bundle that the server's certificate is verified with. No other CA is trusted.
	CA string
	// TokenFile holds the bearer token.
	TokenFile string
	// Dial opens connections; nil means a net.Dialer with connectTimeout.
	Dial  func(ctx context.Context, network, address string) (net.Conn, error)
	Clock clock.Clock
	Log   *slog.Logger
}

// Client calls the ingest API. It is safe for concurrent use.
type Client struct {
	config Config
	base   *url.URL
	http   *http.Client
}

// New returns a client, or an error that names the unusable part of the configuration.
func New(config Config) (*Client, error) {
	base, err := url.Parse(config.Server)
	if err != nil || base.Scheme != "https" || base.Host == "" || base.User != nil {
		return nil, fmt.Errorf("%s must be an https URL without credentials", workerapi.EnvServer)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(config.CA)) {
		return nil, fmt.Errorf("%s must hold at least one certificate in PEM format", workerapi.EnvServerCA)
	}
	if config.Dial == nil {
		config.Dial = (&net.Dialer{Timeout: connectTimeout}).DialContext
	}
	return &Client{config: config, base: base, http: &http.Client{
		Timeout: attemptTimeout,
		// The server is in the cluster. Proxies are for registries, and must not see the token.
		Transport: &http.Transport{
			Proxy:               nil,
			DialContext:         config.Dial,
			TLSClientConfig:     &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
			TLSHandshakeTimeout: 15 * time.Second,
			// How long a large body is held back until the server asks for it, so that the server can refuse it unread.
			ExpectContinueTimeout: 5 * time.Second,
			IdleConnTimeout:       30 * time.Second,
			ForceAttemptHTTP2:     true,
			HTTP2:                 &http.HTTP2Config{SendPingTimeout: silence, PingTimeout: silence},
		},
		// Following a redirect would send the token to another server.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Post sends in as JSON and decodes the answer into out, which may be nil.
func (c *Client) Post(ctx context.Context, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	post := callWithBytes(http.MethodPost, path, workerapi.ContentTypeJSON, body)
	post.short = true
	if out != nil {
		post.read = func(answer io.Reader) error {
			return json.NewDecoder(io.LimitReader(answer, workerapi.MaxJSONBytes)).Decode(out)
		}
	}
	return c.call(ctx, post)
}

// Part is a part of a body. Open may be called several times, and returns the part from its start.
type Part struct {
	Size int64
	Open func() (io.ReadCloser, error)
}

// Bytes returns a part in memory.
func Bytes(content []byte) Part {
	return Part{Size: int64(len(content)), Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil }}
}

// File returns a part in a file of the given size.
func File(path string, size int64) Part {
	return Part{Size: size, Open: func() (io.ReadCloser, error) { return os.Open(path) }}
}

// PutParts uploads parts, one after the other, as one body. It reads each part twice, since the digest is sent before the body.
func (c *Client) PutParts(ctx context.Context, path, contentType string, parts ...Part) error {
	sum := sha256.New()
	body, err := openParts(parts)
	if err != nil {
		return err
	}
	size, err := io.Copy(sum, body)
	if err := errors.Join(err, body.Close()); err != nil {
		return err
	}
	return c.call(ctx, call{
		method: http.MethodPut, path: path, contentType: contentType, size: size, digest: "sha256:" + hex.EncodeToString(sum.Sum(nil)),
		open: func() (io.ReadCloser, error) { return openParts(parts) }, large: true,
	})
}

// openParts returns the parts as one body.
func openParts(parts []Part) (io.ReadCloser, error) {
	body := &multiReadCloser{}
	var readers []io.Reader
	for _, part := range parts {
		reader, err := part.Open()
		if err != nil {
			return nil, errors.Join(err, body.Close())
		}
		body.closers = append(body.closers, reader)
		readers = append(readers, reader)
	}
	body.Reader = io.MultiReader(readers...)
	return body, nil
}

type multiReadCloser struct {
	io.Reader
	closers []io.Closer
}

// Close implements io.Closer.
func (m *multiReadCloser) Close() error {
	var errs []error
	for _, closer := range m.closers {
		errs = append(errs, closer.Close())
	}
	return errors.Join(errs...)
}

// PutBytes uploads a zstd-compressed document.
func (c *Client) PutBytes(ctx context.Context, path string, body []byte) error {
	return c.call(ctx, callWithBytes(http.MethodPut, path, workerapi.ContentTypeZstd, body))
}

// Get passes the body of an answer to read. If the transfer breaks, Get calls read again with the body from its start.
func (c *Client) Get(ctx context.Context, path string, read func(io.Reader) error) error {
	return c.call(ctx, call{method: http.MethodGet, path: path, read: read})
}

// call is a request that is sent as often as necessary.
type call struct {
	method, path, contentType, digest string
	size                              int64
	// large holds the body back until the server asks for it. A server can refuse such a body unread.
	large bool
	// short means that the request takes no longer than shortTimeout.
	short bool
	// open returns the body from its start; nil if there is none.
	open func() (io.ReadCloser, error)
	// read receives the answer's body; nil if the body is ignored.
	read func(io.Reader) error
}

// callWithBytes returns a call with a body in memory.
func callWithBytes(method, path, contentType string, body []byte) call {
	sum, part := sha256.Sum256(body), Bytes(body)
	return call{method: method, path: path, contentType: contentType, digest: "sha256:" + hex.EncodeToString(sum[:]), size: part.Size, open: part.Open}
}

// attempt sends the request once.
func (c *Client) attempt(ctx context.Context, call call) error {
	if call.short {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, shortTimeout)
		defer cancel()
	}
	request, err := c.request(ctx, call)
	if err != nil {
		return err
	}
	response, err := c.http.Do(request)
	// A request without an answer may succeed later: the server restarts, its certificate is rotated, or a network policy
	// is not in force yet.
	if err != nil {
		return &temporary{err: err}
	}
	defer response.Body.Close()
	if response.StatusCode < 200 || response.StatusCode > 299 {
		return statusError(response, c.config.Clock.Now())
	}
	if call.read == nil {
		return nil
	}
	return call.read(&transferReader{from: response.Body})
}

// request returns the HTTP request with the current token.
func (c *Client) request(ctx context.Context, call call) (*http.Request, error) {
	token, err := os.ReadFile(c.config.TokenFile)
	if err != nil {
		return nil, fmt.Errorf("reading the service account token: %w", err)
	}
	var body io.ReadCloser
	if call.open != nil {
		if body, err = call.open(); err != nil {
			return nil, err
		}
	}
	request, err := http.NewRequestWithContext(ctx, call.method, c.base.JoinPath(call.path).String(), body)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	// The length is known, so that a proxy or server can refuse a body before it is sent.
	if call.open != nil {
		request.ContentLength = call.size
		request.Header.Set("Content-Type", call.contentType)
		request.Header.Set(workerapi.DigestHeader, call.digest)
		if call.large {
			request.Header.Set("Expect", "100-continue")
		}
	}
	return request, nil
}

// transferReader marks a broken transfer as temporary, unlike an error in processing its content.
type transferReader struct{ from io.Reader }

// Read implements io.Reader.
func (r *transferReader) Read(p []byte) (int, error) {
	n, err := r.from.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = &temporary{err: err}
	}
	return n, err
}

// StatusError is an answer of the server that is not a success.
type StatusError struct {
	// Code is the HTTP status.
	Code int
	// Message is the text of the answer in one line; may be empty.
	Message string
}

// Error returns the HTTP status with its name, so that users can look it up, and the server's message.
func (e *StatusError) Error() string {
	return strings.TrimSpace(fmt.Sprintf("the ingest API answered %d %s: %s", e.Code, http.StatusText(e.Code), e.Message))
}

// HasStatus reports whether the server answered with this HTTP status.
func HasStatus(err error, code int) bool {
	var status *StatusError
	return errors.As(err, &status) && status.Code == code
}

// IsGone reports whether the server no longer accepts the request because the lease or the Job does not belong to this worker any more.
func IsGone(err error) bool {
	var status *StatusError
	return errors.As(err, &status) &&
		(status.Code == http.StatusNotFound || status.Code == http.StatusConflict || status.Code == http.StatusGone)
}

// IsRefused reports whether the server answered with a status that is a refusal: below 500, and not one that a retry may resolve. A call that
// was retried until its deadline is never refused, whatever the last answer was.
func IsRefused(err error) bool {
	var status *StatusError
	var again *temporary
	return errors.As(err, &status) && status.Code < http.StatusInternalServerError && !errors.As(err, &again)
}

// statusError returns the error for an answer that is not a success. The error is temporary if a retry may succeed.
func statusError(response *http.Response, now time.Time) error {
	text, _ := io.ReadAll(io.LimitReader(response.Body, 512))
	// 512 bytes hold a sentence. The rest does not belong in a log.
	status := &StatusError{Code: response.StatusCode, Message: failure.Line(string(text))}
	switch {
	case status.Code >= http.StatusInternalServerError,
		status.Code == http.StatusTooManyRequests, status.Code == http.StatusRequestTimeout:
		return &temporary{err: status, after: retryAfter(response.Header.Get("Retry-After"), now)}
	}
	return status
}
