package api_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/scanner-operator/scanner-operator/pkg/backend/clair/api"
)

var (
	key = bytes.Repeat([]byte("k"), 36) // as long as the key in Clair's own example
	now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
)

func withKey(o *api.Options) {
	o.Clock = clocktesting.NewFakePassiveClock(now)
	o.Auth = func(context.Context) (api.Auth, error) {
		return api.Auth{Key: key, Issuer: "scanner-operator"}, nil
	}
}

// TestEveryRequestIsSigned: every request has a token that Clair accepts, even if its clock differs by a minute.
func TestEveryRequestIsSigned(t *testing.T) {
	asked := 0
	client := newTestClient(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		for _, at := range []time.Time{now.Add(-time.Minute), now, now.Add(time.Minute)} {
			if err := api.VerifyToken(token, key, []string{"scanner-operator"}, at); err != nil || !ok {
				t.Errorf("%s at %s: %v", r.URL, at, err)
			}
		}
		if err := api.VerifyToken(token, key, []string{"scanner-operator"}, now.Add(2*time.Minute)); err == nil {
			t.Error("the token is still valid after two minutes")
		}
		w.WriteHeader(http.StatusUnauthorized)
	}), withKey)
	for request, ask := range everything {
		if err := ask(t.Context(), client); api.KindOf(err) != api.Unauthorized {
			t.Errorf("%s: %v", request, err)
		}
	}
	if asked != len(everything) {
		t.Errorf("%d requests, want %d", asked, len(everything))
	}
}

// TestAuthFails: without a key no request is sent, and the error of Auth is returned.
func TestAuthFails(t *testing.T) {
	away := errors.New("no such Secret")
	for name, auth := range map[string]func(context.Context) (api.Auth, error){
		"an error": func(context.Context) (api.Auth, error) { return api.Auth{}, away },
		"no key":   func(context.Context) (api.Auth, error) { return api.Auth{Issuer: "a"}, nil },
		"no name":  func(context.Context) (api.Auth, error) { return api.Auth{Key: key}, nil },
	} {
		t.Run(name, func(t *testing.T) {
			client := newTestClient(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("asked for %s", r.URL) }),
				func(o *api.Options) { o.Auth = auth })
			if err := indexState(t.Context(), client); err == nil || name == "an error" && !errors.Is(err, away) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// signed returns a token as Clair's notifier makes it, with changed claims.
func signed(t *testing.T, algorithm jose.SignatureAlgorithm, key any, change func(*jwt.Claims)) string {
	t.Helper()
	claims := jwt.Claims{
		Issuer: api.NotifierIssuer, IssuedAt: jwt.NewNumericDate(now),
		NotBefore: jwt.NewNumericDate(now.Add(-time.Minute)), Expiry: jwt.NewNumericDate(now.Add(time.Minute)),
	}
	if change != nil {
		change(&claims)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: key}, nil)
	if err != nil {
		t.Fatal(err)
	}
	token, err := jwt.Signed(signer).Claims(claims).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func TestVerifyToken(t *testing.T) {
	long := append(bytes.Clone(key), make([]byte, 64-len(key))...) // the same key for HMAC
	at := jwt.NewNumericDate
	good := signed(t, jose.HS256, key, nil)
	payload := strings.Split(good, ".")[1]
	none := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`)) + "." + payload + "."
	for name, test := range map[string]struct {
		token string
		valid bool
	}{
		"as Clair signs":             {good, true},
		"HS384":                      {signed(t, jose.HS384, long, nil), true},
		"HS512":                      {signed(t, jose.HS512, long, nil), true},
		"expired within the leeway":  {signed(t, jose.HS256, key, func(c *jwt.Claims) { c.Expiry = at(now.Add(-14 * time.Second)) }), true},
		"expired":                    {signed(t, jose.HS256, key, func(c *jwt.Claims) { c.Expiry = at(now.Add(-16 * time.Second)) }), false},
		"begins within the leeway":   {signed(t, jose.HS256, key, func(c *jwt.Claims) { c.NotBefore = at(now.Add(14 * time.Second)) }), true},
		"begins later":               {signed(t, jose.HS256, key, func(c *jwt.Claims) { c.NotBefore = at(now.Add(16 * time.Second)) }), false},
		"never expires":              {signed(t, jose.HS256, key, func(c *jwt.Claims) { c.Expiry = nil }), false},
		"another issuer":             {signed(t, jose.HS256, key, func(c *jwt.Claims) { c.Issuer = "clairctl" }), false},
		"another key":                {signed(t, jose.HS256, bytes.Repeat([]byte("x"), 36), nil), false},
		"not signed":                 {none, false},
		"signature cut off":          {good[:len(good)-4], false},
		"nothing":                    {"", false},
		"with its scheme":            {"Bearer " + good, false},
		"longer than any of Clair's": {good + strings.Repeat("a", 8<<10), false},
	} {
		t.Run(name, func(t *testing.T) {
			err := api.VerifyToken(test.token, key, []string{api.NotifierIssuer}, now)
			if (err == nil) != test.valid {
				t.Errorf("got %v, want valid %t", err, test.valid)
			}
			if err != nil && len(test.token) > 0 && strings.Contains(err.Error(), test.token) {
				t.Errorf("the token stands in %q", err)
			}
		})
	}
	if api.VerifyToken(good, nil, []string{api.NotifierIssuer}, now) == nil || api.VerifyToken(good, key, nil, now) == nil {
		t.Error("without key or issuers no token is valid")
	}
}

func TestParseKey(t *testing.T) {
	text := base64.StdEncoding.EncodeToString(key)
	if got, err := api.ParseKey(text + "\n"); err != nil || !bytes.Equal(got, key) {
		t.Errorf("got %q, %v", got, err)
	}
	for _, bad := range []string{"", "hunter2", "aHVudGVyMg==", text[1:]} {
		if _, err := api.ParseKey(bad); err == nil || bad != "" && strings.Contains(err.Error(), bad) {
			t.Errorf("%q: want an error that does not quote it, got %v", bad, err)
		}
	}
}

// TestParseAuth: the issuer is optional and its length is bounded.
func TestParseAuth(t *testing.T) {
	for issuer, want := range map[string]string{
		"": "scanner-operator", " quay\n": "quay", strings.Repeat("x", 256): strings.Repeat("x", 256), strings.Repeat("x", 257): "", //nolint:gocritic // the white space is what is tested
	} {
		auth, err := api.ParseAuth(map[string][]byte{"key": []byte(base64.StdEncoding.EncodeToString(key)), "issuer": []byte(issuer)})
		if auth.Issuer != want || (err == nil) != (want != "") {
			t.Errorf("issuer %q: got %q, %v", issuer, auth.Issuer, err)
		}
	}
}

func TestParseWebhook(t *testing.T) {
	recorded, err := testdata.ReadFile("testdata/webhook.json")
	if err != nil {
		t.Fatal(err)
	}
	got, err := api.ParseWebhook(bytes.NewReader(recorded))
	if err != nil || got != notification {
		t.Errorf("got %+v, %v", got, err)
	}
	const id = `"notification_id":"368084e0-418d-41b1-8f3a-906bf4dc51e2"`
	if _, err := api.ParseWebhook(strings.NewReader("{" + id + `,"of a later version":1}`)); err != nil {
		t.Errorf("an unknown field: %v", err)
	}
	for name, body := range map[string]io.Reader{
		"nothing":        strings.NewReader(""),
		"no JSON":        strings.NewReader("notification_id=1"),
		"two documents":  strings.NewReader("{" + id + "}{}"),
		"no id":          strings.NewReader(`{}`),
		"an id of none":  strings.NewReader(`{"notification_id":"../index_state"}`),
		"another form":   strings.NewReader(`{"notification_id":"368084e0418d41b18f3a906bf4dc51e2"}`),
		"a number":       strings.NewReader(`{"notification_id":1}`),
		"huge":           strings.NewReader("{" + id + `,"callback":"` + strings.Repeat("a", 8<<10) + `"}`),
		"broken off":     io.MultiReader(strings.NewReader("{"+id), failing{}),
		"valid and more": strings.NewReader("{" + id + "}" + strings.Repeat(" ", 8<<10)),
	} {
		if got, err := api.ParseWebhook(body); err == nil {
			t.Errorf("%s: got %+v, want an error", name, got)
		}
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
