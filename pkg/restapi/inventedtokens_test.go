package restapi

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/time/rate"
	authenticationv1 "k8s.io/api/authentication/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// TestInventedTokensDelayNoOther: a pod that sends invented tokens does not keep users whose token is not cached from the REST API. The client of the
// reviews has the rate limit of kubeauth.ClientConfig (50 a second, burst 200).
func TestInventedTokensDelayNoOther(t *testing.T) {
	limiter := rate.NewLimiter(50, 200)
	var reviews atomic.Int64
	reviewer := fakeclient.NewClientBuilder().WithScheme(newScheme()).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
			review, isToken := o.(*authenticationv1.TokenReview)
			if !isToken {
				return fmt.Errorf("unexpected %T", o)
			}
			if err := limiter.Wait(ctx); err != nil {
				return err
			}
			reviews.Add(1)
			if review.Spec.Token == anyone {
				review.Status.User, review.Status.Authenticated = authenticationv1.UserInfo{Username: "anyone"}, true
			}
			return nil
		},
	}).Build()
	w, _ := newFakeHarness(t)
	w = newHarness(t, w.cluster, reviewer)
	w.api.AccessReviews = w.cluster
	// Connections of one address, with 100 streams in each.
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	for sender := range 4000 {
		go func() {
			for n := 0; ctx.Err() == nil; n++ {
				r := httptest.NewRequest(http.MethodGet, "/api/v1/session", nil).WithContext(ctx)
				r.RemoteAddr = "10.1.2.3:4567"
				r.Header.Set("Authorization", fmt.Sprintf("Bearer invented-%d-%d", sender, n))
				w.handler.ServeHTTP(httptest.NewRecorder(), r)
			}
		}()
	}
	time.Sleep(6 * time.Second) // the burst is used up
	failed := 0
	for range 2 {
		began := time.Now()
		r := httptest.NewRequest(http.MethodGet, "/openapi-not-needed", nil)
		r.RemoteAddr = "10.9.9.9:1"
		r.URL.Path = "/api/v1/nothing"
		r.Header.Set("Authorization", "Bearer "+anyone)
		answer := httptest.NewRecorder()
		w.handler.ServeHTTP(answer, r)
		t.Logf("a user from another address: status %d after %s; %d tokens were reviewed", answer.Code, time.Since(began).Round(time.Millisecond), reviews.Load())
		if answer.Code != http.StatusNotFound { // 404 is the answer of an authenticated user for this path
			failed++
		}
	}
	if failed > 0 {
		t.Errorf("%d of 2 requests of a user with a valid token failed while one address sends invented tokens", failed)
	}
}
