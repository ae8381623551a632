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

	"github.com/scanner-operator/scanner-operator/test/privilege"
)

// Every right in the manifests has a row that says what it is for, and every row is of a right that there is.
func TestRightsAreDocumented(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "rights.md"))
	if err != nil {
		t.Fatal(err)
	}
	documented := documentedRights(t, string(text))
	granted := map[string]bool{}
	dir := above(t, filepath.Join(config, "default"), slices.DeleteFunc(components(t), func(name string) bool { return filepath.Dir(name) != "components" })...)
	add(t, dir, fmt.Sprintf(namespaces, home))
	objects, err := decode(render(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	for i := range objects {
		for _, grant := range privilege.Expand(rules(t, &objects[i])) {
			granted[grant.Right()] = true
		}
	}
	if len(granted) < 60 {
		t.Errorf("only %d rights were found in the manifests", len(granted))
	}
	for right := range granted {
		if !documented[right] {
			t.Errorf("docs/rights.md does not say why: %s", right)
		}
	}
	for right := range documented {
		if !granted[right] {
			t.Errorf("docs/rights.md has a row that no manifest grants: %s", right)
		}
	}
}

// rules are those of a role, with its kind and name.
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
	roleHeading = regexp.MustCompile("^### ((?:Cluster)?Role) `([^`]+)`$")
	rightRow    = regexp.MustCompile("^\\| `([^`]+)`(?: `([^`]+)`)? \\| `([^`]+)` \\| (.*) \\|$")
)

// documentedRights reads the page's tables: one row for each right, below the heading with its role.
func documentedRights(t *testing.T, page string) map[string]bool {
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
		row := rightRow.FindStringSubmatch(line)
		if role == "" || row == nil {
			continue
		}
		right := role + ": " + row[3] + " " + strings.TrimSpace(row[1]+" "+row[2])
		if found[right] || row[4] == "" {
			t.Errorf("docs/rights.md has %q twice, or without a reason", right)
		}
		found[right] = true
	}
	return found
}
