// Package cloudtest has stand-ins for the token services and registries of clouds. They follow the documented protocols, verify what the
// documentation requires of a request, and need no network. Only tests import the package.
package cloudtest

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/scanner-operator/scanner-operator/registry/registrytest"
)

// Cloud is one cloud with its token services and one registry. It implements http.RoundTripper: requests to other hosts fail as they do
// without such a host. Set its fields before it gets requests.
type Cloud struct {
	// Host is that of the registry.
	Host string
	// Env is the environment of a pod with an identity, as the cloud's webhook sets it.
	Env map[string]string
	// Now is the cloud's clock. Lifetime is that of each credential for the registry; by default 12 hours.
	Now      func() time.Time
	Lifetime time.Duration
	// Answers answer the calls of token services with these names instead of the service.
	Answers map[string]http.HandlerFunc
	// OnBlob is called before the registry sends a blob; may be nil.
	OnBlob func()
	// RefusePulls makes the registry refuse all credentials.
	RefusePulls bool

	mu sync.Mutex
	// hosts has the servers by scheme and host, such as "https://sts.eu-central-1.amazonaws.com".
	hosts map[string]http.Handler
	// calls are the names of the calls that token services got, in order.
	calls []string
	// expiries are the ends of the issued credentials.
	expiries map[string]time.Time
}

// newCloud returns a cloud whose registry identifies its clients with authenticate. challenge is what others get.
func newCloud(host, challenge string, authenticate func(*http.Request) bool) *Cloud {
	c := &Cloud{Host: host, Now: time.Now, Lifetime: 12 * time.Hour, Env: map[string]string{}, expiries: map[string]time.Time{}}
	inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	c.hosts = map[string]http.Handler{
		pushURL: inner,
		"https://" + host: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if c.RefusePulls || !authenticate(r) {
				w.Header().Set("WWW-Authenticate", challenge)
				writeJSON(w, http.StatusUnauthorized, map[string]any{"errors": []any{map[string]string{"code": "UNAUTHORIZED", "message": "authentication required"}}})
				return
			}
			if c.OnBlob != nil && strings.Contains(r.URL.Path, "/blobs/") {
				c.OnBlob()
			}
			inner.ServeHTTP(w, r)
		}),
	}
	return c
}

// RoundTrip implements http.RoundTripper.
func (c *Cloud) RoundTrip(r *http.Request) (*http.Response, error) {
	handler, found := c.hosts[r.URL.Scheme+"://"+r.URL.Host]
	if !found {
		return nil, &net.DNSError{Err: "no such host", Name: r.URL.Host, IsNotFound: true}
	}
	received := r.Clone(r.Context())
	received.Method, received.Host, received.RequestURI = cmp.Or(r.Method, http.MethodGet), cmp.Or(r.Host, r.URL.Host), r.URL.RequestURI()
	if received.Body == nil {
		received.Body = http.NoBody
	}
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, received)
	response := recorder.Result()
	response.Request = r
	return response, nil
}

// push is where images are pushed without credentials.
const push, pushURL = "push.test", "https://push.test"

// Push puts an image into the registry, and returns its reference by digest.
func (c *Cloud) Push(t testing.TB, image v1.Image) string {
	t.Helper()
	reference, err := name.ParseReference(push + "/team/app:1")
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(reference, image, remote.WithTransport(c)); err != nil {
		t.Fatal(err)
	}
	return c.Host + "/team/app@" + registrytest.Digest(t, image)
}

// Calls returns the names of the calls that token services got, in order.
func (c *Cloud) Calls() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string{}, c.calls...)
}

// Getenv returns a variable of the pod's environment.
func (c *Cloud) Getenv(variable string) string { return c.Env[variable] }

// service returns the handler of a token service's call. check returns why the documentation does not allow a request; empty if it does.
func (c *Cloud) service(call string, check func(*http.Request) string, serve http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		c.calls = append(c.calls, call)
		c.mu.Unlock()
		if answer := c.Answers[call]; answer != nil {
			answer(w, r)
			return
		}
		if problem := check(r); problem != "" {
			http.Error(w, "the stand-in got a wrong request: "+problem, http.StatusBadRequest)
			return
		}
		serve(w, r)
	}
}

// issue returns a new credential that begins with prefix, and when it expires.
func (c *Cloud) issue(prefix string) (value string, expires time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	value, expires = fmt.Sprintf("s3cret-%s-%d", prefix, len(c.expiries)+1), c.Now().Add(c.Lifetime)
	c.expiries[value] = expires
	return value, expires
}

// issueJWT is issue for a credential that is a token with its own expiry.
func (c *Cloud) issueJWT() string {
	value, expires := c.issue("jwt")
	token := JWT(map[string]any{"jti": value, "exp": expires.Unix()})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expiries[token] = expires
	return token
}

// isValid reports whether a credential was issued and has not expired.
func (c *Cloud) isValid(value string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.Now().Before(c.expiries[value])
}

// JWT returns a JSON Web Token with these claims. Its signature is not one.
func JWT(claims map[string]any) string {
	raw, err := json.Marshal(claims)
	if err != nil {
		panic(err) // texts and numbers always marshal
	}
	encode := base64.RawURLEncoding.EncodeToString
	return encode([]byte(`{"alg":"none"}`)) + "." + encode(raw) + "." + encode([]byte("signature"))
}

// AccountToken returns a token of a ServiceAccount, as the kubelet writes it.
func AccountToken(namespace, account string) string {
	return JWT(map[string]any{"sub": "system:serviceaccount:" + namespace + ":" + account})
}

// file writes a token into a file of the test, and returns its path.
func file(t testing.TB, token string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// writeJSON answers with a status and a JSON body.
func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

// checkForm returns which field of a form does not have the wanted value; empty if all have.
func checkForm(r *http.Request, want map[string]string) string {
	for field, value := range want {
		if got := r.PostFormValue(field); got != value {
			return fmt.Sprintf("%s is %q, want %q", field, got, value)
		}
	}
	return ""
}
