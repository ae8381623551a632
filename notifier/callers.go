package notifier

import (
	"context"
	"errors"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"

	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/kubeauth"
	"github.com/scanner-operator/scanner-operator/pkg/limits"
)

// Errors of an Authenticator.
var (
	// ErrUnauthenticated means that the token is not valid, or not for this notifier.
	ErrUnauthenticated = errors.New("unauthenticated")
	// ErrForbidden means that the caller is not the manager.
	ErrForbidden = fmt.Errorf("forbidden: %w", kubeauth.ErrRefused)
)

// reviewAge is how long the result of a review is cached. A revoked token works no longer than that.
const reviewAge = time.Minute

// TokenReviews authenticates callers by TokenReview. It allows one ServiceAccount, with a token for NotifierAudience.
type TokenReviews struct{ tokens *kubeauth.Tokens[struct{}] }

// NewTokenReviews returns an Authenticator that queries the API server. user is the full user name of the manager's ServiceAccount.
func NewTokenReviews(client authenticationclient.TokenReviewsGetter, user string, clock cache.Clock) *TokenReviews {
	return &TokenReviews{kubeauth.NewTokens(kubeauth.Options[struct{}]{
		Review: kubeauth.TokensByClientset(client.TokenReviews()), Audience: announce.NotifierAudience, TTL: reviewAge, Clock: clock,
		Resolve: func(_ context.Context, caller authenticationv1.UserInfo) (struct{}, error) {
			if caller.Username != user {
				return struct{}{}, ErrForbidden
			}
			return struct{}{}, nil
		},
	})}
}

// Allow implements Authenticator.
func (t *TokenReviews) Allow(ctx context.Context, token string) error {
	_, err := t.tokens.Identify(ctx, limits.AddressIn(ctx), token)
	if errors.Is(err, kubeauth.ErrUnauthenticated) {
		return ErrUnauthenticated
	}
	return err
}
