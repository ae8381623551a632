package finding

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// FuzzCanonical: the canonical ID is the ID or an alias, and its own canonical ID. A CVE wins over other IDs, and upper and lower case of a CVE do not
// matter.
func FuzzCanonical(f *testing.F) {
	f.Add("CVE-2026-0001", "GHSA-aaaa-bbbb-cccc", "")
	f.Add("ghsa-aaaa-bbbb-cccc", "cve-2026-0001", "CVE-2026-0001")
	f.Add("ELSA-2026-1", "CVE-2026-0001", "CVE-2026-0002")
	f.Add(" DLA-1 ", " GHSA-1 ", "x")
	f.Fuzz(func(t *testing.T, id, first, second string) {
		aliases := []string{first, second}
		canonical := Canonical(id, aliases)
		known := slices.ContainsFunc(append(aliases, id), func(one string) bool {
			one = strings.TrimSpace(one)
			return one == canonical || strings.ToUpper(one) == canonical && cvePattern.MatchString(canonical)
		})
		if !known {
			t.Errorf("the ID of %q, %q is %q", id, aliases, canonical)
		}
		if again := Canonical(canonical, aliases); again != canonical {
			t.Errorf("the ID of %q, %q is %q, and that of this %q", id, aliases, canonical, again)
		}
		if reversed := Canonical(id, []string{second, first}); reversed != canonical {
			t.Errorf("the ID of %q, %q is %q, but in another order %q", id, aliases, canonical, reversed)
		}
	})
}

// FuzzMerge: merging any findings gives one for each key, whatever their order, and merging them again changes nothing. No alias or advisory is lost.
func FuzzMerge(f *testing.F) {
	for _, seed := range []string{
		`[{"id":"CVE-2026-0001","aliases":["GHSA-1","CVE-2026-0001"],"severity":"High","package":{"name":"a","version":"1","type":"npm","purl":"pkg:npm/a@1?x#y"},"paths":["/a","/b"],"advisories":[{"id":"GHSA-1"}]},` +
			`{"id":"CVE-2026-0001","severity":"Low","fixState":"fixed","fixVersions":["2"],"package":{"name":"A","version":"1","type":"npm","purl":"pkg:npm/A@1"},"paths":["/a","/c"]}]`,
		`[{"package":{"name":"p","type":"python"},"paths":["/lib/p-1.dist-info/METADATA"]},{"package":{"name":"p","type":"python"},"paths":["/lib/p-1.egg-info"]}]`, `[]`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		var findings []Finding
		if json.Unmarshal(content, &findings) != nil {
			return
		}
		merged := Merge(findings)
		if diff := cmp.Diff(merged, Merge(merged), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-merged +merged again):\n%s", content, diff)
		}
		slices.Reverse(findings)
		reversed := map[string]bool{}
		for _, found := range Merge(findings) {
			reversed[found.Key()] = true
		}
		byKey := map[string]Finding{}
		for _, found := range merged {
			if _, known := byKey[found.Key()]; known || !reversed[found.Key()] {
				t.Errorf("%s: a second finding with its key, or one that another order does not give: %+v", content, found)
			}
			byKey[found.Key()] = found
		}
		advisories := 0
		for _, found := range findings {
			of := byKey[found.Key()]
			for _, alias := range found.Aliases {
				if alias != "" && alias != of.ID && !slices.Contains(of.Aliases, alias) {
					t.Errorf("%s: the alias %q of %+v is lost", content, alias, of)
				}
			}
			if of.Severity < found.Severity || of.EPSS < found.EPSS || found.KnownExploited && !of.KnownExploited || found.Fixable() && !of.Fixable() {
				t.Errorf("%s: %+v is less than %+v", content, of, found)
			}
			advisories += len(found.Advisories)
		}
		for _, found := range merged {
			advisories -= len(found.Advisories)
		}
		if advisories != 0 || len(byKey) != len(reversed) {
			t.Errorf("%s: %d advisories are lost; %d findings, and %d in another order", content, advisories, len(byKey), len(reversed))
		}
	})
}
