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

// DefaultDeadline is how long a server may be away before the work is given up: longer than a restart of
// the manager with a change of leader, shorter than what anyone would wait for.
const DefaultDeadline = 10 * time.Minute

// attemptTimeout bounds one request, long polls and large uploads included.
const attemptTimeout = 5 * time.Minute

// Config says where the ingest API is.
type Config struct {
	// Server is its base URL, https only.
	Server string
	// CA is the PEM bundle that its certificate is verified with; no other authority counts.
	CA string
	// TokenFile holds the bearer token.
	TokenFile string
	// Deadline for a call with all its repetitions; 0 means DefaultDeadline.
	Deadline time.Duration
	// Dial makes connections; nil for the network.
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

// New returns a client, or says which part of the configuration is not usable.
func New(config Config) (*Client, error) {
	base, err := url.Parse(config.Server)
	if err != nil || base.Scheme != "https" || base.Host == "" || base.User != nil {
		return nil, fmt.Errorf("%s must be an https URL without credentials", workerapi.EnvServer)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(config.CA)) {
		return nil, fmt.Errorf("%s must hold at least one certificate in PEM format", workerapi.EnvServerCA)
	}
	if config.Deadline == 0 {
		config.Deadline = DefaultDeadline
	}
	if config.Dial == nil {
		config.Dial = (&net.Dialer{Timeout: connectTimeout}).DialContext
	}
	return &Client{config: config, base: base, http: &http.Client{
		Timeout: attemptTimeout,
		// The server is in the cluster: proxies are for registries and must not see the token.
		Transport: &http.Transport{
			Proxy:               nil,
			DialContext:         config.Dial,
			TLSClientConfig:     &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
			TLSHandshakeTimeout: 15 * time.Second,
			// How long a body is held back for a server that may refuse it unread.
			ExpectContinueTimeout: 5 * time.Second,
			IdleConnTimeout:       30 * time.Second,
			ForceAttemptHTTP2:     true,
		},
		// A redirect would carry the token elsewhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Deadline is how long a call may take with all its repetitions.
func (c *Client) Deadline() time.Duration { return c.config.Deadline }

// Post sends in as JSON and decodes the answer into out, which may be nil.
func (c *Client) Post(ctx context.Context, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(body)
	return c.call(ctx, call{
		method: http.MethodPost, path: path, contentType: workerapi.ContentTypeJSON,
		size: int64(len(body)), digest: "sha256:" + hex.EncodeToString(sum[:]),
		open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil },
		read: func(answer io.Reader) error { return decode(answer, out) },
	})
}

// decode reads a bounded answer.
func decode(answer io.Reader, out any) error {
	if out == nil {
		return nil
	}
	return json.NewDecoder(io.LimitReader(answer, workerapi.MaxJSONBytes)).Decode(out)
}

// Part is a piece of a body. It can be opened again from its start.
type Part struct {
	Size int64
	Open func() (io.ReadCloser, error)
}

// Bytes is a part in memory.
func Bytes(content []byte) Part {
	return Part{Size: int64(len(content)), Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil }}
}

// File is a part in a file of the given size.
func File(path string, size int64) Part {
	return Part{Size: size, Open: func() (io.ReadCloser, error) { return os.Open(path) }}
}

// PutParts uploads parts, one after the other, as one body. Each is read twice: its digest goes first.
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

// openParts gives the parts as one body.
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
	sum := sha256.Sum256(body)
	return c.call(ctx, call{
		method: http.MethodPut, path: path, contentType: workerapi.ContentTypeZstd,
		size: int64(len(body)), digest: "sha256:" + hex.EncodeToString(sum[:]),
		open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil },
	})
}

// Get passes the body of an answer to read, which is called again from the start if the transfer breaks.
func (c *Client) Get(ctx context.Context, path string, read func(io.Reader) error) error {
	return c.call(ctx, call{method: http.MethodGet, path: path, read: read})
}

// call is one request as often as it has to be made.
type call struct {
	method, path, contentType, digest string
	size                              int64
	// large bodies are sent when the server asks for them, and not to one that refuses them unread.
	large bool
	// open gives the body from its start; nil for none.
	open func() (io.ReadCloser, error)
	// read takes the answer; nil if it does not matter.
	read func(io.Reader) error
}

// attempt makes the request once.
func (c *Client) attempt(ctx context.Context, call call) error {
	request, err := c.request(ctx, call)
	if err != nil {
		return err
	}
	response, err := c.http.Do(request)
	// Whatever keeps the request from being answered may pass: a restart, a rotated certificate, a network policy
	// that is not in force yet.
	if err != nil {
		return &temporary{err: err}
	}
	defer response.Body.Close()
	if response.StatusCode < 200 || response.StatusCode > 299 {
		return refusal(response, c.config.Clock.Now())
	}
	if call.read == nil {
		return nil
	}
	return call.read(&transferReader{from: response.Body})
}

// request makes the HTTP request with the token that is valid now.
func (c *Client) request(ctx context.Context, call call) (*http.Request, error) {
	var body io.ReadCloser
	if call.open != nil {
		opened, err := call.open()
		if err != nil {
			return nil, err
		}
		body = opened
	}
	request, err := http.NewRequestWithContext(ctx, call.method, c.base.JoinPath(call.path).String(), body)
	if err != nil {
		return nil, err
	}
	token, err := os.ReadFile(c.config.TokenFile)
	if err != nil {
		if body != nil {
			body.Close()
		}
		return nil, fmt.Errorf("reading the service account token: %w", err)
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

// transferReader tells a broken transfer from a problem of whoever reads it.
type transferReader struct{ from io.Reader }

// Read implements io.Reader.
func (r *transferReader) Read(p []byte) (int, error) {
	n, err := r.from.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = &temporary{err: err}
	}
	return n, err
}

// StatusError is a refusal by the server.
type StatusError struct {
	// Code is the HTTP status.
	Code int
	// Message is what the server says about it, in one line; may be empty.
	Message string
}

// Error names the status, so that users can look it up, and what the server says about it.
func (e *StatusError) Error() string {
	return strings.TrimSpace(fmt.Sprintf("the ingest API answered %d %s: %s", e.Code, http.StatusText(e.Code), e.Message))
}

// Answered says that the server's answer was this HTTP status.
func Answered(err error, code int) bool {
	var status *StatusError
	return errors.As(err, &status) && status.Code == code
}

// Gone says that the server no longer wants this: the lease or the Job is not its own any more.
func Gone(err error) bool {
	var status *StatusError
	return errors.As(err, &status) &&
		(status.Code == http.StatusNotFound || status.Code == http.StatusConflict || status.Code == http.StatusGone)
}

// Refused says that the server said no, rather than that it was away.
func Refused(err error) bool {
	var status *StatusError
	return errors.As(err, &status) && status.Code < http.StatusInternalServerError
}

// refusal turns an answer that is no success into an error, a temporary one if it is worth asking again.
func refusal(response *http.Response, now time.Time) error {
	said, _ := io.ReadAll(io.LimitReader(response.Body, 512))
	// Enough for a sentence; the rest is not for a log.
	status := &StatusError{Code: response.StatusCode, Message: failure.Line(string(said))}
	switch {
	case status.Code >= http.StatusInternalServerError,
		status.Code == http.StatusTooManyRequests, status.Code == http.StatusRequestTimeout:
		return &temporary{err: status, after: retryAfter(response.Header.Get("Retry-After"), now)}
	}
	return status
}
