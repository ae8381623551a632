package ingest

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// TestTokensAreCached: the API server reviews a valid token once a minute, and a refused one every ten seconds.
func TestTokensAreCached(t *testing.T) {
	a := newIngestAPI(t, Limits{})
	w := a.job(store.JobMatch, "match")
	asks := func(status int, want int32) {
		t.Helper()
		before := a.reviews.Load()
		for range 3 {
			w.want(w.post(workerapi.PathDatabase, workerapi.DatabaseStatus{}, nil), status, "")
		}
		if got := a.reviews.Load() - before; got != want {
			t.Errorf("the API server was asked %d times, want %d", got, want)
		}
	}
	asks(http.StatusOK, 1)
	a.clock.Step(59 * time.Second)
	asks(http.StatusOK, 0)
	a.tokens.set(w.token, authenticationv1.TokenReviewStatus{}) // the token has expired
	a.clock.Step(2 * time.Second)
	asks(http.StatusUnauthorized, 1)
	a.tokens.set(w.token, w.review())
	asks(http.StatusUnauthorized, 0)
	a.clock.Step(11 * time.Second)
	asks(http.StatusOK, 1)

	// The Job is looked up at every request.
	a.must(a.store.EndJob(t.Context(), operatorNamespace, "match", noon, true))
	asks(http.StatusForbidden, 0)
}

// TestReviewErrorsAreNotCached: a failed review is not cached.
func TestReviewErrorsAreNotCached(t *testing.T) {
	a := newIngestAPI(t, Limits{})
	w := a.job(store.JobMatch, "match")
	a.reviewErr = errUnavailable
	w.want(w.post(workerapi.PathDatabase, workerapi.DatabaseStatus{}, nil), http.StatusServiceUnavailable, "see its log")
	a.reviewErr = nil
	w.want(w.post(workerapi.PathDatabase, workerapi.DatabaseStatus{}, nil), http.StatusOK, "")
}

// TestInventedTokens: any number of invented tokens does not evict workers' tokens from the cache.
func TestInventedTokens(t *testing.T) {
	a := newIngestAPI(t, Limits{})
	w := a.job(store.JobMatch, "match")
	w.want(w.post(workerapi.PathDatabase, workerapi.DatabaseStatus{}, nil), http.StatusOK, "")
	for i := range maxTokens + 1 {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, workerapi.PathDatabase, nil)
		a.must(err)
		request.Header.Set("Authorization", fmt.Sprint("Bearer made-up-", i))
		if _, err := a.ingest.auth.identify(request); err == nil {
			t.Fatal("a made-up token is accepted")
		}
	}
	before := a.reviews.Load()
	w.want(w.post(workerapi.PathDatabase, workerapi.DatabaseStatus{}, nil), http.StatusOK, "")
	if a.reviews.Load() != before {
		t.Error("the worker's token is reviewed again")
	}
}

// TestReviewsAreLimited: while too many tokens are reviewed, others wait for a bounded time. Cached tokens do not wait.
func TestReviewsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := authenticator{reviewSlots: newClientSlots(1, 1)}
		release, err := full.reviewSlots.acquire(t.Context(), "192.0.2.1")
		if err != nil {
			t.Fatal(err)
		}
		defer release()
		began := time.Now()
		if _, err := full.reviewToken(t.Context(), "192.0.2.2", "token"); err != errReviewTimeout { //nolint:errorlint // it is that one
			t.Errorf("the answer is %v, want %v", err, errReviewTimeout)
		}
		if waited := time.Since(began); waited != reviewTime {
			t.Errorf("it waited %s, want %s", waited, reviewTime)
		}
	})
}

// TestTokensOfOneClientDelayNoOther: any number of invented tokens of one client does not delay other clients. A client without requests
// takes no memory.
func TestTokensOfOneClientDelayNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asking := newClientSlots(maxReviews, maxClientReviews)
		requests, cancel := context.WithCancel(t.Context())
		var flood sync.WaitGroup
		var held atomic.Int32
		for range 10 * maxReviews {
			flood.Go(func() {
				if release, err := asking.acquire(requests, "192.0.2.1"); err == nil {
					held.Add(1)
					<-requests.Done()
					release()
				}
			})
		}
		synctest.Wait()
		if held.Load() != maxClientReviews {
			t.Errorf("%d tokens of one client are reviewed at once, want %d", held.Load(), maxClientReviews)
		}
		began := time.Now()
		release, err := asking.acquire(t.Context(), "192.0.2.2")
		if err != nil || time.Since(began) != 0 {
			t.Fatalf("another client waited %s, error %v; want no wait", time.Since(began), err)
		}
		release()
		cancel()
		flood.Wait()
		if len(asking.clients) != 0 || len(asking.all) != 0 {
			t.Errorf("%d clients are remembered and %d slots are held, want none", len(asking.clients), len(asking.all))
		}
	})
}

// TestClientAddress: a client's requests count together, regardless of their port.
func TestClientAddress(t *testing.T) {
	for remote, want := range map[string]string{"192.0.2.1:4711": "192.0.2.1", "[2001:db8::1]:4711": "2001:db8::1", "": ""} {
		if got := clientAddress(&http.Request{RemoteAddr: remote}); got != want {
			t.Errorf("%q is of client %q, want %q", remote, got, want)
		}
	}
}
