package main

import (
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/operator-framework/operator-registry/pkg/lib/bundle"
)

// parts is config/default, divided the way OLM needs it. Deployments and the permissions of their ServiceAccounts go into the
// ClusterServiceVersion, all other objects into files beside it.
type parts struct {
	deployments  []appsv1.Deployment
	roles        map[string][]rbacv1.PolicyRule // by "ClusterRole/name" and "Role/name"
	bindings     []binding
	definitions  []string // names of CustomResourceDefinitions
	beside       []*unstructured.Unstructured
	policies     []*unstructured.Unstructured
	configMaps   []*unstructured.Unstructured
	accountNames []string
}

type binding struct {
	object      *unstructured.Unstructured
	clusterWide bool
	role        rbacv1.RoleRef
	subjects    []rbacv1.Subject
}

// excludedKinds are the kinds that a bundle does not contain. OLM creates the namespace and the ServiceAccounts itself. A
// PersistentVolumeClaim is the user's decision (Subscription.spec.config.volumes). The community catalogs' checks reject
// NetworkPolicies.
var excludedKinds = []string{"Namespace", "ServiceAccount", "PersistentVolumeClaim", "NetworkPolicy"}

// divide sorts the objects of config/default into parts. An unknown kind is an error, so no object is left out by mistake.
func divide(objects []*unstructured.Unstructured) (parts, error) {
	divided := parts{roles: map[string][]rbacv1.PolicyRule{}}
	for _, object := range objects {
		if err := divided.add(object); err != nil {
			return parts{}, err
		}
	}
	divided.keepUserRoles()
	return divided, nil
}

func (p *parts) add(object *unstructured.Unstructured) error {
	switch kind := object.GetKind(); kind {
	case "Deployment":
		deployment, err := typed[appsv1.Deployment](object)
		p.deployments = append(p.deployments, deployment)
		p.accountNames = append(p.accountNames, deployment.Spec.Template.Spec.ServiceAccountName)
		return err
	case "ClusterRole", "Role":
		role, err := typed[rbacv1.ClusterRole](withoutKind(object))
		p.roles[kind+"/"+object.GetName()] = role.Rules
		p.beside = append(p.beside, object)
		return err
	case "ClusterRoleBinding", "RoleBinding":
		read, err := typed[rbacv1.RoleBinding](withoutKind(object))
		p.bindings = append(p.bindings, binding{object, kind == "ClusterRoleBinding", read.RoleRef, read.Subjects})
		return err
	case "ConfigMap":
		p.configMaps = append(p.configMaps, object)
	case "CustomResourceDefinition":
		p.definitions = append(p.definitions, object.GetName())
	case "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding":
		p.policies = append(p.policies, object)
	default:
		if slices.Contains(excludedKinds, kind) {
			return nil
		}
		if supported, _ := bundle.IsSupported(kind); !supported {
			return fmt.Errorf("%s %s: a bundle has no place for this kind; say in parts.go what becomes of it", kind, object.GetName())
		}
		p.beside = append(p.beside, object)
	}
	return nil
}

// withoutKind allows a Role to be decoded as a ClusterRole, whose fields are a superset.
func withoutKind(object *unstructured.Unstructured) *unstructured.Unstructured {
	same := object.DeepCopy()
	delete(same.Object, "kind")
	delete(same.Object, "apiVersion")
	return same
}

// keepUserRoles keeps only those roles and bindings beside the ClusterServiceVersion that are for users. OLM creates those of the
// operator's own ServiceAccounts.
func (p *parts) keepUserRoles() {
	own := map[string]bool{}
	var free []*unstructured.Unstructured
	p.bindings = slices.DeleteFunc(p.bindings, func(b binding) bool {
		if slices.ContainsFunc(b.subjects, p.isOwnAccount) {
			own[b.role.Kind+"/"+b.role.Name] = true
			return false
		}
		free = append(free, b.object)
		return true
	})
	p.beside = slices.DeleteFunc(p.beside, func(object *unstructured.Unstructured) bool { return own[object.GetKind()+"/"+object.GetName()] })
	p.beside = append(p.beside, free...)
}

func (p *parts) isOwnAccount(subject rbacv1.Subject) bool {
	return subject.Kind == rbacv1.ServiceAccountKind && slices.Contains(p.accountNames, subject.Name)
}
