package announce

import (
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/announce/diff"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
)

// TestStoreRestoredAndEngineChanged: a restored store and another engine at the same time are one summary that gives both reasons, whichever
// comes first and with every firstScan policy. Nothing that may have been announced since the backup is announced as new.
func TestStoreRestoredAndEngineChanged(t *testing.T) {
	for name, events := range map[string][]func(*scenario){
		"in the same plan":   {func(s *scenario) { s.restore(); s.switchTo(clair) }},
		"the restore first":  {(*scenario).restore, func(s *scenario) { s.switchTo(clair) }},
		"the engine first":   {func(s *scenario) { s.switchTo(clair) }, (*scenario).restore},
		"a wider filter too": {func(s *scenario) { s.settings.Filter.MinSeverity = finding.Medium; s.restore() }, func(s *scenario) { s.switchTo(clair) }},
	} {
		for _, policy := range []FirstScan{FirstScanSummary, FirstScanSilent, FirstScanAll} {
			t.Run(name+" with "+string(policy), func(t *testing.T) {
				s := announcedByTool(t, policy)
				s.settings.Filter.Changes = everyKindOfChange
				s.dispatchUntilIdle()
				sent := len(s.sent)
				for _, event := range events {
					event(s)
					s.dispatch()
					s.pass(10 * time.Second)
				}
				none(t, s.sent[sent:], "there is no result by Clair")
				s.addFindings("web", finding.Critical, 2, 8)
				s.image("db", image.Scanned)
				s.dispatchUntilIdle()
				d := single(t, s.sent[sent:])
				want := KindEngineChanged
				if policy == FirstScanAll {
					want = KindStoreRestored
				}
				if d.Kind != want || !d.RestoredFrom.Equal(noon) || d.Totals.Critical != 8 || len(d.Sections) != 0 {
					t.Errorf("message %+v, want one summary (%s) of the 8 findings with the time of the backup", d, want)
				}
				s.pass(time.Hour)
				s.addFindings("web", finding.High, 100, 1)
				s.dispatchUntilIdle()
				if d := s.sent[len(s.sent)-1]; len(s.sent) != sent+2 || d.Kind != KindChanges || d.Changes[diff.ChangeNew] != 1 || len(d.Changes) != 1 {
					t.Errorf("messages %+v, want the one new finding", s.sent[sent+1:])
				}
			})
		}
	}
}

// TestEngineChangedBackWhileOpen: after the engine is changed back, the other reason for an open baseline still holds.
func TestEngineChangedBackWhileOpen(t *testing.T) {
	restored, widened := (*scenario).restore, func(s *scenario) { s.settings.Filter.MinSeverity = finding.Medium }
	toClair, back := func(s *scenario) { s.switchTo(clair) }, func(s *scenario) { s.switchTo(grype) }
	for name, tt := range map[string]struct {
		events []func(*scenario)
		want   Kind
	}{
		"a restore before":                   {[]func(*scenario){restored, toClair, back}, KindStoreRestored},
		"a restore between":                  {[]func(*scenario){toClair, restored, back}, KindStoreRestored},
		"a restore with another engine":      {[]func(*scenario){func(s *scenario) { restored(s); toClair(s) }, back}, KindStoreRestored},
		"a wider filter before":              {[]func(*scenario){widened, toClair, back}, KindFilterWidened},
		"a wider filter between":             {[]func(*scenario){toClair, widened, back}, KindFilterWidened},
		"a newer version of the same engine": {[]func(*scenario){func(s *scenario) { s.update(newTool) }, toClair, back}, KindEngineUpdated},
	} {
		t.Run(name, func(t *testing.T) {
			s := announcedByTool(t, FirstScanSummary)
			sent := len(s.sent)
			for _, event := range tt.events {
				event(s)
				s.dispatch()
				s.pass(10 * time.Second)
			}
			s.addFindings("web", finding.Critical, 1, 3)
			s.addFindings("web", finding.Medium, 4, 7, func(f *finding.Finding) { f.KnownExploited = tt.want != KindFilterWidened })
			s.image("db", image.Scanned)
			s.dispatchUntilIdle()
			if d := single(t, s.sent[sent:]); d.Kind != tt.want || d.NotAnnounced != 7 || d.EngineBefore != "" && tt.want != KindEngineUpdated {
				t.Errorf("message %+v, want one summary (%s) of 7 findings that were not announced", d, tt.want)
			}
		})
	}
}
