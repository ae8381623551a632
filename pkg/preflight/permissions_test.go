package preflight

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
)

// TestRequiredMatchesRole: Needed lists exactly the permissions that the manager's ClusterRole for scanned namespaces grants.
func TestRequiredMatchesRole(t *testing.T) {
	file, err := os.Open(filepath.Join("..", "..", "config", "rbac", "role.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var role rbacv1.ClusterRole
	for documents := yaml.NewYAMLOrJSONDecoder(file, 4096); role.Name != Role; {
		role = rbacv1.ClusterRole{}
		if err := documents.Decode(&role); err != nil {
			t.Fatalf("no ClusterRole %s: %v", Role, err)
		}
	}
	var granted []string
	for _, rule := range role.Rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, permission := range permissionsFor(group, resource, rule.Verbs...) {
					granted = append(granted, describe([]Permission{permission}))
				}
			}
		}
	}
	needed := make([]string, 0, len(Required))
	for _, permission := range Required {
		needed = append(needed, describe([]Permission{permission}))
	}
	slices.Sort(granted)
	slices.Sort(needed)
	if !slices.Equal(granted, needed) {
		t.Errorf("the role grants %q\nneeded is %q", granted, needed)
	}
	for _, permission := range RequiredInOperatorNamespace {
		if !slices.Contains(Required, permission) {
			t.Errorf("%v is needed at home and not needed", permission)
		}
	}
}

// TestAdvice: missing permissions are named as by kubectl, and the command fits into a condition whatever is missing.
func TestAdvice(t *testing.T) {
	for name, test := range map[string]struct {
		namespace string
		missing   []Permission
		want      string
	}{
		"one verb": {
			"shop", permissionsFor("batch", "jobs", "create"),
			"the operator may not create jobs.batch in namespace shop: kubectl -n shop create rolebinding scanner-operator-manager " +
				"--clusterrole=scanner-operator-manager --serviceaccount=home:manager",
		},
		"at home": {
			"home", slices.Concat(permissionsFor("", "pods", "get", "list"), permissionsFor("example.com", "scanners/status", "patch")),
			"the operator may not get, list pods; patch scanners/status.example.com in namespace home: kubectl -n home create rolebinding scanner-operator-workers " +
				"--clusterrole=scanner-operator-manager --serviceaccount=home:manager",
		},
		"everywhere": {
			"", permissionsFor("", "pods", "patch"),
			"the operator may not patch pods in all namespaces: apply the manifests of its version again, or see what its roles allow " +
				"(kubectl describe clusterrole,clusterrolebinding scanner-operator-manager)",
		},
	} {
		checker := &Checker{Account: "home:manager", OperatorNamespace: "home"}
		if got := checker.advice(test.namespace, test.missing); got != test.want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, test.want)
		}
	}
	longest := strings.Repeat("a", 63)
	checker := &Checker{Account: "scanner-operator-system:scanner-operator-manager", OperatorNamespace: "home"}
	all := checker.advice(longest, Required)
	if len(all) > v1alpha1.MaxMessageBytes || !strings.Contains(all, "get, list, watch, patch pods; ") {
		t.Errorf("%d bytes: %s", len(all), all)
	}
}
