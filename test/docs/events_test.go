package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// docs/integrate/events.md lists each reason that the controllers pass to an event as a constant, and no reason that the code does not
// have. Reasons of conditions and failures are documented with the conditions.
func TestEventsAreListed(t *testing.T) {
	page, values := read(t, "docs/integrate/events.md"), map[string]string{}
	known := map[string]string{}
	for _, file := range glob(t, "api/v1alpha1/*.go", "controllers/*.go", "pkg/announce/*.go", "pkg/backend/*.go", "pkg/store/*.go") {
		if err := reasonsIn(file, known); err != nil {
			t.Fatal(err)
		}
	}
	for value, where := range known {
		_, name, _ := strings.Cut(where, ": ")
		values[name] = value
	}
	made := 0
	for _, file := range glob(t, "controllers/*.go") {
		for _, name := range eventReasons(t, file) {
			made++
			if value := values[name]; value == "" || !strings.Contains(page, "`"+value+"`") {
				t.Errorf("docs/integrate/events.md has no %s (%s, in %s)", value, name, filepath.Base(file))
			}
		}
	}
	if made < 5 {
		t.Errorf("only %d events were found in the controllers: does this test look in the right place?", made)
	}
	for _, line := range strings.Split(page, "\n") {
		cells := strings.Split(line, "|")
		if len(cells) < 5 {
			continue
		}
		for _, match := range regexp.MustCompile("`([A-Za-z]+)`").FindAllStringSubmatch(cells[1], -1) {
			if known[match[1]] == "" {
				t.Errorf("docs/integrate/events.md has %s, which is no reason", match[1])
			}
		}
	}
}

// eventReasons returns the names of the constants that are passed to Eventf as reason.
func eventReasons(t *testing.T, path string) (names []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(node ast.Node) bool {
		call, isCall := node.(*ast.CallExpr)
		if !isCall || len(call.Args) < 4 {
			return true
		}
		if called, isMethod := call.Fun.(*ast.SelectorExpr); !isMethod || called.Sel.Name != "Eventf" {
			return true
		}
		if reason, isName := call.Args[3].(*ast.SelectorExpr); isName && strings.HasPrefix(reason.Sel.Name, "Reason") && reason.Sel.Name != "Reason" {
			names = append(names, reason.Sel.Name)
		}
		return true
	})
	return names
}

// glob returns the files that match the patterns, without tests.
func glob(t *testing.T, patterns ...string) (files []string) {
	t.Helper()
	for _, pattern := range patterns {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(found), err)
		}
		for _, file := range found {
			if !strings.HasSuffix(file, "_test.go") {
				files = append(files, file)
			}
		}
	}
	return files
}
