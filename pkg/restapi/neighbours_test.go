package restapi

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/utils/clock"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/limits"
	"github.com/scanner-operator/scanner-operator/pkg/restapi/cyclonedx"
)

// neighbours are the ServiceAccounts of the namespace evil, which use the API beside the user anyone.
type neighbours struct {
	*harness
	http2 bool
	ctx   context.Context
	work  sync.WaitGroup
}

const nNeighbours = 32

// serveAsManager serves the API over TCP with the bounds of the manager's server, and the system's clock.
func (w *harness) serveAsManager() {
	w.api.Clock, w.api.Metrics = clock.RealClock{}, prometheus.NewRegistry()
	handler, err := w.api.Handler()
	w.must(err)
	listener, err := new(net.ListenConfig).Listen(w.t.Context(), "tcp", "127.0.0.1:0")
	w.must(err)
	server := &httptest.Server{Listener: listener, EnableHTTP2: true, Config: &http.Server{
		Handler: handler, ReadHeaderTimeout: 10 * time.Second, WriteTimeout: time.Minute, IdleTimeout: 15 * time.Second, MaxHeaderBytes: 64 << 10,
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 100},
	}}
	server.Listener = (&limits.Connections{Max: 2560, MaxPerOwner: 64}).Limit(server.Config, listener)
	server.StartTLS()
	w.t.Cleanup(server.Close)
	w.url = server.URL
}

// newClient returns a client with connections of its own.
func (n *neighbours) newClient() *http.Client {
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: n.http2}
	n.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// start requests a path as one of the neighbours.
func (n *neighbours) start(ctx context.Context, from *http.Client, account int, path string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, n.url+path, nil)
	n.must(err)
	r.Header.Set("Authorization", fmt.Sprint("Bearer evil-", account))
	return from.Do(r)
}

// repeat does something again and again for each account, until the test ends.
func (n *neighbours) repeat(do func(account int, from *http.Client)) {
	for account := range nNeighbours {
		from := n.newClient()
		n.work.Go(func() {
			for n.ctx.Err() == nil {
				do(account, from)
				time.Sleep(50 * time.Millisecond) // the senders share the processors with the server
			}
		})
	}
}

// expensive are requests over all findings: lists, CSV, and a preview with 50 patterns.
func expensive() []string {
	globs := make([]string, 50)
	for i := range globs {
		globs[i] = "*" + strings.Repeat("a", 90+i) + "!"
	}
	return []string{
		"/api/v1/findings.csv", "/api/v1/findings?limit=500", "/api/v1/vulnerabilities?limit=500", "/api/v1/actions", "/api/v1/overview", "/api/v1/workloads.csv",
		"/api/v1/exceptions/preview?" + url.Values{"namespace": {"evil"}, "package": {"*"}, "image": {strings.Join(globs, ",")}}.Encode(),
	}
}

// openAllStreams opens eight event streams of each account.
func openAllStreams(n *neighbours) {
	opened := make(chan error, 8*nNeighbours)
	for account := range nNeighbours {
		from := n.newClient()
		for range 8 {
			n.work.Go(func() {
				response, err := n.start(n.ctx, from, account, PathEvents)
				if opened <- err; err == nil {
					_, _ = io.Copy(io.Discard, response.Body)
					_ = response.Body.Close()
				}
			})
		}
	}
	for range cap(opened) {
		n.must(<-opened)
	}
}

// readSlowly reads one byte each 50 ms of large responses.
func readSlowly(n *neighbours) {
	paths := []string{"/api/v1/findings.csv", "/api/v1/namespaces/evil/imagescans/bomb/findings.csv", "/api/v1/namespaces/evil/imagescans/bomb/cyclonedx", "/api/v1/findings?limit=500"}
	n.repeat(func(account int, from *http.Client) {
		response, err := n.start(n.ctx, from, account, paths[account%len(paths)])
		for b := make([]byte, 1); err == nil && n.ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
			_, err = response.Body.Read(b)
		}
		if response != nil {
			_ = response.Body.Close()
		}
	})
}

// abort ends requests while they are answered.
func abort(n *neighbours) {
	paths := expensive()
	n.repeat(func(account int, from *http.Client) {
		ctx, cancel := context.WithTimeout(n.ctx, time.Duration(10+10*account)*time.Millisecond)
		defer cancel()
		if response, err := n.start(ctx, from, account, paths[account%len(paths)]); err == nil {
			_ = response.Body.Close()
		}
	})
}

func requestAll(n *neighbours) {
	paths := expensive()
	n.repeat(func(account int, from *http.Client) {
		if response, err := n.start(n.ctx, from, account, paths[account%len(paths)]); err == nil {
			_, _ = io.Copy(io.Discard, response.Body)
			_ = response.Body.Close()
		}
	})
}

// TestNeighboursDelayNoOther: the ServiceAccounts of one namespace delay another user's lists, sign-in and uploads by less than a second. Their
// work ends with their requests.
func TestNeighboursDelayNoOther(t *testing.T) {
	if testing.Short() {
		t.Skip("the times are not those of a program under the race detector")
	}
	for name, c := range map[string]struct {
		attack func(*neighbours)
		http2  bool
	}{
		"256 streams":        {openAllStreams, true}, // a tenant has 64 connections
		"slow readers":       {readSlowly, true},
		"aborted requests":   {abort, false},
		"expensive requests": {requestAll, false},
	} {
		t.Run(name, func(t *testing.T) { requireNoDelay(t, c.attack, c.http2) })
	}
}

func requireNoDelay(t *testing.T, attack func(*neighbours), http2 bool) {
	w, reviewer := newFakeHarness(t)
	for i := range nNeighbours {
		reviewer.tokens[fmt.Sprint("evil-", i)] = authenticationv1.UserInfo{Username: fmt.Sprint("system:serviceaccount:evil:", i)}
	}
	reviewer.allowed = func(s authorizationv1.SubjectAccessReviewSpec) bool {
		return s.User == "anyone" || s.ResourceAttributes.Namespace != "" // each namespace by its own
	}
	w.createNamespaces("shop", "evil")
	w.createScanned(w.createScanner("shop", "main"), "web", vulnerable("CVE-2026-0001", "openssl"))
	many := make([]finding.Finding, 10_000)
	for i := range many {
		many[i] = vulnerable(fmt.Sprintf("CVE-2026-%05d", i), "openssl")
	}
	w.createScanned(w.createScanner("evil", "main"), "bomb", many...)
	w.serveAsManager()
	ctx, stop := context.WithCancel(t.Context())
	n := &neighbours{harness: w, http2: http2, ctx: ctx}
	defer n.work.Wait()
	defer stop()

	from := n.newClient()
	send := func(method, path, mediaType, body string) {
		r, err := http.NewRequestWithContext(t.Context(), method, w.url+path, strings.NewReader(body))
		w.must(err)
		if r.Header.Set("Authorization", "Bearer "+anyone); body != "" {
			r.Header.Set("Content-Type", mediaType)
		}
		response, err := from.Do(r)
		w.must(err)
		text, err := io.ReadAll(response.Body)
		w.must(errors.Join(err, response.Body.Close()))
		if response.StatusCode >= http.StatusMultipleChoices {
			t.Errorf("%s %s: %d %s", method, path, response.StatusCode, text)
		}
	}
	minute := 0
	kinds := []func(){
		func() { send(http.MethodGet, "/api/v1/findings?namespace=shop", "", "") },
		func() { send(http.MethodPost, PathSession, "application/json", `{"token":"`+anyone+`"}`) },
		func() {
			minute++
			send(http.MethodPut, reportPath("shop", "web", "ci"), cyclonedx.MediaType, reportText(minute-90, fmt.Sprint("CVE-2026-", minute)))
		},
	}
	longest := func(kind func()) (longest time.Duration) {
		for range 20 {
			began := time.Now()
			kind()
			longest = max(longest, time.Since(began))
		}
		return longest
	}
	var alone []time.Duration
	for _, kind := range kinds {
		alone = append(alone, longest(kind))
	}
	attack(n)
	time.Sleep(300 * time.Millisecond)
	for i, kind := range kinds {
		if beside := longest(kind); beside > alone[i]+time.Second {
			t.Errorf("request %d takes %s, and %s alone: want less than a second more", i, beside, alone[i])
		}
	}
	stop()
	for deadline := time.Now().Add(time.Second); w.api.queries.Used() > 0 && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	if used := w.api.queries.Used(); used > 0 {
		t.Errorf("%d queries run a second after their requests have ended", used)
	}
	w.requireNoDownloads()
}
