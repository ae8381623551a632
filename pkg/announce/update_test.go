package announce

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/scanner-operator/scanner-operator/pkg/announce/diff"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

const (
	oldTool = "grype 0.110.0"
	newTool = "grype 0.111.0"
)

// announcedByTool returns a scenario in which three findings were announced by the old version of the engine.
func announcedByTool(t *testing.T, policy FirstScan) *scenario {
	t.Helper()
	s := newScenario(t)
	s.settings.FirstScan, s.settings.Tool = policy, oldTool
	s.addFindings("web", finding.Critical, 1, 3)
	s.image("db", image.Scanned)
	s.dispatch()
	s.dispatchNext()
	s.wantIdle()
	s.pass(time.Hour)
	return s
}

// update changes the engine's version. The new version has no results yet.
func (s *scenario) update(tool string) {
	s.settings.Tool = tool
	s.data++
	for i := range s.coverage.Images {
		s.coverage.Images[i].Current = false
	}
}

// wantChanges checks what is announced, as "change ID", until nothing is due.
func (s *scenario) wantChanges(when string, want ...string) {
	s.t.Helper()
	var got []string
	s.dispatchUntilIdle()
	for _, m := range s.sent {
		for _, section := range m.Sections {
			for _, item := range section.Items {
				got = append(got, string(item.Change)+" "+item.ID)
			}
		}
	}
	if !slices.Equal(got, want) {
		s.t.Errorf("%s, %q is announced, want %q", when, got, want)
	}
	s.sent = nil
	s.pass(time.Hour)
}

// TestFixedOfAnAnnouncedSource: an image on which the source has not reported proves nothing.
func TestFixedOfAnAnnouncedSource(t *testing.T) {
	s := afterBaseline(t, "web")
	s.settings.Filter.Changes = []diff.Change{diff.ChangeNew, diff.ChangeRegressed, diff.ChangeFixed}
	s.must(s.store.SetAnnouncedSources(t.Context(), scannerUID, []string{"trivy-ci"}))
	s.external("web", 1, "CVE-2026-0500", "CVE-2026-0501")
	s.wantChanges("when the source has reported", "New CVE-2026-0500", "New CVE-2026-0501")
	s.replaceImage("web", "next web")
	s.wantChanges("before the source has reported on the new image")
	s.external("next web", 1, "CVE-2026-0501")
	s.wantChanges("when the source has reported on the new image", "Fixed CVE-2026-0500")
}

// TestFixedAfterARolloutWithoutReport: who knows a finding is recorded with its announcement, by a message or without one. A rollout right after it, to an
// image that the engine has it in and the source is silent about, does not change that.
func TestFixedAfterARolloutWithoutReport(t *testing.T) {
	for name, announce := range map[string]func(*testing.T) *scenario{
		"a message about changes": func(t *testing.T) *scenario {
			s := afterBaseline(t, "web")
			s.has("web", "CVE-2026-0500")
			s.wantChanges("in the first image", "New CVE-2026-0500")
			return s
		},
		"a summary": func(t *testing.T) *scenario {
			s := newScenario(t)
			s.has("web", "CVE-2026-0500")
			s.dispatchUntilIdle()
			if len(s.sent) != 1 || s.sent[0].Kind != KindFirstScan {
				t.Fatalf("messages %+v, want a summary", s.sent)
			}
			s.sent = nil
			return s
		},
		"a silent baseline": func(t *testing.T) *scenario {
			s := newScenario(t)
			s.settings.FirstScan = FirstScanSilent
			s.has("web", "CVE-2026-0500")
			s.wantChanges("in the first image")
			return s
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := announce(t)
			s.settings.Filter.Changes = []diff.Change{diff.ChangeNew, diff.ChangeFixAvailable, diff.ChangeRegressed, diff.ChangeFixed}
			f := npmFinding("CVE-2026-0500", finding.Critical)
			f.FixState, f.FixVersions = finding.FixStateFixed, []string{"2"}
			s.findings["next web"] = []finding.Finding{f}
			s.replaceImage("web", "next web")
			s.wantChanges("when the engine knows a fix in the new image", "FixAvailable CVE-2026-0500")
			s.wantChanges("when nothing has changed since")
			s.replaceImage("web", "third web")
			s.wantChanges("before the source has reported on the third image")
			s.external("third web", 1)
			s.wantChanges("when the source has reported on the third image", "Fixed CVE-2026-0500")
		})
	}
}

// has lets the engine and the announced source trivy-ci have a finding in the image of a repository.
func (s *scenario) has(repository, id string) {
	s.t.Helper()
	s.must(s.store.SetAnnouncedSources(context.Background(), scannerUID, []string{"trivy-ci"}))
	s.findings[repository] = []finding.Finding{npmFinding(id, finding.Critical)}
	s.image(repository, image.Scanned)
	s.external(repository, 1, id)
}

// TestEngineUpdated: the additional findings of a new version are one summary with the worst of them. It is sent when all images have a
// result of that version. Later findings are changes.
func TestEngineUpdated(t *testing.T) {
	s := announcedByTool(t, FirstScanSummary)
	s.update(newTool)
	none(t, s.dispatch(), "there are no results by the new version")
	s.addFindings("web", finding.Critical, 1, 13)
	none(t, s.dispatchNext(), "db has none yet")
	s.wantNext(baselineTimeout - s.settings.GroupWait)
	s.image("db", image.Scanned)
	d := single(t, s.dispatch())
	if d.Kind != KindEngineUpdated || d.Engine != newTool || d.EngineBefore != oldTool || d.NotAnnounced != 10 || d.Totals.Critical != 13 {
		t.Errorf("message %+v, want one summary of 10 more findings of 13", d)
	}
	want := []string{"CVE-2026-0004", "CVE-2026-0005"}
	if diff := cmp.Diff(want, ids(d.Worst)); diff != "" {
		t.Errorf("the worst findings that were not announced (-want +got):\n%s", diff)
	}
	if got := d.Actions[0].Ends.Critical; got != 10 {
		t.Errorf("the update ends %d, want the 10 that were not announced", got)
	}
	s.wantIdle()
	s.pass(time.Hour)
	s.addFindings("web", finding.High, 100, 1)
	s.dispatch()
	if d := single(t, s.dispatchNext()); d.Kind != KindChanges || d.Totals.Total() != 1 || d.Sections[0].FirstTime {
		t.Errorf("message %+v, want the one new finding in a known image", d)
	}
}

// TestEngineUpdatedPolicies: a version without additional findings sends no message. With FirstScanSilent there is no summary, and with
// FirstScanAll the difference is announced as changes.
func TestEngineUpdatedPolicies(t *testing.T) {
	for name, tt := range map[string]struct {
		policy FirstScan
		more   int
		want   Kind
	}{
		"nothing more":            {FirstScanSummary, 0, ""},
		"silent":                  {FirstScanSilent, 5, ""},
		"everything":              {FirstScanAll, 5, KindChanges},
		"everything, and no more": {FirstScanAll, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := announcedByTool(t, tt.policy)
			sent := len(s.sent)
			s.update(newTool)
			s.addFindings("web", finding.Critical, 1, 3+tt.more)
			s.image("db", image.Scanned)
			s.dispatchUntilIdle()
			if s.last.After.Tool != newTool || s.last.After.Baseline.Phase != BaselineDone || s.notAnnounced() != 0 {
				t.Errorf("idle with %+v and %d not announced, want the new version known and everything announced", s.last.After, s.notAnnounced())
			}
			if tt.want == "" {
				none(t, s.sent[sent:], "there is nothing to say")
			} else if d := single(t, s.sent[sent:]); d.Kind != tt.want || d.Totals.Total() != tt.more {
				t.Errorf("message %+v, want %s of %d findings", d, tt.want, tt.more)
			}
		})
	}
}

// TestEngineUpdatedTimeout: images without a result of the new version do not delay the summary without end.
func TestEngineUpdatedTimeout(t *testing.T) {
	for name, tt := range map[string]struct {
		state image.State
		after time.Duration
	}{
		"outdated": {image.Scanned, baselineTimeout}, "pending": {image.Pending, baselineTimeout},
		"failed": {image.Failed, 30 * time.Second}, "excluded": {image.Excluded, 30 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			s := announcedByTool(t, FirstScanSummary)
			s.update(newTool)
			s.addFindings("web", finding.Critical, 1, 4)
			s.image("db", tt.state)
			s.coverage.Images[len(s.coverage.Images)-1].Current = false
			began := s.now
			s.dispatch()
			for len(s.sent) == 1 && !s.last.Next.IsZero() {
				s.dispatchNext()
			}
			if d := single(t, s.sent[1:]); d.Kind != KindEngineUpdated || s.now.Sub(began) != tt.after {
				t.Errorf("%s after %s, want the summary after %s", d.Kind, s.now.Sub(began), tt.after)
			}
		})
	}
}

// TestEngineUpdatedAgain: one summary covers versions in quick succession. A version that is reverted has no effect.
func TestEngineUpdatedAgain(t *testing.T) {
	for name, tt := range map[string]struct {
		tools []string
		kind  Kind
	}{
		"twice":    {[]string{newTool, "grype 0.112.0"}, KindEngineUpdated},
		"and back": {[]string{newTool, oldTool}, KindChanges},
	} {
		t.Run(name, func(t *testing.T) {
			s := announcedByTool(t, FirstScanSummary)
			for _, tool := range tt.tools {
				s.update(tool)
				s.dispatch()
				s.pass(time.Minute)
				s.dispatch()
			}
			s.addFindings("web", finding.Critical, 1, 4)
			s.image("db", image.Scanned)
			s.dispatchUntilIdle()
			if d := single(t, s.sent[1:]); d.Kind != tt.kind || tt.kind == KindEngineUpdated && (d.EngineBefore != oldTool || d.Engine != tt.tools[1]) {
				t.Errorf("message %+v, want %s", d, tt.kind)
			}
		})
	}
}

// TestEngineChangedAndUpdated: a change of the engine takes precedence over a change of its version, even if that was not summarized yet.
func TestEngineChangedAndUpdated(t *testing.T) {
	for _, together := range []bool{true, false} {
		s := announcedByTool(t, FirstScanSummary)
		s.update(newTool)
		if !together {
			none(t, s.dispatch(), "there are no results")
		}
		s.switchTo(clair)
		s.settings.Tool = "clair 4.9"
		s.dispatch()
		s.addFindings("web", finding.Critical, 1, 8)
		s.image("db", image.Scanned)
		s.dispatchUntilIdle()
		if d := single(t, s.sent[1:]); d.Kind != KindEngineChanged || d.EngineBefore != grype {
			t.Errorf("message %+v, want one about the change of engines", d)
		}
		if s.last.After.Tool != "clair 4.9" {
			t.Errorf("the version %q is known, want that of the new engine", s.last.After.Tool)
		}
	}
}

// TestToolUnknown: a version that is unknown for a while is no change.
func TestToolUnknown(t *testing.T) {
	s := announcedByTool(t, FirstScanSummary)
	for _, tool := range []string{"", oldTool, ""} {
		s.settings.Tool = tool
		none(t, s.dispatch(), "nothing has changed")
		s.wantIdle()
	}
}

// TestFilterWidened: findings that pass only the widened filter and were present before are one summary, if there are any.
func TestFilterWidened(t *testing.T) {
	route := func(unassigned bool) *store.Route {
		return &store.Route{Receiver: "team", Known: []string{"team"}, Unassigned: unassigned}
	}
	for name, tt := range map[string]struct {
		arrange, change func(f *store.ChangeFilter)
		want            int
	}{
		"lower severity":  {nil, func(f *store.ChangeFilter) { f.MinSeverity = finding.Medium }, 2},
		"still lower":     {nil, func(f *store.ChangeFilter) { f.MinSeverity = finding.Low }, 2},
		"unknown":         {nil, func(f *store.ChangeFilter) { f.Unknown = store.UnknownAlways }, 1},
		"without a fix":   {func(f *store.ChangeFilter) { f.OnlyFixable = true }, func(f *store.ChangeFilter) { f.OnlyFixable = false }, 4},
		"nothing there":   {nil, func(f *store.ChangeFilter) { f.MinSeverity, f.OnlyFixable = finding.Medium, true }, 0},
		"higher severity": {nil, func(f *store.ChangeFilter) { f.MinSeverity = finding.Critical }, 0},
		"more workloads":  {func(f *store.ChangeFilter) { f.Route = route(false) }, func(f *store.ChangeFilter) { f.Route = route(true) }, 4},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScenario(t)
			s.settings.Filter.Unknown = store.UnknownNever
			if tt.arrange != nil {
				tt.arrange(&s.settings.Filter)
			}
			unfixed := func(f *finding.Finding) { f.FixState, f.FixVersions = finding.FixStateNotFixed, nil }
			s.addFindings("web", finding.High, 1, 4, unfixed)
			s.addFindings("web", finding.Medium, 11, 2, unfixed)
			s.addFindings("web", finding.Unknown, 21, 1, unfixed)
			s.dispatchUntilIdle()
			s.pass(time.Hour)
			sent := len(s.sent)
			tt.change(&s.settings.Filter)
			s.dispatchUntilIdle()
			if tt.want == 0 {
				none(t, s.sent[sent:], "everything present was announced")
			} else if d := single(t, s.sent[sent:]); d.Kind != KindFilterWidened || d.NotAnnounced != tt.want || len(d.Worst) != tt.want {
				t.Errorf("message %+v, want a summary of %d findings", d, tt.want)
			}
			s.pass(time.Hour)
			s.addFindings("web", finding.Critical, 100, 1)
			s.dispatch()
			if d := single(t, s.dispatchNext()); d.Kind != KindChanges || d.Totals.Total() != 1 {
				t.Errorf("message %+v, want what was found later as news", d)
			}
		})
	}
}

// TestFilterWidenedPolicies: with FirstScanSilent there is no summary, and with FirstScanAll the difference is announced as changes. A
// change of the filter that is reverted at once has no effect.
func TestFilterWidenedPolicies(t *testing.T) {
	for name, tt := range map[string]struct {
		policy FirstScan
		undo   bool
		want   Kind
	}{
		"silent":     {FirstScanSilent, false, ""},
		"everything": {FirstScanAll, false, KindChanges},
		"undone":     {FirstScanSummary, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScenario(t)
			s.settings.FirstScan = tt.policy
			s.addFindings("web", finding.Medium, 1, 3)
			s.dispatchUntilIdle()
			s.pass(time.Hour)
			sent := len(s.sent)
			s.settings.Filter.MinSeverity = finding.Low
			s.dispatch()
			if tt.undo {
				s.settings.Filter.MinSeverity = finding.High
			}
			s.dispatchUntilIdle()
			if tt.want == "" {
				none(t, s.sent[sent:], "there is nothing to say")
			} else if d := single(t, s.sent[sent:]); d.Kind != tt.want || d.Totals.Medium != 3 {
				t.Errorf("message %+v, want %s of 3 findings", d, tt.want)
			}
			s.wantIdle()
			if s.notAnnounced() != 0 {
				t.Errorf("%d findings are not announced", s.notAnnounced())
			}
		})
	}
}

// TestChangesInUndeliveredSummary: changes of findings that were announced long ago, in a summary that was never delivered, are part
// of the next summary.
func TestChangesInUndeliveredSummary(t *testing.T) {
	unfixed := func(f *finding.Finding) { f.FixState, f.FixVersions = finding.FixStateNotFixed, nil }
	s := newScenario(t)
	s.addFindings("web", finding.High, 1, 3, unfixed)
	s.addFindings("web", finding.Medium, 11, 1, unfixed)
	s.dispatchUntilIdle()
	s.pass(time.Hour)
	sent := len(s.sent)
	s.settings.Filter.MinSeverity = finding.Medium
	s.addFindings("web", finding.High, 1, 3)
	s.outcomes = []Outcome{{Result: Permanent, Reason: ReasonReceiverRefused}}
	s.dispatch()
	first := single(t, s.dispatchNext())
	s.pass(maxOutboxAge)
	s.dispatchUntilIdle()
	second := s.sent[len(s.sent)-1]
	if first.NotAnnounced != 4 || second.NotAnnounced != 4 || second.ID == first.ID || len(s.sent) != sent+2 {
		t.Errorf("summaries of %d and then %d findings, want 4 in both", first.NotAnnounced, second.NotAnnounced)
	}
	s.wantIdle()
}
