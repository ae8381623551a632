package cleanup

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// printPermissions prints the ClusterRoleBindings that an installer has left: they give permissions to a ServiceAccount in Home that does not
// exist, so to whoever may create it. Cleanup deletes none, since it may not know who made them. It prints nothing where reading them is forbidden.
func (c *Cleaner) printPermissions(ctx context.Context) error {
	var bindings rbacv1.ClusterRoleBindingList
	for more := true; more; more = bindings.Continue != "" {
		err := c.Client.List(ctx, &bindings, client.Limit(pageSize), client.Continue(bindings.Continue))
		if apierrors.IsForbidden(err) {
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
		if subject.Kind != rbacv1.ServiceAccountKind || subject.Namespace != c.Home {
			continue
		}
		account := &metav1.PartialObjectMetadata{}
		account.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ServiceAccount"))
		err := c.Client.Get(ctx, client.ObjectKey{Namespace: c.Home, Name: subject.Name}, account)
		if err == nil || apierrors.IsForbidden(err) {
			continue
		}
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("reading the ServiceAccount %s/%s: %w", c.Home, subject.Name, err)
		}
		fmt.Fprintf(c.Out, "ClusterRoleBinding %s: gives the permissions of %s %s to ServiceAccount %s/%s, which does not exist, so to whoever creates it: "+
			"kubectl delete clusterrolebinding %s\n", binding.Name, binding.RoleRef.Kind, binding.RoleRef.Name, c.Home, subject.Name, binding.Name)
	}
	return nil
}
