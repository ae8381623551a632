package announce

import (
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/announce/diff"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

var everyKindOfChange = []diff.Change{diff.ChangeNew, diff.ChangeFixAvailable, diff.ChangeEscalated, diff.ChangeRegressed, diff.ChangeFixed}

// TestBaselineWhileNothingRuns: a baseline that is opened while everything is scaled to zero is one summary when something runs again.
// Until then nothing is sent, whether an image that is never pulled remains or not.
func TestBaselineWhileNothingRuns(t *testing.T) {
	for name, tt := range map[string]struct {
		open         func(s *scenario)
		kind         Kind
		notAnnounced int
	}{
		"another engine":      {func(s *scenario) { s.switchTo(clair) }, KindEngineChanged, 0},
		"a newer engine":      {func(s *scenario) { s.update(newTool) }, KindEngineUpdated, 7},
		"a wider filter":      {func(s *scenario) { s.settings.Filter.MinSeverity = finding.Medium }, KindFilterWidened, 7},
		"a restored store":    {func(s *scenario) { s.restore() }, KindStoreRestored, 7},
		"a lost store":        {func(s *scenario) { s.settings.Receiver, s.settings.StoreRenewed = "other", true }, KindBaselineRenewed, 0},
		"an image not pulled": {func(s *scenario) { s.update(newTool); s.coverage.Others.Failed = map[string]int{"NotPulled": 1} }, KindEngineUpdated, 7},
	} {
		t.Run(name, func(t *testing.T) {
			s := announcedByTool(t, FirstScanSummary) // CVE-2026-0001 to 0003
			s.settings.Filter.Changes = everyKindOfChange
			s.dispatchUntilIdle()
			s.release("web")
			s.release("db")
			tt.open(s)
			sent := len(s.sent)
			s.dispatchUntilIdle()
			none(t, s.sent[sent:], "nothing runs")
			s.pass(12 * time.Hour)
			s.image("db", image.Pending)
			s.dispatch()
			for range 4 { // longer than groupWait
				s.pass(20 * time.Second)
				s.dispatch()
			}
			s.addFindings("web", finding.Medium, 4, 7, func(f *finding.Finding) { f.KnownExploited = name != "a wider filter" })
			s.addFindings("web", finding.Critical, 2, 2) // 0001 is not found, which fixes it unless the engine is another one
			s.image("db", image.Scanned)
			s.dispatchUntilIdle()
			if d := s.sent[sent]; d.Kind != tt.kind || d.NotAnnounced != tt.notAnnounced || d.Totals.Total() < 9 {
				t.Errorf("message %+v, want a summary (%s) that counts all of the two images", d, tt.kind)
			}
			for _, d := range s.sent[sent+1:] {
				if d.Changes[diff.ChangeNew]+d.Changes[diff.ChangeRegressed] > 0 {
					t.Errorf("message %+v after the summary, though nothing is new", d)
				}
			}
		})
	}
}

// TestEngineChangedWhileNothingRuns: what the other engine does not find is not announced as fixed, nor as back after the way back.
func TestEngineChangedWhileNothingRuns(t *testing.T) {
	s := announcedByEngine(t, FirstScanSummary)
	s.settings.Filter.Changes = everyKindOfChange
	s.dispatchUntilIdle()
	sent := len(s.sent)
	for _, engine := range []string{clair, grype} {
		s.release("web")
		s.switchTo(engine)
		s.dispatchUntilIdle()
		s.pass(12 * time.Hour)
		first := 1
		if engine == clair {
			first = 2 // Clair does not know 0001
		}
		s.addFindings("web", finding.Critical, first, 3)
		s.dispatchUntilIdle()
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
	s := announcedByEngine(t, FirstScanSummary)
	s.switchTo(clair)
	s.dispatch()
	s.dispatchNext()
	s.release("web")
	s.dispatchUntilIdle()
	s.pass(12 * time.Hour)
	sent := len(s.sent)
	s.image("web", image.Pending)
	s.dispatch()
	s.addFindings("api", finding.Critical, 1, 2)
	s.dispatchNext()
	none(t, s.sent[sent:], "web has no result yet")
	s.addFindings("web", finding.Critical, 1, 3)
	if d := single(t, s.dispatch()); d.Kind != KindEngineChanged || d.Totals.Critical != 5 || d.Images != 2 {
		t.Errorf("message %+v, want one summary of both images", d)
	}
}

// TestBaselineOfShortLivedPods: a baseline that waits starts again once. Pods that always live for less than groupWait do not silence the
// receiver for ever.
func TestBaselineOfShortLivedPods(t *testing.T) {
	s := announcedByTool(t, FirstScanSummary)
	s.dispatchUntilIdle()
	s.release("web")
	s.release("db")
	s.update(newTool)
	sent := len(s.sent)
	for range 3 {
		s.starts("job", false)
		s.matched("job")
		s.until(s.now.Add(20 * time.Second))
		s.ends("job", false)
		s.until(s.now.Add(time.Hour))
	}
	if messages := s.sent[sent:]; len(messages) != 1 || messages[0].Kind != KindEngineUpdated || messages[0].NotAnnounced != 1 {
		t.Errorf("messages %+v, want one summary with the finding of the short-lived pods", messages)
	}
}

// TestRoutedBaselineWhileNothingRuns: a receiver's baseline waits for an image of its own workloads, whatever else runs.
func TestRoutedBaselineWhileNothingRuns(t *testing.T) {
	l := &planning{
		settings: Settings{Filter: store.ChangeFilter{Route: &store.Route{Receiver: "team-a", Known: []string{"team-a", "team-b"}}}},
		coverage: Coverage{Images: []Image{{Key: "b", Receivers: []string{"team-b"}}}},
		state:    State{Baseline: Baseline{Phase: BaselineOpen, ToolBefore: "grype 1"}},
	}
	if !l.waitsForImages() {
		t.Error("the baseline does not wait, although only another team's image is in use")
	}
	l.coverage.Images = append(l.coverage.Images, Image{Key: "a", Receivers: []string{"team-a"}})
	if l.waitsForImages() {
		t.Error("the baseline waits, although an image of the team is in use")
	}
}
