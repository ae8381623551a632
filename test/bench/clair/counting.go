package clair

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path"
	"strings"
	"sync"
	"time"
)

// Kinds of counted requests to Clair.
const (
	postIndex  = "POST index_report"
	readIndex  = "GET index_report"
	readReport = "GET vulnerability_report"
	// readState is sent at a fixed interval, regardless of the work to do.
	readState = "GET index_state"
)

// requests is a reverse proxy that forwards requests to Clair and counts them.
type requests struct {
	*httputil.ReverseProxy
	mu     sync.Mutex
	counts map[string]int
	// first is the time of the first request for a report, last the time of the last response.
	first, last time.Time
}

func newRequests(address string) *requests {
	return &requests{
		ReverseProxy: httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: address}), counts: map[string]int{},
	}
}

// ServeHTTP implements http.Handler.
func (r *requests) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	kind := kindOf(request)
	r.mu.Lock()
	r.counts[kind]++
	if kind == readReport && r.first.IsZero() {
		r.first = time.Now()
	}
	r.mu.Unlock()
	r.ReverseProxy.ServeHTTP(w, request)
	if kind == readReport {
		r.mu.Lock()
		r.last = time.Now()
		r.mu.Unlock()
	}
}

// kindOf returns the method and the resource of a request, without the digest.
func kindOf(request *http.Request) string {
	resource := path.Base(request.URL.Path)
	if strings.HasPrefix(resource, "sha256:") {
		resource = path.Base(path.Dir(request.URL.Path))
	}
	return fmt.Sprintf("%s %s", request.Method, resource)
}

// reset clears the counts and times.
func (r *requests) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts, r.first, r.last = map[string]int{}, time.Time{}, time.Time{}
}

// taken returns the counts since reset, and the time from the first report's request to the last report's response.
func (r *requests) taken() (counts map[string]int, reading time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.counts), r.last.Sub(r.first)
}

// sinceFirstReport returns the time since the first report's request.
func (r *requests) sinceFirstReport() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Since(r.first)
}

// fetches counts how often each blob was fetched from a registry.
type fetches struct {
	mu     sync.Mutex
	counts map[string]int
}

func (f *fetches) of(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if dir, digest := path.Split(r.URL.Path); r.Method == http.MethodGet && strings.HasSuffix(dir, "/blobs/") {
			f.mu.Lock()
			f.counts[digest]++
			f.mu.Unlock()
		}
		next.ServeHTTP(w, r)
	})
}

func (f *fetches) reset() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counts = map[string]int{}
}

// taken returns the number of fetches of the given blobs.
func (f *fetches) taken(digests []string) (t fetched) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, digest := range digests {
		n := f.counts[digest]
		t.blobs, t.times, t.most = t.blobs+min(n, 1), t.times+n, max(t.most, n)
	}
	return t
}
