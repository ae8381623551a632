package connect

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// FuzzRefusal: whatever a server answers, it is a refusal of the REST API only with the media type of one, and a wait is bounded. A text that is not the
// API's is not shown.
func FuzzRefusal(f *testing.F) {
	f.Add(uint16(403), "application/problem+json", `{"title":"Forbidden","status":403,"reason":"Forbidden","detail":"the token may not"}`, "", "")
	f.Add(uint16(404), "application/problem+json; charset=utf-8", `{"reason":"NotFound","detail":"there is nothing at this path"}`, "", "")
	f.Add(uint16(302), "text/html", "<html>a-login-page-of-somebody", "https://login.example.com/?next=x", "")
	f.Add(uint16(503), "application/problem+json", `{"detail":1}`, "", "5")
	f.Add(uint16(503), "text/plain", "a-text-of-a-proxy", "%zz", "9223372036854775807")
	f.Fuzz(func(t *testing.T, status uint16, mediaType, body, location, wait string) {
		request := &http.Request{Method: http.MethodGet, URL: &url.URL{Scheme: "https", Host: "scanner.example.com", Path: "/api/v1/session"}}
		response := &http.Response{
			Status: http.StatusText(int(status)), StatusCode: int(status), Request: request, Body: io.NopCloser(strings.NewReader(body)),
			Header: http.Header{"Content-Type": {mediaType}, "Retry-After": {wait}},
		}
		if location != "" {
			response.Header.Set("Location", location)
		}
		if delay, retry := retryAfter(response); retry && (delay < 0 || delay > maxRetryAfter || response.StatusCode != http.StatusServiceUnavailable) {
			t.Errorf("%d with Retry-After %q is sent again after %s", status, wait, delay)
		}
		err := refusal(response)
		var p *Problem
		isProblem := errors.As(err, &p)
		if isProblem && (!strings.HasPrefix(strings.ToLower(strings.TrimSpace(mediaType)), "application/problem+json") || p.Detail == "" || !strings.Contains(err.Error(), p.Detail)) {
			t.Errorf("%d %s %q is taken for the refusal %v", status, mediaType, body, err)
		}
		const noWord = 16 // a shorter text can occur by chance
		if !isProblem && len(body) >= noWord && strings.Contains(err.Error(), body) && !strings.Contains(location, body) {
			t.Errorf("%d %s %q is shown: %v", status, mediaType, body, err)
		}
		if !isProblem && !strings.Contains(err.Error(), "scanner.example.com") {
			t.Errorf("%d %s: %v, which does not name the server", status, mediaType, err)
		}
	})
}
