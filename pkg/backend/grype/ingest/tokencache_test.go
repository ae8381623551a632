package ingest

import (
	"net/http"
	"testing"
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
