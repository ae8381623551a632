package cyclonedx

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// FuzzWrite: a document of any findings is JSON in valid UTF-8, the same each time, with addresses of the web only. Reading it gives the findings back.
func FuzzWrite(f *testing.F) {
	for _, found := range [][]finding.Finding{{openssl()}, {openssl(func(f *finding.Finding) {
		f.URL, f.Description, f.Package.PURL = "javascript:alert(1)", "<script>", "pkg:deb/debian/a%2Fb@1?x=y#sub/path"
	})}, nil} {
		text, err := json.Marshal(found)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte(`[{"id":"A","package":{"name":"n","purl":"no purl"},"paths":["/a","/a\u0000"]},{"id":"A","package":{"name":"n","type":"python"},"paths":["/lib/n-1.dist-info/METADATA"]}]`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var findings []finding.Finding
		if json.Unmarshal(text, &findings) != nil {
			return
		}
		for i, found := range findings {
			// The store has no others, and a version is cut in a document.
			found = found.Clean()
			found.Package.Version = clip(found.Package.Version)
			isIncomplete := found.Package.Version == "" && strings.Contains(found.Package.PURL, "@") // a reader takes the version of the package URL
			if isIncomplete || found.Package.Name == "" || found.ID == "" || found.ID != finding.Canonical(found.ID, found.Aliases) {
				return // no engine's findings are like this
			}
			findings[i] = found
		}
		findings = finding.Merge(findings)
		document := written(t, reportOf(findings...))
		if !json.Valid(document) || !utf8.Valid(document) || !bytes.Equal(document, written(t, reportOf(findings...))) {
			t.Errorf("%s is written as %s", text, document)
		}
		var addresses struct {
			Vulnerabilities []struct {
				Advisories []struct {
					URL string `json:"url"`
				} `json:"advisories"`
			} `json:"vulnerabilities"`
		}
		if err := json.Unmarshal(document, &addresses); err != nil {
			t.Fatal(err)
		}
		for _, v := range addresses.Vulnerabilities {
			for _, a := range v.Advisories {
				if !strings.HasPrefix(a.URL, "https://") && !strings.HasPrefix(a.URL, "http://") {
					t.Errorf("%s is written with the address %q", text, a.URL)
				}
			}
		}
		again, err := Decode(bytes.NewReader(document), noon)
		if err != nil {
			t.Fatalf("the document of %s is refused: %v", text, err)
		}
		if diff := cmp.Diff(slices.Sorted(maps.Keys(keysOf(findings))), slices.Sorted(maps.Keys(keysOf(again.Findings)))); diff != "" {
			t.Errorf("keys of findings that were written and read (-before +after):\n%s\n%v\n%v", diff, keysOf(findings), keysOf(again.Findings))
		}
	})
}
