package install

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// page is a document whose examples the tests execute.
type page struct {
	name string
	// sections holds the text below each heading, up to the next heading.
	sections map[string]string
}

var (
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	code    = regexp.MustCompile("(?ms)^```.*?^```$")
)

// readPage reads a document of the project. A line in a code block that begins with # is not a heading.
func readPage(t *testing.T, name string) page {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(env.Root, name))
	must(t, err)
	read := page{name: name, sections: map[string]string{}}
	prose := code.ReplaceAllFunc(text, func(block []byte) []byte { return bytes.ReplaceAll(block, []byte("#"), []byte(" ")) })
	found := heading.FindAllSubmatchIndex(prose, -1)
	for i, at := range found {
		end := len(text)
		if i+1 < len(found) {
			end = found[i+1][0]
		}
		read.sections[string(text[at[2]:at[3]])] = string(text[at[1]:end])
	}
	return read
}

// blocks returns the code blocks of a language below a heading; at least one.
func (p page) blocks(t *testing.T, section, language string) []string {
	t.Helper()
	fence := regexp.MustCompile("(?ms)^```" + language + "\n(.*?)^```$")
	var blocks []string
	for _, match := range fence.FindAllStringSubmatch(p.sections[section], -1) {
		blocks = append(blocks, match[1])
	}
	if len(blocks) == 0 {
		t.Fatalf("%s: expected a %s block below the heading %q", p.name, language, section)
	}
	return blocks
}

// block returns the only code block of a language below a heading.
func (p page) block(t *testing.T, section, language string) string {
	t.Helper()
	blocks := p.blocks(t, section, language)
	if len(blocks) > 1 {
		t.Fatalf("%s: expected one %s block below the heading %q, there are %d", p.name, language, section, len(blocks))
	}
	return blocks[0]
}

// grantCommand is the beginning of the command on the pages that prints the permission for a Secret, and localGrant the same command for tests
// whose operator is an earlier version, which does not have the command.
const (
	grantCommand = "kubectl -n scanner-operator-system exec deploy/scanner-operator-manager -- \\\n  /scanner-operator grant"
	localGrant   = "bin/manager grant"
)

// list returns the names in code at the beginning of the rows of a table below a heading.
func (p page) list(t *testing.T, section string) []string {
	t.Helper()
	var names []string
	for _, match := range regexp.MustCompile("(?m)^\\| `([^`]+)`").FindAllStringSubmatch(p.sections[section], -1) {
		names = append(names, match[1])
	}
	if len(names) == 0 {
		t.Fatalf("%s: expected a table below the heading %q", p.name, section)
	}
	return names
}

// follow runs the commands below a heading.
func (p page) follow(t *testing.T, section string) {
	t.Helper()
	for _, commands := range p.blocks(t, section, "bash") {
		bash(t, commands)
	}
}

// followWith runs the commands with replacements, given as pairs of the text on the page and its replacement.
func (p page) followWith(t *testing.T, section string, replaced ...string) {
	t.Helper()
	for _, commands := range p.blocks(t, section, "bash") {
		for i := 0; i < len(replaced); i += 2 {
			if !strings.Contains(strings.Join(p.blocks(t, section, "bash"), ""), replaced[i]) {
				t.Fatalf("%s: expected %q in the commands below the heading %q", p.name, replaced[i], section)
			}
		}
		bash(t, strings.NewReplacer(replaced...).Replace(commands))
	}
}

// bash runs commands as a user would, in the project's directory.
func bash(t *testing.T, commands string) {
	t.Helper()
	text, err := runCommands(t.Context(), commands)
	if err != nil {
		t.Fatalf("%s\n%v\n%s", strings.TrimSpace(commands), err, text)
	}
	t.Logf("$ %s\n%s", strings.TrimSpace(commands), text)
}

// runCommands runs commands that may fail and returns their output.
func runCommands(ctx context.Context, commands string) (string, error) {
	shell := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", commands)
	shell.Dir = env.Root
	text, err := shell.CombinedOutput()
	return string(text), err
}
