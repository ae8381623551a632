package parity

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// document is what grype prints about two advisories for one package at two paths.
const document = `{"matches": [
  {"vulnerability": {"id": "GHSA-1", "severity": "High", "fix": {"versions": ["2.0", "1.5"], "state": "fixed"}},
   "artifact": {"name": "lib", "version": "1.0", "type": "go-module", "locations": [{"path": "/b"}, {"path": "/a"}]}},
  {"vulnerability": {"id": "CVE-1", "severity": "Unknown", "fix": {"versions": [], "state": "unknown"}},
   "artifact": {"name": "lib", "version": "1.0", "type": "go-module", "locations": [{"path": "/a"}, {"path": "/b"}]}}
]}`

// The store's finding is the same as the document, and a difference in any part of it shows.
func TestExpandEqualsGrype(t *testing.T) {
	want, err := read([]byte(document))
	if err != nil {
		t.Fatal(err)
	}
	stored := func(change func(*finding.Finding)) []finding.Finding {
		f := finding.Finding{
			ID: "CVE-1", Package: finding.Package{Name: "lib", Version: "1.0", Type: "go-module"}, Paths: []string{"/a", "/b"},
			Advisories: []finding.Advisory{
				{ID: "CVE-1", Severity: "Unknown", FixState: "unknown"}, {ID: "GHSA-1", Severity: "High", FixState: "fixed", FixVersions: []string{"1.5", "2.0"}},
			},
		}
		change(&f)
		return []finding.Finding{f}
	}
	for name, tt := range map[string]struct {
		change func(*finding.Finding)
		equal  bool
	}{
		"the same":           {func(*finding.Finding) {}, true},
		"a path is missing":  {func(f *finding.Finding) { f.Paths = f.Paths[:1] }, false},
		"an advisory less":   {func(f *finding.Finding) { f.Advisories = f.Advisories[:1] }, false},
		"another severity":   {func(f *finding.Finding) { f.Advisories[1].Severity = "Low" }, false},
		"another fix":        {func(f *finding.Finding) { f.Advisories[1].FixVersions = []string{"2.0"} }, false},
		"another version":    {func(f *finding.Finding) { f.Package.Version = "1.1" }, false},
		"a finding too many": {func(f *finding.Finding) { f.Advisories = append(f.Advisories, finding.Advisory{ID: "CVE-2"}) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(want, Expand(stored(tt.change))); (diff == "") != tt.equal {
				t.Errorf("equal: want %t; (-grype +operator):\n%s", tt.equal, diff)
			}
		})
	}
}
