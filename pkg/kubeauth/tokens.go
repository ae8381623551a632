package kubeauth

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/util/cache"

	"github.com/scanner-operator/scanner-operator/pkg/limits"
)

// Errors of Tokens.
var (
	// ErrRefused means that the caller is refused whenever it comes with this token. An error of Resolve that is ErrRefused is cached.
	ErrRefused = errors.New("refused")
	// ErrUnauthenticated means that the API server does not accept the token, or not for this audience.
	ErrUnauthenticated = fmt.Errorf("%w: the token is not valid", ErrRefused)
)

const (
	maxTokens     = 4096
	maxTokenBytes = 16 << 10
	// refusedTTL is how long a refused token is remembered. Refused ones have a cache of their own: a flood of invented tokens evicts no known caller.
	refusedTTL = 10 * time.Second
	// knownTTL is how long the user of an accepted token is remembered, whose next review counts for the user.
	knownTTL = time.Hour
	// maxReviews is the number of concurrent reviews. It is small against the rate limit of the client, so that nobody waits long for that.
	maxReviews = 16
	// reviewTime bounds the wait for a review, and the review.
	reviewTime = 25 * time.Second
)

// ReviewToken has the API server review a token.
type ReviewToken func(ctx context.Context, review *authenticationv1.TokenReview) (*authenticationv1.TokenReview, error)

// Options are those of Tokens.
type Options[T any] struct {
	Review ReviewToken
	// Audience is what tokens must be for; empty for the API server itself. No token of another audience is accepted, nor one of several.
	Audience string
	// Resolve returns what the user of a token stands for. It may send requests. The result is cached with the token.
	Resolve func(ctx context.Context, user authenticationv1.UserInfo) (T, error)
	// TTL is how long an accepted token is accepted without another review.
	TTL   time.Duration
	Clock cache.Clock
}

// Tokens finds out who sent a request by TokenReviews. It is safe for concurrent use.
type Tokens[T any] struct {
	Options[T]
	accepted *cache.LRUExpireCache // acceptedToken by the token's SHA-256
	refused  *cache.LRUExpireCache // error by the token's SHA-256
	slots    *limits.Pool
}

type acceptedToken[T any] struct {
	value      T
	user       string
	reviewedAt time.Time
}

// NewTokens returns Tokens with empty caches.
func NewTokens[T any](o Options[T]) *Tokens[T] {
	return &Tokens[T]{
		Options: o, accepted: cache.NewLRUExpireCacheWithClock(maxTokens, o.Clock), refused: cache.NewLRUExpireCacheWithClock(maxTokens, o.Clock),
		slots: limits.NewPool(maxReviews),
	}
}

// NewUsers returns Tokens that stand for their users.
func NewUsers(review ReviewToken, ttl time.Duration, clock cache.Clock) *Tokens[authenticationv1.UserInfo] {
	return NewTokens(Options[authenticationv1.UserInfo]{
		Review: review, TTL: ttl, Clock: clock,
		Resolve: func(_ context.Context, user authenticationv1.UserInfo) (authenticationv1.UserInfo, error) {
			return user, nil
		},
	})
}

// Identify returns what a token stands for. address is where the request comes from. The error is ErrRefused, limits.ErrBusy
// if the token was not reviewed in time, or says why the API server did not answer; it does not contain the token.
func (t *Tokens[T]) Identify(ctx context.Context, address, token string) (value T, err error) {
	hash := sha256.Sum256([]byte(token))
	if value, known, err := t.cached(hash); known {
		return value, err
	}
	bounded, cancel := context.WithTimeout(ctx, reviewTime)
	defer cancel()
	release, err := t.slots.Acquire(bounded, t.tenant(hash, address))
	if err != nil {
		return value, err
	}
	defer release()
	// Another request with the same token may have been first.
	if value, known, err := t.cached(hash); known {
		return value, err
	}
	value, user, err := t.review(bounded, token)
	switch {
	case err == nil:
		t.accepted.Add(hash, acceptedToken[T]{value, user, t.Clock.Now()}, knownTTL)
	case errors.Is(err, ErrRefused):
		t.accepted.Remove(hash)
		t.refused.Add(hash, err, refusedTTL)
	case bounded.Err() != nil && ctx.Err() == nil:
		err = fmt.Errorf("%w: %w", limits.ErrBusy, err)
	}
	return value, err
}

func (t *Tokens[T]) cached(hash [sha256.Size]byte) (value T, known bool, err error) {
	if found, ok := t.accepted.Get(hash); ok {
		if accepted := found.(acceptedToken[T]); t.Clock.Now().Sub(accepted.reviewedAt) < t.TTL {
			return accepted.value, true, nil
		}
	}
	if found, ok := t.refused.Get(hash); ok {
		return value, true, found.(error)
	}
	return value, false, nil
}

// tenant returns for whom a review counts: the user whose token this was, or the address.
func (t *Tokens[T]) tenant(hash [sha256.Size]byte, address string) string {
	if found, ok := t.accepted.Get(hash); ok {
		return "user " + TenantOf(found.(acceptedToken[T]).user)
	}
	return "address " + address
}

func (t *Tokens[T]) review(ctx context.Context, token string) (value T, user string, err error) {
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	if t.Audience != "" {
		review.Spec.Audiences = []string{t.Audience}
	}
	// An error describes the request without its body, which holds the token.
	review, err = t.Review(ctx, review)
	switch {
	case err != nil:
		return value, "", fmt.Errorf("reviewing a token: %w", err)
	// An API server without support for audiences returns none: such a token may be meant for any service.
	case !review.Status.Authenticated, t.Audience != "" && !slices.Equal(review.Status.Audiences, review.Spec.Audiences):
		return value, "", ErrUnauthenticated
	}
	value, err = t.Resolve(ctx, review.Status.User)
	return value, review.Status.User.Username, err
}

// BearerToken returns the token of a request (RFC 6750); found is false if there is none, or one that is too long.
func BearerToken(r *http.Request) (token string, found bool) {
	values := r.Header.Values("Authorization")
	if len(values) != 1 {
		return "", false
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	token = strings.TrimSpace(token)
	return token, strings.EqualFold(scheme, "Bearer") && token != "" && len(token) <= maxTokenBytes
}
