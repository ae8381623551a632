package announce

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/announce/diff"
	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

const (
	grype      = "grype"
	clair      = "clair https://clair.example.com"
	otherClair = "clair https://other.example.com"
)

// switchTo changes the Scanner's engine. The new engine has no results yet for the running images.
func (s *scenario) switchTo(engine string) {
	s.settings.Filter.Engine = engine
	s.settings.Generation++
	clear(s.findings)
	for _, img := range s.coverage.Images {
		s.image(img.Repositories[0], image.Pending)
	}
}

// announcedByEngine returns a scenario in which Grype's three findings in an image were announced.
func announcedByEngine(t *testing.T, policy FirstScan) *scenario {
	t.Helper()
	s := newScenario(t)
	s.settings.FirstScan = policy
	s.addFindings("web", finding.Critical, 1, 3)
	s.dispatch()
	s.dispatchNext()
	s.wantIdle()
	if s.last.After.Engine != grype || s.last.After.Baseline.Phase != BaselineDone {
		t.Fatalf("the state is %+v, want a baseline of Grype's that is done", s.last.After)
	}
	s.pass(time.Hour)
	return s
}

// TestEngineChanged: the additional findings of another engine are one summary and no changes, whichever engine comes first. Later findings
// are changes.
func TestEngineChanged(t *testing.T) {
	s := announcedByEngine(t, FirstScanSummary)
	before := grype
	for i, engine := range []string{clair, otherClair, grype, clair} {
		s.switchTo(engine)
		none(t, s.dispatch(), "nothing has a result by the new engine")
		none(t, s.dispatchNext(), "still nothing")
		s.addFindings("web", finding.Critical, 1, 10+5*i)
		d := single(t, s.dispatch())
		if d.Kind != KindEngineChanged || d.Engine != engine || d.EngineBefore != before || d.Totals.Critical != 10+5*i || len(d.Sections) != 0 {
			t.Errorf("change from %s to %s: message %+v, want one summary of %d findings", before, engine, d, 10+5*i)
		}
		s.wantIdle()
		s.pass(time.Hour)
		s.addFindings("web", finding.High, 100+i, 1)
		s.dispatch()
		if d := single(t, s.dispatchNext()); d.Kind != KindChanges || d.Totals.Total() != 1 || d.Sections[0].FirstTime {
			t.Errorf("after the change to %s: message %+v, want the one new finding in a known image", engine, d)
		}
		s.wantIdle()
		s.pass(time.Hour)
		before = engine
	}
}

// TestEngineChangedBack: after the engine is changed back, findings that were announced before are not announced as changes.
func TestEngineChangedBack(t *testing.T) {
	for _, policy := range []FirstScan{FirstScanSummary, FirstScanSilent, FirstScanAll} {
		s := announcedByEngine(t, policy)
		sent := len(s.sent)
		for _, engine := range []string{clair, grype} {
			s.switchTo(engine)
			s.addFindings("web", finding.Critical, 1, 3)
			s.dispatch()
			for !s.last.Next.IsZero() {
				s.dispatchNext()
			}
			for _, d := range s.sent[sent:] {
				if d.Kind == KindChanges {
					t.Errorf("firstScan %s: announced as new again: %+v", policy, d)
				}
			}
			s.pass(time.Hour)
		}
	}
}

// TestEngineChangedWhileNotRunning: an image that does not run while the engine is changed gets a first-time section when it runs again, since all
// findings of the new engine in it would look new.
func TestEngineChangedWhileNotRunning(t *testing.T) {
	for _, policy := range []FirstScan{FirstScanSummary, FirstScanSilent} {
		s := announcedByEngine(t, policy)
		s.addFindings("job", finding.Critical, 1, 1)
		s.dispatch()
		single(t, s.dispatchNext())
		s.pass(time.Hour)
		s.release("job")
		s.switchTo(clair)
		s.addFindings("web", finding.Critical, 1, 10)
		s.dispatch()
		s.dispatchNext()
		s.pass(time.Hour)
		s.addFindings("job", finding.Critical, 1, 20)
		s.addFindings("web", finding.Critical, 200, 1)
		s.dispatch()
		d := single(t, s.dispatchNext())
		if len(d.Sections) != 2 {
			t.Fatalf("firstScan %s: message %+v, want sections on two images", policy, d)
		}
		for _, section := range d.Sections {
			if section.FirstTime != (section.Repository == "job") {
				t.Errorf("firstScan %s: the section on %s is a first one: %v", policy, section.Repository, section.FirstTime)
			}
		}
	}
}

// TestEngineChangedPolicies: with FirstScanSilent, a change of the engine sends no summary. With FirstScanAll, the difference is announced
// as changes.
func TestEngineChangedPolicies(t *testing.T) {
	silent := afterBaseline(t, "web")
	silent.pass(time.Hour)
	silent.switchTo(clair)
	silent.addFindings("web", finding.Critical, 1, 10)
	none(t, silent.dispatch(), "the snapshot is open")
	none(t, silent.dispatchNext(), "the baseline is silent")
	silent.wantIdle()
	silent.pass(time.Hour)
	silent.addFindings("web", finding.Critical, 100, 1)
	silent.dispatch()
	if d := single(t, silent.dispatchNext()); d.Totals.Total() != 1 {
		t.Errorf("after a silent change %d findings are announced, want the new one", d.Totals.Total())
	}

	all := announcedByEngine(t, FirstScanAll)
	all.switchTo(clair)
	all.addFindings("web", finding.Critical, 1, 10)
	all.dispatch()
	if d := single(t, all.dispatchNext()); d.Kind != KindChanges || d.Totals.Total() != 7 {
		t.Errorf("who wants everything gets %+v, want the 7 findings that were not announced", d)
	}
}

// lateResult has db run for the first time since the change to Clair. Clair finds two of its three findings, and another one.
func (s *scenario) lateResult() {
	s.addFindings("db", finding.Critical, 11, 3)
}

// TestEngineResultsAfterHours: with FirstScanAll, the records of a repository stay until the new engine has a result for each of its images,
// however late. Only what the earlier engine did not find is announced then, and nothing is announced as fixed or as back.
func TestEngineResultsAfterHours(t *testing.T) {
	for name, meanwhile := range map[string]func(*scenario){
		"pending": func(s *scenario) { s.image("db", image.Pending) },
		"failed":  func(s *scenario) { s.image("db", image.Failed) },
		"stopped": func(s *scenario) { s.release("db") },
		"another image of the repository has a result": func(s *scenario) {
			s.setUsed("db beside", store.Workload{Namespace: "shop", Kind: "Deployment", Name: "beside", Container: "c", Repository: "db", Reference: "db:2"})
			s.report("db beside")
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := announcedByEngine(t, FirstScanAll)
			s.settings.Filter.Changes = everyKindOfChange
			s.addFindings("db", finding.Critical, 10, 3)
			s.dispatchUntilIdle()
			s.pass(time.Hour)
			s.switchTo(clair)
			meanwhile(s)
			s.addFindings("web", finding.Critical, 1, 3)
			sent := len(s.sent)
			s.dispatchUntilIdle()
			s.pass(12 * time.Hour)
			s.dispatchUntilIdle()
			none(t, s.sent[sent:], "Clair has found nothing else")
			s.lateResult()
			s.dispatchUntilIdle()
			if d := single(t, s.sent[sent:]); len(d.Changes) != 1 || d.Changes[diff.ChangeNew] != 1 || d.Sections[0].Items[0].ID != "CVE-2026-0013" {
				t.Fatalf("message %+v, want the one finding that Grype does not find", d)
			}
			if left := s.last.After.EarlierEngine; len(left) != 0 {
				t.Errorf("the records of %v count as Grype's", left)
			}
			s.release("db beside")
			s.pass(time.Hour)
			for range 2 { // versions of the data
				s.data++
				s.removeFindings("db")
			}
			s.dispatchUntilIdle()
			if d := single(t, s.sent[sent+1:]); d.Changes[diff.ChangeFixed] != 3 {
				t.Errorf("message %+v, want that the three findings of Clair are fixed", d)
			}
		})
	}
}

// TestEarlierEngineOfSweptRepository: the records of a repository that never runs again are deleted as usual, and leave nothing in the state.
func TestEarlierEngineOfSweptRepository(t *testing.T) {
	s := announcedByEngine(t, FirstScanAll)
	s.addFindings("db", finding.Critical, 10, 3)
	s.dispatchUntilIdle()
	s.release("db")
	s.switchTo(clair)
	s.addFindings("web", finding.Critical, 1, 3)
	s.dispatchUntilIdle()
	if left := s.last.After.EarlierEngine; !slices.Equal(left, []string{"db"}) {
		t.Errorf("the records of %v count as Grype's, want those of db", left)
	}
	for range 2 {
		_, err := s.store.Sweep(t.Context(), time.Time{})
		s.must(err)
		s.pass(200 * 24 * time.Hour)
	}
	_, err := s.store.Sweep(t.Context(), time.Time{})
	s.must(err)
	s.dispatchUntilIdle()
	if left := s.last.After.EarlierEngine; len(left) != 0 {
		t.Errorf("the records of %v count as Grype's after the sweep", left)
	}
}

// TestEngineOfEarlierStates: a stored state without an engine takes the current one, without a message. An engine that is unknown for a
// while is no change either.
func TestEngineOfEarlierStates(t *testing.T) {
	s := announcedByEngine(t, FirstScanSummary)
	state := s.last.After
	state.Engine = ""
	encoded, err := state.Encode()
	if err != nil {
		t.Fatal(err)
	}
	s.must(s.store.SaveReceiverState(t.Context(), scannerUID, s.settings.Receiver, encoded))
	for _, engine := range []string{"", grype, "", grype} {
		s.settings.Filter.Engine = engine
		none(t, s.dispatch(), fmt.Sprintf("engine %q is no change", engine))
		s.wantIdle()
	}
	if s.last.After.Engine != grype {
		t.Errorf("the engine that is remembered is %q", s.last.After.Engine)
	}
}

// TestEngineChangedWhileOpen: an open baseline continues with the current engine, and the summary names the engine that was announced
// before. A change that is reverted before the summary has no effect.
func TestEngineChangedWhileOpen(t *testing.T) {
	for name, tt := range map[string]struct {
		first   bool
		engines []string
		kind    Kind
		before  string
	}{
		"first scan":          {true, []string{clair}, KindFirstScan, ""},
		"first scan and back": {true, []string{clair, grype}, KindFirstScan, ""},
		"twice":               {false, []string{clair, otherClair}, KindEngineChanged, grype},
		"and back":            {false, []string{clair, grype}, "", ""},
		"there and elsewhere": {false, []string{clair, grype, otherClair}, KindEngineChanged, grype},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScenario(t)
			if tt.first {
				s.image("web", image.Pending)
				s.dispatch()
			} else {
				s = announcedByEngine(t, FirstScanSummary)
			}
			sent := len(s.sent)
			for _, engine := range tt.engines {
				s.switchTo(engine)
				none(t, s.dispatch(), "there is no result")
				s.pass(10 * time.Second)
			}
			s.addFindings("web", finding.Critical, 1, 3)
			s.dispatch()
			for !s.last.Next.IsZero() {
				s.dispatchNext()
			}
			if tt.kind == "" {
				none(t, s.sent[sent:], "the change was undone")
				return
			}
			if d := single(t, s.sent[sent:]); d.Kind != tt.kind || d.EngineBefore != tt.before {
				t.Errorf("message %+v, want %s after %q", d, tt.kind, tt.before)
			}
		})
	}
}

// TestEngineChangedWithOutbox: a message in the outbox for the previous engine is finished first. Its delivery does not end the new engine's
// baseline.
func TestEngineChangedWithOutbox(t *testing.T) {
	for name, beginning := range map[string]func(t *testing.T) *scenario{
		"news": func(t *testing.T) *scenario {
			s := announcedByEngine(t, FirstScanSummary)
			s.addFindings("web", finding.Critical, 50, 1)
			return s
		},
		"the first summary": func(t *testing.T) *scenario {
			s := newScenario(t)
			s.addFindings("web", finding.Critical, 1, 3)
			return s
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := beginning(t)
			s.outcomes = []Outcome{{Result: Temporary, Reason: ReasonReceiverFailed}}
			s.dispatch()
			first := single(t, s.dispatchNext())
			s.switchTo(clair)
			if again := single(t, s.dispatchNext()); again.ID != first.ID {
				t.Errorf("message %s is sent after %s was not delivered", again.ID, first.ID)
			}
			if b := s.last.After.Baseline; b.Phase != BaselineOpen || b.EngineBefore != grype {
				t.Errorf("the baseline is %+v, want one of the new engine", b)
			}
			s.addFindings("web", finding.Critical, 1, 20)
			none(t, s.dispatch(), "the snapshot is open")
			none(t, s.dispatchNext(), "groupInterval")
			if d := single(t, s.dispatchNext()); d.Kind != KindEngineChanged || d.Totals.Critical != 20 {
				t.Errorf("message %+v, want one summary", d)
			}
			s.wantIdle()
		})
	}
}

// TestEngineSummaryTooOld: the findings of a summary that is never delivered stay not announced, even if the engine is changed back.
func TestEngineSummaryTooOld(t *testing.T) {
	s := announcedByEngine(t, FirstScanSummary)
	s.switchTo(clair)
	s.addFindings("web", finding.Critical, 1, 10)
	s.dispatch()
	s.outcomes = []Outcome{{Result: Permanent, Reason: ReasonReceiverRefused}}
	single(t, s.dispatchNext())
	s.switchTo(grype)
	s.addFindings("web", finding.Critical, 1, 4)
	s.pass(maxOutboxAge)
	none(t, s.dispatch(), "the summary is thrown away, and the change is undone")
	if d := single(t, s.dispatchNext()); d.Kind != KindChanges || d.Totals.Total() != 1 {
		t.Errorf("message %+v, want Grype's one finding that was never announced", d)
	}
}

// TestEngineChangedLate: after a change of the engine, an open baseline waits for the new engine as long as it would have for the first
// one.
func TestEngineChangedLate(t *testing.T) {
	s := newScenario(t)
	s.image("web", image.Pending)
	s.dispatch()
	s.pass(baselineTimeout - time.Minute)
	s.switchTo(clair)
	none(t, s.dispatch(), "the snapshot is open again")
	none(t, s.dispatchNext(), "the new engine has no result yet")
	s.wantNext(baselineTimeout - s.settings.GroupWait)
	if d := single(t, s.dispatchNext()); d.Kind != KindFirstScan || d.Remaining.Pending != 1 {
		t.Errorf("message %+v, want the first summary, with one image that waits", d)
	}
}

// TestExceptionEndsDuringASummary: a finding that is suppressed when a summary is composed is announced when the exception ends, however
// long the delivery of the summary takes.
func TestExceptionEndsDuringASummary(t *testing.T) {
	s := announcedByEngine(t, FirstScanSummary)
	s.switchTo(clair)
	s.dispatch()
	s.dispatchNext()
	s.addFindings("web", finding.Critical, 1, 5)
	s.settings.Filter.Exceptions = exception.NewSet([]exception.Exception{
		{UID: "1", Namespace: "shop", Name: "accepted", Vulnerabilities: []string{"CVE-2026-0002"}},
	}, s.now)
	s.outcomes = []Outcome{{Result: Temporary, Reason: ReasonReceiverFailed}}
	single(t, s.dispatch())
	s.settings.Filter.Exceptions = exception.Set{}
	if d := single(t, s.dispatchNext()); d.Kind != KindEngineChanged || d.Totals.Critical != 4 {
		t.Fatalf("message %+v, want the summary of the four findings that no exception covered", d)
	}
	sent := len(s.sent)
	s.dispatchUntilIdle()
	d := single(t, s.sent[sent:])
	if d.Kind != KindChanges || d.Totals.Total() != 1 || d.Sections[0].Items[0].ID != "CVE-2026-0002" || !d.Sections[0].Items[0].ExceptionEnded {
		t.Errorf("message %+v, want the finding whose exception has ended", d)
	}
}

// TestEngineChangedDuringDelivery: a finding announced by its CVE stays announced when another engine reports it by an alias, even if a
// notice is in the outbox at that time and its delivery ends the baseline.
func TestEngineChangedDuringDelivery(t *testing.T) {
	const advisory = "GHSA-aaaa-bbbb-cccc"
	byAdvisory := func(f *finding.Finding) { f.ID, f.Aliases = advisory, nil }
	s := newScenario(t)
	s.settings.FirstScan, s.settings.Notices = FirstScanSilent, true
	s.addFindings("web", finding.Critical, 1, 1, func(f *finding.Finding) { f.Aliases = []string{advisory} })
	s.dispatch()
	s.dispatchNext()
	s.wantIdle()
	s.pass(time.Hour)
	s.switchTo(clair)
	s.dispatch()
	s.coverage.Notices = []Notice{{ID: "one", Kind: NoticeScansFailing}}
	s.dispatch()
	s.outcomes = []Outcome{answerLost}
	single(t, s.dispatchNext())
	s.addFindings("web", finding.Medium, 1, 1, byAdvisory)
	s.pass(time.Minute)
	single(t, s.dispatch())
	if s.last.After.Baseline.Phase != BaselineDone {
		t.Fatalf("state %+v, want the baseline to end with the message", s.last.After)
	}
	s.pass(time.Hour)
	s.addFindings("web", finding.Critical, 1, 1, byAdvisory)
	none(t, s.dispatch(), "it was announced as critical")
	s.wantIdle()
}

// TestEngineChangedFirstScanAll: a receiver that gets everything as changes gets no message that what the other engine does not find is fixed,
// nor, after the way back, that it is back.
func TestEngineChangedFirstScanAll(t *testing.T) {
	for name, tt := range map[string]struct {
		changes      []diff.Change
		clockSetBack time.Duration
	}{
		"every change": {changes: everyKindOfChange}, "by default": {},
		"the clock was set back": {changes: everyKindOfChange, clockSetBack: 3 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			s := announcedByEngine(t, FirstScanAll)
			s.settings.Filter.Changes = tt.changes
			s.dispatchUntilIdle()
			sent := len(s.sent)
			s.pass(-tt.clockSetBack)
			s.switchTo(clair)
			s.dispatch()
			s.addFindings("web", finding.Critical, 2, 2) // the same image; Clair does not know 0001
			s.dispatchUntilIdle()
			s.pass(time.Hour)
			s.switchTo(grype)
			s.dispatch()
			s.addFindings("web", finding.Critical, 1, 3)
			s.dispatchUntilIdle()
			for _, d := range s.sent[sent:] {
				if d.Changes[diff.ChangeFixed]+d.Changes[diff.ChangeRegressed] > 0 {
					t.Errorf("message %+v, but nothing was fixed and nothing came back", d)
				}
			}
		})
	}
}

// TestEngineChangedBackAtOnce: an engine that the Scanner has for a moment only, and whose results were there already, fixes nothing.
func TestEngineChangedBackAtOnce(t *testing.T) {
	s := announcedByEngine(t, FirstScanSummary)
	sent := len(s.sent)
	s.switchTo(clair)
	s.addFindings("web", finding.Critical, 2, 2) // Clair does not know 0001
	s.dispatch()
	s.switchTo(grype)
	s.addFindings("web", finding.Critical, 1, 3)
	s.dispatchUntilIdle()
	none(t, s.sent[sent:], "nothing has changed")
}

// changingToClair returns a scenario during a change of the engine. The repository is incomplete until the caller changes that. Clair has two findings
// of its own, which are announced.
func changingToClair(t *testing.T) *scenario {
	s := announcedByEngine(t, FirstScanAll)
	s.settings.Filter.Changes = everyKindOfChange
	s.dispatchUntilIdle()
	s.switchTo(clair)
	s.image("web", image.Pending)
	s.dispatch()
	s.addFindings("web", finding.Critical, 50, 2)
	s.markPartlyCovered("web")
	s.dispatchUntilIdle()
	s.pass(time.Hour)
	return s
}

// TestFindingMissingOnceDuringEngineChange checks that a finding which one version of the data lacks keeps its record when the repository has all
// results by the new engine.
func TestFindingMissingOnceDuringEngineChange(t *testing.T) {
	s := changingToClair(t)
	sent := len(s.sent)
	all := s.findings["web"]
	for _, found := range [][]finding.Finding{nil, all} {
		s.data++
		s.findings["web"] = found
		s.image("web", image.Scanned)
		s.pass(time.Hour)
		s.dispatchUntilIdle()
	}
	for _, m := range s.sent[sent:] {
		t.Errorf("changes %v are announced again", m.Changes)
	}
}

// TestFixedDuringEngineChange checks that findings which the new engine announced are announced as fixed, even if the repository was incomplete
// meanwhile. Findings of the earlier engine alone are not.
func TestFixedDuringEngineChange(t *testing.T) {
	s := changingToClair(t)
	sent := len(s.sent)
	for range 3 {
		s.data++
		s.findings["web"] = nil
		s.image("web", image.Scanned)
		s.markPartlyCovered("web")
		s.pass(time.Hour)
		s.dispatchUntilIdle()
	}
	s.image("web", image.Scanned)
	s.dispatchUntilIdle()
	fixed := 0
	for _, m := range s.sent[sent:] {
		fixed += m.Changes[diff.ChangeFixed]
	}
	if fixed != 2 {
		t.Errorf("%d findings are announced as fixed, want the two of the new engine", fixed)
	}
}

// TestAnnotationDuringEngineChange checks that nothing is announced as fixed if a repository's pods get another receiver during a change of the
// engine, and get the first one back before the store has it.
func TestAnnotationDuringEngineChange(t *testing.T) {
	s := newScenario(t)
	s.settings.FirstScan = FirstScanAll
	s.settings.Filter.Changes = everyKindOfChange
	s.settings.Filter.Route = &store.Route{Receiver: "team", Known: []string{"team", "other"}}
	recorded := func(receiver string) {
		s.setUsed("web", store.Workload{Namespace: "shop", Kind: "Deployment", Name: "app", Container: "c", Repository: "web", Reference: "web:1.0", Receivers: receiver})
	}
	annotated := func(receiver string) { s.coverage.Images[0].Receivers = []string{receiver} }
	s.addFindings("web", finding.Critical, 1, 3)
	recorded("team")
	annotated("team")
	s.dispatchUntilIdle()
	s.pass(time.Hour)
	sent := len(s.sent)
	s.switchTo(clair)
	recorded("other")
	annotated("other")
	s.dispatchUntilIdle()
	s.addFindings("web", finding.Critical, 3, 1) // Clair does not find the first two
	recorded("other")
	annotated("other")
	s.dispatchUntilIdle()
	annotated("team")
	s.pass(time.Hour)
	s.dispatchUntilIdle()
	recorded("team")
	s.pass(time.Hour)
	s.dispatchUntilIdle()
	for _, m := range s.sent[sent:] {
		if m.Changes[diff.ChangeFixed] > 0 {
			t.Errorf("changes %v, want nothing fixed", m.Changes)
		}
	}
}
