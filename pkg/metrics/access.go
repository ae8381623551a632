package metrics

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// Bounds of the cache of readers. A revoked token or permission counts for at most allowedTTL longer. Refusals have a cache of their own: a
// flood of invented tokens evicts no known reader.
const (
	maxReaders    = 256
	allowedTTL    = time.Minute
	refusedTTL    = 10 * time.Second
	reviewTimeout = 10 * time.Second
	maxTokenBytes = 16 << 10
)

// readers decides who may read metrics: callers with a token of the cluster that may get the path. It keeps no token, only its hash.
type readers struct {
	tokens           authenticationclient.TokenReviewInterface
	permissions      authorizationclient.SubjectAccessReviewInterface
	allowed, refused *cache.LRUExpireCache // status code by the hash of token, method and path
}

// RequireAccess is for the metrics server's options. It requires a token of the cluster (TokenReview), and the permission for the request's path
// and method (SubjectAccessReview). controller-runtime's own filter does the same, and links the API
// server's packages: 20 MiB of resident memory.
func RequireAccess(config *rest.Config, c *http.Client) (metricsserver.Filter, error) {
	authentication, err := authenticationclient.NewForConfigAndClient(config, c)
	if err != nil {
		return nil, err
	}
	authorization, err := authorizationclient.NewForConfigAndClient(config, c)
	if err != nil {
		return nil, err
	}
	return newReaders(authentication.TokenReviews(), authorization.SubjectAccessReviews()).filter, nil
}

func newReaders(tokens authenticationclient.TokenReviewInterface, permissions authorizationclient.SubjectAccessReviewInterface) *readers {
	return &readers{tokens, permissions, cache.NewLRUExpireCache(maxReaders), cache.NewLRUExpireCache(maxReaders)}
}

// filter is a metricsserver.Filter.
func (r *readers) filter(log logr.Logger, next http.Handler) (http.Handler, error) {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		code, err := r.decide(request)
		if err != nil {
			log.Error(err, "A reader of the metrics could not be reviewed")
		}
		if code != http.StatusOK {
			http.Error(w, http.StatusText(code), code)
			return
		}
		next.ServeHTTP(w, request)
	}), nil
}

// decide returns 200, or the status of a refusal.
func (r *readers) decide(request *http.Request) (code int, err error) {
	scheme, token, _ := strings.Cut(request.Header.Get("Authorization"), " ")
	token = strings.TrimSpace(token)
	if !strings.EqualFold(scheme, "Bearer") || token == "" || len(token) > maxTokenBytes {
		return http.StatusUnauthorized, nil
	}
	key := sha256.Sum256([]byte(token + "\n" + request.Method + "\n" + request.URL.Path))
	for _, known := range []*cache.LRUExpireCache{r.allowed, r.refused} {
		if code, found := known.Get(key); found {
			return code.(int), nil
		}
	}
	ctx, cancel := context.WithTimeout(request.Context(), reviewTimeout)
	defer cancel()
	code, err = r.review(ctx, token, &authorizationv1.NonResourceAttributes{Path: request.URL.Path, Verb: strings.ToLower(request.Method)})
	switch {
	case err != nil:
		return http.StatusInternalServerError, err
	case code == http.StatusOK:
		r.allowed.Add(key, code, allowedTTL)
	default:
		r.refused.Add(key, code, refusedTTL)
	}
	return code, nil
}

// review has the API server decide. Without audiences in the TokenReview, it requires its own.
func (r *readers) review(ctx context.Context, token string, wanted *authorizationv1.NonResourceAttributes) (code int, err error) {
	reviewed, err := r.tokens.Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	if err != nil {
		return 0, fmt.Errorf("reviewing a token: %w", err)
	}
	if !reviewed.Status.Authenticated {
		return http.StatusUnauthorized, nil
	}
	user := reviewed.Status.User
	spec := authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, Groups: user.Groups, UID: user.UID, Extra: map[string]authorizationv1.ExtraValue{}, NonResourceAttributes: wanted,
	}
	for key, values := range user.Extra {
		spec.Extra[key] = authorizationv1.ExtraValue(values)
	}
	access, err := r.permissions.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
	switch {
	case err != nil:
		return 0, fmt.Errorf("reviewing access: %w", err)
	case !access.Status.Allowed || access.Status.Denied:
		return http.StatusForbidden, nil
	}
	return http.StatusOK, nil
}
