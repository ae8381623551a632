package finding

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

func deb(id, name, version string, changes ...func(*Finding)) Finding {
	f := Finding{
		ID: id, Severity: High, FixState: FixStateNotFixed, Paths: []string{"/var/lib/dpkg/status"},
		Package: Package{Name: name, Version: version, Type: "deb", PURL: "pkg:deb/debian/" + name + "@" + version + "?arch=amd64"},
	}
	for _, change := range changes {
		change(&f)
	}
	return f
}

func npm(id, name, version, path string) Finding {
	return Finding{
		ID: id, Severity: High, FixState: FixStateNotFixed, Paths: []string{path},
		Package: Package{Name: name, Version: version, Type: "npm", PURL: "pkg:npm/" + name + "@" + version},
	}
}

// anyFinding generates findings from so few values that they often have the same key.
func anyFinding() *rapid.Generator[Finding] {
	return rapid.Custom(func(t *rapid.T) Finding {
		kind := rapid.SampledFrom([]string{"deb", "npm"}).Draw(t, "type")
		name := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "package")
		f := Finding{
			ID:       rapid.SampledFrom([]string{"CVE-2024-0001", "CVE-2024-0002"}).Draw(t, "id"),
			Aliases:  rapid.SliceOfN(rapid.SampledFrom([]string{"", "CVE-2024-0001", "GHSA-a", "DSA-1"}), 0, 3).Draw(t, "aliases"),
			Severity: rapid.SampledFrom(Severities()).Draw(t, "severity"),
			Package:  Package{Name: name, Version: "1", Type: kind, PURL: rapid.SampledFrom([]string{"", "pkg:" + kind + "/" + name + "@1"}).Draw(t, "purl")},
			Paths:    rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"/x", "/y", "/z"}), 0, 3, rapid.ID).Draw(t, "paths"),
			FixState: rapid.SampledFrom([]string{FixStateFixed, FixStateNotFixed, FixStateWontFix}).Draw(t, "fix state"),
			EPSS:     rapid.SampledFrom([]float64{0, 0.1, 0.9}).Draw(t, "EPSS"),
			CVSS:     rapid.SampledFrom([]float64{0, 5, 9.8}).Draw(t, "CVSS"),

			KnownExploited: rapid.Bool().Draw(t, "known exploited"),
		}
		if f.FixState == FixStateFixed {
			f.FixVersions = []string{rapid.SampledFrom([]string{"2", "3"}).Draw(t, "fix")}
		}
		f.Advisories = []Advisory{{ID: f.ID, Source: rapid.SampledFrom([]string{"nvd", "debian"}).Draw(t, "source")}}
		return f
	})
}

// essence is the part of a finding that must not depend on the order of an engine's output.
type essence struct {
	Severity       Severity
	Fixable        bool
	EPSS, CVSS     float64
	KnownExploited bool
	Aliases        []string
}

func essences(findings []Finding) map[string]essence {
	byKey := map[string]essence{}
	for _, f := range findings {
		byKey[f.Key()] = essence{f.Severity, f.Fixable(), f.EPSS, f.CVSS, f.KnownExploited, f.Aliases}
	}
	return byKey
}

// TestMergeProperties checks that the order does not matter, that merging twice changes nothing, that the input is not changed,
// that each key occurs once, and that no advisory is added or lost.
func TestMergeProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		input := rapid.SliceOfN(anyFinding(), 0, 12).Draw(t, "findings")
		before := clone(input)
		merged := Merge(input)
		if diff := cmp.Diff(before, input); diff != "" {
			t.Fatalf("merging changes its input (-before +after):\n%s", diff)
		}
		keys := map[string]bool{}
		for _, f := range input {
			keys[f.Key()] = true
		}
		if len(merged) != len(keys) {
			t.Fatalf("%d findings with %d different keys are merged to %d", len(input), len(keys), len(merged))
		}
		if !slices.IsSortedFunc(merged, Worse) {
			t.Fatalf("the result is not ordered by Worse: %+v", merged)
		}
		shuffled := Merge(rapid.Permutation(input).Draw(t, "the same in another order"))
		if diff := cmp.Diff(essences(merged), essences(shuffled), cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("the order of the input matters:\n%s", diff)
		}
		if diff := cmp.Diff(merged, Merge(merged), cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("merging what is merged changes it (-once +twice):\n%s", diff)
		}
		if got, want := advisories(merged), advisories(input); got != want {
			t.Fatalf("%d advisories before, %d after", want, got)
		}
	})
}

func clone(findings []Finding) []Finding {
	copies := slices.Clone(findings)
	for i := range copies {
		copies[i].Aliases = slices.Clone(copies[i].Aliases)
		copies[i].Paths = slices.Clone(copies[i].Paths)
		copies[i].Advisories = slices.Clone(copies[i].Advisories)
		copies[i].FixVersions = slices.Clone(copies[i].FixVersions)
	}
	return copies
}

func advisories(findings []Finding) (n int) {
	for _, f := range findings {
		n += len(f.Advisories)
	}
	return n
}

// TestMergeUnites checks how two sources' statements about one finding are merged.
func TestMergeUnites(t *testing.T) {
	day := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	a := deb("CVE-2024-0001", "openssl", "3.0.1", func(f *Finding) {
		f.Severity, f.EPSS, f.CVSS, f.Aliases = Medium, 0.5, 5, []string{"DSA-2", "CVE-2024-0001", ""}
		f.Advisories = []Advisory{{ID: "CVE-2024-0001", Source: "debian"}}
	})
	b := deb("CVE-2024-0001", "openssl", "3.0.1", func(f *Finding) {
		f.Severity, f.EPSS, f.CVSS, f.KnownExploited, f.Aliases = Critical, 0.1, 9.8, true, []string{"DSA-1", "DSA-2"}
		f.FixState, f.FixVersions, f.FixAvailable = FixStateFixed, []string{"3.0.2"}, day
		f.Description, f.URL = "text", "https://example.com"
		f.Advisories = []Advisory{{ID: "CVE-2024-0001", Source: "nvd"}}
		f.Paths = []string{"/var/lib/dpkg/status", "/other"}
	})
	want := deb("CVE-2024-0001", "openssl", "3.0.1", func(f *Finding) {
		f.Severity, f.EPSS, f.CVSS, f.KnownExploited, f.Aliases = Critical, 0.5, 9.8, true, []string{"DSA-1", "DSA-2"}
		f.FixState, f.FixVersions, f.FixAvailable = FixStateFixed, []string{"3.0.2"}, day
		f.Description, f.URL = "text", "https://example.com"
		f.Advisories = []Advisory{{ID: "CVE-2024-0001", Source: "debian"}, {ID: "CVE-2024-0001", Source: "nvd"}}
		f.Paths = []string{"/var/lib/dpkg/status", "/other"}
	})
	if diff := cmp.Diff([]Finding{want}, Merge([]Finding{a, b})); diff != "" {
		t.Errorf("two advisories about one vulnerability in one package (-want +got):\n%s", diff)
	}
}

// TestMergeKeepsKey: only a package of the operating system, whose key has no path, may get its first path from another finding.
func TestMergeKeepsKey(t *testing.T) {
	for name, tt := range map[string]struct {
		without Finding
		want    []string
	}{
		"of the operating system":     {deb("CVE-2024-0001", "a", "1", func(f *Finding) { f.Paths, f.Package.PURL = nil, "pkg:deb/a@1" }), []string{"/a"}},
		"not of the operating system": {Finding{ID: "CVE-2024-0001", Package: Package{Name: "a", Version: "1", Type: "npm", PURL: "pkg:deb/a@1"}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			with := deb("CVE-2024-0001", "a", "1", func(f *Finding) { f.Paths, f.Package.PURL = []string{"/a"}, "pkg:deb/a@1" })
			merged := Merge([]Finding{tt.without, with})
			if len(merged) != 1 || merged[0].Key() != with.Key() {
				t.Fatalf("merged to %+v, want one finding with the same key", merged)
			}
			if diff := cmp.Diff(tt.want, merged[0].Paths); diff != "" {
				t.Errorf("paths (-want +got):\n%s", diff)
			}
		})
	}
}

// TestMergeOfNothing checks that the result is an empty list, which is [] in JSON and not null.
func TestMergeOfNothing(t *testing.T) {
	if got := Merge(nil); got == nil || len(got) != 0 {
		t.Errorf("Merge(nil) = %#v, want an empty list", got)
	}
}

// TestFixable checks that a finding is fixable only if there is a version to update to.
func TestFixable(t *testing.T) {
	for name, tt := range map[string]struct {
		state    string
		versions []string
		want     bool
	}{
		"fixed in a version":       {FixStateFixed, []string{"2"}, true},
		"fixed, but nobody knows":  {FixStateFixed, nil, false},
		"not fixed":                {FixStateNotFixed, nil, false},
		"won't be":                 {FixStateWontFix, []string{"2"}, false},
		"nobody says":              {FixStateUnknown, nil, false},
		"an engine's empty answer": {"", nil, false},
	} {
		if got := (Finding{FixState: tt.state, FixVersions: tt.versions}).Fixable(); got != tt.want {
			t.Errorf("%s: fixable is %v, want %v", name, got, tt.want)
		}
	}
}

// TestCounts checks that each severity is counted separately, and that the total is their sum.
func TestCounts(t *testing.T) {
	var counts Counts
	for n, severity := range Severities() {
		counts.Add(severity, n+1)
	}
	want := Counts{Critical: 1, High: 2, Medium: 3, Low: 4, Negligible: 5, Unknown: 6}
	if diff := cmp.Diff(want, counts); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
	for n, severity := range Severities() {
		if counts.Of(severity) != n+1 {
			t.Errorf("%d findings are %s, want %d", counts.Of(severity), severity, n+1)
		}
	}
	if counts.Total() != 21 {
		t.Errorf("the total is %d, want 21", counts.Total())
	}
}
