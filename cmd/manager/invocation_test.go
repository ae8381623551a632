package main

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

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
		"grant, without a name":     {[]string{"grant"}, "scanner-operator grant: "},
		"create, without a file":    {[]string{"create"}, "scanner-operator create: "},
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
