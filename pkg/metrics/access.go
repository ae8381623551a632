package metrics

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/scanner-operator/scanner-operator/pkg/kubeauth"
	"github.com/scanner-operator/scanner-operator/pkg/limits"
)

const (
	// tokenTTL is how long a revoked token counts at most.
	tokenTTL = time.Minute
	// reviewTimeout bounds the review of a permission.
	reviewTimeout = 10 * time.Second
)

// readers decides who may read metrics: callers with a token of the cluster that may get the path.
type readers struct {
	tokens      *kubeauth.Tokens[authenticationv1.UserInfo]
	permissions *kubeauth.Permissions
}

// RequireAccess is for the metrics server's options. It requires a token of the cluster (TokenReview), and the permission for the request's path
// and method (SubjectAccessReview). controller-runtime's own filter does the same, and links the API
// server's packages: 20 MiB of resident memory.
func RequireAccess(config *rest.Config, c *http.Client) (metricsserver.Filter, error) {
	authentication, err := authenticationclient.NewForConfigAndClient(kubeauth.ClientConfig(config), c)
	if err != nil {
		return nil, err
	}
	authorization, err := authorizationclient.NewForConfigAndClient(kubeauth.AccessConfig(config), c)
	if err != nil {
		return nil, err
	}
	return newReaders(authentication.TokenReviews(), authorization.SubjectAccessReviews()).filter, nil
}

func newReaders(tokens authenticationclient.TokenReviewInterface, permissions authorizationclient.SubjectAccessReviewInterface) *readers {
	now := clock.RealClock{}
	return &readers{
		kubeauth.NewUsers(kubeauth.TokensByClientset(tokens), tokenTTL, now), kubeauth.NewPermissions(kubeauth.AccessByClientset(permissions), now),
	}
}

// filter is a metricsserver.Filter.
func (r *readers) filter(log logr.Logger, next http.Handler) (http.Handler, error) {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		user, code, err := r.decide(request)
		if err != nil {
			log.Error(err, "A reader of the metrics could not be reviewed")
		}
		if code != http.StatusOK {
			http.Error(w, http.StatusText(code), code)
			return
		}
		limits.Authenticated(request.Context(), w, user)
		next.ServeHTTP(w, request)
	}), nil
}

// decide returns 200 and the user, or the status of a refusal.
func (r *readers) decide(request *http.Request) (user string, code int, err error) {
	token, found := kubeauth.BearerToken(request)
	if !found {
		return "", http.StatusUnauthorized, nil
	}
	reader, err := r.tokens.Identify(request.Context(), limits.AddressOf(request), token)
	switch {
	case errors.Is(err, kubeauth.ErrRefused):
		return "", http.StatusUnauthorized, nil
	case errors.Is(err, limits.ErrBusy):
		return "", http.StatusServiceUnavailable, err
	case err != nil:
		return "", http.StatusInternalServerError, err
	}
	ctx, cancel := context.WithTimeout(request.Context(), reviewTimeout)
	defer cancel()
	allowed, err := r.permissions.MayGet(ctx, reader, authorizationv1.NonResourceAttributes{Path: request.URL.Path, Verb: strings.ToLower(request.Method)})
	switch {
	case err != nil:
		return "", http.StatusInternalServerError, err
	case !allowed:
		return "", http.StatusForbidden, nil
	}
	return kubeauth.TenantOf(reader.Username), http.StatusOK, nil
}
