package kubeauth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/scanner-operator/scanner-operator/pkg/limits"
)

// apiServer accepts the tokens that begin with "user-", for the audience of the review. With a limit, it takes 50 reviews a second.
type apiServer struct {
	mu      sync.Mutex
	reviews int
	err     error
	refuses bool
	limit   chan struct{} // has room for one review, which takes 20 ms; nil for any number at once
}

func (a *apiServer) wait(ctx context.Context) error {
	a.mu.Lock()
	a.reviews++
	err := a.err
	a.mu.Unlock()
	if a.limit == nil {
		return err
	}
	select {
	case a.limit <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	time.Sleep(20 * time.Millisecond) // synthetic time
	<-a.limit
	return err
}

func (a *apiServer) token(ctx context.Context, review *authenticationv1.TokenReview) (*authenticationv1.TokenReview, error) {
	review.Status.Audiences = review.Spec.Audiences
	review.Status.Authenticated = strings.HasPrefix(review.Spec.Token, "user-") && !a.refuses
	review.Status.User.Username, _, _ = strings.Cut(strings.TrimPrefix(review.Spec.Token, "user-"), "/")
	return review, a.wait(ctx)
}

func (a *apiServer) access(ctx context.Context, review *authorizationv1.SubjectAccessReview) (*authorizationv1.SubjectAccessReview, error) {
	review.Status.Allowed = review.Spec.User == "jane"
	return review, a.wait(ctx)
}

func (a *apiServer) reviewed() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.reviews
}

func (a *apiServer) requireReviews(t *testing.T, want int) {
	t.Helper()
	if a.reviews != want {
		t.Errorf("%d reviews, want %d", a.reviews, want)
	}
}

// TestTokensAreCached: an accepted token is reviewed again after its time, a refused one after ten seconds, and a failure at once.
func TestTokensAreCached(t *testing.T) {
	server, clock := &apiServer{}, clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))
	users := NewUsers(server.token, time.Minute, clock)
	require := func(token string, want error, reviews int) {
		t.Helper()
		for range 3 {
			if _, err := users.Identify(t.Context(), "192.0.2.1", token); !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", token, err, want)
			}
		}
		server.requireReviews(t, reviews)
	}
	require("user-jane", nil, 1)
	clock.Step(59 * time.Second)
	require("user-jane", nil, 1)
	server.refuses = true // it was revoked
	clock.Step(2 * time.Second)
	require("user-jane", ErrUnauthenticated, 2)
	server.refuses = false
	require("user-jane", ErrRefused, 2)
	clock.Step(11 * time.Second)
	require("user-jane", nil, 3)
	server.err = errors.New("it does not answer")
	require("user-john", server.err, 6)
	server.err = nil
	require("user-john", nil, 7)
	for i := range 2 * maxTokens {
		_, _ = users.Identify(t.Context(), "192.0.2.1", fmt.Sprint("invented-", i))
	}
	require("user-jane", nil, 7+2*maxTokens)
}

// TestAudience: a token that the API server accepts for another service, for several, or for any, is refused. So is what Resolve refuses, and that is
// remembered.
func TestAudience(t *testing.T) {
	for name, tt := range map[string]struct {
		audiences []string
		resolve   error
		want      error
	}{
		"the right one": {[]string{"us"}, nil, nil},
		"another one":   {[]string{"vault"}, nil, ErrUnauthenticated},
		"several":       {[]string{"us", "vault"}, nil, ErrUnauthenticated},
		"none":          {nil, nil, ErrUnauthenticated},
		"a wrong user":  {[]string{"us"}, fmt.Errorf("not you: %w", ErrRefused), ErrRefused},
	} {
		server := &apiServer{}
		tokens := NewTokens(Options[string]{
			Audience: "us", TTL: time.Minute, Clock: clock.RealClock{},
			Review: func(ctx context.Context, review *authenticationv1.TokenReview) (*authenticationv1.TokenReview, error) {
				review, err := server.token(ctx, review)
				review.Status.Audiences = tt.audiences
				return review, err
			},
			Resolve: func(_ context.Context, user authenticationv1.UserInfo) (string, error) {
				return user.Username, tt.resolve
			},
		})
		for range 2 {
			if _, err := tokens.Identify(t.Context(), "192.0.2.1", "user-jane"); !errors.Is(err, tt.want) {
				t.Errorf("%s: %v, want %v", name, err, tt.want)
			}
		}
		server.requireReviews(t, 1)
	}
}

// TestInventedTokens: invented tokens of one address, or of a hundred addresses, delay neither a new token of another address nor one that is known.
func TestInventedTokens(t *testing.T) {
	for name, address := range map[string]func(sender int) string{
		"one address":    func(int) string { return "192.0.2.1" },
		"many addresses": func(sender int) string { return fmt.Sprint("192.0.2.", sender) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				users := NewUsers((&apiServer{limit: make(chan struct{}, 1)}).token, 30*time.Second, clock.RealClock{})
				if _, err := users.Identify(t.Context(), "192.0.2.1", "user-known"); err != nil {
					t.Fatal(err)
				}
				ctx, stop := context.WithCancel(t.Context())
				var wait sync.WaitGroup
				defer wait.Wait()
				defer stop()
				for sender := range 100 {
					for request := range 10 {
						wait.Go(func() {
							for n := 0; ctx.Err() == nil; n++ {
								_, _ = users.Identify(ctx, address(sender), fmt.Sprintf("invented-%d-%d-%d", sender, request, n))
							}
						})
					}
				}
				for i := range 10 {
					time.Sleep(31 * time.Second) // the known token is reviewed again
					for from, token := range map[string]string{"192.0.2.1": "user-known", fmt.Sprint("203.0.113.", i): fmt.Sprint("user-new/", i)} {
						began := time.Now()
						if _, err := users.Identify(t.Context(), from, token); err != nil {
							t.Errorf("%s: %v", token, err)
						}
						if waited := time.Since(began); waited > time.Second {
							t.Errorf("%s waited %s", token, waited)
						}
					}
				}
			})
		})
	}
}

// TestReviewsEnd: a review that is not made in time is refused as busy, and one whose request has ended, too.
func TestReviewsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		never := func(ctx context.Context, review *authenticationv1.TokenReview) (*authenticationv1.TokenReview, error) {
			<-ctx.Done()
			return review, ctx.Err()
		}
		users, began := NewUsers(never, time.Minute, clock.RealClock{}), time.Now()
		if _, err := users.Identify(t.Context(), "192.0.2.1", "user-jane"); !errors.Is(err, limits.ErrBusy) || time.Since(began) != reviewTime {
			t.Errorf("%v after %s, want %v after %s", err, time.Since(began), limits.ErrBusy, reviewTime)
		}
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if _, err := users.Identify(ctx, "192.0.2.1", "user-jane"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want that the request has ended", err)
		}
		if users.slots.Used() != 0 {
			t.Error("a slot is taken")
		}
	})
}

// TestPermissionsOfOneNamespace: sixteen ServiceAccounts of one namespace, each with many requests for many permissions, delay no other user.
func TestPermissionsOfOneNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &apiServer{limit: make(chan struct{}, 1)}
		permissions := NewPermissions(server.access, clock.RealClock{})
		ctx, stop := context.WithCancel(t.Context())
		var wait sync.WaitGroup
		defer wait.Wait()
		defer stop()
		for account := range 16 {
			for range 8 {
				wait.Go(func() {
					user := authenticationv1.UserInfo{Username: fmt.Sprint("system:serviceaccount:evil:", account)}
					for n := 0; ctx.Err() == nil; n++ {
						_, _ = permissions.MayUse(ctx, user, authorizationv1.ResourceAttributes{Namespace: fmt.Sprint("team-", n%300)})
					}
				})
			}
		}
		for range 10 {
			time.Sleep(DecisionTTL + time.Second)
			began := time.Now()
			allowed, err := permissions.MayUse(t.Context(), authenticationv1.UserInfo{Username: "jane"}, authorizationv1.ResourceAttributes{Namespace: "shop"})
			if err != nil || !allowed {
				t.Errorf("allowed %t, %v", allowed, err)
			}
			if waited := time.Since(began); waited > time.Second {
				t.Errorf("jane waited %s", waited)
			}
		}
	})
}

// TestListsOfOneNamespace: accounts of one namespace that list 300 namespaces again and again have the rate limit of one tenant, and another user's
// list of 300 namespaces takes less than a second more.
func TestListsOfOneNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &apiServer{limit: make(chan struct{}, maxReviews)}
		permissions := NewPermissions(server.access, clock.RealClock{})
		list := func(ctx context.Context, user string) {
			var reviews errgroup.Group
			reviews.SetLimit(8) // as one request has at once
			for n := range 300 {
				reviews.Go(func() error {
					_, err := permissions.MayUse(ctx, authenticationv1.UserInfo{Username: user}, authorizationv1.ResourceAttributes{Namespace: fmt.Sprint("team-", n)})
					return err
				})
			}
			if err := reviews.Wait(); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		}
		timed := func() time.Duration {
			began := time.Now()
			list(t.Context(), "jane")
			return time.Since(began)
		}
		alone := timed()
		ctx, stop := context.WithCancel(t.Context())
		var wait sync.WaitGroup
		defer wait.Wait()
		defer stop()
		for account := range 16 {
			wait.Go(func() {
				for ctx.Err() == nil {
					list(ctx, fmt.Sprint("system:serviceaccount:evil:", account))
				}
			})
		}
		time.Sleep(time.Minute) // their burst is used up
		before := server.reviewed()
		for range 10 {
			time.Sleep(DecisionTTL + time.Second)
			if beside := timed(); beside > alone+time.Second {
				t.Errorf("jane's list takes %s, and %s alone", beside, alone)
			}
		}
		if others, most := server.reviewed()-before-10*300, 130*tenantReviewsPerSecond; others > most {
			t.Errorf("%d reviews for one tenant in at most 130 s, want at most %d", others, most)
		}
	})
}

// TestPermissionsAreCached: a permission is reviewed once, and once more after DecisionTTL; many requests at once make one review.
func TestPermissionsAreCached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &apiServer{limit: make(chan struct{}, 1)}
		permissions := NewPermissions(server.access, clock.RealClock{})
		for reviews := 1; reviews <= 2; reviews++ {
			var wait sync.WaitGroup
			for range maxReviews / 4 {
				wait.Go(func() {
					_, _ = permissions.MayUse(t.Context(), authenticationv1.UserInfo{Username: "jane"}, authorizationv1.ResourceAttributes{})
				})
				synctest.Wait()
			}
			wait.Wait()
			for range 10 {
				_, _ = permissions.MayUse(t.Context(), authenticationv1.UserInfo{Username: "jane"}, authorizationv1.ResourceAttributes{})
			}
			time.Sleep(DecisionTTL)
		}
		if server.reviews > 2*maxReviews/4 {
			t.Errorf("%d reviews", server.reviews)
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
		if got := TenantOf(user); got != want {
			t.Errorf("%s counts as %q, want %q", user, got, want)
		}
	}
}

// TestBearerToken: a request has one header with one token of a bounded size.
func TestBearerToken(t *testing.T) {
	for header, want := range map[string]string{
		"Bearer a": "a", "bearer  a ": "a", "Basic a": "", "Bearer": "", "Bearer ": "", "a": "", "": "", "Bearer " + strings.Repeat("x", maxTokenBytes+1): "",
	} {
		r := &http.Request{Header: http.Header{"Authorization": {header}}}
		if token, found := BearerToken(r); found != (want != "") || found && token != want {
			t.Errorf("%.20q has the token %q, %t", header, token, found)
		}
	}
	if _, found := BearerToken(&http.Request{Header: http.Header{"Authorization": {"Bearer a", "Bearer b"}}}); found {
		t.Error("two headers have a token")
	}
}
