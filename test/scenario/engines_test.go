package scenario

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/test/images"
)

func TestCompare(t *testing.T) {
	of := func(id, pkg string, severity finding.Severity, state string, fixes ...string) finding.Finding {
		return finding.Finding{ID: id, Severity: severity, Package: finding.Package{Name: pkg, Version: "1", Type: "deb"}, FixState: state, FixVersions: fixes}
	}
	grype := []finding.Finding{
		of("CVE-1", "curl", finding.Low, finding.FixStateNotFixed),
		of("CVE-2", "curl", finding.Low, finding.FixStateFixed, "2"),
		of("CVE-3", "curl", finding.High, finding.FixStateFixed, "2"),
		of("CVE-4", "tar", finding.High, finding.FixStateFixed, "2"),
		of("CVE-4", "bash", finding.High, finding.FixStateFixed, "2"),
	}
	clair := []finding.Finding{
		of("CVE-1", "curl", finding.Medium, finding.FixStateUnknown),
		of("CVE-2", "curl", finding.Medium, finding.FixStateFixed, "2"),
		of("CVE-3", "curl", finding.High, finding.FixStateFixed, "3"),
		of("CVE-4", "zlib", finding.High, finding.FixStateFixed, "2"),
	}
	want := Compared{
		Both: 3, OnlyGrype: []string{"CVE-4 bash", "CVE-4 tar"}, OnlyClair: []string{"CVE-4 zlib"},
		Differences: map[Difference]int{
			{"severity", "Low", "Medium"}: 2, {"fix", finding.FixStateNotFixed, finding.FixStateUnknown}: 1, {"fixed in", "2", "3"}: 1,
		},
	}
	if diff := cmp.Diff(want, Compare(grype, clair)); diff != "" {
		t.Errorf("differences (-want +got):\n%s", diff)
	}
}

func TestDifferencesAreDocumented(t *testing.T) {
	documented, err := DocumentedDifferences("../..")
	if err != nil {
		t.Fatal(err)
	}
	want := slices.Sorted(slices.Values(images.Scanned()))
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(documented))); diff != "" {
		t.Errorf("images of %s (-want +got):\n%s", enginesPage, diff)
	}
}

func TestDifferencesIn(t *testing.T) {
	page := func(alone, otherwise string) string {
		return "# Engines\n\n| image | both | only Grype | only Clair | why |\n|---|---|---|---|---|\n" + alone +
			"\n| image | what | Grype | Clair | findings | why |\n|---|---|---|---|---|---|\n" + otherwise + "\nmore | text\n"
	}
	got, err := differencesIn(page("| web | 3 | CVE-2 tar, CVE-1 tar | | feeds |\n| api | 0 | | | |\n", "| web | severity | Low | Medium | 2 | Debian |\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]Compared{
		"web": {Both: 3, OnlyGrype: []string{"CVE-1 tar", "CVE-2 tar"}, Differences: map[Difference]int{{"severity", "Low", "Medium"}: 2}},
		"api": {Differences: map[Difference]int{}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what the page says (-want +got):\n%s", diff)
	}
	for name, tt := range map[string]struct{ page, want string }{
		"no tables":              {"# Engines\n", "no table"},
		"a column too few":       {page("| web | 3 | CVE-1 tar | feeds |\n", ""), "4 columns"},
		"no number":              {page("| web | some | | | |\n", ""), "some"},
		"an image twice":         {page("| web | 3 | | | |\n| web | 3 | | | |\n", ""), "two rows"},
		"alone without a reason": {page("| web | 3 | | CVE-1 tar | |\n", ""), "why"},
		"otherwise without one":  {page("| web | 3 | | | |\n", "| web | fix | fixed | unknown | 1 | |\n"), "why"},
		"otherwise of no image":  {page("| web | 3 | | | |\n", "| api | fix | fixed | unknown | 1 | so |\n"), "not in the table"},
		"otherwise, no number":   {page("| web | 3 | | | |\n", "| web | fix | fixed | unknown | all | so |\n"), "all"},
	} {
		if _, err := differencesIn(tt.page); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: the error is %v, want one that says %q", name, err, tt.want)
		}
	}
}
