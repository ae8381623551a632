package rest

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"

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

// nothingLasts fails the test if a turn, or a slot for making documents, stays taken. Both are released shortly after the last bytes of a
// response are sent.
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

// TestOneTurnForEachUser: one caller cannot take all download slots. A request that gets no slot is refused after turnTime.
func TestOneTurnForEachUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newTurns(2)
		jane := mustTurn(t, all, "jane")
		refusedTurn(t, all, "jane")
		john := mustTurn(t, all, "john")
		refusedTurn(t, all, "joe")
		john.release()
		joe := mustTurn(t, all, "joe")

		// A turn that ends in the meantime lets the user's next turn begin.
		go func() {
			time.Sleep(turnTime / 2) // synthetic time
			jane.release()
		}()
		mustTurn(t, all, "jane").release()
		joe.release()
		if all.taken() != 0 || len(all.slots) != 0 {
			t.Errorf("%d users and %d turns are left, want none", all.taken(), len(all.slots))
		}
	})
}

// reader is a connection whose reader reads perSecond bytes per second, once the buffers of the network are full.
type reader struct {
	http.ResponseWriter
	perSecond, buffer int
	timer             *time.Timer
	expired           chan struct{}
	ended             chan error
}

func (r *reader) Write(p []byte) (int, error) {
	if r.buffer -= len(p); r.buffer >= 0 {
		return len(p), nil
	}
	taken := make(<-chan time.Time)
	if r.perSecond > 0 {
		taken = time.After(time.Duration(len(p)) * time.Second / time.Duration(r.perSecond))
	}
	select {
	case <-taken:
		return len(p), nil
	case <-r.expired:
		return 0, os.ErrDeadlineExceeded
	}
}

func (r *reader) SetWriteDeadline(at time.Time) error {
	if r.timer != nil {
		r.timer.Stop()
	}
	r.timer = time.AfterFunc(time.Until(at), sync.OnceFunc(func() { close(r.expired) }))
	return nil
}

// reads has a user read 16 MiB at such a rate. Its turn lasts until then, or until it is aborted.
func reads(t *testing.T, all *turns, user string, perSecond int) *reader {
	t.Helper()
	turn := mustTurn(t, all, user)
	r := &reader{perSecond: perSecond, buffer: 4 << 20, expired: make(chan struct{}), ended: make(chan error, 1)}
	go func() {
		_, err := io.Copy(turn.sends(r), io.LimitReader(rand.Reader, 16<<20))
		r.timer.Stop()
		turn.release()
		r.ended <- err
	}()
	return r
}

// TestSlowReadersMakeWay: a waiting request gets a slot before it is refused, even if slow readers have all slots. Slow readers read
// nothing, or little, once the network's buffers are full. A reader that is not slow keeps its slot.
func TestSlowReadersMakeWay(t *testing.T) {
	for name, perSecond := range map[string]int{"nothing": 0, "little": fairRate / 2} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := newTurns(4)
				fast := reads(t, all, "fast", 2*fairRate)
				var slow []*reader
				for _, namespace := range []string{"a", "b", "c"} {
					slow = append(slow, reads(t, all, "system:serviceaccount:"+namespace+":reader", perSecond))
				}
				var waited []*turn
				for _, user := range []string{"jane", "john", "system:serviceaccount:shop:reader"} {
					waited = append(waited, mustTurn(t, all, user))
				}
				for _, r := range slow {
					if err := <-r.ended; err == nil {
						t.Error("a slow reader has read all, want it broken off")
					}
				}
				refusedTurn(t, all, "joe") // turns that are not sending yet, and fast readers, keep their slots
				if err := <-fast.ended; err != nil {
					t.Errorf("the reader that is not slow is broken off: %v", err)
				}
				for _, turn := range waited {
					turn.release()
				}
			})
		})
	}
}

// TestSlowReadersOfOneNamespace: the slow readers of one namespace take one slot, however many they are.
func TestSlowReadersOfOneNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newTurns(4)
		slow := reads(t, all, "system:serviceaccount:a:0", 0)
		for i := range 4 {
			go refusedTurn(t, all, fmt.Sprintf("system:serviceaccount:a:%d", i))
		}
		synctest.Wait()
		for _, user := range []string{"jane", "john", "joe"} {
			began, turn := time.Now(), mustTurn(t, all, user)
			if waited := time.Since(began); waited > 0 {
				t.Errorf("%s waited %s, want a slot at once", user, waited)
			}
			defer turn.release()
		}
		if err := <-slow.ended; err == nil {
			t.Error("the slow reader has read all")
		}
	})
}

// TestFairTime: a reader that is not slow loses its slot to a waiting request after fairTime.
func TestFairTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newTurns(1)
		long := reads(t, all, "long", fairRate)
		time.Sleep(fairTime - turnTime - time.Second) // synthetic time
		refusedTurn(t, all, "early")
		mustTurn(t, all, "late").release()
		if err := <-long.ended; err == nil {
			t.Error("the reader has read all, want it broken off")
		}
	})
}

// TestReaderThatTakesNothing: a reader that reads nothing is cut off after writeTime, whether others wait or not.
func TestReaderThatTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if err := <-reads(t, newTurns(1), "slow", 0).ended; err == nil || time.Since(began) != writeTime {
			t.Errorf("%v after %s, want it broken off after %s", err, time.Since(began), writeTime)
		}
	})
}

// TestWaitingForADocument: a request that waits for the slot to make a document is refused after turnTime.
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

// TestTenants: the ServiceAccounts of a namespace count as one caller, since a user who may create one may create many.
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

// slowly requests a path and reads only the first byte of the response.
func (w *world) slowly(path, token string) {
	w.t.Helper()
	address := strings.TrimPrefix(w.url, "https://")
	connection, err := new(net.Dialer).DialContext(w.t.Context(), "tcp", address)
	w.must(err)
	w.t.Cleanup(func() { _ = connection.Close() })
	w.must(connection.(*net.TCPConn).SetReadBuffer(4 << 10))
	slow := tls.Client(connection, &tls.Config{RootCAs: w.http.Transport.(*conforming).next.(*http.Transport).TLSClientConfig.RootCAs, ServerName: "example.com"})
	_, err = fmt.Fprintf(slow, "GET %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n\r\n", path, address, token)
	w.must(err)
	_, err = slow.Read(make([]byte, 1))
	w.must(err)
}

// TestASlowReaderKeepsNobodyFromADocument: readers that do not read keep nobody out, even if there is one of another namespace for each
// slot. Documents are made before they are sent.
func TestASlowReaderKeepsNobodyFromADocument(t *testing.T) {
	for _, document := range []string{"cyclonedx", "sbom"} {
		t.Run(document, func(t *testing.T) {
			w, api := imaginary(t)
			w.api.downloads.slowTime = 0 // they are known to be slow
			many := make([]finding.Finding, 5000)
			for i := range many {
				many[i] = vulnerable(fmt.Sprintf("CVE-2026-%06d", i), strings.Repeat("a", 500))
			}
			w.scanned(w.scanner("shop", "main"), "web", many...)
			w.catalogued("web", store.Cluster, `{"artifacts":["`+strings.Repeat("a", 16<<20)+`"]}`)
			path := "/api/v1/namespaces/shop/imagescans/web/" + document
			for i := range maxDownloads {
				token := fmt.Sprintf("token-%d", i)
				api.tokens[token] = authenticationv1.UserInfo{Username: fmt.Sprintf("system:serviceaccount:slow-%d:reader", i)}
				w.slowly(path, token)
			}
			if n := w.api.downloads.taken(); n != maxDownloads {
				t.Fatalf("%d downloads run, want those of %d readers who do not read: the document is too small for this test", n, maxDownloads)
			}
			if response, body := w.gets(path, anyone); response.StatusCode != http.StatusOK {
				t.Errorf("the next reader gets %d, %d bytes", response.StatusCode, len(body))
			}
		})
	}
}

// TestDownloadsOfOneUser: a user's download keeps out only other downloads of the same user.
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

// replacing is a store that calls then once after an image was located, while the request waits for its turn.
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

// TestTagIsOfWhatIsSent: content that is replaced while the request waits is not sent with the ETag of the old content.
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

// taken returns how many tenants wait for a turn or have one.
func (t *turns) taken() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.held)
}

// TestWhoWaitsFirstIsFirst: a request keeps its place in the queue while it tries to free a slot.
func TestWhoWaitsFirstIsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newTurns(1)
		held := mustTurn(t, all, "jane")
		var served []string
		var waiting sync.WaitGroup
		for _, user := range []string{"first", "second", "third"} {
			waiting.Go(func() {
				turn := mustTurn(t, all, user)
				served = append(served, user)
				turn.release()
			})
			time.Sleep(roomInterval * 9 / 10)
		}
		held.release()
		waiting.Wait()
		if got := strings.Join(served, " "); got != "first second third" {
			t.Errorf("served: %s, want those first who came first", got)
		}
	})
}

// TestACrowdOfSlowReaders: eight tenants that read nothing, and request again at once, do not keep others from four slots.
func TestACrowdOfSlowReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newTurns(4)
		stopped, stop := context.WithCancel(t.Context())
		var crowd sync.WaitGroup
		for n := range 8 {
			crowd.Go(func() {
				for time.Sleep(time.Duration(n) * 37 * time.Millisecond); stopped.Err() == nil; {
					turn, err := all.acquire(t.Context(), fmt.Sprint("slow", n))
					if err != nil {
						continue
					}
					r := &reader{expired: make(chan struct{})}
					_, _ = io.Copy(turn.sends(r), strings.NewReader("never read"))
					r.timer.Stop()
					turn.release()
				}
			})
		}
		for range 30 {
			time.Sleep(time.Second)
			jane, err := all.acquire(t.Context(), "jane")
			if err != nil {
				t.Errorf("jane gets no slot: %v", err)
				continue
			}
			jane.release()
		}
		stop()
		crowd.Wait()
	})
}
