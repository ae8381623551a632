package restapi

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
	"github.com/scanner-operator/scanner-operator/pkg/limits"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

func mustAcquire(t *testing.T, all *downloadSlots, user string) *downloadSlot {
	t.Helper()
	turn, err := all.acquire(t.Context(), user)
	if err != nil {
		t.Fatal(err)
	}
	return turn
}

// requireNoDownloads fails the test if a turn, or a slot for making documents, stays taken. Both are released shortly after the last bytes of a
// response are sent.
func (w *harness) requireNoDownloads() {
	w.t.Helper()
	count := func() int { return w.api.downloads.count() + w.api.exports.count() + w.api.documents.Used() }
	for deadline := time.Now().Add(10 * time.Second); count() > 0; runtime.Gosched() {
		if time.Now().After(deadline) {
			w.t.Fatalf("%d downloads, %d exports and %d documents are taken for running", w.api.downloads.count(), w.api.exports.count(), w.api.documents.Used())
		}
	}
}

func requireRefused(t *testing.T, all *downloadSlots, user string) {
	t.Helper()
	began := time.Now()
	var p *problem
	_, err := all.acquire(t.Context(), user)
	if !errors.Is(err, limits.ErrBusy) && (!errors.As(err, &p) || p.Reason != restv1.ReasonUnavailable || p.retryAfter == 0) {
		t.Errorf("%s gets %v, want 503 with a retry time", user, err)
	}
	if waited := time.Since(began); waited != slotWait {
		t.Errorf("%s waited %s, want %s", user, waited, slotWait)
	}
}

// TestOneDownloadPerUser: one caller cannot take all download slots. A request that gets no slot is refused after slotWait.
func TestOneDownloadPerUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newDownloadSlots(2, fairShareTime)
		jane := mustAcquire(t, all, "jane")
		requireRefused(t, all, "jane")
		john := mustAcquire(t, all, "john")
		requireRefused(t, all, "joe")
		john.release()
		joe := mustAcquire(t, all, "joe")

		// A turn that ends in the meantime lets the user's next turn begin.
		go func() {
			time.Sleep(slotWait / 2) // synthetic time
			jane.release()
		}()
		mustAcquire(t, all, "jane").release()
		joe.release()
		if all.count() != 0 || all.slots.Used() != 0 {
			t.Errorf("%d users and %d turns are left, want none", all.count(), all.slots.Used())
		}
	})
}

// slowReader is a connection whose reader reads perSecond bytes per second, once the buffers of the network are full.
type slowReader struct {
	expire sync.Once // deadlines are set again while others wait
	http.ResponseWriter
	perSecond, buffer int
	timer             *time.Timer
	expired           chan struct{}
	ended             chan error
}

func (r *slowReader) Write(p []byte) (int, error) {
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

func (r *slowReader) SetWriteDeadline(at time.Time) error {
	if r.timer != nil {
		r.timer.Stop()
	}
	r.timer = time.AfterFunc(time.Until(at), func() { r.expire.Do(func() { close(r.expired) }) })
	return nil
}

// startReader has a user read 16 MiB at such a rate. Its turn lasts until then, or until it is aborted.
func startReader(t *testing.T, all *downloadSlots, user string, perSecond int) *slowReader {
	t.Helper()
	turn := mustAcquire(t, all, user)
	r := &slowReader{perSecond: perSecond, buffer: 4 << 20, expired: make(chan struct{}), ended: make(chan error, 1)}
	go func() {
		_, err := io.Copy(turn.writer(r), io.LimitReader(rand.Reader, 16<<20))
		// Until release, other requests may set the deadline of r again.
		turn.release()
		r.timer.Stop()
		r.ended <- err
	}()
	return r
}

// TestSlowReadersAreAborted: a waiting request gets a slot before it is refused, even if slow readers have all slots. Slow readers read
// nothing, or little, once the network's buffers are full. A reader that is not slow keeps its slot.
func TestSlowReadersAreAborted(t *testing.T) {
	for name, perSecond := range map[string]int{"nothing": 0, "little": minRate / 2} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := newDownloadSlots(4, fairShareTime)
				fast := startReader(t, all, "fast", 2*minRate)
				var slow []*slowReader
				for _, namespace := range []string{"a", "b", "c"} {
					slow = append(slow, startReader(t, all, "system:serviceaccount:"+namespace+":reader", perSecond))
				}
				var waited []*downloadSlot
				for _, user := range []string{"jane", "john", "system:serviceaccount:shop:reader"} {
					waited = append(waited, mustAcquire(t, all, user))
				}
				for _, r := range slow {
					if err := <-r.ended; err == nil {
						t.Error("a slow reader has read all, want it broken off")
					}
				}
				requireRefused(t, all, "joe") // turns that are not sending yet, and fast readers, keep their slots
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
		all := newDownloadSlots(4, fairShareTime)
		slow := startReader(t, all, "system:serviceaccount:a:0", 0)
		for i := range 4 {
			go requireRefused(t, all, fmt.Sprintf("system:serviceaccount:a:%d", i))
		}
		synctest.Wait()
		for _, user := range []string{"jane", "john", "joe"} {
			began, turn := time.Now(), mustAcquire(t, all, user)
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

// TestLongDownloadIsAborted: a reader that is not slow loses its slot to a waiting request after fairShareTime.
func TestLongDownloadIsAborted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newDownloadSlots(1, fairShareTime)
		long := startReader(t, all, "long", minRate)
		time.Sleep(fairShareTime - slotWait - time.Second) // synthetic time
		requireRefused(t, all, "early")
		mustAcquire(t, all, "late").release()
		if err := <-long.ended; err == nil {
			t.Error("the reader has read all, want it broken off")
		}
	})
}

// TestSlowContentIsNoSlowReader: a download whose content comes slowly keeps its slot, since its reader is not slow, up to fairShareTime.
func TestSlowContentIsNoSlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newDownloadSlots(1, fairShareTime)
		turn := mustAcquire(t, all, "reader")
		r := &slowReader{buffer: 1 << 20, expired: make(chan struct{})}
		to, ended := turn.writer(r), make(chan error, 1)
		go func() {
			var err error
			for err == nil {
				time.Sleep(time.Second) // synthetic time
				_, err = to.Write([]byte("a row"))
			}
			turn.release()
			r.timer.Stop()
			ended <- err
		}()
		requireRefused(t, all, "early")
		time.Sleep(fairShareTime - slotWait - 2*time.Second)
		mustAcquire(t, all, "late").release()
		if err := <-ended; !errors.Is(err, errAborted) {
			t.Errorf("the download ended with %v, want it aborted", err)
		}
	})
}

// TestStalledReaderIsAborted: a reader that reads nothing is cut off after stallTimeout, whether others wait or not.
func TestStalledReaderIsAborted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if err := <-startReader(t, newDownloadSlots(1, fairShareTime), "slow", 0).ended; err == nil || time.Since(began) != stallTimeout {
			t.Errorf("%v after %s, want it broken off after %s", err, time.Since(began), stallTimeout)
		}
	})
}

// TestDocumentSlotWait: a request that waits for the slot to make a document is refused after slotWait.
func TestDocumentSlotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		making := limits.NewPool(1)
		if _, err := acquireBriefly(t.Context(), making, "jane"); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if _, err := acquireBriefly(t.Context(), making, "john"); !errors.Is(err, limits.ErrBusy) || time.Since(began) != slotWait {
			t.Errorf("after %s: %v, want a refusal after %s", time.Since(began), err, slotWait)
		}
	})
}

// readFirstByte requests a path and reads only the first byte of the response.
func (w *harness) readFirstByte(path, token string) {
	w.t.Helper()
	address := strings.TrimPrefix(w.url, "https://")
	connection, err := new(net.Dialer).DialContext(w.t.Context(), "tcp", address)
	w.must(err)
	w.t.Cleanup(func() { _ = connection.Close() })
	w.must(connection.(*net.TCPConn).SetReadBuffer(4 << 10))
	slow := tls.Client(connection, &tls.Config{RootCAs: w.http.Transport.(*conformanceTransport).next.(*http.Transport).TLSClientConfig.RootCAs, ServerName: "example.com"})
	_, err = fmt.Fprintf(slow, "GET %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n\r\n", path, address, token)
	w.must(err)
	_, err = slow.Read(make([]byte, 1))
	w.must(err)
}

// TestSlowReadersDoNotBlockDocuments: readers that do not read keep nobody out, even if there is one of another namespace for each
// slot. Documents are made before they are sent.
func TestSlowReadersDoNotBlockDocuments(t *testing.T) {
	for _, document := range []string{"cyclonedx", "sbom"} {
		t.Run(document, func(t *testing.T) {
			w, api := newFakeHarness(t)
			w.api.downloads.slowGrace = 0 // they are known to be slow
			many := make([]finding.Finding, 5000)
			for i := range many {
				many[i] = vulnerable(fmt.Sprintf("CVE-2026-%06d", i), strings.Repeat("a", 500))
			}
			w.createScanned(w.createScanner("shop", "main"), "web", many...)
			w.saveSBOM("web", store.Cluster, `{"artifacts":["`+strings.Repeat("a", 16<<20)+`"]}`)
			path := "/api/v1/namespaces/shop/imagescans/web/" + document
			for i := range maxDownloads {
				token := fmt.Sprintf("token-%d", i)
				api.tokens[token] = authenticationv1.UserInfo{Username: fmt.Sprintf("system:serviceaccount:slow-%d:reader", i)}
				w.readFirstByte(path, token)
			}
			if n := w.api.downloads.count(); n != maxDownloads {
				t.Fatalf("%d downloads run, want those of %d readers who do not read: the document is too small for this test", n, maxDownloads)
			}
			if response, body := w.get(path, anyone); response.StatusCode != http.StatusOK {
				t.Errorf("the next reader gets %d, %d bytes", response.StatusCode, len(body))
			}
		})
	}
}

// TestDownloadsOfOneUser: a user's download keeps out only other downloads of the same user.
func TestDownloadsOfOneUser(t *testing.T) {
	w, api := newFakeHarness(t)
	api.tokens["jane"] = api.tokens[anyone]
	jane := api.tokens["jane"]
	jane.Username = "jane"
	api.tokens["jane"] = jane
	w.createScanned(w.createScanner("shop", "main"), "web", vulnerable("CVE-2026-0001", "openssl"))
	turn, err := w.api.downloads.acquire(t.Context(), "anyone")
	w.must(err)
	defer turn.release()
	if response, body := w.get("/api/v1/namespaces/shop/imagescans/web/sbom", "jane"); response.StatusCode != http.StatusOK {
		t.Errorf("jane's download: %d %s, want 200", response.StatusCode, body)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.api.downloads.acquire(ended, "anyone"); err == nil || !strings.Contains(err.Error(), "only one at a time") {
		t.Errorf("the second download of anyone: %v, want a refusal", err)
	}
}

// replacingStore is a store that calls then once after an image was located, while the request waits for its turn.
type replacingStore struct {
	Store
	then func()
}

func (r *replacingStore) Locate(ctx context.Context, scanner, namespace string, key image.Key) (store.Location, error) {
	found, err := r.Store.Locate(ctx, scanner, namespace, key)
	if then := r.then; then != nil {
		r.then = nil
		then()
	}
	return found, err
}

// TestETagMatchesContent: content that is replaced while the request waits is not sent with the ETag of the old content.
func TestETagMatchesContent(t *testing.T) {
	w, _ := newFakeHarness(t)
	w.createScanned(w.createScanner("shop", "main"), "web", vulnerable("CVE-2026-0001", "openssl"))
	meddled := &replacingStore{Store: w.api.Store}
	w.api.Store = meddled
	for path, replace := range map[string]func(){
		"/api/v1/namespaces/shop/imagescans/web/sbom":      func() { w.saveSBOM("web", store.Cluster, `{"newer":true}`) },
		"/api/v1/namespaces/shop/imagescans/web/cyclonedx": func() { w.saveReport("web", store.Cluster, vulnerable("CVE-2026-0002", "openssl")) },
	} {
		meddled.then = replace
		replaced, sent := w.get(path, anyone)
		now, want := w.get(path, anyone)
		if string(sent) != string(want) || replaced.Header.Get("ETag") != now.Header.Get("ETag") {
			t.Errorf("GET %s, replaced meanwhile: %d, tag %s; what is there now has %s\nsent %s\nwant %s", path, replaced.StatusCode,
				replaced.Header.Get("ETag"), now.Header.Get("ETag"), sent, want)
		}
	}
}

// count returns how many tenants wait for a turn or have one.
func (t *downloadSlots) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.byTenant)
}

// TestSlotsAreFirstComeFirstServed: a request keeps its place in the queue while it tries to free a slot.
func TestSlotsAreFirstComeFirstServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newDownloadSlots(1, fairShareTime)
		held := mustAcquire(t, all, "jane")
		var served []string
		var waiting sync.WaitGroup
		for _, user := range []string{"first", "second", "third"} {
			waiting.Go(func() {
				turn := mustAcquire(t, all, user)
				served = append(served, user)
				turn.release()
			})
			time.Sleep(abortInterval * 9 / 10)
		}
		held.release()
		waiting.Wait()
		if got := strings.Join(served, " "); got != "first second third" {
			t.Errorf("served: %s, want those first who came first", got)
		}
	})
}

// TestManySlowReaders: eight tenants that read nothing, and request again at once, do not keep others from four slots.
func TestManySlowReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newDownloadSlots(4, fairShareTime)
		stopped, stop := context.WithCancel(t.Context())
		var crowd sync.WaitGroup
		for n := range 8 {
			crowd.Go(func() {
				for time.Sleep(time.Duration(n) * 37 * time.Millisecond); stopped.Err() == nil; {
					turn, err := all.acquire(t.Context(), fmt.Sprint("slow", n))
					if err != nil {
						continue
					}
					r := &slowReader{expired: make(chan struct{})}
					_, _ = io.Copy(turn.writer(r), strings.NewReader("never read"))
					turn.release()
					r.timer.Stop()
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
