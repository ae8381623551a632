// Package api is a client of the HTTP API of Clair 4.9 (https://github.com/quay/clair, httptransport): indexer, matcher and notifier. It
// also handles the tokens of Clair's pre-shared key and the body of its webhooks.
//
// Every request ends within its deadline, and no answer takes more memory than its bound. An answer is either complete and about what was
// requested, or an *Error. No error contains a credential. The client never retries: its callers decide about that. The package knows
// nothing of Kubernetes, the store or findings.
//
// The payloads are claircore's types. Clair's own Go client is not used: its Index expects status 200 where the server sends 201, and its
// Scan posts to a route that accepts only GET.
package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
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
	// DefaultIndexTimeout is for indexing a manifest, during which Clair fetches and reads all its layers. Clair has no limit of its own,
	// and waits forever while its database is unavailable.
	DefaultIndexTimeout = 10 * time.Minute
	// DefaultMaxAnswerBytes bounds a report, which has about a kilobyte for each finding.
	DefaultMaxAnswerBytes = 32 << 20

	// maxSmallBytes bounds answers that do not grow with an image.
	maxSmallBytes = 1 << 20
	// maxRefusalBytes is how much of an error answer is read.
	maxRefusalBytes = 64 << 10
)

// Options configure a Client.
type Options struct {
	// URL of Clair, such as "http://clair:6060", in any spelling that CanonicalURL accepts.
	URL string
	// CABundle holds PEM certificates of CAs to trust for Clair, in addition to the system's; may be empty.
	CABundle string
	// Auth returns the pre-shared key; nil for a Clair without authentication. It is called for every request, so that the key can change.
	// Its errors are returned unchanged.
	Auth func(context.Context) (Auth, error)
	// Timeout bounds every request except Index, including the whole answer; 0 means DefaultTimeout.
	Timeout time.Duration
	// IndexTimeout bounds Index, including the whole answer; 0 means DefaultIndexTimeout.
	IndexTimeout time.Duration
	// MaxAnswerBytes bounds one answer after decompression; 0 means DefaultMaxAnswerBytes.
	MaxAnswerBytes int64
	// ReportSlots has the capacity of the number of index reports that may be in memory at a time; nil for no bound.
	ReportSlots chan struct{}
	// Network holds the connections that clients share; nil gives the client connections of its own.
	Network *Network
	// Clock dates the tokens; nil for the real one.
	Clock clock.PassiveClock
}

// Client sends requests to one Clair. It is safe for concurrent use.
type Client struct {
	options Options
	url     string
	host    string
	http    *http.Client
}

// New returns a client, or an error that names the invalid option. It does not connect.
func New(options Options) (*Client, error) {
	address, err := parseURL(options.URL)
	if err != nil {
		return nil, fmt.Errorf("url: %w", err)
	}
	options.Timeout = cmp.Or(options.Timeout, DefaultTimeout)
	options.IndexTimeout = cmp.Or(options.IndexTimeout, DefaultIndexTimeout)
	options.MaxAnswerBytes = cmp.Or(options.MaxAnswerBytes, DefaultMaxAnswerBytes)
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

// call is one request.
type call struct {
	method string
	// path is relative to the address and includes the query.
	path string
	// body is sent as JSON; nil for none.
	body any
	// etag of the previous answer; may be empty.
	etag    string
	timeout time.Duration
	limit   int64
	// accept holds the status codes of a successful answer.
	accept []int
	// secrets must not appear in an error, although Clair may quote them.
	secrets []string
	// needsSlot means that the answer needs a slot of Options.ReportSlots, from before it is read until use has returned.
	needsSlot bool
	// use processes the answer; may be nil.
	use func(*answer) error
}

// answer is a complete answer with an accepted status.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// do sends a request within its deadline and passes its complete answer to use. The message of its *Error is sanitized.
func (c *Client) do(ctx context.Context, call call) (*answer, error) {
	timeout := cmp.Or(call.timeout, c.options.Timeout)
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errTimeout{timeout})
	defer cancel()
	got, err := c.send(ctx, call)
	if e, ok := errors.AsType[*Error](err); ok {
		e.Message = sanitize(e.Message, call.secrets)
	}
	return got, err
}

func (c *Client) send(ctx context.Context, call call) (*answer, error) {
	request, err := c.request(ctx, call)
	if err != nil {
		return nil, err
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, c.unavailable(ctx, err)
	}
	defer response.Body.Close()
	if !slices.Contains(call.accept, response.StatusCode) {
		// Clair closes the connection after some of its errors: the status counts, even if the body cannot be read.
		body, _ := io.ReadAll(io.LimitReader(response.Body, maxRefusalBytes))
		return nil, c.refusal(call, response, body)
	}
	if slots := c.options.ReportSlots; call.needsSlot && slots != nil {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		case <-ctx.Done():
			return nil, c.unavailable(ctx, ctx.Err())
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
		return nil, c.unavailable(ctx, err)
	case err != nil:
		return nil, c.invalid(response.StatusCode, "the answer broke off: "+err.Error())
	}
	// Errors in Clair after the status line are reported only in this trailer, which is known once the body was read.
	if text := response.Trailer.Get("Clair-Error"); text != "" {
		return nil, c.invalid(response.StatusCode, "Clair could not finish its answer: "+text)
	}
	return &answer{status: response.StatusCode, header: response.Header, body: body}, nil
}

// request builds the HTTP request with a new token.
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

// decode parses the JSON of an answer. It ignores content types, because Clair sends wrong ones.
func (c *Client) decode(from *answer, into any) error {
	if err := json.Unmarshal(from.body, into); err != nil {
		return c.invalid(from.status, "the answer cannot be read: "+sanitize(err.Error(), nil))
	}
	return nil
}

// errTimeout is the cause when a deadline of this package ends a request.
type errTimeout struct{ after time.Duration }

// Error implements error.
func (e errTimeout) Error() string { return fmt.Sprintf("no whole answer within %s", e.after) }

// Is makes errTimeout match context.DeadlineExceeded.
func (e errTimeout) Is(target error) bool { return target == context.DeadlineExceeded }
