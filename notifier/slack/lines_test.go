package slack

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestRuns: bold text, code and links of mrkdwn become runs, and nothing else has a meaning.
func TestRuns(t *testing.T) {
	const address = "https://example.com/?a=b&c=d"
	want := []Line{
		{Role: RoleText, Runs: []Run{
			{Text: "a & b "}, {Text: "bold ", Bold: true}, {Text: "CVE-1", Bold: true, URL: address}, {Text: " _c_ [d](https://evil.example)"},
		}},
		{Role: RoleText},
		{Role: RoleText, Runs: []Run{{Text: "CVE-*2*", Bold: true, URL: "https://example.com/*/a*b"}}},
		{Role: RoleText, Runs: []Run{{Text: "run "}, {Text: "kubectl get *<pods>*", Code: true}}},
	}
	got := linesWith(RoleText, "a &amp; b *bold <https://example.com/?a=b&amp;c=d|CVE-1>* _c_ [d](https://evil.example)\n\n*<https://example.com/*/a*b|CVE-*2*>*\nrun `kubectl get *&lt;pods&gt;*`")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}
