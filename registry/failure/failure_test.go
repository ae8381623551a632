package failure_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/scanner-operator/scanner-operator/registry/failure"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

func TestLineCarriesNoSecrets(t *testing.T) {
	for name, c := range map[string]struct{ in, want string }{
		"credentials of a URL": {
			in:   `Get "https://robot:s3cret@registry.example/v2/": timeout`,
			want: `Get "https://registry.example/v2/": timeout`,
		},
		"a password with an at sign": {
			in:   "https://robot:p@ss@registry.example/v2/",
			want: "https://registry.example/v2/",
		},
		"signed storage URL": {
			in:   `Get "https://bucket.example/blob?X-Amz-Signature=abc&X=1": reset`,
			want: `Get "https://bucket.example/blob?…": reset`,
		},
		"bearer token": {
			in:   "refused: Authorization: Bearer eyJhbGciOiJSUzI1NiJ9.e30.c2ln",
			want: "refused: Authorization: Bearer …",
		},
		"line breaks":   {in: "first\n\tsecond\r\nthird\x00", want: "first second third"},
		"invalid UTF-8": {in: "a\xffb", want: "a?b"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := failure.Line(c.in); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestLineIsBoundedAndValid(t *testing.T) {
	got := failure.Line(strings.Repeat("ü", 2000))
	if len(got) > failure.MaxMessage || !utf8.ValidString(got) || !strings.HasSuffix(got, "…") {
		t.Errorf("got %d bytes, valid %v; want at most %d valid bytes ending in …", len(got), utf8.ValidString(got), failure.MaxMessage)
	}
}

func TestDescribe(t *testing.T) {
	throttled := &failure.Error{Reason: workerapi.ReasonRegistryThrottled, RetryAfter: 90 * time.Second, Err: errors.New("slow down")}
	for name, c := range map[string]struct {
		err  error
		want workerapi.Failure
	}{
		"a known reason survives wrapping": {
			err:  fmt.Errorf("pulling x: %w", throttled),
			want: workerapi.Failure{Reason: workerapi.ReasonRegistryThrottled, Message: "pulling x: slow down", RetryAfterSeconds: 90},
		},
		"otherwise the fallback": {
			err:  errors.New("odd"),
			want: workerapi.Failure{Reason: workerapi.ReasonCatalogFailed, Message: "odd"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, failure.Describe(c.err, workerapi.ReasonCatalogFailed)); diff != "" {
				t.Errorf("failure (-want +got):\n%s", diff)
			}
		})
	}
}

// TestWriteFitsTheTerminationMessage checks the size of the file: the kubelet truncates termination messages at 4096 bytes, and
// truncated JSON cannot be decoded.
func TestWriteFitsTheTerminationMessage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "termination-log")
	want := workerapi.Failure{Reason: workerapi.ReasonCatalogFailed, Message: failure.Line(strings.Repeat(`<"&\`, 1000))}
	if err := failure.Write(path, want); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(raw) > 4096 || strings.Count(string(raw), "\n") != 1 {
		t.Errorf("wrote %d bytes and %d line ends, want one line of at most 4096 bytes", len(raw), strings.Count(string(raw), "\n"))
	}
	var got workerapi.Failure
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("failure read back (-want +got):\n%s", diff)
	}
}
