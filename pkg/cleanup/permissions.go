package cleanup

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Labels that OLM gives to what it creates for a ClusterServiceVersion.
const (
	olmOwner          = "olm.owner"
	olmOwnerNamespace = "olm.owner.namespace"
)

// printPermissions prints the ClusterRoleBindings that an installer has left. They give permissions to a ServiceAccount in Home, or to
// one with the manager's name anywhere, that does not exist, so to whoever may create it. Or OLM made them for a version that is removed, and they give
// its permissions to an operator that was installed since. Cleanup deletes none, since it may not know who made them. It prints nothing where reading them is forbidden,
// unless that was requested.
func (c *Cleaner) printPermissions(ctx context.Context) error {
	var bindings rbacv1.ClusterRoleBindingList
	for more := true; more; more = bindings.Continue != "" {
		err := c.Client.List(ctx, &bindings, client.Limit(pageSize), client.Continue(bindings.Continue))
		if apierrors.IsForbidden(err) && !c.Permissions {
			return nil
		}
		if err != nil {
			return fmt.Errorf("listing ClusterRoleBindings: %w", err)
		}
		for i := range bindings.Items {
			if err := c.printLeftBinding(ctx, &bindings.Items[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *Cleaner) printLeftBinding(ctx context.Context, binding *rbacv1.ClusterRoleBinding) error {
	for _, subject := range binding.Subjects {
		if subject.Kind != rbacv1.ServiceAccountKind || subject.Namespace != c.Home && subject.Name != c.Manager {
			continue
		}
		reason := "which does not exist, so to whoever creates it"
		left, err := c.isGone(ctx, corev1.SchemeGroupVersion.WithKind("ServiceAccount"), subject.Namespace, subject.Name)
		if version := binding.Labels[olmOwner]; err == nil && !left && version != "" {
			reason = "although OLM made it for ClusterServiceVersion " + version + ", which does not exist"
			left, err = c.isGone(ctx, versionKind, binding.Labels[olmOwnerNamespace], version)
		}
		if err != nil {
			return err
		}
		if left {
			fmt.Fprintf(c.Out, "ClusterRoleBinding %s: gives the permissions of %s %s to ServiceAccount %s/%s, %s: kubectl delete clusterrolebinding %s\n",
				binding.Name, binding.RoleRef.Kind, binding.RoleRef.Name, subject.Namespace, subject.Name, reason, binding.Name)
		}
	}
	return nil
}

var versionKind = schema.GroupVersionKind{Group: "operators.coreos.com", Version: "v1alpha1", Kind: "ClusterServiceVersion"}

// isGone reports whether an object certainly does not exist.
func (c *Cleaner) isGone(ctx context.Context, kind schema.GroupVersionKind, namespace, name string) (bool, error) {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(kind)
	switch err := c.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, object); {
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		return true, nil
	case err != nil && !apierrors.IsForbidden(err):
		return false, fmt.Errorf("reading the %s %s/%s: %w", kind.Kind, namespace, name, err)
	}
	return false, nil
}
