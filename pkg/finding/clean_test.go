package finding

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// FuzzClean checks that every text of a cleaned finding is valid UTF-8 without NUL, and that a clean text is not changed.
func FuzzClean(f *testing.F) {
	for _, text := range []string{"", "openssl", "Paket für Grüße", "a\x00b", "\xff\xfe", "\x00", "=cmd()", "\xed\xa0\x80"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		hostile := Finding{
			ID: text, Aliases: []string{"CVE-2026-0001", text}, Paths: []string{text}, FixState: text, FixVersions: []string{text}, Description: text, URL: text,
			Package:    Package{Name: text, Version: text, Type: text, PURL: text},
			Advisories: []Advisory{{ID: text, Source: text, Severity: text, FixState: text, FixVersions: []string{text}, Layer: text, Analysis: text, Ratings: []Rating{{Source: text, Version: text, Vector: text}}}},
		}
		cleaned := hostile.Clean()
		a := cleaned.Advisories[0]
		for _, got := range []string{
			cleaned.ID, cleaned.Aliases[1], cleaned.FixState, cleaned.FixVersions[0], cleaned.Description, cleaned.URL, cleaned.Package.Name, cleaned.Package.Version,
			cleaned.Package.Type, cleaned.Package.PURL, a.ID, a.Source, a.Severity, a.FixState, a.FixVersions[0], a.Layer, a.Analysis, a.Ratings[0].Source, a.Ratings[0].Version, a.Ratings[0].Vector,
		} {
			if !utf8.ValidString(got) || strings.Contains(got, "\x00") {
				t.Fatalf("%q became %q", text, got)
			}
			if utf8.ValidString(text) && !strings.Contains(text, "\x00") && got != text {
				t.Fatalf("the clean text %q became %q", text, got)
			}
		}
		if strings.Contains(cleaned.Paths[0], "\x00") {
			t.Fatalf("the path %q became %q", text, cleaned.Paths[0])
		}
		if diff := cmp.Diff([]string{"CVE-2026-0001", text}, hostile.Aliases); diff != "" {
			t.Fatalf("the argument was changed (-want +got):\n%s", diff)
		}
	})
}
