package registry

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/scanner-operator/scanner-operator/registry/document"
)

const (
	// maxAnswerBytes bounds what is read whole into memory and is no document of an image: tokens, and what is said with them.
	maxAnswerBytes = 1 << 20
	// maxRefusalBytes is how much of a refusal is read. The client library decodes it without any bound.
	maxRefusalBytes = 64 << 10
	// maxHeaderBytes bounds the headers of an answer.
	maxHeaderBytes = 256 << 10
)

// errLongAnswer says that what should be a token has no end.
var errLongAnswer = fmt.Errorf("its answer is larger than %d MiB", maxAnswerBytes>>20)

// ErrPlainHTTP is the refusal to speak plain HTTP with a host that is not listed for it.
var ErrPlainHTTP = errors.New("plain HTTP is not allowed for this host; list it as a registry with plainHTTP if that is meant")

// errWebPage says that no registry has answered.
var errWebPage = errors.New("it answers with a web page instead of a manifest; something else is in the registry's place")

// maxRetryAfter bounds what is believed of a registry that asks to wait.
const maxRetryAfter = 24 * time.Hour

// guard is the transport of all pulls. It refuses plain HTTP to unlisted hosts, bounds documents, and
// remembers how long a throttling registry asked to wait, which the client library does not pass on.
type guard struct {
	next  http.RoundTripper
	hosts hosts
	now   func() time.Time
	// registry is what is asked, as it stands in image references; wherever it redirects to, it is who answers.
	registry string
	// credentials, and what was sent in their place, are what no error may quote.
	credentials Credentials
	sent        *sent

	mu sync.Mutex
	// patience with a registry that sends nothing.
	patience   time.Duration
	retryAfter time.Duration
	// layers are the host and path of each blob that may be of any size.
	layers map[string]bool
}

// RoundTrip implements http.RoundTripper.
func (g *guard) RoundTrip(request *http.Request) (*http.Response, error) {
	// The client library falls back to HTTP for any private or loopback address. Only the list counts here.
	if request.URL.Scheme != "https" && !g.hosts.of(request.URL.Host).PlainHTTP {
		return nil, fmt.Errorf("%s: %w", request.URL.Host, ErrPlainHTTP)
	}
	if err := g.sent.remember(request); err != nil {
		return nil, err
	}
	// Redirects come back here as requests of their own, and are held to the same rule.
	response, err := impatient(g.next, request, g.waits())
	if err != nil {
		return nil, err
	}
	if response.StatusCode == http.StatusTooManyRequests {
		g.remember(response.Header.Get("Retry-After"))
	}
	if response.StatusCode == http.StatusOK && isWebPage(response) && strings.Contains(asked(request).URL.Path, "/manifests/") {
		response.Body.Close()
		return nil, fmt.Errorf("%s: %w", request.URL.Host, errWebPage)
	}
	response.Body = g.bounded(asked(request), response)
	return response, nil
}

// bounded is the body of an answer to a request. Layers are as large as they are: they are streamed to disk and verified
// against their digest. All else, the refusal of a layer included, is read into memory and decoded by the client library.
func (g *guard) bounded(first *http.Request, response *http.Response) io.ReadCloser {
	switch {
	case response.StatusCode != http.StatusOK:
		// The status says what matters, and the beginning of the text why.
		return &limitedBody{Reader: io.LimitReader(response.Body, maxRefusalBytes), Closer: response.Body}
	case g.isLayer(first):
		return response.Body
	case first.URL.RawQuery == "" && (strings.Contains(first.URL.Path, "/manifests/") || strings.Contains(first.URL.Path, "/blobs/")):
		return &checkedBody{ReadCloser: response.Body, check: &document.Shape{}}
	}
	return &checkedBody{ReadCloser: response.Body, check: &atMost{left: maxAnswerBytes}}
}

// isWebPage says that an answer is for people: that of a portal, a proxy or another server in the registry's place.
func isWebPage(response *http.Response) bool {
	mediaType, _, err := mime.ParseMediaType(response.Header.Get("Content-Type"))
	return err == nil && mediaType == "text/html"
}

// allowLayers lifts the bound of documents for the layers of a manifest, and for nothing else that the
// registry could pass for one. From now on the patience is that for layers.
func (g *guard) allowLayers(repository name.Repository, layers []v1.Descriptor, patience time.Duration) {
	allowed := make(map[string]bool, len(layers))
	for _, layer := range layers {
		allowed[fmt.Sprintf("%s/v2/%s/blobs/%s", repository.RegistryStr(), repository.RepositoryStr(), layer.Digest)] = true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.layers, g.patience = allowed, patience
}

// waits is how long to wait for an answer, and for each piece of it.
func (g *guard) waits() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.patience
}

// isLayer says that a request asks for a layer. One for a token always has a body or a query, so that a
// realm at a layer's address does not look like it.
func (g *guard) isLayer(request *http.Request) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return request.Method == http.MethodGet && request.URL.RawQuery == "" && g.layers[request.URL.Host+request.URL.Path]
}

// asked goes back from a request that follows redirects to the one that was made at first: where a registry
// keeps something says nothing about what it is.
func asked(request *http.Request) *http.Request {
	for request.Response != nil && request.Response.Request != nil {
		request = request.Response.Request
	}
	return request
}

// remember keeps a Retry-After header, which holds seconds or a date (RFC 9110, 10.2.3).
func (g *guard) remember(header string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if seconds, err := strconv.Atoi(header); err == nil && seconds > 0 {
		// Bounded before it is a Duration, in which not every number of seconds has a place.
		g.retryAfter = time.Duration(min(seconds, int(maxRetryAfter/time.Second))) * time.Second
	} else if date, err := http.ParseTime(header); err == nil {
		g.retryAfter = min(max(date.Sub(g.now()), 0), maxRetryAfter)
	}
}

// wait is how long a throttling registry asked to wait; 0 if it did not.
func (g *guard) wait() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.retryAfter
}

// limitedBody ends as if there were no more.
type limitedBody struct {
	io.Reader
	io.Closer
}

// checkedBody ends with the error of a check, which sees all that is read before anybody else does: a cut manifest must not
// pass for a whole one.
type checkedBody struct {
	io.ReadCloser
	check io.Writer
}

// Read implements io.Reader.
func (b *checkedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if _, refused := b.check.Write(p[:n]); refused != nil {
		return 0, refused
	}
	return n, err
}

// atMost takes a number of bytes.
type atMost struct{ left int }

// Write implements io.Writer.
func (a *atMost) Write(p []byte) (int, error) {
	if a.left -= len(p); a.left < 0 {
		return 0, errLongAnswer
	}
	return len(p), nil
}
