package docs

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var testName = regexp.MustCompile("`(Test[A-Za-z0-9]+)`")

// Each test that the page on capability levels or another page names exists.
func TestEvidenceExists(t *testing.T) {
	if named := testName.FindAllString(read(t, "docs/understand/capabilities.md"), -1); len(named) < 20 {
		t.Fatalf("docs/understand/capabilities.md names only %d tests: is this test looking for the right thing?", len(named))
	}
	var existing strings.Builder
	for _, file := range filesEndingIn(t, "_test.go") {
		existing.WriteString(read(t, file))
	}
	contract := read(t, "pkg/store/storetest/contract.go") // it runs its tests by name, on each database
	for _, page := range pages(t) {
		for _, match := range testName.FindAllStringSubmatch(read(t, page), -1) {
			if !strings.Contains(existing.String(), "\nfunc "+match[1]+"(t *testing.T)") && !strings.Contains(contract, `"`+strings.TrimPrefix(match[1], "Test")+`"`) {
				t.Errorf("%s: there is no test %s", page, match[1])
			}
		}
	}
}

// filesEndingIn returns all files of the project with the suffix, relative to its root.
func filesEndingIn(t *testing.T, suffix string) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (entry.Name() == "bin" || entry.Name() == ".git" || entry.Name() == "node_modules") {
			return filepath.SkipDir
		}
		if strings.HasSuffix(path, suffix) {
			files = append(files, strings.TrimPrefix(path, root+"/"))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
