package ossfuzz

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// root of the project.
const root = "../.."

// target is a fuzz target in the project.
type target struct {
	// dir is the directory of its package, from the root.
	dir, name string
	// external is true if it is in the external test package.
	external bool
}

// targets parses all tests of the project.
func targets(t *testing.T) (all []target) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (slices.Contains([]string{"node_modules", "testdata"}, entry.Name()) || path == filepath.Join(root, "bin") || path == filepath.Join(root, ".git")) {
			return filepath.SkipDir
		}
		if entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		for _, declaration := range file.Decls {
			if f, isFunc := declaration.(*ast.FuncDecl); isFunc && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Fuzz") {
				all = append(all, target{dir, f.Name.Name, strings.HasSuffix(file.Name.Name, "_test")})
			}
		}
		return err
	})
	if err != nil || len(all) < 40 {
		t.Fatalf("%d targets, %v: is this test looking in the right place?", len(all), err)
	}
	return all
}

// output returns the lines that a command prints, sorted.
func output(t *testing.T, command *exec.Cmd) []string {
	t.Helper()
	text, err := command.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, text)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	slices.Sort(lines)
	return lines
}

// listed returns the directory and the name of each target in lines of "hack/fuzz.sh list", sorted.
func listed(t *testing.T, lines []string) (targets []string) {
	t.Helper()
	for _, line := range lines {
		var module, dir, name string
		if _, err := fmt.Sscan(line, &module, &dir, &name); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		targets = append(targets, filepath.Join(module, dir)+" "+name)
	}
	slices.Sort(targets)
	return targets
}

// TestNoTargetIsForgotten: "make fuzz" and the workflow fuzz each target, and OSS-Fuzz builds each.
func TestNoTargetIsForgotten(t *testing.T) {
	var want, programs []string
	for _, found := range targets(t) {
		want = append(want, found.dir+" "+found.name)
		programs = append(programs, strings.ReplaceAll(found.dir, "/", "_")+"_"+found.name)
	}
	slices.Sort(want)
	slices.Sort(programs)
	script := filepath.Join(root, "hack", "fuzz.sh")
	if diff := cmp.Diff(want, listed(t, output(t, exec.CommandContext(t.Context(), script, "list")))); diff != "" {
		t.Errorf("targets of hack/fuzz.sh (-in the code +listed):\n%s", diff)
	}
	workflow, err := os.ReadFile(filepath.Join(root, ".github", "workflows", "fuzz.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var nightly []string
	for _, shard := range regexp.MustCompile(`"(\d+/\d+)"`).FindAllSubmatch(workflow, -1) {
		command := exec.CommandContext(t.Context(), script, "list")
		command.Env = append(os.Environ(), "SHARD="+string(shard[1]))
		nightly = append(nightly, output(t, command)...)
	}
	if diff := cmp.Diff(want, listed(t, nightly)); diff != "" {
		t.Errorf("targets of the workflow (-in the code +fuzzed):\n%s", diff)
	}
	if diff := cmp.Diff(programs, built(t)); diff != "" {
		t.Errorf("programs of OSS-Fuzz (-in the code +built):\n%s", diff)
	}
}

// built runs build.sh with stand-ins for what only OSS-Fuzz has, and returns the names of the programs that it builds.
func built(t *testing.T) []string {
	t.Helper()
	dir := t.TempDir()
	project, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(project, filepath.Join(dir, "scanner-operator")); err != nil {
		t.Fatal(err)
	}
	for name, script := range map[string]string{
		// It prints nothing for a package, so no file is moved out of the way.
		"go":                          `case "$1" in install) mkdir -p "$GOBIN" && touch "$GOBIN/go-118-fuzz-build" ;; env) echo "/$2" ;; esac`,
		"compile_native_go_fuzzer_v2": `[ $# = 3 ] && echo "$3" >>` + filepath.Join(dir, "programs"),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/bash\n"+script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	command := exec.CommandContext(t.Context(), "bash", filepath.Join(project, "hack", "ossfuzz", "build.sh"))
	command.Env = append(os.Environ(), "SRC="+dir, "OUT="+dir, "PATH="+dir+":"+os.Getenv("PATH"))
	if text, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return output(t, exec.CommandContext(t.Context(), "cat", filepath.Join(dir, "programs")))
}

// TestTargetsCanBeBuilt: OSS-Fuzz finds a target by its name, in the directory of its package and all below it, and builds those that are in the package
// itself.
func TestTargetsCanBeBuilt(t *testing.T) {
	all := targets(t)
	for _, one := range all {
		if one.external {
			t.Errorf("%s in %s: move it to the package itself, from the external test package", one.name, one.dir)
		}
		for _, other := range all {
			isBelow := other.dir == one.dir || strings.HasPrefix(other.dir, one.dir+"/")
			if other != one && isBelow && strings.HasPrefix(other.name, one.name) {
				t.Errorf("%s in %s would be taken for %s in %s: give one of them another name", other.name, other.dir, one.name, one.dir)
			}
		}
	}
}
