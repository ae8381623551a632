package server

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// TestTokensAreRemembered: the API server is asked about a token once a minute, and of one that it refused every ten seconds.
func TestTokensAreRemembered(t *testing.T) {
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
	a.tokens.set(w.token, authenticationv1.TokenReviewStatus{}) // it has expired
	a.clock.Step(2 * time.Second)
	asks(http.StatusUnauthorized, 1)
	a.tokens.set(w.token, w.review())
	asks(http.StatusUnauthorized, 0)
	a.clock.Step(11 * time.Second)
	asks(http.StatusOK, 1)

	// The Job is looked up each time.
	a.must(a.store.EndJob(t.Context(), operatorNamespace, "match", noon, true))
	asks(http.StatusForbidden, 0)
}

// TestTroubleIsNotRemembered: what the API server could not say is asked again.
func TestTroubleIsNotRemembered(t *testing.T) {
	a := newIngestAPI(t, Limits{})
	w := a.job(store.JobMatch, "match")
	a.reviewErr = errTrouble
	w.want(w.post(workerapi.PathDatabase, workerapi.DatabaseStatus{}, nil), http.StatusServiceUnavailable, "see its log")
	a.reviewErr = nil
	w.want(w.post(workerapi.PathDatabase, workerapi.DatabaseStatus{}, nil), http.StatusOK, "")
}

// TestMadeUpTokens: however many there are, they push no worker out of what is remembered.
func TestMadeUpTokens(t *testing.T) {
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

// TestReviewsAreLimited: while too many tokens are reviewed, others wait for a bounded time. Who is known does not wait.
func TestReviewsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := authenticator{asking: make(slots, 1)}
		release, err := full.asking.acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer release()
		began := time.Now()
		if _, err := full.ask(t.Context(), "token"); err != errReviews { //nolint:errorlint // it is that one
			t.Errorf("the answer is %v, want %v", err, errReviews)
		}
		if waited := time.Since(began); waited != reviewTime {
			t.Errorf("it waited %s, want %s", waited, reviewTime)
		}
	})
}
