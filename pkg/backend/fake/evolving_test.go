package fake

import (
	"slices"
	"strings"
	"testing"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// TestEvolving: each stage of an image differs from the previous one in one thing, and no two images share a finding.
func TestEvolving(t *testing.T) {
	at := func(number uint32, stage int) (all []string) {
		for _, f := range evolvingFindings(EvolvingDigest(number, stage)) {
			text := f.ID + " " + f.Severity.String()
			if f.Fixable() {
				text += " fixable"
			}
			if f.KnownExploited {
				text += " exploited"
			}
			all = append(all, text)
		}
		slices.Sort(all)
		return all
	}
	const first, second, third = "CVE-2025-100007 Critical", "CVE-2025-200007 High", "CVE-2025-300007 High"
	for stage, want := range map[int][]string{
		StageNew:          {first, second, third},
		StageFixAvailable: {first, second + " fixable", third},
		StageExploited:    {first, second + " fixable exploited", third},
		StageFixed:        {second + " fixable exploited", third},
	} {
		if got := at(7, stage); !slices.Equal(got, want) {
			t.Errorf("stage %d has %q, want %q", stage, got, want)
		}
	}
	ids := map[string]bool{}
	for _, digest := range []string{
		EvolvingDigest(0, StageNew), EvolvingDigest(1, StageNew), EvolvingDigest(99, StageNew), EvolvingDigest(1<<16, StageNew), EvolvingDigest(1<<32-1, StageNew),
		// Digests of other images end with any digits.
		"sha256:" + strings.Repeat("a", 56) + "00010001", "sha256:" + strings.Repeat("b", 56) + "00020001",
	} {
		for _, f := range evolvingFindings(digest) {
			if ids[f.ID] {
				t.Errorf("%s is a finding of two images", f.ID)
			}
			ids[f.ID] = true
		}
	}
	if len(evolvingFindings("")) != 3 || evolvingFindings("sha256:")[0].Severity != finding.High {
		t.Error("an unusual digest has other findings")
	}
}
