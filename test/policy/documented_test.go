package policy

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/scanner-operator/scanner-operator/test/privilege"
)

// Every permission in the manifests has a row with its reason, and every row is about a granted permission.
func TestPermissionsAreDocumented(t *testing.T) {
	documented := documentedPermissions(t, permissionPages(t))
	granted := map[string]bool{}
	dir := above(t, filepath.Join(config, "default"), together(components(t))...)
	add(t, dir, fmt.Sprintf(namespaces, home))
	objects, err := decode(render(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	objects = append(objects, rolesIn(t, "charts", "scanner-operator", "templates", "cleanup", "permissions.yaml")...)
	objects = append(objects, rolesIn(t, "config", "quickstart", "rbac.yaml")...)
	objects = append(objects, rolesIn(t, "charts", "scanner-operator", "templates", "clusterscanner.yaml")...)
	for i := range objects {
		for _, grant := range privilege.Expand(rules(t, &objects[i])) {
			granted[grant.Permission()] = true
		}
	}
	if len(granted) < 60 {
		t.Errorf("only %d permissions were found in the manifests", len(granted))
	}
	for permission := range granted {
		if !documented[permission] {
			t.Errorf("docs/operate/permissions.md does not say why: %s", permission)
		}
	}
	for permission := range documented {
		if !granted[permission] {
			t.Errorf("docs/operate/permissions.md has a row that no manifest grants: %s", permission)
		}
	}
}

// rolesIn returns the roles in a file that config/default does not have. Of a chart's file, these include the roles that depend on values.
func rolesIn(t *testing.T, path ...string) []unstructured.Unstructured {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(append([]string{"..", ".."}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	objects, err := decode(template.ReplaceAllString(string(text), ""))
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// template matches Helm's template expressions in a manifest.
var template = regexp.MustCompile(`\{\{[^}]*\}\}`)

// permissionPages returns the pages about permissions, one after the other.
func permissionPages(t *testing.T) string {
	t.Helper()
	var text strings.Builder
	for _, name := range []string{"operate/permissions.md", "operate/permissions-users.md", "integrate/openreports.md"} {
		page, err := os.ReadFile(filepath.Join("..", "..", "docs", name))
		if err != nil {
			t.Fatal(err)
		}
		text.Write(page)
	}
	return text.String()
}

// Every permission that the bundle requests is documented for the same ServiceAccount, under any role name.
func TestBundlePermissionsAreDocumented(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "bundle", "manifests", "scanner-operator.clusterserviceversion.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]bool{}
	for permission := range documentedPermissions(t, permissionPages(t)) {
		role, what, _ := strings.Cut(permission, ": ")
		_, name, _ := strings.Cut(role, " ")
		for _, account := range []string{manager, notifier} {
			if strings.HasPrefix(name, account) {
				documented[account+": "+what] = true
			}
		}
	}
	type permissions struct {
		ServiceAccountName string
		Rules              []rbacv1.PolicyRule
	}
	var version struct {
		Spec struct {
			Install struct {
				Spec struct{ ClusterPermissions, Permissions []permissions }
			}
		}
	}
	if err := yaml.Unmarshal(text, &version); err != nil {
		t.Fatal(err)
	}
	asked := slices.Concat(version.Spec.Install.Spec.ClusterPermissions, version.Spec.Install.Spec.Permissions)
	if len(asked) < 3 {
		t.Fatalf("the bundle asks for %d roles", len(asked))
	}
	for _, role := range asked {
		for _, grant := range privilege.Expand("", role.Rules) {
			if permission := role.ServiceAccountName + grant.Permission(); !documented[permission] {
				t.Errorf("docs/operate/permissions.md does not say why: %s", permission)
			}
		}
	}
}

// rules returns the kind, name and rules of a role; nothing for another object.
func rules(t *testing.T, object *unstructured.Unstructured) (string, []rbacv1.PolicyRule) {
	t.Helper()
	kind := object.GetKind()
	if kind != "ClusterRole" && kind != "Role" {
		return "", nil
	}
	var role rbacv1.ClusterRole // a Role has the same fields
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &role); err != nil {
		t.Fatal(err)
	}
	return kind + " " + role.Name, role.Rules
}

var (
	roleHeading   = regexp.MustCompile("^### ((?:Cluster)?Role) `([^`]+)`$")
	permissionRow = regexp.MustCompile("^\\| `([^`]+)`(?: `([^`]+)`)? \\| `([^`]+)` \\| (.*) \\|$")
)

// documentedPermissions parses the page's tables: one row for each permission, below the heading with its role.
func documentedPermissions(t *testing.T, page string) map[string]bool {
	t.Helper()
	found, role := map[string]bool{}, ""
	for line := range strings.Lines(page) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "#") {
			role = ""
		}
		if heading := roleHeading.FindStringSubmatch(line); heading != nil {
			role = heading[1] + " " + heading[2]
		}
		row := permissionRow.FindStringSubmatch(line)
		if role == "" || row == nil {
			continue
		}
		permission := role + ": " + row[3] + " " + strings.TrimSpace(row[1]+" "+row[2])
		if found[permission] || row[4] == "" {
			t.Errorf("docs/operate/permissions.md has %q twice, or without a reason", permission)
		}
		found[permission] = true
	}
	return found
}
