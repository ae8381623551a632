package announce

import (
	"slices"
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/announce/diff"
	"github.com/scanner-operator/scanner-operator/pkg/announce/evidence"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
)

// TestFixedBesideGaps: what a result does not cover leaves open the findings that it may concern, in messages and in alerts, and no others. The types of
// findings that were recorded before the gap are not known to messages.
func TestFixedBesideGaps(t *testing.T) {
	const deb, npm, both = "CVE-2026-9001", "CVE-2026-9002", "CVE-2026-9003"
	found := func(id, pkg, kind string) finding.Finding {
		return finding.Finding{ID: id, Severity: finding.Critical, Package: finding.Package{Name: pkg, Version: "1", Type: kind}}
	}
	for name, test := range map[string]struct {
		before, after          evidence.Gap
		fixed, resolved, later []string // later, when the gap has ended
	}{
		"no gap":                   {evidence.NoGap, evidence.NoGap, []string{deb, npm, both}, []string{deb, npm, both}, nil},
		"a distribution":           {evidence.OSPackages, evidence.OSPackages, []string{npm}, []string{npm}, []string{deb, both}},
		"a distribution, later":    {evidence.NoGap, evidence.OSPackages, nil, []string{npm}, []string{deb, npm, both}},
		"anything":                 {evidence.AnyPackages, evidence.AnyPackages, nil, nil, []string{deb, npm, both}},
		"a distribution, then any": {evidence.OSPackages, evidence.AnyPackages, nil, nil, []string{deb, npm, both}},
		"a distribution, before":   {evidence.OSPackages, evidence.NoGap, []string{deb, npm, both}, []string{deb, npm, both}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := afterBaseline(t, "web")
			s.settings.Filter.Changes = everyKindOfChange
			is := func(gap evidence.Gap) {
				for range 2 {
					s.data++
					s.image("web", image.Scanned)
					s.coverage.Images[0].Gap = gap
					s.pass(24 * time.Hour)
				}
			}
			fixed := func() (ids []string) {
				sent := len(s.sent)
				s.dispatchUntilIdle()
				for _, m := range s.sent[sent:] {
					for _, section := range m.Sections {
						for _, item := range section.Items {
							if item.Change == diff.ChangeFixed {
								ids = append(ids, item.ID)
							}
						}
					}
				}
				slices.Sort(ids)
				return ids
			}
			alerting := *s
			alerting.settings.Receiver = "alertmanager"
			fires := func() (ids []string) {
				alerting.now, alerting.coverage = s.now, s.coverage
				for _, a := range alerting.alerts(&alertSender{}).List {
					ids = append(ids, a.Vulnerability)
				}
				return ids
			}
			resolved := func() []string {
				firing := fires()
				return slices.DeleteFunc([]string{deb, npm, both}, func(id string) bool { return slices.Contains(firing, id) })
			}
			s.addFindings("web", finding.Medium, 1, 60) // so that the data has no anomaly
			kept := s.findings["web"]
			s.findings["web"] = slices.Concat(kept, []finding.Finding{found(deb, "zlib", "deb"), found(npm, "lodash", "npm"), found(both, "openssl", "binary"), found(both, "openssl", "deb")})
			is(test.before)
			if got := fixed(); len(got) != 0 || len(fires()) != 3 {
				t.Fatalf("%q are fixed, %q fire; want none and three", got, fires())
			}
			s.findings["web"] = kept
			is(test.after)
			if got := fixed(); !slices.Equal(got, test.fixed) {
				t.Errorf("messages call %q fixed, want %q", got, test.fixed)
			}
			if got := resolved(); !slices.Equal(got, test.resolved) {
				t.Errorf("the alerts of %q are resolved, want %q", got, test.resolved)
			}
			is(evidence.NoGap)
			if got := fixed(); !slices.Equal(got, test.later) {
				t.Errorf("messages call %q fixed after the gap, want %q", got, test.later)
			}
			if got := resolved(); len(got) != 3 {
				t.Errorf("the alerts of %q are resolved after the gap, want all", got)
			}
		})
	}
}
