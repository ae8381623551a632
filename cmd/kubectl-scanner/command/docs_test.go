package command

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/scanner-operator/scanner-operator/test/docs/commands"
)

// TestDocumentedCommands: each "kubectl scanner" command in a code block of the documentation has a subcommand and flags that exist, and arguments
// that the subcommand accepts.
func TestDocumentedCommands(t *testing.T) {
	found := 0
	for _, line := range documentedLines(t) {
		found++
		root := App{}.newSession().root()
		c, args, err := root.Find(words(strings.TrimPrefix(line, "kubectl scanner ")))
		if err != nil || c == root {
			t.Errorf("%s: there is no such subcommand: %v", line, err)
			continue
		}
		if err := c.ParseFlags(args); err != nil {
			t.Errorf("%s: %v", line, err)
		} else if err := c.ValidateArgs(c.Flags().Args()); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
	if found < 8 {
		t.Errorf("only %d commands were found: is this test looking in the right place?", found)
	}
}

// TestDocumentedTranscripts: what the page shows of a command's output is what the command prints.
func TestDocumentedTranscripts(t *testing.T) {
	page := read(t, filepath.Join("..", "..", "..", "docs", "use", "kubectl-plugin.md"))
	printed := read(t, filepath.Join("testdata", "actions.golden")) + read(t, filepath.Join("testdata", "cve.golden"))
	printed = strings.ReplaceAll(printed, "\n! ", "\n")
	lines := map[string]bool{}
	for line := range strings.Lines(printed) {
		lines[strings.TrimSpace(line)] = true
	}
	inside, compared := false, 0
	for line := range strings.Lines(page) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "```"):
			inside = line == "```console"
		case inside && !strings.HasPrefix(line, "$ "):
			compared++
			start, cut := strings.CutSuffix(line, " …")
			if printedInPart := cut && strings.Contains(printed, "\n"+start); !lines[line] && !printedInPart {
				t.Errorf("no command of the transcripts prints %q", line)
			}
		}
	}
	if compared < 10 {
		t.Errorf("only %d lines were compared", compared)
	}
}

// documentedLines returns the commands of the plugin in all pages.
func documentedLines(t *testing.T) (lines []string) {
	t.Helper()
	root := filepath.Join("..", "..", "..", "docs")
	pages, err := filepath.Glob(filepath.Join(root, "*", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		blocks, err := commands.Read(page, read(t, page))
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range blocks {
			for line := range strings.Lines(block.Commands) {
				if line = strings.TrimSpace(line); strings.HasPrefix(line, "kubectl scanner ") {
					lines = append(lines, line)
				}
			}
		}
	}
	return lines
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// words splits a command line at spaces outside double quotes.
func words(line string) (all []string) {
	for i, part := range strings.Split(line, `"`) {
		if i%2 == 1 {
			all = append(all, part)
		} else {
			all = append(all, strings.Fields(part)...)
		}
	}
	return all
}
