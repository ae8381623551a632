package main

import (
	"fmt"
	"maps"
	"slices"

	"github.com/operator-framework/api/pkg/operators/v1alpha1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// permissions returns the permissions of each ServiceAccount: cluster for the whole cluster, own for the operator's own namespace.
//
// For an operator that serves all namespaces, as this one does, OLM grants the permissions in own in all namespaces too (OLM:
// pkg/controller/operators/olm/operatorgroup.go, ensureSingletonRBAC; OLM v1: BundleCSVClusterPermissionsGenerator). The admission
// policies restrict the operator to what it needs; a bundle cannot carry them.
func (p parts) permissions() (cluster, own []v1alpha1.StrategyDeploymentPermissions, err error) {
	clusterRules, ownRules := map[string][]rbacv1.PolicyRule{}, map[string][]rbacv1.PolicyRule{}
	for _, b := range p.bindings {
		rules, known := p.roles[b.role.Kind+"/"+b.role.Name]
		if !known {
			return nil, nil, fmt.Errorf("%s: config/default has no %s %s", b.object.GetName(), b.role.Kind, b.role.Name)
		}
		for _, subject := range b.subjects {
			if !p.isOwnAccount(subject) {
				return nil, nil, fmt.Errorf("%s: binds an account of the operator together with %s %s", b.object.GetName(), subject.Kind, subject.Name)
			}
			if b.clusterWide {
				clusterRules[subject.Name] = append(clusterRules[subject.Name], rules...)
			} else {
				ownRules[subject.Name] = append(ownRules[subject.Name], rules...)
			}
		}
	}
	return sortedPermissions(clusterRules), sortedPermissions(ownRules), nil
}

func sortedPermissions(rules map[string][]rbacv1.PolicyRule) []v1alpha1.StrategyDeploymentPermissions {
	var permissions []v1alpha1.StrategyDeploymentPermissions
	for _, account := range slices.Sorted(maps.Keys(rules)) {
		permissions = append(permissions, v1alpha1.StrategyDeploymentPermissions{ServiceAccountName: account, Rules: rules[account]})
	}
	return permissions
}
