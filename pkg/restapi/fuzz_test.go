package restapi

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/klauspost/compress/zstd"
	authenticationv1 "k8s.io/api/authentication/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/restapi/cyclonedx"
)

// handlerTransport answers requests with a handler.
type handlerTransport struct{ http.Handler }

// RoundTrip implements http.RoundTripper.
func (h handlerTransport) RoundTrip(r *http.Request) (response *http.Response, err error) {
	defer func() {
		if aborted := recover(); aborted != nil {
			err = fmt.Errorf("the response was cut off: %v", aborted)
		}
	}()
	recorded := httptest.NewRecorder()
	h.ServeHTTP(recorded, r)
	response = recorded.Result()
	response.Request = r
	return response, nil
}

// answerTo returns the response to a request. It fails the test if the response is not one that the OpenAPI document allows, or not one about the request.
func answerTo(t *testing.T, w *harness, r *http.Request) (*http.Response, []byte) {
	t.Helper()
	response, err := (&conformanceTransport{t: t, next: handlerTransport{w.handler}}).RoundTrip(r)
	if err != nil {
		t.Fatalf("%s %s: %v", r.Method, r.URL, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode >= http.StatusInternalServerError {
		t.Errorf("%s %s: %d %s", r.Method, r.URL, response.StatusCode, body)
	}
	return response, body
}

// FuzzRequest: whatever a request is, the response is one that the OpenAPI document allows. Without an accepted token, only signing in and out and the
// document itself are answered.
func FuzzRequest(f *testing.F) {
	w, _ := newFakeHarness(f)
	w.createScanned(w.createScanner("shop", "main"), "web", vulnerable("CVE-2026-0001", "a", severity(finding.Critical)), vulnerable("CVE-2026-0002", "b", fixed))
	requests := []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete}
	const bearer = "Bearer " + anyone
	for _, seed := range []struct {
		method                       uint8
		path, query, token, mimeType string
		body                         string
	}{
		{0, findingsPath, "limit=1", bearer, "", ""},
		{0, findingsPath, "limit=1", "Bearer forged", "", ""},
		{0, "/api/v1/overview", "", "bearer  " + anyone + " ", "", ""},
		{0, "/api/v1/vulnerabilities/CVE-2026-0001", "namespace=shop", bearer, "", ""},
		{0, "/api/v1/exceptions/preview", "vulnerability=CVE-2026-0001&image=*", bearer, "", ""},
		{0, "/api/v1/nothing/%2e%2e", "", bearer, "", ""},
		{1, PathSession, "", "", "application/json", `{"token":"` + anyone + `"}`},
		{2, reportPath("shop", "web", "ci"), "", bearer, cyclonedx.MediaType, reportText(-1, "CVE-2026-0003")},
		{2, reportPath("shop", "web", "ci"), "", bearer, "text/html", "<html>"},
		{3, reportPath("shop", "web", "ci"), "", bearer, "", ""},
		{3, PathSession, "", "", "", ""},
		{0, PathDocument, "", "", "", ""},
	} {
		f.Add(seed.method, seed.path, seed.query, seed.token, seed.mimeType, []byte(seed.body))
	}
	f.Fuzz(func(t *testing.T, method uint8, name, query, token, mimeType string, body []byte) {
		if name == PathEvents || path.Clean("/"+name) != name {
			t.Skip("a stream does not end, and http.ServeMux redirects to the clean path")
		}
		w.clearLogs()
		r := httptest.NewRequest(requests[int(method)%len(requests)], "https://scanner.example.com/", bytes.NewReader(body))
		r.URL.Path, r.URL.RawQuery = name, query
		if token != "" {
			r.Header.Set("Authorization", token)
		}
		r.Header.Set("Content-Type", mimeType)
		response, _ := answerTo(t, w, r)
		scheme, sent, _ := strings.Cut(token, " ")
		isAccepted := strings.EqualFold(scheme, "Bearer") && strings.TrimSpace(sent) == anyone
		if !isAccepted && !signs(r) && name != PathDocument && response.StatusCode < http.StatusBadRequest {
			t.Errorf("%s %s with %q is answered %d", r.Method, name, token, response.StatusCode)
		}
	})
}

// tokenWith returns a token with these claims, as JSON. Nobody verifies its signature.
func tokenWith(claims string) string {
	return "header." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".signature"
}

// FuzzSignIn: a body signs in exactly if it has a token that the API server accepts. The cookies are a session of that token, and nothing repeats it.
func FuzzSignIn(f *testing.F) {
	w, reviewer := newFakeHarness(f)
	for _, seed := range []string{
		`{"token":"` + anyone + `"}`, `{"token":" a-token-with-spaces\n"}`, `{"token":"` + tokenWith(`{"exp":4000000000}`) + `"}`, `{"token":"` + tokenWith(`{"exp":99999999999999}`) + `"}`, `{"token":"` + tokenWith(`{"exp":1}`) + `"}`,
		`{"code":"` + strings.Repeat("c", codeLength) + `"}`, `{"code":"c","token":"t"}`, `{"token":{}}`, `{"token":"` + strings.Repeat("x", maxTokenBytes) + `"}`, `{}`, ``, `{"token":"a"}{"token":"b"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if len(body) > maxSignInBytes {
			t.Skip("it depends on the decoder whether it reads that far")
		}
		w.clearLogs()
		var signIn struct{ Token, Code string }
		isRead := json.NewDecoder(bytes.NewReader(body)).Decode(&signIn) == nil
		token := strings.TrimSpace(signIn.Token)
		reviewer.mu.Lock()
		reviewer.tokens = map[string]authenticationv1.UserInfo{anyone: {Username: "anyone"}, token: {Username: "jane"}}
		reviewer.mu.Unlock()
		r := httptest.NewRequest(http.MethodPost, "https://scanner.example.com"+PathSession, bytes.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		response, text := answerTo(t, w, r)
		isAccepted := isRead && token != "" && len(token) <= maxTokenBytes && signIn.Code == ""
		if (response.StatusCode == http.StatusOK) != isAccepted || (len(response.Cookies()) > 0) != isAccepted {
			t.Fatalf("%q is answered %d %s, with %d cookies", body, response.StatusCode, text, len(response.Cookies()))
		}
		const noWord = 24 // a shorter text can occur by chance
		if len(token) >= noWord && (strings.Contains(string(text), token) || strings.Contains(w.logText(), token)) {
			t.Errorf("the token of %q is repeated: %s", body, text)
		}
		if !isAccepted {
			return
		}
		with := httptest.NewRequest(http.MethodGet, "https://scanner.example.com"+PathSession, http.NoBody)
		for _, cookie := range response.Cookies() {
			if cookie.MaxAge > 0 {
				with.AddCookie(cookie)
			}
		}
		session, found, err := w.api.sessions.token(with)
		expires := expirationOf(token)
		if isOver := !expires.IsZero() && !expires.After(noon); err != nil || found == isOver || found && session != token {
			t.Errorf("the cookies of %q are a session of %q: %v, %v; it expires at %s", body, session, found, err, expires)
		}
	})
}

// noneEnded is a store in which no session was signed out.
type noneEnded struct{ Store }

func (noneEnded) EndedSessions(context.Context) ([]string, error) { return nil, nil }

// FuzzSession: the cookies of a token give that token until it expires, and no other cookies give any. Its expiry can be part of a response.
func FuzzSession(f *testing.F) {
	for _, seed := range []string{"token", tokenWith(`{"exp":4000000000}`), tokenWith(`{"exp":9223372036854775807}`), tokenWith(`{"exp":-1}`), tokenWith(`{"exp":1e3}`), tokenWith(`[]`), "a.b.c", "..", strings.Repeat("t", maxTokenBytes), "ü\"\\"} {
		f.Add(seed, uint16(7), "forged")
	}
	s := &sessions{keys: func() ([][]byte, error) {
		return [][]byte{bytes.Repeat([]byte{7}, 32), bytes.Repeat([]byte{8}, 32)}, nil
	}, path: "/", clock: clocktesting.NewFakeClock(noon), ended: endedSessions{store: noneEnded{}, clock: clocktesting.NewFakeClock(noon)}}
	f.Fuzz(func(t *testing.T, token string, position uint16, forged string) {
		expires := expirationOf(token)
		if _, err := json.Marshal(expires); err != nil {
			t.Fatalf("%q expires at a time that no response can have: %v", token, err)
		}
		if token == "" || len(token) > maxTokenBytes || !utf8.ValidString(token) {
			return // it does not sign in
		}
		cookies, err := s.seal("jane", token)
		if err != nil {
			t.Fatal(err)
		}
		request := func(change func(n int, value string) string) *http.Request {
			r := httptest.NewRequest(http.MethodGet, "https://scanner.example.com/", http.NoBody)
			for n, cookie := range cookies {
				if cookie.MaxAge > 0 {
					r.AddCookie(&http.Cookie{Name: cookie.Name, Value: change(n, cookie.Value)})
				}
			}
			return r
		}
		isOver := !expires.IsZero() && !expires.After(noon)
		if got, found, err := s.token(request(func(_ int, value string) string { return value })); err != nil || found == isOver || found && got != token {
			t.Errorf("the cookies of %q give %q: %v, %v", token, got, found, err)
		}
		for _, cookie := range cookies {
			if len(cookie.Value) > cookieBytes || !cookie.Secure || !cookie.HttpOnly || len(token) > 8 && strings.Contains(cookie.Value, token) {
				t.Errorf("the cookie of %q is %s", token, cookie)
			}
		}
		changed := request(func(n int, value string) string {
			if at := int(position) % len(value); n == 0 {
				return value[:at] + strings.Map(func(r rune) rune { return map[bool]rune{true: 'B', false: 'A'}[r == 'A'] }, value[at:at+1]) + value[at+1:]
			}
			return value
		})
		if got, found, err := s.token(changed); err != nil || found && got != token {
			t.Errorf("changed cookies of %q give %q, %v", token, got, err)
		}
		r := httptest.NewRequest(http.MethodGet, "https://scanner.example.com/", http.NoBody)
		r.Header.Set("Cookie", s.cookieName(0)+"="+forged)
		if got, found, err := s.token(r); err != nil || found {
			t.Errorf("the cookie %q gives %q, %v", forged, got, err)
		}
	})
}

// FuzzReportBody: a body is refused as one that is wrong or too large, or its whole text is kept, with its checksum, and within the bounds.
func FuzzReportBody(f *testing.F) {
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		f.Fatal(err)
	}
	text := []byte(reportText(-1, "CVE-2026-0001"))
	var zipped bytes.Buffer
	writer := gzip.NewWriter(&zipped)
	if _, err := writer.Write(text); err != nil {
		f.Fatal(err)
	}
	if err := writer.Close(); err != nil {
		f.Fatal(err)
	}
	bomb := encoder.EncodeAll(make([]byte, 4<<20), nil)
	for n, seed := range [][]byte{text, zipped.Bytes(), encoder.EncodeAll(text, nil), zipped.Bytes()[:20], bomb, nil, []byte("{}")} {
		f.Add(seed, uint8(n))
		f.Add(seed, uint8(n+1))
	}
	encodings := []string{"", "gzip", "zstd"}
	f.Fuzz(func(t *testing.T, content []byte, encoding uint8) {
		name := encodings[int(encoding)%len(encodings)]
		body, err := receiveBody(httptest.NewRecorder(), httptest.NewRequest(http.MethodPut, "https://scanner.example.com/", bytes.NewReader(content)), name)
		if err != nil {
			var refused *problem
			if !errors.As(err, &refused) || refused.Status != http.StatusBadRequest && refused.Status != http.StatusRequestEntityTooLarge {
				t.Errorf("%d bytes of %s: %v", len(content), name, err)
			}
			return
		}
		defer body.close()
		kept, err := io.ReadAll(body.text())
		if err != nil {
			t.Fatal(err)
		}
		if sum := sha256.Sum256(kept); body.sum != hex.EncodeToString(sum[:]) || len(kept) > 1<<20+maxReportRatio*len(content) || len(kept) > maxReportText {
			t.Errorf("%d bytes of %s become %d with the checksum %s", len(content), name, len(kept), body.sum)
		}
		if name == "" && !bytes.Equal(kept, content) {
			t.Errorf("%d bytes are kept as %d others", len(content), len(kept))
		}
	})
}
