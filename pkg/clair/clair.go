// Package clair speaks the HTTP API of Clair 4.9 (https://github.com/quay/clair, httptransport): indexer, matcher and
// notifier, the tokens of its pre-shared key and the body of its webhooks.
//
// It promises that every request ends within its deadline, that no answer takes more memory than its bound, that an
// answer is either whole and about what was asked or an *Error, and that no error tells a credential. It retries
// nothing: whoever calls it knows what is due. It knows nothing of Kubernetes, the store or findings.
//
// The payloads are claircore's types. Clair's own Go client is not used: its Index wants a 200 where the server says
// 201, and its Scan posts to a route that only takes GET.
package clair

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"k8s.io/utils/clock"
)

const (
	// DefaultTimeout is for a request whose answer Clair has or computes at once: milliseconds, seconds under load.
	DefaultTimeout = time.Minute
	// DefaultIndexTimeout is for indexing a manifest, during which Clair fetches and reads all its layers. Clair has no
	// limit of its own, and waits for ever when its database is away.
	DefaultIndexTimeout = 10 * time.Minute
	// DefaultMaxAnswerBytes bounds a report: about a kilobyte for each finding.
	DefaultMaxAnswerBytes = 32 << 20

	// maxSmallBytes bounds answers that do not grow with an image.
	maxSmallBytes = 1 << 20
	// maxRefusalBytes is what is read of an answer that is an error.
	maxRefusalBytes = 64 << 10
)

// Options of a Client.
type Options struct {
	// URL of Clair, such as "http://clair:6060", in any spelling that CanonicalURL takes.
	URL string
	// CABundle are PEM certificates of authorities that Clair's may be signed by, beside the well-known ones; may be empty.
	CABundle string
	// Auth gives the pre-shared key; nil for a Clair without authentication. It is asked for every request, so that the
	// key can change. Its errors are returned as they are.
	Auth func(context.Context) (Auth, error)
	// Timeout bounds every request but Index with its whole answer; 0 means DefaultTimeout.
	Timeout time.Duration
	// IndexTimeout does so for Index; 0 means DefaultIndexTimeout.
	IndexTimeout time.Duration
	// MaxAnswerBytes bounds one answer after decompression; 0 means DefaultMaxAnswerBytes.
	MaxAnswerBytes int64
	// Readings has room for as many index reports as may be in memory at a time; nil for no bound.
	Readings chan struct{}
	// Network holds the connections that clients share; nil for some of this client's own.
	Network *Network
	// Clock dates the tokens; nil for the real one.
	Clock clock.PassiveClock
}

// Client asks one Clair. It is safe for concurrent use.
type Client struct {
	options Options
	url     string
	host    string
	http    *http.Client
}

// New returns a client, or says which option is not usable. Nothing is connected yet.
func New(options Options) (*Client, error) {
	address, err := parseURL(options.URL)
	if err != nil {
		return nil, fmt.Errorf("url: %w", err)
	}
	if options.Timeout == 0 {
		options.Timeout = DefaultTimeout
	}
	if options.IndexTimeout == 0 {
		options.IndexTimeout = DefaultIndexTimeout
	}
	if options.MaxAnswerBytes == 0 {
		options.MaxAnswerBytes = DefaultMaxAnswerBytes
	}
	if options.Network == nil {
		options.Network = NewNetwork()
	}
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	c := &Client{options: options, url: address.String(), host: address.Host}
	if c.http, err = options.Network.client(c.url, options.CABundle); err != nil {
		return nil, fmt.Errorf("caBundle: %w", err)
	}
	return c, nil
}

// URL is the canonical address, by which this Clair is known.
func (c *Client) URL() string { return c.url }

// call is one request.
type call struct {
	method string
	// path with its query, after the address.
	path string
	// body is sent as JSON; nil for none.
	body any
	// etag of what is known already; may be empty.
	etag    string
	timeout time.Duration
	limit   int64
	// accept are the statuses that answer the question.
	accept []int
	// secrets must not stand in an error, although Clair may quote them.
	secrets []string
	// large says that the answer takes one of Options.Readings, from before it is read until use has returned.
	large bool
	// use is given the answer; may be nil.
	use func(*answer) error
}

// answer is a whole answer of an accepted status.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// do makes a request and has its whole answer used.
func (c *Client) do(ctx context.Context, call call) (*answer, error) {
	if call.timeout == 0 {
		call.timeout = c.options.Timeout
	}
	ctx, cancel := context.WithTimeoutCause(ctx, call.timeout, errNoAnswer{call.timeout})
	defer cancel()
	request, err := c.request(ctx, call)
	if err != nil {
		return nil, err
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, c.unavailable(ctx, err, call.secrets)
	}
	defer response.Body.Close()
	if !slices.Contains(call.accept, response.StatusCode) {
		// Clair breaks the connection off after some of its errors: the status counts, whatever there is to read.
		body, _ := io.ReadAll(io.LimitReader(response.Body, maxRefusalBytes))
		return nil, c.refusal(call, response, body)
	}
	if readings := c.options.Readings; call.large && readings != nil {
		select {
		case readings <- struct{}{}:
			defer func() { <-readings }()
		case <-ctx.Done():
			return nil, c.unavailable(ctx, ctx.Err(), call.secrets)
		}
	}
	got, err := c.read(ctx, call, response)
	if err == nil && call.use != nil {
		err = call.use(got)
	}
	return got, err
}

// read reads an answer to the end.
func (c *Client) read(ctx context.Context, call call, response *http.Response) (*answer, error) {
	body, err := io.ReadAll(io.LimitReader(response.Body, call.limit+1))
	switch {
	case int64(len(body)) > call.limit:
		return nil, c.failure(TooLarge, response.StatusCode, fmt.Sprintf("the answer takes more than %d bytes", call.limit))
	case err != nil && ctx.Err() != nil:
		return nil, c.unavailable(ctx, err, call.secrets)
	case err != nil:
		return nil, c.invalid(response.StatusCode, "the answer broke off: "+clean(err.Error(), call.secrets))
	}
	// What goes wrong in Clair after the status line is told here only, once the body has been read.
	if text := response.Trailer.Get("Clair-Error"); text != "" {
		return nil, c.invalid(response.StatusCode, "Clair could not finish its answer: "+clean(text, call.secrets))
	}
	return &answer{status: response.StatusCode, header: response.Header, body: body}, nil
}

// request makes the HTTP request with a fresh token.
func (c *Client) request(ctx context.Context, call call) (*http.Request, error) {
	var body io.Reader
	if call.body != nil {
		text, err := json.Marshal(call.body)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, call.method, c.url+call.path, body)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json")
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if call.etag != "" {
		request.Header.Set("If-None-Match", call.etag)
	}
	if c.options.Auth == nil {
		return request, nil
	}
	auth, err := c.options.Auth(ctx)
	if err != nil {
		return nil, err
	}
	token, err := auth.token(c.options.Clock.Now())
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	return request, nil
}

// decode reads the JSON of an answer. Content types are not looked at: Clair sends wrong ones.
func (c *Client) decode(from *answer, into any) error {
	if err := json.Unmarshal(from.body, into); err != nil {
		return c.invalid(from.status, "the answer cannot be read: "+clean(err.Error(), nil))
	}
	return nil
}

// errNoAnswer is the cause of a deadline of this package.
type errNoAnswer struct{ after time.Duration }

// Error says how long was waited.
func (e errNoAnswer) Error() string { return fmt.Sprintf("no whole answer within %s", e.after) }

// Is makes it the same as the deadline of a context.
func (e errNoAnswer) Is(target error) bool { return target == context.DeadlineExceeded }
