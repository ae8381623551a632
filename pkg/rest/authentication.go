package rest

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

// Bounds of what is remembered of callers. A token that is revoked is known to be for no longer than tokenTime more.
const (
	maxTokens     = 4096
	tokenTime     = 30 * time.Second
	maxTokenBytes = 16 << 10
	// maxRefused tokens are remembered as such for refusedTime, in a cache of their own: whoever repeats one costs nothing.
	maxRefused  = 4096
	refusedTime = 10 * time.Second
	// maxReviews is how many questions of a kind to the API server are open at once; others wait.
	maxReviews = 32
)

// authenticator asks the API server whose token a request has, and remembers the answer for a moment. It keeps no token,
// only its hash.
type authenticator struct {
	reviews client.Client
	known   *cache.LRUExpireCache // UserInfo by the token's SHA-256
	refused *cache.LRUExpireCache // the token's SHA-256
	asking  semaphore
}

// +kubebuilder:rbac:roleName=scanner-operator-manager-cluster,groups=authentication.k8s.io,resources=tokenreviews,verbs=create

// user returns who sent a request. Audiences are the API server's own: what "kubectl create token" gives will do.
func (a *authenticator) user(r *http.Request) (authenticationv1.UserInfo, error) {
	token, err := bearer(r)
	if err != nil {
		return authenticationv1.UserInfo{}, err
	}
	hash := sha256.Sum256([]byte(token))
	// A flood of made-up tokens pushes nobody out: what the API server refused is remembered elsewhere.
	if user, found := a.known.Get(hash); found {
		return user.(authenticationv1.UserInfo), nil
	}
	if _, found := a.refused.Get(hash); found {
		return authenticationv1.UserInfo{}, unauthorized()
	}
	user, accepted, err := a.review(r.Context(), token)
	if err != nil {
		return authenticationv1.UserInfo{}, err
	}
	if !accepted {
		a.refused.Add(hash, nil, refusedTime)
		return authenticationv1.UserInfo{}, unauthorized()
	}
	a.known.Add(hash, user, tokenTime)
	return user, nil
}

// review makes a TokenReview. Without audiences the API server wants its own.
func (a *authenticator) review(ctx context.Context, token string) (user authenticationv1.UserInfo, accepted bool, err error) {
	if err := a.asking.acquire(ctx); err != nil {
		return authenticationv1.UserInfo{}, false, err
	}
	defer a.asking.release()
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	if err := a.reviews.Create(ctx, review); err != nil {
		// The error is of the request and does not hold its body.
		return authenticationv1.UserInfo{}, false, fmt.Errorf("reviewing a token: %w", err)
	}
	return review.Status.User, review.Status.Authenticated, nil
}

func unauthorized() *problem {
	return refuse(restv1.ReasonUnauthorized,
		"the API server does not accept the token: it has expired, or is not for this cluster; get another one (kubectl create token)")
}

// bearer takes the token out of a request (RFC 6750).
func bearer(r *http.Request) (string, error) {
	values := r.Header.Values("Authorization")
	if len(values) == 1 {
		scheme, token, found := strings.Cut(values[0], " ")
		token = strings.TrimSpace(token)
		if found && strings.EqualFold(scheme, "Bearer") && token != "" && len(token) <= maxTokenBytes {
			return token, nil
		}
	}
	return "", refuse(restv1.ReasonUnauthorized, "a token is needed: send one header, Authorization: Bearer <token> (kubectl create token gives one)")
}
