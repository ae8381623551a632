package main

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/fstest"
	"time"
)

func TestFilesAreServedAsUpdatersExpect(t *testing.T) {
	modified := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	server := serveFiles(fstest.MapFS{
		"osv/Go/all.zip":     {Data: []byte("zip"), ModTime: modified},
		"ecosystems.txt":     {Data: []byte("Go\n"), ModTime: modified},
		"alpine/v3.18/.keep": {},
	})
	ask := func(method, path string, header http.Header) *http.Response {
		request := httptest.NewRequestWithContext(t.Context(), method, path, http.NoBody)
		request.Header = header
		recorded := httptest.NewRecorder()
		server.ServeHTTP(recorded, request)
		return recorded.Result()
	}
	first := ask(http.MethodGet, "/osv/Go/all.zip", nil)
	etag := first.Header.Get("ETag")
	if etag == "" || first.Header.Get("Last-Modified") != modified.Format(http.TimeFormat) {
		t.Errorf("want an ETag and the file's time, got %v", first.Header)
	}
	if got := ask(http.MethodGet, "/osv/Go/all.zip", http.Header{"If-None-Match": {etag}}).StatusCode; got != http.StatusNotModified {
		t.Errorf("asked with the ETag of the same content: want 304, got %d", got)
	}
	if got := ask(http.MethodGet, "/ecosystems.txt", nil).Header.Get("ETag"); got != "" {
		t.Errorf("ecosystems.txt has the ETag %s, after which Clair reads nothing of OSV any more", got)
	}
	for path, want := range map[string]int{"/alpine/v3.18/": http.StatusOK, "/alpine/v3.19/": http.StatusNotFound} {
		if got := ask(http.MethodHead, path, nil).StatusCode; got != want {
			t.Errorf("HEAD %s: want %d, got %d", path, want, got)
		}
	}
}
