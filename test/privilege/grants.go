package privilege

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// Grant is one permission of a ServiceAccount.
type Grant struct {
	Account string
	// Role is "ClusterRole x" or "Role x".
	Role string
	// Namespace is empty for a permission in all namespaces.
	Namespace string
	Verb      string
	Group     string
	Resource  string
	// Name is empty for any object.
	Name string
}

func (g Grant) String() string {
	where := "everywhere"
	if g.Namespace != "" {
		where = "in " + g.Namespace
	}
	return fmt.Sprintf("%s: %s %s", g.Account, g.Permission(), where)
}

// Permission returns the permission without the account and the namespace.
func (g Grant) Permission() string {
	return fmt.Sprintf("%s: %s %s", g.Role, g.Verb, strings.TrimSpace(qualified(g.Resource, g.Group)+" "+g.Name))
}

// covers reports whether the grant allows a use.
func (g Grant) covers(u Use) bool {
	return g.Account == u.Account && g.Verb == u.Verb && g.Group == u.Group && g.Resource == u.Resource &&
		(g.Namespace == "" || g.Namespace == u.Namespace) && (g.Name == "" || g.Name == u.Name)
}

// Expand returns the permissions of rules, one by one. A non-resource URL counts as a resource without a group.
func Expand(role string, rules []rbacv1.PolicyRule) []Grant {
	var grants []Grant
	for _, rule := range rules {
		names := rule.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, verb := range rule.Verbs {
			for _, path := range rule.NonResourceURLs {
				grants = append(grants, Grant{Role: role, Verb: verb, Resource: path})
			}
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					for _, name := range names {
						grants = append(grants, Grant{Role: role, Verb: verb, Group: group, Resource: resource, Name: name})
					}
				}
			}
		}
	}
	return grants
}

// GrantsOf returns the permissions that are granted to a ServiceAccount by name. It ignores what all accounts may do, and namespaces
// that are being deleted, whose grants are deleted with them.
func GrantsOf(ctx context.Context, cluster client.Reader, namespace, account string) ([]Grant, error) {
	var everywhere rbacv1.ClusterRoleBindingList
	if err := cluster.List(ctx, &everywhere); err != nil {
		return nil, err
	}
	var somewhere rbacv1.RoleBindingList
	if err := cluster.List(ctx, &somewhere); err != nil {
		return nil, err
	}
	leaving, err := leavingNamespaces(ctx, cluster)
	if err != nil {
		return nil, err
	}
	for _, binding := range everywhere.Items {
		somewhere.Items = append(somewhere.Items, rbacv1.RoleBinding{Subjects: binding.Subjects, RoleRef: binding.RoleRef})
	}
	var grants []Grant
	for _, binding := range somewhere.Items {
		subject := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: account}
		if leaving[binding.Namespace] || !slices.Contains(binding.Subjects, subject) {
			continue
		}
		rules, err := rulesOf(ctx, cluster, binding.RoleRef, binding.Namespace)
		if err != nil {
			return nil, err
		}
		for _, grant := range Expand(binding.RoleRef.Kind+" "+binding.RoleRef.Name, rules) {
			grant.Account, grant.Namespace = account, binding.Namespace
			grants = append(grants, grant)
		}
	}
	return grants, nil
}

// GrantsIn returns the permissions that manifests grant, as GrantsOf does for a cluster. The documents are separated by lines of "---".
// Other objects are ignored.
func GrantsIn(ctx context.Context, manifests, namespace, account string) ([]Grant, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(rbacv1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	decode := serializer.NewCodecFactory(scheme).UniversalDeserializer().Decode
	cluster := fake.NewClientBuilder().WithScheme(scheme)
	for _, manifest := range strings.Split(manifests, "\n---\n") {
		object, _, err := decode([]byte(manifest), nil, nil)
		switch {
		case runtime.IsNotRegisteredError(err): // not an RBAC object or a namespace
		case err != nil:
			return nil, fmt.Errorf("%w in %q", err, manifest)
		default:
			cluster.WithRuntimeObjects(object)
		}
	}
	return GrantsOf(ctx, cluster.Build(), namespace, account)
}

// rulesOf returns the rules of a role; empty if the role does not exist.
func rulesOf(ctx context.Context, cluster client.Reader, ref rbacv1.RoleRef, namespace string) ([]rbacv1.PolicyRule, error) {
	if ref.Kind == "ClusterRole" {
		var role rbacv1.ClusterRole
		err := cluster.Get(ctx, client.ObjectKey{Name: ref.Name}, &role)
		return role.Rules, client.IgnoreNotFound(err)
	}
	var role rbacv1.Role
	err := cluster.Get(ctx, client.ObjectKey{Namespace: namespace, Name: ref.Name}, &role)
	return role.Rules, client.IgnoreNotFound(err)
}

func leavingNamespaces(ctx context.Context, cluster client.Reader) (map[string]bool, error) {
	var namespaces corev1.NamespaceList
	if err := cluster.List(ctx, &namespaces); err != nil {
		return nil, err
	}
	leaving := map[string]bool{}
	for _, namespace := range namespaces.Items {
		leaving[namespace.Name] = !namespace.DeletionTimestamp.IsZero()
	}
	return leaving, nil
}
