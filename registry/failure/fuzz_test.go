package failure

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/scanner-operator/scanner-operator/workerapi"
)

// maxTerminationBytes is how much of a termination file the kubelet reads, see MaxMessage.
const maxTerminationBytes = 4096

// disclosed matches what no message has: the user or the query of a URL, and the credential of a header.
var disclosed = regexp.MustCompile(`(?i)://[^/\s"']*@|://[^\s"'?]+\?[^\s"'…]|\b(bearer|basic)\s+[a-z0-9._~+/=-]{8,}`)

// FuzzLine: whatever an error quotes, its message is one bounded line without secrets, which does not change when it is cleaned again. As a failure,
// it fits into the termination file.
func FuzzLine(f *testing.F) {
	for _, seed := range []string{
		"", "plain", `Get "https://robot:s3cret@registry.example/v2/": timeout`, "https://robot:p@ss@registry.example/v2/?a=b", "Authorization: Bearer eyJhbGciOiJ9.e30.c2ln",
		"basic bearer abcdefgh ijklmnop", "first\n\tsecond\r\nthird\x00", "a\xffb", strings.Repeat("ü", 600), strings.Repeat(`"\`, 600), "a://b@://c@d?e?f",
	} {
		f.Add(seed)
	}
	file := filepath.Join(f.TempDir(), "termination-log")
	f.Fuzz(func(t *testing.T, text string) {
		line := Line(text)
		switch {
		case len(line) > MaxMessage, !utf8.ValidString(line), strings.ContainsAny(line, "\n\r\x00\u2028\u2029"):
			t.Errorf("%q becomes %q, which is not one bounded line", text, line)
		case disclosed.MatchString(line):
			t.Errorf("%q becomes %q, which discloses %q", text, line, disclosed.FindString(line))
		case Line(line) != line:
			t.Errorf("%q becomes %q, and that %q", text, line, Line(line))
		}
		failed := Describe(errors.New(text), workerapi.ReasonCatalogFailed)
		if err := Write(file, failed); err != nil {
			t.Fatal(err)
		}
		written, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var read workerapi.Failure
		if err := json.Unmarshal(written, &read); err != nil || read != failed || len(written) > maxTerminationBytes {
			t.Errorf("%+v is written in %d bytes and read as %+v, %v", failed, len(written), read, err)
		}
	})
}
