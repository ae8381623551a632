package kubeauth

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/utils/clock"

	"github.com/scanner-operator/scanner-operator/pkg/limits"
)

// DecisionTTL is how long a decision is cached. Revoked RBAC permissions are lost after it at the latest.
const DecisionTTL = 10 * time.Second

const (
	maxDecisions = 16384
	// Rate limit of each tenant's reviews. The burst lets a caller list the number of namespaces that one request may review. Each may be
	// reviewed again when its decision has left the cache.
	tenantReviewsPerSecond = 100
	tenantReviewsBurst     = 1000
)

// ReviewAccess has the API server decide about a permission.
type ReviewAccess func(ctx context.Context, review *authorizationv1.SubjectAccessReview) (*authorizationv1.SubjectAccessReview, error)

// Permissions finds out by SubjectAccessReviews what users may do. It is safe for concurrent use.
type Permissions struct {
	review    ReviewAccess
	decisions *cache.LRUExpireCache // bool by the hash of what is reviewed
	rates     *limits.Rates         // by tenant, so that nobody waits for the reviews of others
	slots     *limits.Pool
}

// NewPermissions returns Permissions with an empty cache.
func NewPermissions(review ReviewAccess, clock clock.PassiveClock) *Permissions {
	return &Permissions{
		review: review, decisions: cache.NewLRUExpireCacheWithClock(maxDecisions, clock),
		rates: limits.NewRates(tenantReviewsPerSecond, tenantReviewsBurst, clock), slots: limits.NewPool(maxReviews),
	}
}

// MayUse reports whether a user has a permission for a resource.
func (p *Permissions) MayUse(ctx context.Context, user authenticationv1.UserInfo, resource authorizationv1.ResourceAttributes) (bool, error) {
	return p.decide(ctx, user, authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: &resource})
}

// MayGet reports whether a user has a permission for a path that is no resource.
func (p *Permissions) MayGet(ctx context.Context, user authenticationv1.UserInfo, path authorizationv1.NonResourceAttributes) (bool, error) {
	return p.decide(ctx, user, authorizationv1.SubjectAccessReviewSpec{NonResourceAttributes: &path})
}

func (p *Permissions) decide(ctx context.Context, user authenticationv1.UserInfo, spec authorizationv1.SubjectAccessReviewSpec) (bool, error) {
	spec.User, spec.Groups, spec.UID = user.Username, user.Groups, user.UID
	if len(user.Extra) > 0 {
		spec.Extra = make(map[string]authorizationv1.ExtraValue, len(user.Extra))
	}
	for key, values := range user.Extra {
		spec.Extra[key] = authorizationv1.ExtraValue(values)
	}
	// The keys of a map are marshalled in order, so that equal reviews have the same hash.
	text, err := json.Marshal(spec)
	if err != nil {
		return false, err
	}
	hash := sha256.Sum256(text)
	if allowed, found := p.decisions.Get(hash); found {
		return allowed.(bool), nil
	}
	tenant := TenantOf(user.Username)
	if err := p.rates.Wait(ctx, tenant); err != nil {
		return false, err
	}
	release, err := p.slots.Acquire(ctx, tenant)
	if err != nil {
		return false, err
	}
	defer release()
	// Another request of the same user may have been first.
	if allowed, found := p.decisions.Get(hash); found {
		return allowed.(bool), nil
	}
	review, err := p.review(ctx, &authorizationv1.SubjectAccessReview{Spec: spec})
	if err != nil {
		return false, fmt.Errorf("reviewing access: %w", err)
	}
	allowed := review.Status.Allowed && !review.Status.Denied
	p.decisions.Add(hash, allowed, DecisionTTL)
	return allowed, nil
}
