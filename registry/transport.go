package registry

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/scanner-operator/scanner-operator/registry/document"
)

const (
	// maxAnswerBytes bounds an answer that is read into memory and is not a document of an image, such as a token. It also bounds
	// the form of a request for a token.
	maxAnswerBytes = 1 << 20
	// maxRefusalBytes is how much of an error response is read. The client library decodes it without any bound.
	maxRefusalBytes = 64 << 10
	// maxHeaderBytes bounds the headers of an answer.
	maxHeaderBytes = 256 << 10
)

// errAnswerTooLarge reports an answer of more than maxAnswerBytes where a token is expected.
var errAnswerTooLarge = fmt.Errorf("its answer is larger than %d MiB", maxAnswerBytes>>20)

// ErrPlainHTTP reports a request over plain HTTP to a host that is not listed for it.
var ErrPlainHTTP = errors.New("plain HTTP is not allowed for this host; if that is intended, list it as a registry with plainHTTP")

// errWebPage reports that a server other than a registry has answered.
var errWebPage = errors.New("it answers with a web page instead of a manifest; something else is in the registry's place")

// maxRetryAfter bounds the wait that a registry can ask for.
const maxRetryAfter = 24 * time.Hour

// guard is the transport of all pulls. It refuses plain HTTP to unlisted hosts, bounds documents, and
// keeps how long a throttling registry asked to wait, which the client library does not pass on.
type guard struct {
	next  http.RoundTripper
	hosts hosts
	now   func() time.Time
	// registry is the host that the request is for, as in image references. It stays the same when the registry redirects.
	registry string
	// credentials and sent hold the secrets that no error may quote.
	credentials Credentials
	sent        *sentSecrets

	mu sync.Mutex
	// stallTimeout is how long the registry may send nothing.
	stallTimeout time.Duration
	retryAfter   time.Duration
	// tokenServer is the address of the token server if it has another port of the registry's host; nil otherwise.
	tokenServer *url.URL
	// morePages is true if the last list of referrers goes on after what was read.
	morePages bool
	// layers holds the host and path of each blob that may be of any size.
	layers map[string]bool
}

// RoundTrip implements http.RoundTripper.
func (g *guard) RoundTrip(request *http.Request) (*http.Response, error) {
	request = g.toTokenServer(request)
	// The client library falls back to HTTP for any private or loopback address. Here, only the configuration decides.
	if request.URL.Scheme != "https" && !g.hosts.configFor(request.URL.Host).PlainHTTP {
		return nil, fmt.Errorf("%s: %w", request.URL.Host, ErrPlainHTTP)
	}
	if err := g.sent.keepFrom(request); err != nil {
		return nil, err
	}
	// A redirect arrives as a request of its own, and the same rule applies to it.
	response, err := roundTripWithStallTimeout(g.next, request, g.currentStallTimeout())
	if err != nil {
		return nil, err
	}
	g.keepTokenServer(request, response)
	if response.StatusCode == http.StatusTooManyRequests {
		g.keepRetryAfter(response.Header.Get("Retry-After"))
	}
	if response.StatusCode == http.StatusOK && isWebPage(response) && strings.Contains(originalRequest(request).URL.Path, "/manifests/") {
		response.Body.Close()
		return nil, fmt.Errorf("%s: %w", request.URL.Host, errWebPage)
	}
	if strings.Contains(originalRequest(request).URL.Path, "/referrers/") {
		// The client library takes a list with a parameter in its type for none.
		response.Header.Set("Content-Type", string(document.Essence(types.MediaType(response.Header.Get("Content-Type")))))
		g.keepMorePages(response.Header.Get("Link"))
	}
	response.Body = g.boundedBody(originalRequest(request), response)
	return response, nil
}

// realm is the address of the token server in a challenge (RFC 7235, 4.1).
var realm = regexp.MustCompile(`(?i)(\brealm=")([^"]+)`)

// keepTokenServer lets a registry with a private address name a token server on another port of the same host. The client library accepts a private
// address only if it is the registry's own, so the challenge gets that one, and toTokenServer restores it.
func (g *guard) keepTokenServer(request *http.Request, response *http.Response) {
	challenge := response.Header.Get("WWW-Authenticate")
	found := realm.FindStringSubmatch(challenge)
	if response.StatusCode != http.StatusUnauthorized || found == nil || !strings.HasSuffix(request.URL.Path, "/v2/") {
		return
	}
	own := request.URL
	server, err := url.Parse(found[2])
	if err != nil || server.Host == own.Host || server.Hostname() != own.Hostname() || strings.HasPrefix(server.Path, "/v2/") {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	replaced := *server
	replaced.Host, g.tokenServer = own.Host, server
	response.Header.Set("WWW-Authenticate", realm.ReplaceAllLiteralString(challenge, found[1]+replaced.String()))
}

// toTokenServer returns the request with the address that keepTokenServer has replaced.
func (g *guard) toTokenServer(request *http.Request) *http.Request {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.tokenServer == nil || request.URL.Path != g.tokenServer.Path || request.URL.Hostname() != g.tokenServer.Hostname() {
		return request
	}
	request = request.Clone(request.Context())
	request.URL.Host, request.Host = g.tokenServer.Host, ""
	return request
}

// boundedBody returns the body of an answer with its bound. Layers have no bound: they are streamed to disk and verified
// against their digest. The client library reads everything else into memory and decodes it, error responses for layers included.
func (g *guard) boundedBody(first *http.Request, response *http.Response) io.ReadCloser {
	switch {
	case response.StatusCode != http.StatusOK:
		// The status decides, and the beginning of the text is enough to explain it.
		return struct {
			io.Reader
			io.Closer
		}{io.LimitReader(response.Body, maxRefusalBytes), response.Body}
	case g.isLayer(first):
		return response.Body
	case first.URL.RawQuery == "" && isDocument(first.URL.Path):
		return &checkedBody{ReadCloser: response.Body, check: &document.BoundsChecker{}}
	}
	return &checkedBody{ReadCloser: response.Body, check: &byteLimit{left: maxAnswerBytes}}
}

// isDocument reports whether a path is that of an index, a manifest, a configuration, or a list of referrers.
func isDocument(path string) bool {
	return strings.Contains(path, "/manifests/") || strings.Contains(path, "/blobs/") || strings.Contains(path, "/referrers/")
}

// isWebPage reports whether an answer is HTML: that of a portal, a proxy or another server in the registry's place.
func isWebPage(response *http.Response) bool {
	mediaType, _, err := mime.ParseMediaType(response.Header.Get("Content-Type"))
	return err == nil && mediaType == "text/html"
}

// allowLayers lifts the bound of documents for the layers of a manifest, and for no other blob that the registry could serve as
// one. It also sets the stall timeout to stallTimeout, that for layers.
func (g *guard) allowLayers(repository name.Repository, layers []v1.Descriptor, stallTimeout time.Duration) {
	allowed := make(map[string]bool, len(layers))
	for _, layer := range layers {
		allowed[fmt.Sprintf("%s/v2/%s/blobs/%s", repository.RegistryStr(), repository.RepositoryStr(), layer.Digest)] = true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.layers, g.stallTimeout = allowed, stallTimeout
}

// currentStallTimeout returns how long the registry may send nothing, before an answer and between two pieces of it.
func (g *guard) currentStallTimeout() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.stallTimeout
}

// isLayer reports whether a request is for a layer. A request for a token always has a body or a query, so a token server's
// address that equals a layer's does not count as a layer.
func (g *guard) isLayer(request *http.Request) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return request.Method == http.MethodGet && request.URL.RawQuery == "" && g.layers[request.URL.Host+request.URL.Path]
}

// originalRequest returns the original request of a chain of redirects. The address of a redirect does not show what
// kind of content it leads to.
func originalRequest(request *http.Request) *http.Request {
	for request.Response != nil && request.Response.Request != nil {
		request = request.Response.Request
	}
	return request
}

// keepRetryAfter keeps the value of a Retry-After header, which holds seconds or a date (RFC 9110, 10.2.3).
func (g *guard) keepRetryAfter(header string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if seconds, err := strconv.Atoi(header); err == nil && seconds > 0 {
		// Bounded before the conversion, since a large number of seconds overflows a Duration.
		g.retryAfter = time.Duration(min(seconds, int(maxRetryAfter/time.Second))) * time.Second
	} else if date, err := http.ParseTime(header); err == nil {
		g.retryAfter = min(max(date.Sub(g.now()), 0), maxRetryAfter)
	}
}

// keepMorePages keeps whether a list goes on, which the client library does not pass on
// (https://github.com/opencontainers/distribution-spec/blob/v1.1.1/spec.md#listing-referrers).
func (g *guard) keepMorePages(link string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.morePages = link != ""
}

// hasMorePages reports whether the last list of referrers goes on.
func (g *guard) hasMorePages() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.morePages
}

// requestedWait returns how long a throttling registry asked to wait; 0 if it did not.
func (g *guard) requestedWait() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.retryAfter
}

// checkedBody passes each piece to a check before the reader gets it, and ends with the check's error. A truncated manifest must
// not be taken for a complete one.
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

// byteLimit accepts a number of bytes, and returns errAnswerTooLarge beyond it.
type byteLimit struct{ left int }

// Write implements io.Writer.
func (a *byteLimit) Write(p []byte) (int, error) {
	if a.left -= len(p); a.left < 0 {
		return 0, errAnswerTooLarge
	}
	return len(p), nil
}
