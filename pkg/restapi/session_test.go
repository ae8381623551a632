package restapi

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/pkg/restapi/events"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// browser is a client that keeps cookies.
type browser struct {
	*harness
	client *http.Client
}

func newBrowser(w *harness) *browser {
	jar, err := cookiejar.New(nil)
	w.must(err)
	return &browser{harness: w, client: &http.Client{Transport: w.http.Transport, Jar: jar}}
}

// send sends a request with these headers, as pairs of name and value.
func (b *browser) send(method, path, body string, headers ...string) (*http.Response, string) {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), method, b.url+path, strings.NewReader(body))
	b.must(err)
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	response, err := b.client.Do(r)
	b.must(err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	b.must(err)
	return response, string(text)
}

func (b *browser) signIn(token string, headers ...string) (*http.Response, string) {
	b.t.Helper()
	return b.send(http.MethodPost, PathSession, fmt.Sprintf(`{"token":%q}`, token), headers...)
}

func (b *browser) status(path string, headers ...string) int {
	b.t.Helper()
	response, _ := b.send(http.MethodGet, path, "", headers...)
	return response.StatusCode
}

// jwt returns a token that expires at a time, with padding so that its length is at least size.
func jwt(expires time.Time, size int) string {
	encode := base64.RawURLEncoding.EncodeToString
	return encode([]byte(`{"alg":"none"}`)) + "." + encode(fmt.Appendf(nil, `{"exp":%d,"groups":%q}`, expires.Unix(), strings.Repeat("g", size*3/4))) + ".signature"
}

// TestSession: a browser that signs in with a token gets the same answers as a program that sends it, until it signs out.
func TestSession(t *testing.T) {
	w, reviewer := newFakeHarness(t)
	w.createNamespaces("shop", "blog")
	w.createScanner("shop", "main")
	w.createScanner("blog", "main")
	reviewer.tokens["jane"] = authenticationv1.UserInfo{Username: "jane"}
	reviewer.allowed = func(s authorizationv1.SubjectAccessReviewSpec) bool {
		return s.User == "anyone" || s.ResourceAttributes.Namespace == "shop"
	}
	b := newBrowser(w)
	if got := b.status(PathSession); got != http.StatusUnauthorized {
		t.Errorf("without a session: %d, want 401", got)
	}
	w.api.ClusterName = "prod-eu"
	response, body := b.signIn(" jane\n")
	var session restv1.Session
	w.must(json.Unmarshal([]byte(body), &session))
	if response.StatusCode != http.StatusOK || session.User != "jane" || !session.Cookie || session.AllNamespaces || fmt.Sprint(session.Namespaces) != "[shop]" || session.Cluster != "prod-eu" {
		t.Errorf("signing in: %d %s, want jane with a cookie, who sees shop in the cluster prod-eu", response.StatusCode, body)
	}
	for _, cookie := range response.Cookies() {
		if !strings.HasPrefix(cookie.Name, "__Host-") || !cookie.Secure || !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode || cookie.Path != "/" || cookie.Domain != "" {
			t.Errorf("cookie %s: want __Host-, Secure, HttpOnly, SameSite=Strict, Path=/ and no domain", cookie)
		}
		if strings.Contains(cookie.Value, "jane") {
			t.Errorf("cookie %s has the token in clear", cookie.Name)
		}
	}
	for path, want := range map[string]int{"/api/v1/scanners?namespace=shop": http.StatusOK, "/api/v1/scanners?namespace=blog": http.StatusForbidden} {
		if got := b.status(path); got != want {
			t.Errorf("GET %s with the cookie: %d, want %d", path, got, want)
		}
	}
	// A header wins over the cookie: a program must not get the answers of another user.
	if _, body := b.send(http.MethodGet, PathSession, "", "Authorization", "Bearer "+anyone); !strings.Contains(body, `"user":"anyone"`) || !strings.Contains(body, `"cookie":false`) ||
		!strings.Contains(body, `"allNamespaces":true`) || !strings.Contains(body, `["blog","shop"]`) {
		t.Errorf("with a token in the header: %s, want that of the header's user", body)
	}
	if got := b.status("/api/v1/scanners", "Authorization", "Bearer forged"); got != http.StatusUnauthorized {
		t.Errorf("with a cookie and an invalid token in the header: %d, want 401", got)
	}
	if response, _ := b.send(http.MethodDelete, PathSession, ""); response.StatusCode != http.StatusNoContent {
		t.Errorf("signing out: %d, want 204", response.StatusCode)
	}
	if got := b.status(PathSession); got != http.StatusUnauthorized {
		t.Errorf("after signing out: %d, want 401", got)
	}
	if logs := w.logText(); strings.Contains(logs, `jane\n`) || strings.Contains(logs, "forged") {
		t.Errorf("a token is in the log: %s", logs)
	}
}

// sessionsOf returns the sessions of another replica with the same store.
func (w *harness) sessionsOf(keys func() ([][]byte, error), path string) *sessions {
	return &sessions{keys: keys, path: path, clock: w.clock, ended: endedSessions{store: w.store, clock: w.clock}}
}

// TestSignedOutSession: a copy of the cookies is not accepted after the session was signed out, in whatever form, by any replica, and a stream with it
// ends. Another session of the same token stays.
func TestSignedOutSession(t *testing.T) {
	w, _ := newFakeHarness(t)
	b, other := newBrowser(w), newBrowser(w)
	response, _ := b.signIn(anyone)
	other.signIn(anyone)
	cookie := response.Cookies()[0]
	acceptedBy := func(replica *sessions, value string) (found bool) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.url, nil)
		w.must(err)
		r.AddCookie(&http.Cookie{Name: cookie.Name, Value: value})
		_, found, err = replica.token(r)
		w.must(err)
		return found
	}
	copied := func(value string) bool { return acceptedBy(&w.api.sessions, value) }
	replica := w.sessionsOf(w.api.SessionKeys, "/")
	if !acceptedBy(replica, cookie.Value) {
		t.Error("another replica does not accept the session")
	}
	// The last character of a text in base64 has bits without a meaning.
	forms := []string{cookie.Value}
	for _, last := range "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_" {
		if form := cookie.Value[:len(cookie.Value)-1] + string(last); form != cookie.Value && copied(form) {
			forms = append(forms, form)
		}
	}
	watching := &caller{cookie: true, token: anyone, sealed: cookie.Value}
	if err := w.api.checkStreamCaller(t.Context(), watching); err != nil {
		t.Errorf("a stream with the session is ended: %v", err)
	}
	b.send(http.MethodDelete, PathSession, "")
	if err := w.api.checkStreamCaller(t.Context(), watching); !errors.Is(err, events.ErrUnauthorized) {
		t.Errorf("a stream with a session that was signed out goes on: %v", err)
	}
	for _, form := range forms {
		if copied(form) {
			t.Errorf("a copy of the cookie is accepted after signing out: …%s of …%s", form[len(form)-1:], cookie.Value[len(cookie.Value)-1:])
		}
	}
	w.clock.Step(endedSessionsTTL)
	if acceptedBy(replica, cookie.Value) {
		t.Error("another replica accepts a copy of the cookie")
	}
	if got := other.status(PathSession); got != http.StatusOK {
		t.Errorf("another session of the token: %d, want 200", got)
	}
}

// unavailableSessions is a store that has the sessions that were signed out, or is unavailable.
type unavailableSessions struct {
	Store
	unavailable bool
}

func (s *unavailableSessions) EndSession(ctx context.Context, e store.EndedSession, maxOfTenant, maxOfAll int) error {
	if s.unavailable {
		return errors.New("the store is unavailable")
	}
	return s.Store.EndSession(ctx, e, maxOfTenant, maxOfAll)
}

// TestSessionIsSignedOutAnyway: a session ends even if the browser closes the connection or the store is unavailable, and on every replica once it is back.
func TestSessionIsSignedOutAnyway(t *testing.T) {
	for name, isAborted := range map[string]bool{"the request is aborted": true, "the store is unavailable": false} {
		t.Run(name, func(t *testing.T) {
			w, _ := newFakeHarness(t)
			response, _ := newBrowser(w).signIn(anyone)
			sealed := response.Cookies()[0].Value
			s := &unavailableSessions{Store: w.store, unavailable: !isAborted}
			here, other := w.sessionsOf(w.api.SessionKeys, "/"), w.sessionsOf(w.api.SessionKeys, "/")
			here.ended.store = s
			ctx, abort := context.WithCancel(t.Context())
			_, found, err := here.opened(ctx, sealed)
			if w.must(err); !found {
				t.Fatal("the session is not accepted")
			}
			if isAborted {
				abort()
			}
			err = here.end(ctx, sealed)
			if failed := err != nil; failed != s.unavailable {
				t.Errorf("the session ends with the error %v", err)
			}
			for _, at := range []string{"at once", "later", "once the store is back"} {
				if _, found, err = here.opened(t.Context(), sealed); found || err != nil {
					t.Errorf("%s: the session is still accepted, or fails: %v", at, err)
				}
				s.unavailable = s.unavailable && at == "at once"
				w.clock.Step(endedSessionsTTL)
			}
			if _, found, err = other.opened(t.Context(), sealed); found || err != nil {
				t.Errorf("another replica still accepts the session, or fails: %v", err)
			}
			abort()
		})
	}
}

// TestSessionOfARefusedToken: a token that the API server does not accept gives no cookie, and neither does a body that is not a token. No
// response and no log repeats what was sent.
func TestSessionOfARefusedToken(t *testing.T) {
	w, _ := newFakeHarness(t)
	// A body that is much larger would still be on its way when the server closes the connection, and the client could miss the response.
	tooLarge := strings.Repeat("x", maxSignInBytes)
	for name, tt := range map[string]struct {
		body string
		want int
	}{
		"a forged token":    {`{"token":"secret-forged"}`, http.StatusUnauthorized},
		"an empty token":    {`{"token":""}`, http.StatusBadRequest},
		"no token":          {`{}`, http.StatusBadRequest},
		"no JSON":           {`secret-token`, http.StatusBadRequest},
		"another type":      {`{"token":{"secret-key":1}}`, http.StatusBadRequest},
		"a token too large": {`{"token":"secret-` + strings.Repeat("x", maxTokenBytes) + `"}`, http.StatusBadRequest},
		"a body too large":  {`{"token":"secret-` + tooLarge + `"}`, http.StatusBadRequest},
		"nothing":           {``, http.StatusBadRequest},
	} {
		response, body := newBrowser(w).send(http.MethodPost, PathSession, tt.body)
		if response.StatusCode != tt.want || len(response.Cookies()) > 0 {
			t.Errorf("%s: %d with %d cookies, want %d without", name, response.StatusCode, len(response.Cookies()), tt.want)
		}
		if strings.Contains(body+w.logText(), "secret") {
			t.Errorf("%s: the response or the log repeats it: %s", name, body)
		}
	}
}

// TestSessionFromAnotherOrigin: pages of other origins can neither sign in nor out, and their requests do not use the cookie.
func TestSessionFromAnotherOrigin(t *testing.T) {
	w, _ := newFakeHarness(t)
	b := newBrowser(w)
	for name, headers := range map[string][]string{
		"another site":                     {"Sec-Fetch-Site", "cross-site"},
		"another host of the same site":    {"Sec-Fetch-Site", "same-site"},
		"an old browser and another host":  {"Origin", "https://evil.example.com"},
		"a page without an origin (null)":  {"Origin", "null"},
		"the same host with another port ": {"Origin", "https://127.0.0.1:1"},
	} {
		for _, method := range []string{http.MethodPost, http.MethodDelete} {
			if response, _ := b.send(method, PathSession, "", headers...); response.StatusCode != http.StatusForbidden {
				t.Errorf("%s from %s: %d, want 403", method, name, response.StatusCode)
			}
		}
	}
	if response, body := b.signIn(anyone, "Origin", w.url, "Sec-Fetch-Site", "same-origin"); response.StatusCode != http.StatusOK {
		t.Fatalf("from its own origin: %d %s", response.StatusCode, body)
	}
	for site, want := range map[string]int{"same-origin": http.StatusOK, "none": http.StatusOK, "same-site": http.StatusUnauthorized, "cross-site": http.StatusUnauthorized} {
		if got := b.status("/api/v1/scanners", "Sec-Fetch-Site", site); got != want {
			t.Errorf("GET with the cookie and Sec-Fetch-Site %s: %d, want %d", site, got, want)
		}
	}
}

// TestSessionEnds: a session ends with its token, when the key changes and, for a token without an expiration, after maxSession. A cookie
// that was changed is none.
func TestSessionEnds(t *testing.T) {
	w, reviewer := newFakeHarness(t)
	token := jwt(noon.Add(time.Hour), 9000) // three cookies and more
	reviewer.tokens[token] = authenticationv1.UserInfo{Username: "jane"}
	b := newBrowser(w)
	response, body := b.signIn(token)
	if response.StatusCode != http.StatusOK || !strings.Contains(body, `"expirationTime":"2026-03-01T13:00:00Z"`) {
		t.Fatalf("signing in: %d %s, want the token's expiration", response.StatusCode, body)
	}
	for _, cookie := range response.Cookies() {
		if len(cookie.String()) > 4096 {
			t.Errorf("cookie %s has %d bytes, and browsers take 4096", cookie.Name, len(cookie.String()))
		}
	}
	if got := b.status(PathSession); got != http.StatusOK {
		t.Fatalf("with a large token: %d, want 200", got)
	}
	other := w.sessionsOf(func() ([][]byte, error) { return [][]byte{make([]byte, 32)}, nil }, "/")
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.url+PathSession, nil)
	w.must(err)
	for _, cookie := range b.client.Jar.Cookies(r.URL) {
		r.AddCookie(cookie)
	}
	if _, found, err := w.api.sessions.token(r); !found || err != nil {
		t.Fatalf("the session's own key does not open it: %v", err)
	}
	if _, found, err := other.token(r); found || err != nil {
		t.Errorf("another key opens the session: %v", err)
	}
	other.keys = func() ([][]byte, error) {
		own, err := w.api.SessionKeys()
		return append([][]byte{make([]byte, 32)}, own...), err
	}
	if _, found, err := other.token(r); !found || err != nil {
		t.Errorf("a replica that seals with another key, and has this one, does not open the session: %v", err)
	}
	other = w.sessionsOf(w.api.SessionKeys, "/scanner")
	if _, found, _ := other.token(r); found {
		t.Error("below a base path, the cookie of another path is accepted")
	}
	changed := strings.Replace(r.Header.Get("Cookie"), "scanner-operator-1=", "scanner-operator-1=A", 1)
	r.Header.Set("Cookie", changed)
	if _, found, err := w.api.sessions.token(r); found || err != nil {
		t.Errorf("a changed cookie opens: %v", err)
	}
	w.clock.Step(time.Hour)
	if got := b.status(PathSession); got != http.StatusUnauthorized {
		t.Errorf("after the token's expiration: %d, want 401", got)
	}
	b = newBrowser(w)
	b.signIn(anyone)
	w.clock.Step(maxSession - time.Second)
	if got := b.status(PathSession); got != http.StatusOK {
		t.Errorf("before %s: %d, want 200", maxSession, got)
	}
	w.clock.Step(time.Second)
	if got := b.status(PathSession); got != http.StatusUnauthorized {
		t.Errorf("after %s: %d, want 401", maxSession, got)
	}
}

// TestTokenWithEndlessExpiration: the expiration of a token may be a time that JSON cannot have. Such a session lasts as long as one of a token without expiration.
func TestTokenWithEndlessExpiration(t *testing.T) {
	for expires, want := range map[time.Time]string{
		time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC): `"expirationTime":"9999-12-31T23:59:59Z"`,
		time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC):     `"user":"jane"`,
	} {
		w, reviewer := newFakeHarness(t)
		token := jwt(expires, 0)
		reviewer.tokens[token] = authenticationv1.UserInfo{Username: "jane"}
		b := newBrowser(w)
		if response, body := b.signIn(token); response.StatusCode != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("signing in until %s: %d %s, want %s", expires, response.StatusCode, body, want)
		}
	}
}

// TestSessionFitsIn: the cookies have room for the largest token.
func TestSessionFitsIn(t *testing.T) {
	w, _ := newFakeHarness(t)
	if _, err := w.api.sessions.seal("jane", strings.Repeat("x", maxTokenBytes)); err != nil {
		t.Error(err)
	}
}

// TestRequestsOfOneUser: a user who fills its slots is refused, and another user is not.
func TestRequestsOfOneUser(t *testing.T) {
	var a API
	take := func(user string, n int) (releases []func()) {
		t.Helper()
		for range n {
			release, err := a.takeRequest(user)
			if err != nil {
				t.Fatal(err)
			}
			releases = append(releases, release)
		}
		return releases
	}
	releases := take("jane", maxRequestsPerUser)
	if _, err := a.takeRequest("jane"); err == nil {
		t.Errorf("request %d of one user is admitted", maxRequestsPerUser+1)
	}
	take("john", 1)
	for _, release := range releases {
		release()
	}
	take("jane", 1)
}

// TestRequestsOfOneTenant: whoever creates ServiceAccounts does not get more slots with each of them.
func TestRequestsOfOneTenant(t *testing.T) {
	var a API
	account := func(namespace string, i int) string {
		return fmt.Sprintf("system:serviceaccount:%s:account-%d", namespace, i)
	}
	for i := range maxRequestsPerTenant {
		if _, err := a.takeRequest(account("shop", i)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := a.takeRequest(account("shop", maxRequestsPerTenant)); err == nil {
		t.Errorf("request %d of the ServiceAccounts of a namespace is admitted", maxRequestsPerTenant+1)
	}
	if _, err := a.takeRequest(account("blog", 0)); err != nil {
		t.Errorf("a ServiceAccount of another namespace is refused: %v", err)
	}
}
