package rest

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

func mustTurn(t *testing.T, all *turns, user string) (release func()) {
	t.Helper()
	release, err := all.acquire(t.Context(), user)
	if err != nil {
		t.Fatal(err)
	}
	return release
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
		john()
		joe := mustTurn(t, all, "joe")

		// One that ends meanwhile makes way for the user's next.
		go func() {
			time.Sleep(turnTime / 2) // of the test's own time
			jane()
		}()
		mustTurn(t, all, "jane")()
		joe()
		if all.taken() != 0 || len(all.slots) != 0 {
			t.Errorf("%d users and %d turns are left, want none", all.taken(), len(all.slots))
		}
	})
}

// TestDownloadsOfOneUser: what a user downloads already is in the way of that user only.
func TestDownloadsOfOneUser(t *testing.T) {
	w, api := imaginary(t)
	api.tokens["jane"] = api.tokens[anyone]
	jane := api.tokens["jane"]
	jane.Username = "jane"
	api.tokens["jane"] = jane
	w.scanned(w.scanner("shop", "main"), "web", vulnerable("CVE-2026-0001", "openssl"))
	release, err := w.api.downloads.acquire(t.Context(), "anyone")
	w.must(err)
	defer release()
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
	return len(t.users)
}
