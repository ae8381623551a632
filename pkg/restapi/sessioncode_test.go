package restapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/pkg/limits"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// newCode returns a code for a token.
func (b *browser) newCode(token string) restv1.SessionCode {
	b.t.Helper()
	response, body := b.send(http.MethodPost, PathSession+"/code", "", "Authorization", "Bearer "+token)
	var code restv1.SessionCode
	if err := json.Unmarshal([]byte(body), &code); err != nil || response.StatusCode != http.StatusOK {
		b.t.Fatalf("a code: %d %s", response.StatusCode, body)
	}
	if got := response.Header.Get("Cache-Control"); got != "no-store" {
		b.t.Errorf("a code may be stored: Cache-Control %q", got)
	}
	return code
}

func (b *browser) redeem(code string, headers ...string) (*http.Response, string) {
	b.t.Helper()
	return b.send(http.MethodPost, PathSession, fmt.Sprintf(`{"code":%q}`, code), headers...)
}

// TestSessionCode: a code signs in once as the user of the token that it was made for. Neither code nor token is in the log.
func TestSessionCode(t *testing.T) {
	w, reviewer := newFakeHarness(t)
	reviewer.tokens["jane-token"] = authenticationv1.UserInfo{Username: "jane"}
	code := newBrowser(w).newCode("jane-token")
	if len(code.Code) != 43 || !code.ExpirationTime.Equal(noon.Add(time.Minute)) || code.Path != "/" {
		t.Errorf("%+v: want 256 bits in base64url, a minute and the path /", code)
	}
	if strings.Contains(code.Code, "jane") {
		t.Error("the token is in the code")
	}
	b := newBrowser(w)
	response, body := b.redeem(code.Code)
	if response.StatusCode != http.StatusOK || !strings.Contains(body, `"user":"jane"`) || len(response.Cookies()) == 0 {
		t.Fatalf("the code: %d %s with %d cookies, want jane's session", response.StatusCode, body, len(response.Cookies()))
	}
	if got := b.status(PathSession); got != http.StatusOK {
		t.Errorf("with the session: %d, want 200", got)
	}
	again := newBrowser(w)
	if response, body := again.redeem(code.Code); response.StatusCode != http.StatusUnauthorized || len(response.Cookies()) > 0 || !strings.Contains(body, "kubectl scanner ui") {
		t.Errorf("the code again: %d %s, want 401 with the way out", response.StatusCode, body)
	}
	if response, body := b.send(http.MethodPost, PathSession+"/code", ""); response.StatusCode != http.StatusForbidden {
		t.Errorf("a code for a cookie: %d %s, want 403", response.StatusCode, body)
	}
	if logs := w.logText(); strings.Contains(logs, code.Code) || strings.Contains(logs, "jane-token") {
		t.Errorf("the code or the token is in the log: %s", logs)
	}
}

// TestSessionCodeOnAnotherReplica: a code of one replica signs in on another one, once. Neither the code nor the token can be read from their store.
func TestSessionCodeOnAnotherReplica(t *testing.T) {
	w, _ := newFakeHarness(t)
	code := newBrowser(w).newCode(anyone)
	var dump bytes.Buffer
	_, err := w.store.Dump(t.Context(), "test", &dump, func(string, int64) {})
	w.must(err)
	if text := dump.String(); !strings.Contains(text, hashOf(code.Code)) || strings.Contains(text, code.Code) || strings.Contains(text, anyone) {
		t.Error("want the hash of the code in the store, and neither the code nor the token")
	}
	ctx := store.ForAnyReplica(t.Context())
	other := &sessionCodes{store: w.store, clock: w.clock, lookups: limits.NewPool(maxCodeLookups)}
	if token, err := other.redeem(ctx, "192.0.2.1", code.Code); token != anyone || err != nil {
		t.Errorf("on another replica: %q, %v, want the token", token, err)
	}
	if _, err := w.api.codes.redeem(ctx, "192.0.2.1", code.Code); err == nil {
		t.Error("a code that another replica has accepted signs in again")
	}
}

// TestSessionCodeBelowABasePath: a code comes with the path of the web UI.
func TestSessionCodeBelowABasePath(t *testing.T) {
	w, _ := newFakeHarness(t)
	w.api.BasePath = "/scanner"
	if code := newBrowser(w).newCode(anyone); code.Path != "/scanner/" {
		t.Errorf("the path is %q, want that of the web UI with a slash at its end", code.Path)
	}
}

// TestSessionCodeAtOnce: of many requests with one code at the same time, one signs in.
func TestSessionCodeAtOnce(t *testing.T) {
	w, _ := newFakeHarness(t)
	code := newBrowser(w).newCode(anyone)
	var signedIn atomic.Int32
	var wait sync.WaitGroup
	for range 16 {
		wait.Go(func() {
			if _, err := w.api.codes.redeem(store.ForAnyReplica(t.Context()), "192.0.2.1", code.Code); err == nil {
				signedIn.Add(1)
			}
		})
	}
	wait.Wait()
	if signedIn.Load() != 1 {
		t.Errorf("%d of 16 requests sign in, want 1", signedIn.Load())
	}
}

// TestSessionCodeExpires: a code works until a minute has passed. One whose token was revoked in the meantime does not sign in.
func TestSessionCodeExpires(t *testing.T) {
	w, reviewer := newFakeHarness(t)
	early, late := newBrowser(w).newCode(anyone), newBrowser(w).newCode(anyone)
	reviewer.tokens["revoked"] = authenticationv1.UserInfo{Username: "jane"}
	revoked := newBrowser(w).newCode("revoked")
	delete(reviewer.tokens, "revoked")
	w.clock.Step(codeTTL - time.Second)
	if response, body := newBrowser(w).redeem(early.Code); response.StatusCode != http.StatusOK {
		t.Errorf("after 59 seconds: %d %s, want 200", response.StatusCode, body)
	}
	if response, body := newBrowser(w).redeem(revoked.Code); response.StatusCode != http.StatusUnauthorized || len(response.Cookies()) > 0 {
		t.Errorf("with a token that was revoked: %d %s, want 401", response.StatusCode, body)
	}
	w.clock.Step(time.Second)
	if response, body := newBrowser(w).redeem(late.Code); response.StatusCode != http.StatusUnauthorized {
		t.Errorf("after 60 seconds: %d %s, want 401", response.StatusCode, body)
	}
}

// TestSessionCodeFromAnotherOrigin: a page of another origin can neither make nor use a code, and using one there does not end it.
func TestSessionCodeFromAnotherOrigin(t *testing.T) {
	w, _ := newFakeHarness(t)
	b := newBrowser(w)
	code := b.newCode(anyone)
	for _, headers := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "https://evil.example.com"}, {"Origin", "null"}} {
		if response, body := b.redeem(code.Code, headers...); response.StatusCode != http.StatusForbidden || len(response.Cookies()) > 0 {
			t.Errorf("using a code, %q: %d %s, want 403", headers, response.StatusCode, body)
		}
		if response, _ := b.send(http.MethodPost, PathSession+"/code", "", append(headers, "Authorization", "Bearer "+anyone)...); response.StatusCode != http.StatusForbidden {
			t.Errorf("making a code, %q: %d, want 403", headers, response.StatusCode)
		}
	}
	if response, body := b.redeem(code.Code, "Origin", w.url, "Sec-Fetch-Site", "same-origin"); response.StatusCode != http.StatusOK {
		t.Errorf("from its own origin: %d %s, want 200", response.StatusCode, body)
	}
}

// TestSessionCodesAreBounded: guesses cost no review and end no code of others, a user keeps its newest codes, and there is a limit for all
// users together.
func TestSessionCodesAreBounded(t *testing.T) {
	w, reviewer := newFakeHarness(t)
	b := newBrowser(w)
	code := b.newCode(anyone)
	reviews := reviewer.reviews
	for i := range 500 {
		guess := fmt.Sprintf("%043d", i)
		if response, _ := b.redeem(guess); response.StatusCode != http.StatusUnauthorized {
			t.Fatalf("guess %d: %d, want 401", i, response.StatusCode)
		}
	}
	if response, _ := b.redeem(strings.Repeat("x", maxSignInBytes)); response.StatusCode != http.StatusBadRequest {
		t.Errorf("a code that is too long: %d, want 400", response.StatusCode)
	}
	if response, _ := b.send(http.MethodPost, PathSession, `{"code":"a","token":"b"}`); response.StatusCode != http.StatusBadRequest {
		t.Errorf("a code and a token: %d, want 400", response.StatusCode)
	}
	if got := reviewer.reviews; got != reviews {
		t.Errorf("after guesses: %d more reviews, want none", got-reviews)
	}
	var newest restv1.SessionCode
	for range maxCodesPerUser {
		w.clock.Step(time.Second)
		newest = b.newCode(anyone)
	}
	if response, _ := b.redeem(code.Code); response.StatusCode != http.StatusUnauthorized {
		t.Errorf("the oldest of %d codes of a user: %d, want 401", maxCodesPerUser+1, response.StatusCode)
	}
	if response, _ := b.redeem(newest.Code); response.StatusCode != http.StatusOK {
		t.Errorf("the newest of %d codes of a user: %d, want 200", maxCodesPerUser+1, response.StatusCode)
	}
	w.clock.Step(codeTTL)
	ctx, codes := store.ForAnyReplica(t.Context()), w.api.codes
	for i := range maxCodes {
		if _, _, err := codes.create(ctx, fmt.Sprint("user-", i), "token"); err != nil {
			t.Fatalf("code %d: %v", i, err)
		}
	}
	if _, _, err := codes.create(ctx, "one-more", "token"); err == nil {
		t.Errorf("%d codes are accepted, want at most %d", maxCodes+1, maxCodes)
	}
	w.clock.Step(codeTTL)
	if _, _, err := codes.create(ctx, "one-more", "token"); err != nil {
		t.Errorf("after the codes have expired: %v", err)
	}
	for i := 0; ; i++ {
		response, body := b.send(http.MethodPost, PathSession+"/code", "", "Authorization", "Bearer "+anyone)
		if response.StatusCode == http.StatusTooManyRequests {
			break
		}
		if response.StatusCode != http.StatusOK || i == writesPerMinute {
			t.Fatalf("code %d of a minute: %d %s, want 429 after %d", i+1, response.StatusCode, body, writesPerMinute)
		}
	}
}

// TestSessionCodesOfServiceAccounts checks that the ServiceAccounts of a namespace together have no more codes than a user.
func TestSessionCodesOfServiceAccounts(t *testing.T) {
	w, _ := newFakeHarness(t)
	ctx, codes := store.ForAnyReplica(t.Context()), w.api.codes
	first, _, err := codes.create(ctx, "system:serviceaccount:shop:ci-0", "token")
	if err != nil {
		t.Fatal(err)
	}
	for i := range maxCodesPerUser {
		w.clock.Step(time.Second)
		if _, _, err := codes.create(ctx, fmt.Sprint("system:serviceaccount:shop:ci-", i+1), "token"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := codes.redeem(ctx, "192.0.2.1", first); err == nil {
		t.Errorf("the first of %d codes of a namespace still signs in", maxCodesPerUser+1)
	}
}
