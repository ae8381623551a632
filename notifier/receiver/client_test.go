package receiver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/egress"
)

// newServer returns a server that accepts everything, and a pool that trusts its certificate.
func newServer(t *testing.T) (server *httptest.Server, posts *atomic.Int32, pool *x509.CertPool) {
	t.Helper()
	posts = &atomic.Int32{}
	server = httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { posts.Add(1) }))
	t.Cleanup(server.Close)
	pool = x509.NewCertPool()
	pool.AddCert(server.Certificate())
	return server, posts, pool
}

// targetOf returns the target for a URL of a server whose host is listed by name, without its network.
func targetOf(t *testing.T, address, host string) egress.Target {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = net.JoinHostPort(host, u.Port())
	policy, err := egress.NewPolicy([]string{u.Host})
	if err != nil {
		t.Fatal(err)
	}
	to, allowed := policy.Target(u)
	if !allowed {
		t.Fatalf("%s is not allowed", u)
	}
	return to
}

// TestProxy: with a proxy, the receiver is reached through it, encrypted end to end. The proxy resolves the receiver's name.
func TestProxy(t *testing.T) {
	server, posts, pool := newServer(t)
	var tunnels atomic.Int32
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect {
			t.Errorf("the proxy was asked for %s, want CONNECT only", r.Method)
			return
		}
		tunnels.Add(1)
		tunnel(t, w, server.Listener.Addr().String())
	}))
	defer proxy.Close()
	proxyURL, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	client := NewClient("the webhook", Network{Roots: Trusting(pool), Proxy: http.ProxyURL(proxyURL)})
	// The certificate of httptest is valid for example.com.
	if answer, none := client.Post(t.Context(), Address{Target: targetOf(t, server.URL, "example.com")}, http.Header{}, nil); none != nil || !answer.IsOK() {
		t.Errorf("answer %+v, outcome %+v, want the message accepted", answer, none)
	}
	if tunnels.Load() != 1 || posts.Load() != 1 {
		t.Errorf("%d tunnels and %d messages, want one of each", tunnels.Load(), posts.Load())
	}
}

// TestProxyWithTLS: the certificates of a receiver are not for the administrator's proxy. It is not trusted by them, and does not get them.
func TestProxyWithTLS(t *testing.T) {
	server, _, _ := newServer(t)
	var shown atomic.Int32
	proxy := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		shown.Add(int32(len(r.TLS.PeerCertificates)))
		tunnel(t, w, server.Listener.Addr().String())
	}))
	proxy.TLS, proxy.Config.ErrorLog = &tls.Config{ClientAuth: tls.RequestClientCert}, log.New(io.Discard, "", 0)
	proxy.StartTLS()
	defer proxy.Close()
	proxyURL, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	to := Address{Target: targetOf(t, server.URL, "example.com"), Certificates: Certificates{
		Authorities: []*x509.Certificate{server.Certificate()}, Client: &server.TLS.Certificates[0],
	}}
	other := x509.NewCertPool()
	if _, none := NewClient("the webhook", Network{Roots: Trusting(other), Proxy: http.ProxyURL(proxyURL)}).Post(t.Context(), to, http.Header{}, nil); none == nil || none.Result != announce.Temporary {
		t.Errorf("outcome %+v through a proxy that only the receiver's CA vouches for, want no connection", none)
	}
	other.AddCert(proxy.Certificate())
	to.Certificates.Authorities = nil // the same certificate as the proxy's
	answer, none := NewClient("the webhook", Network{Roots: Trusting(other), Proxy: http.ProxyURL(proxyURL)}).Post(t.Context(), to, http.Header{}, nil)
	if none != nil || !answer.IsOK() || shown.Load() != 0 {
		t.Errorf("answer %+v, outcome %+v, and %d certificates shown to the proxy, want the message accepted and none shown", answer, none, shown.Load())
	}
}

// TestBrokenProxy: the outcome contains neither the proxy's password nor the receiver's address.
func TestBrokenProxy(t *testing.T) {
	server, _, pool := newServer(t)
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "unknown user "+r.Header.Get("Proxy-Authorization"), http.StatusProxyAuthRequired)
	}))
	defer refusing.Close()
	for what, host := range map[string]string{"refuses its user": refusing.Listener.Addr().String(), "is away": "127.0.0.1:1"} {
		proxy := &url.URL{Scheme: "http", User: url.UserPassword("robot", "hunter2"), Host: host}
		_, got := NewClient("Slack", Network{Roots: Trusting(pool), Proxy: http.ProxyURL(proxy)}).Post(t.Context(), Address{Target: egress.Trusted(server.URL + "/services/T1/B1/x")}, http.Header{}, nil)
		if got == nil || got.Result != announce.Temporary || strings.Contains(got.Message, "hunter2") || strings.Contains(got.Message, "T1") {
			t.Errorf("a proxy that %s: outcome %+v, want one to try again, without secrets", what, got)
		}
	}
}

// tunnel connects the client with host in both directions.
func tunnel(t *testing.T, w http.ResponseWriter, host string) {
	inner, err := net.Dial("tcp", host)
	if err != nil {
		t.Error(err)
		return
	}
	outer, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		t.Error(err)
		return
	}
	if _, err := io.WriteString(outer, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
		t.Error(err)
	}
	go func() { defer inner.Close(); _, _ = io.Copy(inner, outer) }()
	go func() { defer outer.Close(); _, _ = io.Copy(outer, inner) }()
}

// lateAnswer answers with success once a request has ended, as net/http does with an answer that comes while the connection is being closed.
type lateAnswer struct{}

func (lateAnswer) RoundTrip(r *http.Request) (*http.Response, error) {
	trace := httptrace.ContextClientTrace(r.Context())
	trace.WroteHeaders()
	<-r.Context().Done()
	trace.GotFirstResponseByte()
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}

// TestLateAnswer: a server that answers because its request ends has not accepted the message.
func TestLateAnswer(t *testing.T) {
	client := NewClient("the webhook", Network{})
	client.roundTripper = func(*http.Request, Address) http.RoundTripper { return lateAnswer{} }
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	answer, got := client.Post(ctx, Address{Target: egress.Trusted("https://example.com")}, http.Header{}, nil)
	if got == nil || got.Result != announce.UnknownOutcome || got.Reason != announce.ReasonAnswerLost {
		t.Errorf("answer %+v, outcome %+v, want one that is not known", answer, got)
	}
}

// TestNoTarget: the zero value of a target is an outcome, and no request.
func TestNoTarget(t *testing.T) {
	_, got := NewClient("Slack", Network{}).Post(t.Context(), Address{}, http.Header{}, nil)
	if got == nil || got.Result == announce.Delivered || got.Result == announce.UnknownOutcome {
		t.Errorf("outcome %+v, want one that says that nothing was sent", got)
	}
}

// TestRetryAfter: the wait that a server requests is kept within bounds.
func TestRetryAfter(t *testing.T) {
	for header, want := range map[string]time.Duration{
		"": 30 * time.Second, "soon": 30 * time.Second, "Wed, 21 Oct 2026 07:28:00 GMT": 30 * time.Second,
		"0": time.Second, "-5": time.Second, " 7 ": 7 * time.Second, "100000": time.Hour,
	} {
		if got := retryAfter(header); got != want {
			t.Errorf("Retry-After %q: wait %s, want %s", header, got, want)
		}
	}
}

// TestAddressKey: addresses that a server could tell apart are different ones.
func TestAddressKey(t *testing.T) {
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	plain := Address{Target: egress.Trusted(server.URL)}
	authority, client := plain, plain
	authority.Certificates.Authorities = []*x509.Certificate{server.Certificate()}
	client.Certificates.Client = &server.TLS.Certificates[0]
	if plain.Key() == authority.Key() || plain.Key() == client.Key() || authority.Key() == client.Key() {
		t.Errorf("keys %s, %s and %s, want three", plain.Key(), authority.Key(), client.Key())
	}
}
