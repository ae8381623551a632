package restapi

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
)

// Bounds of the access reviews and of their cache. Revoked RBAC permissions are lost after at most decisionTTL.
const (
	maxDecisions = 16384
	decisionTTL  = 10 * time.Second
	// maxNamespaces is the number of namespaces that are reviewed one by one for one request.
	maxNamespaces = 1000
	// maxConcurrentReviews is the number of concurrent reviews for one request, which leaves slots for other requests.
	maxConcurrentReviews = 8
)

// Resources that callers need permissions for.
const (
	resourceScanners        = "scanners"
	resourceClusterScanners = "clusterscanners" // in no namespace
	resourceImageScans      = "imagescans"
	// resourceReports are the reports of other tools. No object has this kind: RBAC decides by its name alone.
	resourceReports = "reports"
	// resourceSBOMs are uploaded SBOMs, which are no objects either.
	resourceSBOMs = "sboms"

	resourceExceptions        = "vulnerabilityexceptions"
	resourceClusterExceptions = "clustervulnerabilityexceptions" // in no namespace
)

// Verbs that callers need.
const (
	verbGet    = "get"
	verbList   = "list"
	verbUpdate = "update"
	verbDelete = "delete"
)

// authorizer finds out by SubjectAccessReviews what a caller may do, and caches the results for a short time.
type authorizer struct {
	reviews     client.Client
	decisions   *cache.LRUExpireCache // bool by the hash of user and attributes
	reviewSlots semaphore
}

// requireAccess returns a refusal unless the user has the permission. The refusal is the same whether or not the object exists.
func (a *authorizer) requireAccess(ctx context.Context, user authenticationv1.UserInfo, verb, resource, namespace, name string) error {
	allowed, err := a.isAllowed(ctx, user, verb, resource, namespace, name)
	if err != nil || allowed {
		return err
	}
	if resource == resourceClusterScanners {
		return newProblem(restv1.ReasonForbidden, "%s may not %s %s.%s: it needs a ClusterRoleBinding to a role that allows this, such as scanner-operator-cluster-view",
			user.Username, verb, resource, v1alpha1.GroupVersion.Group)
	}
	role := "scanner-operator-view"
	switch {
	case resource == resourceReports:
		role = "scanner-operator-report"
	case resource == resourceSBOMs:
		role = "scanner-operator-sbom"
	case verb == verbDelete:
		role = "scanner-operator-edit"
	}
	return newProblem(restv1.ReasonForbidden, "%s may not %s %s.%s in namespace %s: it needs a Role that allows this, such as the ClusterRole %s",
		user.Username, verb, resource, v1alpha1.GroupVersion.Group, namespace, role)
}

// +kubebuilder:rbac:roleName=scanner-operator-manager-cluster,groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create

// isAllowed reports whether the user may use a verb on the resources of a namespace ("" for all), or on the object with a name.
func (a *authorizer) isAllowed(ctx context.Context, user authenticationv1.UserInfo, verb, resource, namespace, name string) (bool, error) {
	return a.review(ctx, user, authorizationv1.ResourceAttributes{
		Group: v1alpha1.GroupVersion.Group, Version: v1alpha1.GroupVersion.Version, Resource: resource, Namespace: namespace, Name: name, Verb: verb,
	})
}

// review reports whether the user has a permission, of whichever API group.
func (a *authorizer) review(ctx context.Context, user authenticationv1.UserInfo, attributes authorizationv1.ResourceAttributes) (bool, error) {
	spec := authorizationv1.SubjectAccessReviewSpec{User: user.Username, Groups: user.Groups, UID: user.UID, ResourceAttributes: &attributes}
	for key, values := range user.Extra {
		if spec.Extra == nil {
			spec.Extra = map[string]authorizationv1.ExtraValue{}
		}
		spec.Extra[key] = authorizationv1.ExtraValue(values)
	}
	// The keys of a map are marshalled in order, so that equal reviews have the same hash.
	key, err := json.Marshal(spec)
	if err != nil {
		return false, err
	}
	hash := sha256.Sum256(key)
	if allowed, found := a.decisions.Get(hash); found {
		return allowed.(bool), nil
	}
	if err := a.reviewSlots.acquire(ctx); err != nil {
		return false, err
	}
	defer a.reviewSlots.release()
	review := &authorizationv1.SubjectAccessReview{Spec: spec}
	if err := a.reviews.Create(ctx, review); err != nil {
		return false, fmt.Errorf("reviewing access: %w", err)
	}
	a.decisions.Add(hash, review.Status.Allowed, decisionTTL)
	return review.Status.Allowed, nil
}

// visibility holds the namespaces in which a caller may see a resource.
type visibility struct {
	// all means that the caller sees every namespace. Otherwise namespaces lists them, sorted.
	all        bool
	namespaces []string
}

func (s visibility) includes(namespace string) bool {
	_, found := slices.BinarySearch(s.namespaces, namespace)
	return s.all || found
}

// visibleNamespaces returns in which of the given namespaces the user may list a resource. A user who may not list it in any of them is refused, since
// an empty list would look like "nothing found". More than maxNamespaces are refused, unless the user may list the resource in all
// namespaces.
func (a *authorizer) visibleNamespaces(ctx context.Context, user authenticationv1.UserInfo, resource string, namespaces []string) (visibility, error) {
	all, err := a.isAllowed(ctx, user, verbList, resource, "", "")
	if err != nil || all {
		return visibility{all: all}, err
	}
	if len(namespaces) > maxNamespaces {
		return visibility{}, invalidParameter("namespace", "%s may not list %s.%s in all namespaces at once, and there are too many to check each of them: name one",
			user.Username, resource, v1alpha1.GroupVersion.Group)
	}
	allowed := make([]bool, len(namespaces))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(maxConcurrentReviews)
	for i, namespace := range namespaces {
		group.Go(func() (err error) {
			allowed[i], err = a.isAllowed(ctx, user, verbList, resource, namespace, "")
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return visibility{}, err
	}
	var seen []string
	for i, namespace := range namespaces {
		if allowed[i] {
			seen = append(seen, namespace)
		}
	}
	if seen == nil {
		return visibility{}, newProblem(restv1.ReasonForbidden, "%s may not list %s.%s in any namespace that is scanned: it needs a Role that allows this, such as the ClusterRole scanner-operator-view",
			user.Username, resource, v1alpha1.GroupVersion.Group)
	}
	slices.Sort(seen)
	return visibility{namespaces: seen}, nil
}
