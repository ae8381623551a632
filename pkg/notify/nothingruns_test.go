package notify

import (
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

var everyKindOfChange = []store.Change{store.ChangeNew, store.ChangeFixAvailable, store.ChangeEscalated, store.ChangeRegressed, store.ChangeFixed}

// TestBaselineWhileNothingRuns: a baseline that is opened while everything is scaled to zero is one summary when something runs again.
// Until then nothing is sent, whether an image that is never pulled remains or not.
func TestBaselineWhileNothingRuns(t *testing.T) {
	for name, tt := range map[string]struct {
		open   func(s *story)
		kind   Kind
		untold int
	}{
		"another engine":      {func(s *story) { s.switchTo(clair) }, KindEngineChanged, 0},
		"a newer engine":      {func(s *story) { s.update(newTool) }, KindEngineUpdated, 7},
		"a wider filter":      {func(s *story) { s.settings.Filter.MinSeverity = finding.Medium }, KindFilterWidened, 7},
		"a restored store":    {func(s *story) { s.restore() }, KindStoreRestored, 7},
		"a lost store":        {func(s *story) { s.settings.Receiver, s.settings.StoreRenewed = "other", true }, KindBaselineRenewed, 0},
		"an image not pulled": {func(s *story) { s.update(newTool); s.coverage.Others.Failed = map[string]int{"NotPulled": 1} }, KindEngineUpdated, 7},
	} {
		t.Run(name, func(t *testing.T) {
			s := toldBy(t, FirstScanSummary) // CVE-2026-0001 to 0003
			s.settings.Filter.Changes = everyKindOfChange
			s.rest()
			s.gone("web")
			s.gone("db")
			tt.open(s)
			sent := len(s.sent)
			s.rest()
			none(t, s.sent[sent:], "nothing runs")
			s.pass(12 * time.Hour)
			s.image("db", ImagePending)
			s.visit()
			s.pass(20 * time.Second)
			s.find("web", finding.Medium, 4, 7, func(f *finding.Finding) { f.KnownExploited = name != "a wider filter" })
			s.find("web", finding.Critical, 2, 2) // 0001 is not found, which fixes it unless the engine is another one
			s.image("db", ImageScanned)
			s.rest()
			if d := s.sent[sent]; d.Kind != tt.kind || d.Untold != tt.untold || d.Totals.Total() < 9 {
				t.Errorf("message %+v, want a summary (%s) that counts all of the two images", d, tt.kind)
			}
			for _, d := range s.sent[sent+1:] {
				if d.Changes[store.ChangeNew]+d.Changes[store.ChangeRegressed] > 0 {
					t.Errorf("message %+v after the summary, though nothing is new", d)
				}
			}
		})
	}
}

// TestEngineChangedWhileNothingRuns: what the other engine does not find is not announced as fixed, nor as back after the way back.
func TestEngineChangedWhileNothingRuns(t *testing.T) {
	s := told(t, FirstScanSummary)
	s.settings.Filter.Changes = everyKindOfChange
	s.rest()
	sent := len(s.sent)
	for _, engine := range []string{clair, grype} {
		s.gone("web")
		s.switchTo(engine)
		s.rest()
		s.pass(12 * time.Hour)
		first := 1
		if engine == clair {
			first = 2 // Clair does not know 0001
		}
		s.find("web", finding.Critical, first, 3)
		s.rest()
		s.pass(time.Hour)
	}
	if len(s.sent) != sent+2 {
		t.Fatalf("%d messages, want one summary for each change", len(s.sent)-sent)
	}
	for _, d := range s.sent[sent:] {
		if d.Kind != KindEngineChanged {
			t.Errorf("message %+v, want a summary", d)
		}
	}
}

// TestScaledToZeroDuringBaseline: a baseline whose images are all gone before they have a result waits for what runs next.
func TestScaledToZeroDuringBaseline(t *testing.T) {
	s := told(t, FirstScanSummary)
	s.switchTo(clair)
	s.visit()
	s.next()
	s.gone("web")
	s.rest()
	s.pass(12 * time.Hour)
	sent := len(s.sent)
	s.image("web", ImagePending)
	s.visit()
	s.find("api", finding.Critical, 1, 2)
	s.next()
	none(t, s.sent[sent:], "web has no result yet")
	s.find("web", finding.Critical, 1, 3)
	if d := only(t, s.visit()); d.Kind != KindEngineChanged || d.Totals.Critical != 5 || d.Images != 2 {
		t.Errorf("message %+v, want one summary of both images", d)
	}
}
