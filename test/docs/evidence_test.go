package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var testName = regexp.MustCompile("`(Test[A-Za-z0-9]+)`")

// TestEvidenceExists: each test that the page on capability levels names as evidence is there.
func TestEvidenceExists(t *testing.T) {
	named := testName.FindAllStringSubmatch(read(t, "docs/capabilities.md"), -1)
	if len(named) < 20 {
		t.Fatalf("docs/capabilities.md names only %d tests: is this test looking for the right thing?", len(named))
	}
	existing := testsOfTheProject(t)
	for _, match := range named {
		if !strings.Contains(existing, "\nfunc "+match[1]+"(t *testing.T)") {
			t.Errorf("docs/capabilities.md: there is no test %s", match[1])
		}
	}
}

// testsOfTheProject is the text of all files with tests.
func testsOfTheProject(t *testing.T) string {
	t.Helper()
	var text strings.Builder
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (entry.Name() == "bin" || entry.Name() == ".git") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		content, err := os.ReadFile(path)
		text.Write(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return text.String()
}
