// Package docs tests the documents: they must cover everything that users encounter.
package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/scanner-operator/scanner-operator/pkg/config"
)

// root of the project.
const root = "../.."

// The pages on troubleshooting have a line about each reason of a condition, a status or an event. The REST API's own reasons are on the
// page of the REST API.
func TestReasonsAreDocumented(t *testing.T) {
	page := readAll(t, "docs/use/troubleshooting*.md")
	reasons := map[string]string{}
	for _, dir := range []string{"api/v1alpha1", "controllers", "notifier", "pkg", "workerapi"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			return reasonsIn(path, reasons)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(reasons) < 30 {
		t.Fatalf("only %d reasons were found in the code: is this test looking in the right place?", len(reasons))
	}
	for reason, where := range reasons {
		if !strings.Contains(page, "`"+reason+"`") {
			t.Errorf("docs/use/troubleshooting*.md say nothing about reason %s (%s)", reason, where)
		}
	}
}

// reasonsIn adds the values of all constants of a file whose names begin with Reason. Values that do not begin with a capital letter are
// not reasons of conditions and are skipped.
func reasonsIn(path string, into map[string]string) error {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	ast.Inspect(file, func(node ast.Node) bool {
		spec, isValue := node.(*ast.ValueSpec)
		if !isValue {
			return true
		}
		for i, name := range spec.Names {
			if !strings.HasPrefix(name.Name, "Reason") || i >= len(spec.Values) {
				continue
			}
			if literal, isLiteral := spec.Values[i].(*ast.BasicLit); isLiteral && literal.Kind == token.STRING {
				if value, err := strconv.Unquote(literal.Value); err == nil && value[:1] == strings.ToUpper(value[:1]) {
					into[value] = strings.TrimPrefix(path, root+"/") + ": " + name.Name
				}
			}
		}
		return true
	})
	return nil
}

// Each field of the operator's configuration has a row on one of the pages.
func TestConfigurationIsDocumented(t *testing.T) {
	pages := []string{
		"docs/operate/configuration.md", "docs/operate/registry-connections.md", "docs/operate/store-server.md", "docs/operate/web-ui.md",
		"docs/operate/attestations.md", "docs/operate/vex-from-images.md", "docs/operate/monitoring.md", "docs/operate/sizing.md", "docs/integrate/sboms.md", "docs/integrate/openreports.md",
	}
	page := readAll(t, pages...)
	for _, field := range fieldsOf(reflect.TypeFor[config.Config](), "") {
		if !strings.Contains(page, "| `"+field+"` |") {
			t.Errorf("none of %s has a row for %s", strings.Join(pages, ", "), field)
		}
	}
}

// fieldsOf returns the paths of all values that can be set, as they are in the configuration file.
func fieldsOf(typ reflect.Type, path string) []string {
	for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice && typ.Elem().Kind() == reflect.Struct && typ.Elem() != reflect.TypeFor[resource.Quantity]() && typ.Elem() != reflect.TypeFor[corev1.Toleration]() {
		if typ.Kind() == reflect.Slice {
			path += "[]"
		}
		typ = typ.Elem()
	}
	switch typ {
	case reflect.TypeFor[metav1.Duration](), reflect.TypeFor[resource.Quantity](), reflect.TypeFor[corev1.ResourceRequirements](), reflect.TypeFor[corev1.NodeAffinity]():
		return []string{path}
	}
	if typ.Kind() != reflect.Struct {
		return []string{path}
	}
	var paths []string
	for i := range typ.NumField() {
		name, options, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
		if options == "inline" {
			paths = append(paths, fieldsOf(typ.Field(i).Type, path)...)
			continue
		}
		paths = append(paths, fieldsOf(typ.Field(i).Type, strings.TrimPrefix(path+"."+name, "."))...)
	}
	return paths
}

// readAll returns the files that match the patterns, one after the other.
func readAll(t *testing.T, patterns ...string) string {
	t.Helper()
	var text strings.Builder
	for _, path := range glob(t, patterns...) {
		text.WriteString(read(t, strings.TrimPrefix(path, root+"/")))
	}
	return text.String()
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
