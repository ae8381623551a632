package ui

import (
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

const page = `<!doctype html><html lang="en" data-base=""><style>a{}</style><script type="module">go()</script></html>`

// serve returns the response to a request with these headers, as pairs of name and value.
func serve(t *testing.T, handler http.Handler, method, path string, headers ...string) *http.Response {
	t.Helper()
	r := httptest.NewRequest(method, path, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	recorded := httptest.NewRecorder()
	handler.ServeHTTP(recorded, r)
	return recorded.Result()
}

func handlerOf(t *testing.T, basePath string) http.Handler {
	t.Helper()
	api := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "api "+r.URL.Path) })
	handler, err := newHandler(api, basePath, []byte(page), []byte("br of the page"))
	if err != nil {
		t.Fatal(err)
	}
	return handler
}

func text(t *testing.T, response *http.Response) string {
	t.Helper()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// TestPaths: the document is at the paths of pages, and nowhere else. A script, an image or a path of a page that does not exist is never the
// document.
func TestPaths(t *testing.T) {
	root, below := handlerOf(t, ""), handlerOf(t, "/tools/scanner")
	for path, want := range map[string]string{
		"/": "page", "/vulnerabilities": "page", "/vulnerabilities/CVE-2026-0001": "page", "/namespaces/shop/images/web": "page",
		"/api/v1/scanners": "api", "/openapi.yaml": "api", "/api/": "api",
		"/assets/index.js": "", "/favicon.ico": "", "/index.html": "", "/nothing": "", "/vulnerabilities/": "", "/vulnerabilities/a/b": "", "/api": "/api/",
	} {
		response := serve(t, root, http.MethodGet, path)
		switch got := text(t, response); {
		case want == "page" && (response.StatusCode != http.StatusOK || got != page),
			want == "api" && got != "api "+path,
			want == "" && (response.StatusCode != http.StatusNotFound || strings.Contains(got, "<html")),
			strings.HasPrefix(want, "/") && response.Header.Get("Location") != want:
			t.Errorf("GET %s: %d %s, want %q", path, response.StatusCode, got, want)
		}
	}
	inside := strings.Replace(page, `data-base=""`, `data-base="/tools/scanner"`, 1)
	for path, want := range map[string]string{
		"/tools/scanner/": inside, "/tools/scanner/vulnerabilities": inside, "/tools/scanner/api/v1/scanners": "api /api/v1/scanners", "/api/v1/scanners": "api /api/v1/scanners",
	} {
		if got := text(t, serve(t, below, http.MethodGet, path, "Accept-Encoding", "br")); got != want {
			t.Errorf("with a base path, GET %s: %s, want %s", path, got, want)
		}
	}
	if response := serve(t, below, http.MethodGet, "/vulnerabilities"); response.StatusCode != http.StatusNotFound {
		t.Errorf("outside the base path: %d, want 404", response.StatusCode)
	}
	for _, path := range []string{"/", "/tools/scanner"} {
		if response := serve(t, below, http.MethodGet, path); response.Header.Get("Location") != "/tools/scanner/" {
			t.Errorf("GET %s redirects to %q, want the base path", path, response.Header.Get("Location"))
		}
	}
}

// TestEncodings: a browser gets the smallest encoding that it accepts, with an entity tag of its own.
func TestEncodings(t *testing.T) {
	handler := handlerOf(t, "")
	tags := map[string]bool{}
	for accept, want := range map[string]string{
		"": "", "identity": "", "gzip": "gzip", "gzip, deflate, br, zstd": "br", "br;q=0, gzip": "gzip", "br;q=0.0,gzip;q=0": "", "*": "br", "*, br;q=0": "gzip", "BR": "br", "br;q=x": "",
	} {
		response := serve(t, handler, http.MethodGet, "/", "Accept-Encoding", accept)
		if got := response.Header.Get("Content-Encoding"); got != want || response.Header.Get("Vary") != "Accept-Encoding" {
			t.Errorf("Accept-Encoding %q: %q, want %q", accept, got, want)
		}
		tag := response.Header.Get("ETag")
		tags[tag] = true
		again := serve(t, handler, http.MethodGet, "/", "Accept-Encoding", accept, "If-None-Match", tag)
		if again.StatusCode != http.StatusNotModified || text(t, again) != "" || again.Header.Get("Content-Security-Policy") == "" {
			t.Errorf("Accept-Encoding %q, again with its tag: %d, want 304 with the policy", accept, again.StatusCode)
		}
	}
	if len(tags) != 3 {
		t.Errorf("tags %v, want one for each encoding", tags)
	}
	reader, err := gzip.NewReader(serve(t, handler, http.MethodGet, "/", "Accept-Encoding", "gzip").Body)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(reader); err != nil || string(got) != page {
		t.Errorf("decompressed: %q, %v", got, err)
	}
}

// TestPolicy: the policy allows the document's own script and style, and no other.
func TestPolicy(t *testing.T) {
	response := serve(t, handlerOf(t, ""), http.MethodGet, "/")
	policy := response.Header.Get("Content-Security-Policy")
	for source, content := range map[string]string{"script-src": "go()", "style-src": "a{}"} {
		hash := sha256.Sum256([]byte(content))
		if want := source + " 'sha256-" + base64.StdEncoding.EncodeToString(hash[:]) + "';"; !strings.Contains(policy, want) {
			t.Errorf("policy %s, want %s", policy, want)
		}
	}
	if strings.Contains(policy, "unsafe") || !strings.Contains(policy, "default-src 'none'") || !strings.Contains(policy, "require-trusted-types-for 'script'") {
		t.Errorf("policy %s allows too much", policy)
	}
	if response := serve(t, handlerOf(t, ""), http.MethodPost, "/"); response.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d, want 405", response.StatusCode)
	}
}

// TestBuilt: the embedded document has what the handler relies on. Without it, there is a page that says how to get it.
func TestBuilt(t *testing.T) {
	handler, err := Handler(http.NotFoundHandler(), "")
	if err != nil {
		t.Fatal(err)
	}
	response := serve(t, handler, http.MethodGet, "/")
	body := text(t, response)
	html, brotli, err := built()
	if err != nil {
		t.Fatal(err)
	}
	if html == nil {
		if response.StatusCode != http.StatusOK || !strings.Contains(body, "make ui") || !strings.Contains(response.Header.Get("Content-Security-Policy"), "script-src 'none'") {
			t.Errorf("without the UI: %d %s, want a page without scripts that says how to get it", response.StatusCode, body)
		}
		return
	}
	if len(brotli) == 0 || len(brotli) > 60_000 {
		t.Errorf("the document has %d bytes compressed, want at most 60,000", len(brotli))
	}
	if strings.Count(body, baseAttribute) != 1 {
		t.Errorf("the document does not have %s once, which tells the script its base path", baseAttribute)
	}
	for _, outside := range []string{` src="`, ` style="`, ` onclick="`, `<base`, `<link rel="stylesheet"`} {
		if strings.Contains(scripts.ReplaceAllString(body, ""), outside) {
			t.Errorf("the document has %s, which the policy does not allow", outside)
		}
	}
}
