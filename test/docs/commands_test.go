package docs

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/scanner-operator/scanner-operator/test/docs/commands"
)

// forNewUsers matches the pages by which people try, use and install the operator.
var forNewUsers = regexp.MustCompile(`^(README\.md|docs/(try|use|operate/install)/.*)$`)

// Each command of the pages by which people try, use and install the operator is run by a test, or the page says why not. test/install runs
// them: TestDocuments runs whole pages in commands.Whole, other tests read a page and run the sections that they name.
func TestCommandsAreRun(t *testing.T) {
	tests := testFiles(t, "test/install")
	run, notRun := 0, 0
	for _, page := range guides(t) {
		whole := slices.Contains(commands.Whole(), page)
		if !whole && !forNewUsers.MatchString(page) {
			continue
		}
		for _, block := range blocks(t, page) {
			switch {
			case block.NotRun != "":
				notRun++
				t.Logf("%s is not run: %s", block.Place(), block.NotRun)
			case whole, page == "README.md" && isElsewhere(t, block):
				run++
			case slices.ContainsFunc(tests, func(test string) bool { return runsSection(test, page, block.Section) }):
				run++
			default:
				t.Errorf("%s: no test runs these commands, and no comment says why:\n%s", block.Place(), block.Commands)
			}
		}
	}
	if run < 40 || notRun == 0 {
		t.Errorf("%d blocks are run and %d are not: is this test looking in the right place?", run, notRun)
	}
}

// runsSection reports whether a test file reads a page and takes the commands below a heading of it.
func runsSection(test, page, section string) bool {
	taken := regexp.MustCompile(`\.(follow|followWith|blocks?)\(t, "` + regexp.QuoteMeta(section) + `"`)
	return strings.Contains(test, `readPage(t, "`+page+`")`) && taken.MatchString(test)
}

// isElsewhere reports whether each line of a block of the README is on a page whose commands are run, or is a target of make that pull
// requests run.
func isElsewhere(t *testing.T, block commands.Block) bool {
	t.Helper()
	var all strings.Builder
	for _, page := range commands.Whole() {
		for _, other := range blocks(t, page) {
			if other.NotRun == "" {
				all.WriteString(other.Commands)
			}
		}
	}
	for _, line := range strings.Split(strings.TrimSpace(block.Commands), "\n") {
		if line != "make demo" && line != "make test" && !strings.Contains(all.String(), line+"\n") {
			t.Errorf("%s: no page whose commands are run has the line %q", block.Place(), line)
			return false
		}
	}
	return true
}

// All commands on all pages are correct for the shell.
func TestCommandsParse(t *testing.T) {
	for _, page := range guides(t) {
		for _, block := range blocks(t, page) {
			check := exec.CommandContext(t.Context(), "bash", "-n")
			check.Stdin = strings.NewReader(block.Commands)
			if text, err := check.CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s", block.Place(), err, text)
			}
		}
	}
}

func blocks(t *testing.T, page string) []commands.Block {
	t.Helper()
	found, err := commands.Read(page, read(t, page))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// testFiles returns the text of each test file of a folder.
func testFiles(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, dir, "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %d tests, %v", dir, len(files), err)
	}
	texts := make([]string, 0, len(files))
	for _, file := range files {
		texts = append(texts, read(t, strings.TrimPrefix(file, root+"/")))
	}
	return texts
}
