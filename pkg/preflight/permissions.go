package preflight

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
)

// Role is the ClusterRole with all permissions in Required. config/rbac binds it in the whole cluster, or in each namespace.
const Role = "scanner-operator-manager"

// operatorNamespaceBinding is the RoleBinding to Role in the operator's own namespace.
const operatorNamespaceBinding = "scanner-operator-workers"

// Permission is a permission: one verb on one resource.
type Permission struct {
	Verb string
	// Resource includes the API group. Subresource is "status" or empty.
	Resource    schema.GroupResource
	Subresource string
}

// Required lists the permissions that the operator needs in each scanned namespace. They are those of the ClusterRole Role: a test compares
// both.
var Required = slices.Concat(
	permissionsFor(corev1.GroupName, "pods", "get", "list", "watch", "patch"),
	permissionsFor(corev1.GroupName, "events", "list"),
	permissionsFor("events.k8s.io", "events", "create", "patch"),
	permissionsFor("batch", "jobs", "get", "create", "delete"),
	permissionsFor(v1alpha1.GroupVersion.Group, "scanners", "get", "list", "watch", "patch"),
	permissionsFor(v1alpha1.GroupVersion.Group, "scanners/status", "patch"),
	permissionsFor(v1alpha1.GroupVersion.Group, "imagescans", "list", "watch", "create", "patch", "delete"),
	permissionsFor(v1alpha1.GroupVersion.Group, "imagescans/status", "patch"),
	permissionsFor(v1alpha1.GroupVersion.Group, "vulnerabilityexceptions", "list", "watch"),
	permissionsFor(v1alpha1.GroupVersion.Group, "vulnerabilityexceptions/status", "patch"),
)

// RequiredInOperatorNamespace lists the permissions in Required without which nothing works in the operator's own namespace, where most Jobs run.
var RequiredInOperatorNamespace = slices.Concat(
	permissionsFor(corev1.GroupName, "pods", "get", "list"),
	permissionsFor(corev1.GroupName, "events", "list"),
	permissionsFor("batch", "jobs", "get", "create", "delete"),
)

// cachedKinds returns the namespaced kinds in the manager's cache, as empty lists by resource.
func cachedKinds() map[string]client.ObjectList {
	return map[string]client.ObjectList{
		"pods": &corev1.PodList{}, "scanners": &v1alpha1.ScannerList{}, "imagescans": &v1alpha1.ImageScanList{},
		"vulnerabilityexceptions": &v1alpha1.VulnerabilityExceptionList{},
	}
}

func permissionsFor(group, resource string, verbs ...string) (all []Permission) {
	resource, subresource, _ := strings.Cut(resource, "/")
	for _, verb := range verbs {
		all = append(all, Permission{Verb: verb, Resource: schema.GroupResource{Group: group, Resource: resource}, Subresource: subresource})
	}
	return all
}

// isForCache reports whether the cache is incomplete for a namespace without the permission.
func (r Permission) isForCache() bool {
	return cachedKinds()[r.Resource.Resource] != nil && r.Subresource == "" && (r.Verb == "list" || r.Verb == "watch")
}

// describe names permissions as kubectl does, grouped by resource: "list, watch pods; create jobs.batch".
func describe(all []Permission) string {
	var parts []string
	for i := 0; i < len(all); {
		first, verbs := all[i], []string{}
		for ; i < len(all) && all[i].Resource == first.Resource && all[i].Subresource == first.Subresource; i++ {
			verbs = append(verbs, all[i].Verb)
		}
		resource := first.Resource.String()
		if first.Subresource != "" {
			resource = strings.Replace(resource, first.Resource.Resource, first.Resource.Resource+"/"+first.Subresource, 1)
		}
		parts = append(parts, strings.Join(verbs, ", ")+" "+resource)
	}
	return strings.Join(parts, "; ")
}

// maxPermissionText bounds the list of permissions in bytes, so that the command after it fits into a condition's message.
const maxPermissionText = 180

// advice describes the permissions that the operator lacks in a namespace (empty: all), and how to grant them.
func (c *Checker) advice(namespace string, missing []Permission) string {
	binding := Role
	if namespace == c.OperatorNamespace { // another RoleBinding there has the name Role
		binding = operatorNamespaceBinding
	}
	listed := describe(missing)
	if len(listed) > maxPermissionText {
		listed = listed[:maxPermissionText] + "…"
	}
	if namespace == "" {
		return fmt.Sprintf("the operator may not %s in all namespaces: apply the manifests of its version again, or see what its roles allow "+
			"(kubectl describe clusterrole,clusterrolebinding %s)", listed, Role)
	}
	return fmt.Sprintf("the operator may not %s in namespace %s: kubectl -n %s create rolebinding %s --clusterrole=%s --serviceaccount=%s",
		listed, namespace, namespace, binding, Role, c.Account)
}
