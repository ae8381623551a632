package rest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

func mustTurn(t *testing.T, all *turns, user string) *turn {
	t.Helper()
	turn, err := all.acquire(t.Context(), user)
	if err != nil {
		t.Fatal(err)
	}
	return turn
}

// nothingLasts fails the test if a turn, or a slot for making documents, is still taken. The last bytes of an answer come before that is
// given back.
func (w *world) nothingLasts() {
	w.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); w.api.downloads.taken() > 0 || len(w.api.documents) > 0; runtime.Gosched() {
		if time.Now().After(deadline) {
			w.t.Fatalf("%d downloads and %d documents are taken for running", w.api.downloads.taken(), len(w.api.documents))
		}
	}
}

func refusedTurn(t *testing.T, all *turns, user string) {
	t.Helper()
	began := time.Now()
	var p *problem
	_, err := all.acquire(t.Context(), user)
	if !errors.As(err, &p) || p.Reason != restv1.ReasonUnavailable || p.retryAfter == 0 {
		t.Errorf("%s gets %v, want 503 that says when to come back", user, err)
	}
	if waited := time.Since(began); waited != turnTime {
		t.Errorf("%s waited %s, want %s", user, waited, turnTime)
	}
}

// TestOneTurnForEachUser: one caller cannot hold all downloads, and who gets none is sent away after a few seconds.
func TestOneTurnForEachUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newTurns(2)
		jane := mustTurn(t, all, "jane")
		refusedTurn(t, all, "jane")
		john := mustTurn(t, all, "john")
		refusedTurn(t, all, "joe")
		john.release()
		joe := mustTurn(t, all, "joe")

		// One that ends meanwhile makes way for the user's next.
		go func() {
			time.Sleep(turnTime / 2) // of the test's own time
			jane.release()
		}()
		mustTurn(t, all, "jane").release()
		joe.release()
		if all.taken() != 0 || len(all.slots) != 0 {
			t.Errorf("%d users and %d turns are left, want none", all.taken(), len(all.slots))
		}
	})
}

// TestSlowReadersMakeWay: a slot is a tenant's own for a while. Then the slowest makes way for a tenant that waits.
func TestSlowReadersMakeWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newTurns(2)
		var broken []string
		for i, user := range []string{"slow", "slower"} {
			turn := mustTurn(t, all, user)
			turn.sends(func() {
				broken = append(broken, user)
				go turn.release()
			})
			time.Sleep(time.Duration(1-i) * time.Second) // of the test's own time
		}
		refusedTurn(t, all, "early")
		if len(broken) > 0 {
			t.Errorf("%v are broken off early", broken)
		}
		time.Sleep(fairTime - turnTime - 2*time.Second)
		waiting := mustTurn(t, all, "late") // from a moment before the first has had its time
		if len(broken) != 1 || broken[0] != "slow" {
			t.Errorf("%v are broken off, want the one that has been sending for longest", broken)
		}
		time.Sleep(fairTime)
		mustTurn(t, all, "later").release()
		if len(broken) != 2 {
			t.Errorf("%v are broken off, want both slow ones, and not the one whose document is being made", broken)
		}
		waiting.release()
	})
}

// TestWaitingForADocument: who waits to have one made is sent away after a few seconds.
func TestWaitingForADocument(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		making := make(semaphore, 1)
		if err := making.acquireSoon(t.Context()); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		var p *problem
		if err := making.acquireSoon(t.Context()); !errors.As(err, &p) || p.retryAfter == 0 || time.Since(began) != turnTime {
			t.Errorf("after %s: %v, want 503 after %s", time.Since(began), err, turnTime)
		}
	})
}

// TestTenants: ServiceAccounts are free to make, so that those of a namespace count as one caller.
func TestTenants(t *testing.T) {
	for user, want := range map[string]string{
		"jane":                              "jane",
		"system:serviceaccount:shop:a":      "the ServiceAccounts of the namespace shop",
		"system:serviceaccount:shop:b":      "the ServiceAccounts of the namespace shop",
		"system:serviceaccount:shop":        "system:serviceaccount:shop",
		"system:node:system:serviceaccount": "system:node:system:serviceaccount",
	} {
		if got := tenantOf(user); got != want {
			t.Errorf("%s counts as %q, want %q", user, got, want)
		}
	}
}

// TestASlowReaderKeepsNobodyFromADocument: documents are made before they are sent, so that a reader who does not read is in nobody's way.
func TestASlowReaderKeepsNobodyFromADocument(t *testing.T) {
	w, api := imaginary(t)
	jane := api.tokens[anyone]
	jane.Username = "jane"
	api.tokens["jane"] = jane
	many := make([]finding.Finding, 5000)
	for i := range many {
		many[i] = vulnerable(fmt.Sprintf("CVE-2026-%06d", i), strings.Repeat("a", 500))
	}
	w.scanned(w.scanner("shop", "main"), "web", many...)
	const path = "/api/v1/namespaces/shop/imagescans/web/cyclonedx"
	address := strings.TrimPrefix(w.url, "https://")
	connection, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
	w.must(err)
	defer connection.Close()
	w.must(connection.(*net.TCPConn).SetReadBuffer(4 << 10))
	slow := tls.Client(connection, &tls.Config{RootCAs: w.http.Transport.(*conforming).next.(*http.Transport).TLSClientConfig.RootCAs, ServerName: "example.com"})
	_, err = fmt.Fprintf(slow, "GET %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n\r\n", path, address, anyone)
	w.must(err)
	_, err = slow.Read(make([]byte, 1))
	w.must(err)
	if n := w.api.downloads.taken(); n != 1 {
		t.Fatalf("%d downloads run, want that of the reader who does not read: the document is too small for this test", n)
	}
	if response, body := w.gets(path, "jane"); response.StatusCode != http.StatusOK {
		t.Errorf("jane gets %d, %d bytes", response.StatusCode, len(body))
	}
	w.must(connection.Close())
	w.nothingLasts()
}

// TestDownloadsOfOneUser: what a user downloads already is in the way of that user only.
func TestDownloadsOfOneUser(t *testing.T) {
	w, api := imaginary(t)
	api.tokens["jane"] = api.tokens[anyone]
	jane := api.tokens["jane"]
	jane.Username = "jane"
	api.tokens["jane"] = jane
	w.scanned(w.scanner("shop", "main"), "web", vulnerable("CVE-2026-0001", "openssl"))
	turn, err := w.api.downloads.acquire(t.Context(), "anyone")
	w.must(err)
	defer turn.release()
	if response, body := w.gets("/api/v1/namespaces/shop/imagescans/web/sbom", "jane"); response.StatusCode != http.StatusOK {
		t.Errorf("jane's download: %d %s, want 200", response.StatusCode, body)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.api.downloads.acquire(ended, "anyone"); err == nil || !strings.Contains(err.Error(), "only one thing at a time") {
		t.Errorf("the second download of anyone: %v, want a refusal", err)
	}
}

// replacing is a store in which something happens once after an image was located: while its turn is waited for.
type replacing struct {
	Store
	then func()
}

func (r *replacing) Locate(ctx context.Context, scanner, namespace string, key image.Key) (store.Location, error) {
	found, err := r.Store.Locate(ctx, scanner, namespace, key)
	if then := r.then; then != nil {
		r.then = nil
		then()
	}
	return found, err
}

// TestTagIsOfWhatIsSent: what is replaced while its turn is waited for is not sent under the tag of what was there before.
func TestTagIsOfWhatIsSent(t *testing.T) {
	w, _ := imaginary(t)
	w.scanned(w.scanner("shop", "main"), "web", vulnerable("CVE-2026-0001", "openssl"))
	meddled := &replacing{Store: w.api.Store}
	w.api.Store = meddled
	for path, replace := range map[string]func(){
		"/api/v1/namespaces/shop/imagescans/web/sbom":      func() { w.catalogued("web", store.Cluster, `{"newer":true}`) },
		"/api/v1/namespaces/shop/imagescans/web/cyclonedx": func() { w.reported("web", store.Cluster, vulnerable("CVE-2026-0002", "openssl")) },
	} {
		meddled.then = replace
		replaced, sent := w.gets(path, anyone)
		now, want := w.gets(path, anyone)
		if string(sent) != string(want) || replaced.Header.Get("ETag") != now.Header.Get("ETag") {
			t.Errorf("GET %s, replaced meanwhile: %d, tag %s; what is there now has %s\nsent %s\nwant %s", path, replaced.StatusCode,
				replaced.Header.Get("ETag"), now.Header.Get("ETag"), sent, want)
		}
	}
}

// taken is how many wait or have a turn.
func (t *turns) taken() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.held)
}
