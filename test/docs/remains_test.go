package docs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// keptByOLM are the kinds of a bundle's objects that stay when an operator is removed as the page says. The value is true if objects of the kind
// are in the operator's namespace. OLM removes Services and ConfigMaps with the ClusterServiceVersion, and a command of the page ClusterRoles.
var keptByOLM = map[string]bool{"Role": true, "RoleBinding": true, "CustomResourceDefinition": false}

// The page about OLM lists each object of the bundle that stays when the operator is removed.
func TestRemainsOfTheBundleAreDocumented(t *testing.T) {
	_, list, found := strings.Cut(read(t, "docs/operate/install/olm.md"), "\n## What stays\n")
	if !found {
		t.Fatal("docs/operate/install/olm.md has no heading \"What stays\"")
	}
	seen := map[string]int{}
	for _, file := range glob(t, "bundle/manifests/*.yaml") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var object unstructured.Unstructured
		if err := yaml.Unmarshal(text, &object.Object); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		namespaced, kept := keptByOLM[object.GetKind()]
		if !kept {
			continue
		}
		seen[object.GetKind()]++
		name := object.GetName()
		if namespaced {
			name = "scanner-operator-system/" + name
		}
		if entry := "\n| `" + object.GetKind() + " " + name + "` |"; !strings.Contains(list, entry) {
			t.Errorf("docs/operate/install/olm.md, \"What stays\": want a row %q for %s", strings.TrimSpace(entry), filepath.Base(file))
		}
	}
	for kind := range keptByOLM {
		if seen[kind] == 0 {
			t.Errorf("the bundle has no %s: is this test looking in the right place?", kind)
		}
	}
}
