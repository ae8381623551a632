package kubeauth

import (
	"context"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Rate limit of a client for reviews.
const (
	reviewsPerSecond = 50
	reviewsBurst     = 200
)

// ClientConfig returns a configuration for a client of reviews, with a rate limit of its own: whoever reaches a server can cause reviews, which
// must not delay other requests of this process.
func ClientConfig(cluster *rest.Config) *rest.Config {
	cluster = rest.CopyConfig(cluster)
	cluster.QPS, cluster.Burst, cluster.RateLimiter = reviewsPerSecond, reviewsBurst, nil
	return cluster
}

// AccessConfig returns a configuration for the client of Permissions. The client has no rate limit, in which all tenants would wait for each other:
// Permissions limits the rate of each tenant, and the number of concurrent reviews.
func AccessConfig(cluster *rest.Config) *rest.Config {
	cluster = rest.CopyConfig(cluster)
	cluster.QPS, cluster.RateLimiter = -1, nil // no limit
	return cluster
}

// +kubebuilder:rbac:roleName=scanner-operator-manager-cluster,groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:roleName=scanner-operator-manager-cluster,groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create

// TokensBy returns a ReviewToken that uses a client.
func TokensBy(c client.Writer) ReviewToken {
	return func(ctx context.Context, review *authenticationv1.TokenReview) (*authenticationv1.TokenReview, error) {
		return review, c.Create(ctx, review)
	}
}

// AccessBy returns a ReviewAccess that uses a client.
func AccessBy(c client.Writer) ReviewAccess {
	return func(ctx context.Context, review *authorizationv1.SubjectAccessReview) (*authorizationv1.SubjectAccessReview, error) {
		return review, c.Create(ctx, review)
	}
}

// TokensByClientset returns a ReviewToken that uses a client of client-go.
func TokensByClientset(c authenticationclient.TokenReviewInterface) ReviewToken {
	return func(ctx context.Context, review *authenticationv1.TokenReview) (*authenticationv1.TokenReview, error) {
		return c.Create(ctx, review, metav1.CreateOptions{})
	}
}

// AccessByClientset returns a ReviewAccess that uses a client of client-go.
func AccessByClientset(c authorizationclient.SubjectAccessReviewInterface) ReviewAccess {
	return func(ctx context.Context, review *authorizationv1.SubjectAccessReview) (*authorizationv1.SubjectAccessReview, error) {
		return c.Create(ctx, review, metav1.CreateOptions{})
	}
}
