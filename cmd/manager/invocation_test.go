package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// TestControlCharactersAreEscaped: a terminal shows control characters in the names of packages and images, and does not obey them.
func TestControlCharactersAreEscaped(t *testing.T) {
	hostile := "1\x1b[2J\x1b]0;owned\x07\r\nshop\tweb\u009b31m\u202e\x9b\U000e0041"
	images := []imageFindings{{
		Namespace: "shop", References: []string{"web" + hostile}, Engine: "grype", DataVersion: "v1",
		Findings: []finding.Finding{{ID: "CVE-1" + hostile, Package: finding.Package{Name: "openssl", Version: hostile}, FixVersions: []string{hostile}}},
	}}
	for name, print := range map[string]func(io.Writer, []imageFindings) error{"table": printTable, "json": printJSON} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			if err := print(&out, images); err != nil {
				t.Fatal(err)
			}
			if i := strings.IndexAny(out.String(), "\x1b\x07\r\u009b\u202e\U000e0041"); i >= 0 || bytes.ContainsRune(out.Bytes(), '\t') {
				t.Errorf("a terminal would obey %q", out.String())
			}
			if name == "table" && strings.Count(out.String(), "\n") != 2 {
				t.Errorf("the table has other lines than a heading and one finding:\n%s", out.String())
			}
			if name == "json" {
				var read []imageFindings
				if err := json.Unmarshal(out.Bytes(), &read); err != nil || read[0].References[0] != strings.ToValidUTF8("web"+hostile, "\ufffd") {
					t.Errorf("programs read %v (%v), want what was found", read, err)
				}
			}
		})
	}
}

// TestEscapingKeepsLines: errors quote registries and API servers. Of their control characters, only line ends are printed as they are.
func TestEscapingKeepsLines(t *testing.T) {
	var out bytes.Buffer
	fmt.Fprintln(escapingWriter{&out}, "first:\n\x1b[31mnginx ü 漢\x07")
	if want := "first:\n\\u001b[31mnginx ü 漢\\u0007\n"; out.String() != want {
		t.Errorf("printed %q, want %q", out.String(), want)
	}
}

// TestHelp: the help names the program as it was invoked, and each flag except the one for tests.
func TestHelp(t *testing.T) {
	var o options
	var out bytes.Buffer
	flags := newFlags("")
	flags.SetOutput(&out)
	o.addFlags(flags)
	printHelp(flags)
	if !strings.Contains(out.String(), "  "+programName()+" restore [FILE] ") || strings.Contains(out.String(), "%!") {
		t.Errorf("the help does not name %s:\n%s", programName(), out.String())
	}
	flags.VisitAll(func(f *flag.Flag) {
		if shown := strings.Contains(out.String(), "  -"+f.Name); shown != (f.Name != fakeBackendFlag) {
			t.Errorf("--%s is listed: %t", f.Name, shown)
		}
	})
}

// TestErrorsNameTheCommand: the error of each command begins with what the user typed.
func TestErrorsNameTheCommand(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = full.Close() })
	none := "--data-dir=" + filepath.Join(t.TempDir(), "none")
	for name, tt := range map[string]struct {
		arguments []string
		want      string
	}{
		"operator, a wrong flag":    {[]string{"--none"}, "scanner-operator: "},
		"operator, a wrong value":   {[]string{"--log-level=loud"}, "scanner-operator: "},
		"operator, an argument":     {[]string{"none"}, "scanner-operator: "},
		"findings, a wrong flag":    {[]string{"findings", "--none"}, "scanner-operator findings: "},
		"findings, without a store": {[]string{"findings", none}, "scanner-operator findings: "},
		"backup, without a store":   {[]string{"backup", none}, "scanner-operator backup: "},
		"restore, without a backup": {[]string{"restore", none, "none"}, "scanner-operator restore: "},
		"cleanup, an argument":      {[]string{"cleanup", "none"}, "scanner-operator cleanup: "},
		"crds, which nobody takes":  {[]string{"crds"}, "scanner-operator crds: "},
	} {
		t.Run(name, func(t *testing.T) {
			var says bytes.Buffer
			command := exec.CommandContext(t.Context(), os.Args[0], tt.arguments...)
			command.Env = append(os.Environ(), asManager+"=1")
			command.Stdout, command.Stderr = full, &says
			var ended *exec.ExitError
			if err := command.Run(); !errors.As(err, &ended) || ended.ExitCode() != 1 {
				t.Fatalf("%v, want exit code 1", err)
			}
			if !strings.Contains("\n"+says.String(), "\n"+tt.want) {
				t.Errorf("it says %q, want an error that begins with %q", says.String(), tt.want)
			}
		})
	}
}
