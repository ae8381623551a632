package notifier

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"

	"github.com/scanner-operator/scanner-operator/pkg/announce"
)

// Errors of an Authenticator.
var (
	// ErrUnauthenticated means that the token is not valid, or not for this notifier.
	ErrUnauthenticated = errors.New("unauthenticated")
	// ErrForbidden means that the caller is not the manager.
	ErrForbidden = errors.New("forbidden")
)

const (
	// reviewAge is how long the result of a review is cached. A revoked token works no longer than that.
	reviewAge  = time.Minute
	maxReviews = 1000
	// reviewTimeout bounds one request to the API server.
	reviewTimeout = 5 * time.Second
)

// TokenReviews authenticates callers by TokenReview. It allows one ServiceAccount, with a token for NotifierAudience.
type TokenReviews struct {
	client authenticationclient.TokenReviewsGetter
	// user is "system:serviceaccount:<namespace>:<name>".
	user string
	// answers are cached reviews by the token's hash. Tokens are not kept.
	answers *cache.LRUExpireCache
}

// NewTokenReviews returns an Authenticator that queries the API server. user is the full user name of the manager's ServiceAccount.
func NewTokenReviews(client authenticationclient.TokenReviewsGetter, user string, clock cache.Clock) *TokenReviews {
	return &TokenReviews{client: client, user: user, answers: cache.NewLRUExpireCacheWithClock(maxReviews, clock)}
}

// Allow implements Authenticator.
func (t *TokenReviews) Allow(ctx context.Context, token string) error {
	key := sha256.Sum256([]byte(token))
	if answer, known := t.answers.Get(key); known {
		err, _ := answer.(error)
		return err
	}
	err := t.review(ctx, token)
	// An error of the API server says nothing about the token and is not cached.
	if err == nil || errors.Is(err, ErrUnauthenticated) || errors.Is(err, ErrForbidden) {
		t.answers.Add(key, err, reviewAge)
	}
	return err
}

func (t *TokenReviews) review(ctx context.Context, token string) error {
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{
		Token: token, Audiences: []string{announce.NotifierAudience},
	}}
	review, err := t.client.TokenReviews().Create(ctx, review, metav1.CreateOptions{})
	switch {
	case err != nil:
		return fmt.Errorf("review a token: %w", err)
	case !review.Status.Authenticated:
		return ErrUnauthenticated
	case !slices.Contains(review.Status.Audiences, announce.NotifierAudience):
		// An API server without support for audiences returns none. The token could then have been issued for another service.
		return ErrUnauthenticated
	case review.Status.User.Username != t.user:
		return ErrForbidden
	}
	return nil
}
