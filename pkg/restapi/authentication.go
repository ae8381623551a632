package restapi

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
)

// Bounds of the cache of callers. A revoked token is accepted for at most tokenTTL longer.
const (
	maxTokens     = 4096
	tokenTTL      = 30 * time.Second
	maxTokenBytes = 16 << 10
	// maxRefused is the number of refused tokens that are cached, each for refusedTTL, in a cache of their own. A repeated token causes no
	// second review.
	maxRefused = 4096
	refusedTTL = 10 * time.Second
	// maxReviews is the number of concurrent reviews of one kind. Others wait.
	maxReviews = 32
)

// authenticator finds out by TokenReviews who sent a request, and caches the results for a short time. It keeps no token, only its hash.
type authenticator struct {
	reviews     client.Client
	accepted    *cache.LRUExpireCache // UserInfo by the token's SHA-256
	refused     *cache.LRUExpireCache // refused tokens, by SHA-256
	reviewSlots semaphore
}

// +kubebuilder:rbac:roleName=scanner-operator-manager-cluster,groups=authentication.k8s.io,resources=tokenreviews,verbs=create

// identify returns the user of a token. The token's audiences must be those of the API server, as with "kubectl create token".
func (a *authenticator) identify(ctx context.Context, token string) (authenticationv1.UserInfo, error) {
	hash := sha256.Sum256([]byte(token))
	// Refused tokens have a cache of their own: a flood of made-up tokens evicts no known caller.
	if user, found := a.accepted.Get(hash); found {
		return user.(authenticationv1.UserInfo), nil
	}
	if _, found := a.refused.Get(hash); found {
		return authenticationv1.UserInfo{}, unauthorized()
	}
	user, accepted, err := a.review(ctx, token)
	if err != nil {
		return authenticationv1.UserInfo{}, err
	}
	if !accepted {
		a.refused.Add(hash, nil, refusedTTL)
		return authenticationv1.UserInfo{}, unauthorized()
	}
	a.accepted.Add(hash, user, tokenTTL)
	return user, nil
}

// review creates a TokenReview. Without audiences in it, the API server requires its own.
func (a *authenticator) review(ctx context.Context, token string) (user authenticationv1.UserInfo, accepted bool, err error) {
	if err := a.reviewSlots.acquire(ctx); err != nil {
		return authenticationv1.UserInfo{}, false, err
	}
	defer a.reviewSlots.release()
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	if err := a.reviews.Create(ctx, review); err != nil {
		// The error describes the request. It does not contain the body, which holds the token.
		return authenticationv1.UserInfo{}, false, fmt.Errorf("reviewing a token: %w", err)
	}
	return review.Status.User, review.Status.Authenticated, nil
}

func unauthorized() *problem {
	return newProblem(restv1.ReasonUnauthorized,
		"the API server does not accept the token: it has expired, or is not for this cluster; get another one (kubectl create token)")
}

// bearerToken returns the token of a request (RFC 6750).
func bearerToken(r *http.Request) (string, error) {
	values := r.Header.Values("Authorization")
	if len(values) == 1 {
		scheme, token, found := strings.Cut(values[0], " ")
		token = strings.TrimSpace(token)
		if found && strings.EqualFold(scheme, "Bearer") && token != "" && len(token) <= maxTokenBytes {
			return token, nil
		}
	}
	return "", newProblem(restv1.ReasonUnauthorized, "a token is needed: send one header, Authorization: Bearer <token> (kubectl create token gives one)")
}
