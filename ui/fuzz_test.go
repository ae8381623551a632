package ui

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// FuzzHandler: whatever a browser requests, it gets the whole document with its policy, the API, or a short refusal. No redirect leads to another host.
func FuzzHandler(f *testing.F) {
	for _, seed := range [][3]string{
		{"/", "gzip, br;q=0", ""}, {"/vulnerabilities/CVE-2026-0001", "*;q=0.5", `"x"`}, {"//evil.example.com/", "", ""}, {"/tools/scanner", "identity", "*"}, {"/tools/scanner/images", "GZIP;q=NaN,br;q=Inf", ""},
		{"/api/../api/v1/session", "", ""}, {"/tools/scanner//evil.example.com/..", "gzip;q=1e999", ""}, {"/\\evil.example.com", "", ""}, {"/assets/%2e%2e/index.html", "", ""},
	} {
		f.Add(seed[0], uint8(0), seed[1], seed[2])
		f.Add(seed[0], uint8(3), seed[1], seed[2])
	}
	handlers := map[string]http.Handler{"": nil, "/tools/scanner": nil}
	for basePath := range handlers {
		api := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
		handler, err := newHandler(api, basePath, []byte(page), nil)
		if err != nil {
			f.Fatal(err)
		}
		handlers[basePath] = handler
	}
	methods := []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodOptions, http.MethodConnect}
	f.Fuzz(func(t *testing.T, path string, method uint8, encoding, tag string) {
		for basePath, handler := range handlers {
			r := httptest.NewRequest(methods[int(method)%len(methods)], "/", http.NoBody)
			r.URL.Path = path
			r.Header.Set("Accept-Encoding", encoding)
			r.Header.Set("If-None-Match", tag)
			recorded := httptest.NewRecorder()
			handler.ServeHTTP(recorded, r)
			response := recorded.Result()
			body, err := io.ReadAll(response.Body)
			if err != nil {
				t.Fatal(err)
			}
			switch location := response.Header.Get("Location"); response.StatusCode {
			case http.StatusOK:
				want := strings.Replace(page, baseAttribute, ` data-base="`+basePath+`"`, 1)
				if got := unzipped(t, response, body); got != want && r.Method != http.MethodHead || !strings.Contains(response.Header.Get("Content-Security-Policy"), "default-src 'none'") {
					t.Errorf("%s %q below %q is answered %q with the policy %q", r.Method, path, basePath, got, response.Header.Get("Content-Security-Policy"))
				}
			case http.StatusTeapot:
				if inner := strings.TrimPrefix(path, basePath); !strings.HasPrefix(path, "/api/") && path != "/openapi.yaml" && !strings.HasPrefix(inner, "/api/") && inner != "/openapi.yaml" {
					t.Errorf("%s %q below %q is answered by the API", r.Method, path, basePath)
				}
			case http.StatusFound, http.StatusMovedPermanently, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
				if !strings.HasPrefix(location, "/") || strings.HasPrefix(location, "//") || strings.HasPrefix(location, `/\`) {
					t.Errorf("%s %q below %q leads to %q", r.Method, path, basePath, location)
				}
			case http.StatusNotModified, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusPreconditionFailed:
			default:
				t.Errorf("%s %q below %q is answered %d", r.Method, path, basePath, response.StatusCode)
			}
		}
	})
}

// unzipped returns a body in the encoding that its response names.
func unzipped(t *testing.T, response *http.Response, body []byte) string {
	t.Helper()
	if response.Header.Get("Content-Encoding") != "gzip" || len(body) == 0 {
		return string(body)
	}
	reader, err := gzip.NewReader(strings.NewReader(string(body)))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(reader)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// FuzzPageURL: the address of a page stays below that of the web UI, and has the values that it was made of.
func FuzzPageURL(f *testing.F) {
	f.Add("CVE-2026-0001", "shop")
	f.Add("../../evil", "a/b?c#d&e=f")
	f.Add("", "%2f\x00ü")
	const base = "https://scanner.example.com/tools"
	f.Fuzz(func(t *testing.T, id, namespace string) {
		address := PageURL(base, VulnerabilityPage, map[string]string{"namespace": namespace, "none": ""}, id)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, http.NoBody)
		if err != nil {
			t.Fatalf("%q: %v", address, err)
		}
		escaped, below := strings.CutPrefix(r.URL.EscapedPath(), "/tools/vulnerabilities/")
		if !below || strings.Contains(escaped, "/") || r.URL.Path != "/tools/vulnerabilities/"+id || r.URL.Host != "scanner.example.com" || r.URL.Query().Get("namespace") != namespace || r.URL.Query().Has("none") || r.URL.Fragment != "" {
			t.Errorf("the page of %q in %q is at %q", id, namespace, address)
		}
	})
}
