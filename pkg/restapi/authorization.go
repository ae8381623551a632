package restapi

import (
	"context"
	"slices"

	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/kubeauth"
)

// Bounds of the access reviews for one request.
const (
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

// authorizer decides what a caller may do.
type authorizer struct{ *kubeauth.Permissions }

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

// isAllowed reports whether the user may use a verb on the resources of a namespace ("" for all), or on the object with a name.
func (a *authorizer) isAllowed(ctx context.Context, user authenticationv1.UserInfo, verb, resource, namespace, name string) (bool, error) {
	return a.MayUse(ctx, user, authorizationv1.ResourceAttributes{
		Group: v1alpha1.GroupVersion.Group, Version: v1alpha1.GroupVersion.Version, Resource: resource, Namespace: namespace, Name: name, Verb: verb,
	})
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
