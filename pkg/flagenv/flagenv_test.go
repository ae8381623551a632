package flagenv

import (
	"flag"
	"io"
	"strings"
	"testing"
	"time"
)

func parseFlags(t *testing.T, args ...string) (flags *flag.FlagSet, hosts *string, wait *time.Duration) {
	t.Helper()
	flags = flag.NewFlagSet("test", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	hosts = flags.String("allowed-hosts", "default", "")
	wait = flags.Duration("wait", time.Second, "")
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	return flags, hosts, wait
}

func TestPrecedence(t *testing.T) {
	t.Setenv("PROGRAM_ALLOWED_HOSTS", "environment")
	for want, args := range map[string][]string{"environment": nil, "given": {"--allowed-hosts=given"}} {
		flags, hosts, wait := parseFlags(t, args...)
		if err := Complete(flags, "PROGRAM_"); err != nil || *hosts != want || *wait != time.Second {
			t.Errorf("arguments %v: expected %q and the default of the other flag, got %q and %v: %v", args, want, *hosts, *wait, err)
		}
	}
}

func TestErrorNamesVariable(t *testing.T) {
	t.Setenv("PROGRAM_WAIT", "long")
	flags, _, _ := parseFlags(t)
	if err := Complete(flags, "PROGRAM_"); err == nil || !strings.Contains(err.Error(), "PROGRAM_WAIT") {
		t.Errorf("expected an error that names PROGRAM_WAIT, got %v", err)
	}
}
