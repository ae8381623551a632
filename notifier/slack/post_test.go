package slack

import (
	"context"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/test/slackstandin/standin"
)

// slackServer returns a Slack stand-in, its address and a pool that trusts its certificate.
func slackServer(t *testing.T) (*standin.Standin, string, *x509.CertPool) {
	t.Helper()
	slack := standin.New(time.Now, io.Discard)
	server := httptest.NewTLSServer(slack.Webhooks())
	t.Cleanup(server.Close)
	pool := x509.NewCertPool()
	pool.AddCert(server.Certificate())
	return slack, server.URL, pool
}

// TestPostThroughProxy: with a proxy, Slack is reached through it, encrypted end to end.
func TestPostThroughProxy(t *testing.T) {
	slack, address, pool := slackServer(t)
	var tunnels atomic.Int32
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect {
			t.Errorf("the proxy was asked for %s, want CONNECT only", r.Method)
			return
		}
		tunnels.Add(1)
		tunnel(t, w, r.Host)
	}))
	defer proxy.Close()
	proxyURL, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	got := NewPoster(pool, http.ProxyURL(proxyURL)).Post(t.Context(), address+"/services/T1/B1/x", announce.Delivery{Message: newDigest()})
	if got.Result != announce.Delivered {
		t.Errorf("outcome %+v, want Delivered", got)
	}
	if tunnels.Load() != 1 || len(slack.Messages()) != 1 {
		t.Errorf("%d tunnels and %d messages, want one of each", tunnels.Load(), len(slack.Messages()))
	}
}

// TestPostThroughABrokenProxy: the outcome contains neither the proxy's password nor the webhook's address.
func TestPostThroughABrokenProxy(t *testing.T) {
	_, address, pool := slackServer(t)
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "unknown user "+r.Header.Get("Proxy-Authorization"), http.StatusProxyAuthRequired)
	}))
	defer refusing.Close()
	for what, host := range map[string]string{"refuses its user": refusing.Listener.Addr().String(), "is away": "127.0.0.1:1"} {
		proxy := &url.URL{Scheme: "http", User: url.UserPassword("robot", "hunter2"), Host: host}
		got := NewPoster(pool, http.ProxyURL(proxy)).Post(t.Context(), address+"/services/T1/B1/x", announce.Delivery{Message: newDigest()})
		if got.Result != announce.Temporary || strings.Contains(got.Message, "hunter2") || strings.Contains(got.Message, "T1") {
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

// TestPostTimeout: without an answer, Post returns UnknownOutcome within the deadline.
func TestPostTimeout(t *testing.T) {
	slack, address, pool := slackServer(t)
	slack.Expect(standin.Failure{Hang: true})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	got := NewPoster(pool, nil).Post(ctx, address+"/services/T1/B1/verysecret", announce.Delivery{Message: newDigest()})
	if got.Result != announce.UnknownOutcome || !strings.Contains(got.Message, "no answer in time") || strings.Contains(got.Message, "verysecret") {
		t.Errorf("outcome %+v, want Unknown: no answer in time, without the address", got)
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
