package action

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// located is a finding in a repository.
type located struct {
	repository string
	finding.Finding
}

func where(l *located) (string, *finding.Finding) { return l.repository, &l.Finding }

func vulnerable(id string, severity finding.Severity, name, version string, fixes ...string) *located {
	f := finding.Finding{ID: id, Severity: severity, Package: finding.Package{Name: name, Version: version, Type: "deb"}}
	if len(fixes) > 0 {
		f.FixState, f.FixVersions = finding.FixStateFixed, fixes
	}
	return &located{"nginx", f}
}

// summary is an action in the form that the tables below expect.
func summary(a Action[*located]) string {
	ids := ""
	for _, f := range a.Ends {
		ids += " " + f.ID
	}
	return fmt.Sprintf("%s: %s %v to %v ends%s", a.Repository, a.PackageName, a.Installed, a.FixVersions, ids)
}

// TestGroup: findings of one package that one version ends are one action, in the order of urgency.
func TestGroup(t *testing.T) {
	exploited := vulnerable("CVE-9", finding.Low, "curl", "7", "8")
	exploited.KnownExploited = true
	elsewhere := vulnerable("CVE-1", finding.Critical, "openssl", "1", "2")
	elsewhere.repository = "web"
	otherType := vulnerable("CVE-2", finding.High, "openssl", "1", "2")
	otherType.Package.Type = "npm"
	wontFix := vulnerable("CVE-3", finding.Critical, "zlib", "1", "2")
	wontFix.FixState = finding.FixStateWontFix
	for name, tt := range map[string]struct {
		found   []*located
		actions []string
		noFix   []string
	}{
		"one version ends two findings": {
			[]*located{vulnerable("CVE-2", finding.High, "openssl", "1", "2"), vulnerable("CVE-1", finding.Critical, "openssl", "1", "2")},
			[]string{"nginx: openssl [1] to [2] ends CVE-1 CVE-2"}, nil,
		},
		"two installed versions": {
			[]*located{vulnerable("CVE-2", finding.High, "openssl", "1.0", "2"), vulnerable("CVE-1", finding.Critical, "openssl", "1.1", "2")},
			[]string{"nginx: openssl [1.1 1.0] to [2] ends CVE-1 CVE-2"}, nil,
		},
		"versions are not ordered: each finding has its own": {
			[]*located{vulnerable("CVE-1", finding.High, "openssl", "1", "3"), vulnerable("CVE-2", finding.High, "openssl", "1", "2"), vulnerable("CVE-3", finding.High, "openssl", "1", "2")},
			[]string{"nginx: openssl [1] to [2] ends CVE-2 CVE-3", "nginx: openssl [1] to [3] ends CVE-1"}, nil,
		},
		"the version that two advisories name ends both": {
			[]*located{vulnerable("CVE-1", finding.High, "node", "18", "18.1", "20.1"), vulnerable("CVE-2", finding.High, "node", "18", "20.1", "21")},
			[]string{"nginx: node [18] to [20.1] ends CVE-1 CVE-2"}, nil,
		},
		"versions that each end everything": {
			[]*located{vulnerable("CVE-1", finding.High, "node", "18", "18.1", "20.1"), vulnerable("CVE-2", finding.High, "node", "18", "20.1", "18.1")},
			[]string{"nginx: node [18] to [18.1 20.1] ends CVE-1 CVE-2"}, nil,
		},
		"known exploited, then severity, then number": {
			[]*located{
				vulnerable("CVE-1", finding.High, "a", "1", "2"), vulnerable("CVE-2", finding.High, "b", "1", "2"), vulnerable("CVE-3", finding.High, "b", "1", "2"),
				vulnerable("CVE-4", finding.Critical, "c", "1", "2"), exploited,
			},
			[]string{"nginx: curl [7] to [8] ends CVE-9", "nginx: c [1] to [2] ends CVE-4", "nginx: b [1] to [2] ends CVE-2 CVE-3", "nginx: a [1] to [2] ends CVE-1"}, nil,
		},
		"repositories and types are apart": {
			[]*located{otherType, elsewhere, vulnerable("CVE-2", finding.Medium, "openssl", "1", "2")},
			[]string{"web: openssl [1] to [2] ends CVE-1", "nginx: openssl [1] to [2] ends CVE-2", "nginx: openssl [1] to [2] ends CVE-2"}, nil,
		},
		"no fix": {
			[]*located{vulnerable("CVE-1", finding.High, "a", "1"), wontFix, vulnerable("CVE-4", finding.Low, "a", "1", "")},
			nil, []string{"CVE-3", "CVE-1", "CVE-4"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			actions, noFix := Group(tt.found, where)
			var got, without []string
			for _, a := range actions {
				got = append(got, summary(a))
			}
			for _, f := range noFix {
				without = append(without, f.ID)
			}
			if diff := cmp.Diff(tt.actions, got); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.noFix, without); diff != "" {
				t.Errorf("findings without a fix (-want +got):\n%s", diff)
			}
		})
	}
}

// TestByPackage: the versions of one package are one update, and its urgency is that of all of them.
func TestByPackage(t *testing.T) {
	actions, _ := Group([]*located{
		vulnerable("CVE-1", finding.Critical, "a", "1", "2"), vulnerable("CVE-2", finding.High, "b", "1", "2"),
		vulnerable("CVE-3", finding.High, "b", "1", "3"), vulnerable("CVE-4", finding.Critical, "b", "1", "4"),
	}, where)
	var got []string
	for _, u := range ByPackage(actions) {
		got = append(got, fmt.Sprintf("%s: %d Critical, %d High", u.Actions[0].PackageName, u.Counts.Critical, u.Counts.High))
		for _, a := range u.Actions {
			got = append(got, summary(a))
		}
	}
	want := []string{
		"b: 1 Critical, 2 High", "nginx: b [1] to [4] ends CVE-4", "nginx: b [1] to [2] ends CVE-2", "nginx: b [1] to [3] ends CVE-3",
		"a: 1 Critical, 0 High", "nginx: a [1] to [2] ends CVE-1",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("updates (-want +got):\n%s", diff)
	}
}

func anyLocated() *rapid.Generator[*located] {
	version := rapid.SampledFrom([]string{"", "1", "2", "3", "4"})
	return rapid.Custom(func(t *rapid.T) *located {
		return &located{rapid.SampledFrom([]string{"nginx", "web"}).Draw(t, "repository"), finding.Finding{
			ID:       fmt.Sprintf("CVE-%d", rapid.IntRange(1, 20).Draw(t, "id")),
			Severity: finding.Severity(rapid.IntRange(0, 5).Draw(t, "severity")), KnownExploited: rapid.Bool().Draw(t, "exploited"),
			Package: finding.Package{
				Name: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "package"), Type: rapid.SampledFrom([]string{"deb", "npm"}).Draw(t, "type"),
				Version: rapid.SampledFrom([]string{"", "0", "0.1"}).Draw(t, "version"),
			},
			FixState:    rapid.SampledFrom([]string{finding.FixStateFixed, finding.FixStateFixed, finding.FixStateNotFixed}).Draw(t, "fix state"),
			FixVersions: rapid.SliceOfN(version, 0, 3).Draw(t, "fix versions"),
		}}
	})
}

// TestEachFindingIsInOneAction: whatever is found, each finding is in exactly one action or has no fix, every version of an action ends all
// that the action ends, the counts are those of its findings, and the order of the input does not matter.
func TestEachFindingIsInOneAction(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		found := rapid.SliceOfN(anyLocated(), 0, 30).Draw(t, "found")
		actions, noFix := Group(found, where)
		seen := map[*located]int{}
		for _, f := range noFix {
			seen[f]++
			if len(versionsOf(&f.Finding)) > 0 {
				t.Errorf("%+v has a fix and is in no action", f)
			}
		}
		for i, a := range actions {
			var counts finding.Counts
			if len(a.Ends) == 0 || len(a.FixVersions) == 0 {
				t.Fatalf("an action without findings or version: %+v", a)
			}
			for _, f := range a.Ends {
				seen[f]++
				counts.AddFinding(f.Finding)
				if f.repository != a.Repository || f.Package.Name != a.PackageName || f.Package.Type != a.PackageType {
					t.Errorf("%+v is in the action %s", f, summary(a))
				}
				for _, version := range a.FixVersions {
					if !slices.Contains(f.FixVersions, version) {
						t.Errorf("version %s does not end %+v, which is in the action %s", version, f, summary(a))
					}
				}
			}
			if counts != a.Counts {
				t.Errorf("the action %s counts %+v, want %+v", summary(a), a.Counts, counts)
			}
			if i > 0 && Compare(actions[i-1].Counts, a.Counts) > 0 {
				t.Errorf("the action %s comes after the less urgent %s", summary(a), summary(actions[i-1]))
			}
		}
		for _, f := range found {
			if seen[f] != 1 {
				t.Errorf("%+v is in %d actions", f, seen[f])
			}
		}
		shuffled, _ := Group(rapid.Permutation(found).Draw(t, "shuffled"), where)
		var want, got []string
		for i := range actions {
			want, got = append(want, summary(actions[i])), append(got, summary(shuffled[i]))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("another order of the same findings gives other actions (-want +got):\n%s", diff)
		}
	})
}
