package docs

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	// packageRow matches a row of a table of packages.
	packageRow = regexp.MustCompile("(?m)^\\| `([a-z0-9/-]+)` \\| ([A-Z].*\\.) \\|$")
	// codePath matches a path of the project between backquotes.
	codePath = regexp.MustCompile("`((?:api|cmd|config|controllers|notifier|pkg|registry|worker|workerapi)/[^` ]*)`")
)

// TestArchitecture checks that the pages about the architecture describe each package of the product once, and that each path on them and on the
// page of what to change where exists.
func TestArchitecture(t *testing.T) {
	pages := []string{"docs/architecture.md", "docs/understand/architecture-modules.md"}
	page := readAll(t, pages...)
	described := map[string]bool{}
	for _, row := range packageRow.FindAllStringSubmatch(page, -1) {
		if described[row[1]] {
			t.Errorf("%s is described twice", row[1])
		}
		described[row[1]] = true
	}
	actual := productPackages(t)
	if len(actual) < 40 {
		t.Fatalf("only %d packages were found: does this test look in the right place?", len(actual))
	}
	for _, name := range slices.Sorted(maps.Keys(actual)) {
		if !described[name] {
			t.Errorf("%q do not describe package %s", pages, name)
		}
	}
	for name := range described {
		if !actual[name] {
			t.Errorf("%q describe %s, which is no package", pages, name)
		}
	}
	for _, match := range codePath.FindAllStringSubmatch(page+read(t, "docs/understand/code-map.md"), -1) {
		if found, err := filepath.Glob(filepath.Join(root, match[1])); err != nil || len(found) == 0 {
			t.Errorf("%q or docs/understand/code-map.md name %s, which does not exist", pages, match[1])
		}
	}
}

// productPackages returns the directories with Go code outside hack and test.
func productPackages(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for _, top := range []string{"api", "cmd", "config", "controllers", "notifier", "pkg", "registry", "worker", "workerapi"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.IsDir() && (!strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go")) {
				return err
			}
			dir, err := filepath.Rel(root, filepath.Dir(path))
			if !entry.IsDir() && err == nil && dir != filepath.Join("worker", "bench") {
				all[filepath.ToSlash(dir)] = true
			}
			return err
		})
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	return all
}
