package evidence

import (
	"slices"
	"testing"

	"github.com/scanner-operator/scanner-operator/workerapi"
)

// TestOf is the specification: presence needs one report, absence needs all evidence.
func TestOf(t *testing.T) {
	proof := Facts{Complete: true, DataTrusted: true, SameEngine: true, SourcesReported: true}
	for name, test := range map[string]struct {
		change func(*Facts)
		want   Verdict
	}{
		"all evidence":     {func(*Facts) {}, ProvenAbsent},
		"nothing is known": {func(f *Facts) { *f = Facts{} }, Unknown},
		"a report has it":  {func(f *Facts) { f.Present = true }, Present},
		"a report has it, and nothing else is known":       {func(f *Facts) { *f = Facts{Present: true} }, Present},
		"one report has it, another one lacks it newly":    {func(f *Facts) { f.Present, f.Unconfirmed = true, true }, Present},
		"a report has it while the data has an anomaly":    {func(f *Facts) { f.Present, f.DataTrusted = true, false }, Present},
		"one version of the data lacks it":                 {func(f *Facts) { f.Unconfirmed = true }, Unknown},
		"an image has no complete result, or none runs":    {func(f *Facts) { f.Complete = false }, Unknown},
		"the data has an anomaly":                          {func(f *Facts) { f.DataTrusted = false }, Unknown},
		"only an earlier engine knew it":                   {func(f *Facts) { f.SameEngine = false }, Unknown},
		"a source that knew it has not reported on images": {func(f *Facts) { f.SourcesReported = false }, Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			facts := proof
			test.change(&facts)
			if got := Of(facts); got != test.want {
				t.Errorf("%+v: %s, want %s", facts, got, test.want)
			}
		})
	}
}

// TestKnownBy: a source that knew a finding forgets it by a report on each image, and not by none.
func TestKnownBy(t *testing.T) {
	ci, other, both := []string{"ci"}, []string{"other"}, []string{"ci", "other"}
	for name, test := range map[string]struct{ before, have, silent, want []string }{
		"nobody":                               {nil, nil, both, nil},
		"the first":                            {nil, ci, other, ci},
		"another one":                          {ci, other, nil, other},
		"another one, and no report since":     {ci, other, ci, both},
		"the same, without one on other image": {ci, ci, ci, ci},
		"the engine alone, with a report":      {ci, nil, other, nil},
		"the engine alone, without a report":   {both, nil, ci, ci},
	} {
		t.Run(name, func(t *testing.T) {
			if got := KnownBy(test.before, test.have, test.silent); !slices.Equal(got, test.want) {
				t.Errorf("known by %q, want %q", got, test.want)
			}
		})
	}
}

// TestGaps: what is not covered of a distribution leaves only its packages open. What is not understood, and findings whose type is not known, are open.
func TestGaps(t *testing.T) {
	debian := "debian 9" + workerapi.NoUpdatesSince + "2022-06-30"
	for name, test := range map[string]struct {
		gaps, types []string
		want        bool
	}{
		"no gap":                                {nil, []string{"deb"}, false},
		"no gap, and no type":                   {nil, nil, false},
		"a type without data":                   {[]string{"OS packages (deb)"}, []string{"deb"}, true},
		"another type of a distribution":        {[]string{"OS packages (apk)"}, []string{"deb"}, true},
		"a distribution without data, npm":      {[]string{"OS packages (deb) of debian 7"}, []string{"npm"}, false},
		"a distribution that has ended, deb":    {[]string{debian}, []string{"deb"}, true},
		"a distribution that has ended, npm":    {[]string{debian}, []string{"npm"}, false},
		"of a language and of a distribution":   {[]string{debian}, []string{"binary", "deb"}, true},
		"many distributions":                    {[]string{"OS packages of more than 64 distributions"}, []string{"rpm"}, true},
		"a type that is not known":              {[]string{debian}, nil, true},
		"a language":                            {[]string{"Go"}, []string{"npm"}, true},
		"a language beside a distribution":      {[]string{debian, "Go"}, []string{"npm"}, true},
		"a text that was shortened":             {[]string{"debian 9: no secur"}, []string{"npm"}, true},
		"a distribution, by its name, and java": {[]string{"debian 12"}, []string{"java-archive"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := GapOf(test.gaps).Concerns(test.types); got != test.want {
				t.Errorf("%q leaves a finding in packages of type %q open: %t, want %t", test.gaps, test.types, got, test.want)
			}
		})
	}
}
