package notify

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

const (
	oldTool = "grype 0.110.0"
	newTool = "grype 0.111.0"
)

// toldBy returns a story in which three findings were announced by the old version of the engine.
func toldBy(t *testing.T, policy FirstScan) *story {
	t.Helper()
	s := newStory(t)
	s.settings.FirstScan, s.settings.Tool = policy, oldTool
	s.find("web", finding.Critical, 1, 3)
	s.image("db", ImageScanned)
	s.visit()
	s.next()
	s.wantIdle()
	s.pass(time.Hour)
	return s
}

// update changes the engine's version. The new version has no results yet.
func (s *story) update(tool string) {
	s.settings.Tool = tool
	s.data++
	for i := range s.coverage.Images {
		s.coverage.Images[i].Current = false
	}
}

// TestEngineUpdated: the additional findings of a new version are one summary with the worst of them. It is sent when all images have a
// result of that version. Later findings are changes.
func TestEngineUpdated(t *testing.T) {
	s := toldBy(t, FirstScanSummary)
	s.update(newTool)
	none(t, s.visit(), "there are no results by the new version")
	s.find("web", finding.Critical, 1, 13)
	none(t, s.next(), "db has none yet")
	s.wantNext(baselinePatience - s.settings.GroupWait)
	s.image("db", ImageScanned)
	d := only(t, s.visit())
	if d.Kind != KindEngineUpdated || d.Engine != newTool || d.EngineBefore != oldTool || d.Untold != 10 || d.Totals.Critical != 13 {
		t.Errorf("message %+v, want one summary of 10 more findings of 13", d)
	}
	want := []string{"CVE-2026-0004", "CVE-2026-0005", "CVE-2026-0006", "CVE-2026-0007", "CVE-2026-0008"}
	if diff := cmp.Diff(want, ids(d.Worst)); diff != "" {
		t.Errorf("the worst of what was not told (-want +got):\n%s", diff)
	}
	s.wantIdle()
	s.pass(time.Hour)
	s.find("web", finding.High, 100, 1)
	s.visit()
	if d := only(t, s.next()); d.Kind != KindNews || d.Totals.Total() != 1 || d.Sections[0].FirstTime {
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
		"everything":              {FirstScanAll, 5, KindNews},
		"everything, and no more": {FirstScanAll, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := toldBy(t, tt.policy)
			sent := len(s.sent)
			s.update(newTool)
			s.find("web", finding.Critical, 1, 3+tt.more)
			s.image("db", ImageScanned)
			s.rest()
			if s.last.After.Tool != newTool || s.last.After.Baseline.Phase != BaselineDone || s.untold() != 0 {
				t.Errorf("at rest with %+v and %d untold, want the new version known and nothing untold", s.last.After, s.untold())
			}
			if tt.want == "" {
				none(t, s.sent[sent:], "there is nothing to say")
			} else if d := only(t, s.sent[sent:]); d.Kind != tt.want || d.Totals.Total() != tt.more {
				t.Errorf("message %+v, want %s of %d findings", d, tt.want, tt.more)
			}
		})
	}
}

// TestEngineUpdatedPatience: images without a result of the new version do not delay the summary without end.
func TestEngineUpdatedPatience(t *testing.T) {
	for name, tt := range map[string]struct {
		state ImageState
		after time.Duration
	}{
		"outdated": {ImageScanned, baselinePatience}, "pending": {ImagePending, baselinePatience},
		"failed": {ImageFailed, 30 * time.Second}, "excluded": {ImageExcluded, 30 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			s := toldBy(t, FirstScanSummary)
			s.update(newTool)
			s.find("web", finding.Critical, 1, 4)
			s.image("db", tt.state)
			s.coverage.Images[len(s.coverage.Images)-1].Current = false
			began := s.now
			s.visit()
			for len(s.sent) == 1 && !s.last.Next.IsZero() {
				s.next()
			}
			if d := only(t, s.sent[1:]); d.Kind != KindEngineUpdated || s.now.Sub(began) != tt.after {
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
		"and back": {[]string{newTool, oldTool}, KindNews},
	} {
		t.Run(name, func(t *testing.T) {
			s := toldBy(t, FirstScanSummary)
			for _, tool := range tt.tools {
				s.update(tool)
				s.visit()
				s.pass(time.Minute)
				s.visit()
			}
			s.find("web", finding.Critical, 1, 4)
			s.image("db", ImageScanned)
			s.rest()
			if d := only(t, s.sent[1:]); d.Kind != tt.kind || tt.kind == KindEngineUpdated && (d.EngineBefore != oldTool || d.Engine != tt.tools[1]) {
				t.Errorf("message %+v, want %s", d, tt.kind)
			}
		})
	}
}

// TestEngineChangedAndUpdated: a change of the engine takes precedence over a change of its version, even if that was not summarized yet.
func TestEngineChangedAndUpdated(t *testing.T) {
	for _, together := range []bool{true, false} {
		s := toldBy(t, FirstScanSummary)
		s.update(newTool)
		if !together {
			none(t, s.visit(), "there are no results")
		}
		s.switchTo(clair)
		s.settings.Tool = "clair 4.9"
		s.visit()
		s.find("web", finding.Critical, 1, 8)
		s.image("db", ImageScanned)
		s.rest()
		if d := only(t, s.sent[1:]); d.Kind != KindEngineChanged || d.EngineBefore != grype {
			t.Errorf("message %+v, want one about the change of engines", d)
		}
		if s.last.After.Tool != "clair 4.9" {
			t.Errorf("the version %q is known, want that of the new engine", s.last.After.Tool)
		}
	}
}

// TestToolUnknown: a version that is unknown for a while is no change.
func TestToolUnknown(t *testing.T) {
	s := toldBy(t, FirstScanSummary)
	for _, tool := range []string{"", oldTool, ""} {
		s.settings.Tool = tool
		none(t, s.visit(), "nothing has changed")
		s.wantIdle()
	}
}

// TestFilterWidened: findings that pass only the widened filter and were present before are one summary, if there are any.
func TestFilterWidened(t *testing.T) {
	route := func(unassigned bool) *store.Route {
		return &store.Route{Receiver: "team", Known: []string{"team"}, Unassigned: unassigned}
	}
	for name, tt := range map[string]struct {
		arrange, change func(f *store.NewsFilter)
		want            int
	}{
		"lower severity":  {nil, func(f *store.NewsFilter) { f.MinSeverity = finding.Medium }, 2},
		"still lower":     {nil, func(f *store.NewsFilter) { f.MinSeverity = finding.Low }, 2},
		"unknown":         {nil, func(f *store.NewsFilter) { f.Unknown = store.UnknownAlways }, 1},
		"without a fix":   {func(f *store.NewsFilter) { f.OnlyFixable = true }, func(f *store.NewsFilter) { f.OnlyFixable = false }, 4},
		"nothing there":   {nil, func(f *store.NewsFilter) { f.MinSeverity, f.OnlyFixable = finding.Medium, true }, 0},
		"higher severity": {nil, func(f *store.NewsFilter) { f.MinSeverity = finding.Critical }, 0},
		"more workloads":  {func(f *store.NewsFilter) { f.Route = route(false) }, func(f *store.NewsFilter) { f.Route = route(true) }, 4},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory(t)
			s.settings.Filter.Unknown = store.UnknownNever
			if tt.arrange != nil {
				tt.arrange(&s.settings.Filter)
			}
			unfixed := func(f *finding.Finding) { f.FixState, f.FixVersions = finding.FixStateNotFixed, nil }
			s.find("web", finding.High, 1, 4, unfixed)
			s.find("web", finding.Medium, 11, 2, unfixed)
			s.find("web", finding.Unknown, 21, 1, unfixed)
			s.rest()
			s.pass(time.Hour)
			sent := len(s.sent)
			tt.change(&s.settings.Filter)
			s.rest()
			if tt.want == 0 {
				none(t, s.sent[sent:], "nothing is there that was not told")
			} else if d := only(t, s.sent[sent:]); d.Kind != KindFilterWidened || d.Untold != tt.want || len(d.Worst) != tt.want {
				t.Errorf("message %+v, want a summary of %d findings", d, tt.want)
			}
			s.pass(time.Hour)
			s.find("web", finding.Critical, 100, 1)
			s.visit()
			if d := only(t, s.next()); d.Kind != KindNews || d.Totals.Total() != 1 {
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
		"everything": {FirstScanAll, false, KindNews},
		"undone":     {FirstScanSummary, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory(t)
			s.settings.FirstScan = tt.policy
			s.find("web", finding.Medium, 1, 3)
			s.rest()
			s.pass(time.Hour)
			sent := len(s.sent)
			s.settings.Filter.MinSeverity = finding.Low
			s.visit()
			if tt.undo {
				s.settings.Filter.MinSeverity = finding.High
			}
			s.rest()
			if tt.want == "" {
				none(t, s.sent[sent:], "there is nothing to say")
			} else if d := only(t, s.sent[sent:]); d.Kind != tt.want || d.Totals.Medium != 3 {
				t.Errorf("message %+v, want %s of 3 findings", d, tt.want)
			}
			s.wantIdle()
			if s.untold() != 0 {
				t.Errorf("%d findings are untold", s.untold())
			}
		})
	}
}

// TestChangesInASummaryThatNeverArrived: changes of findings that were announced long ago, in a summary that was never delivered, are part
// of the next summary.
func TestChangesInASummaryThatNeverArrived(t *testing.T) {
	unfixed := func(f *finding.Finding) { f.FixState, f.FixVersions = finding.FixStateNotFixed, nil }
	s := newStory(t)
	s.find("web", finding.High, 1, 3, unfixed)
	s.find("web", finding.Medium, 11, 1, unfixed)
	s.rest()
	s.pass(time.Hour)
	sent := len(s.sent)
	s.settings.Filter.MinSeverity = finding.Medium
	s.find("web", finding.High, 1, 3)
	s.outcomes = []Outcome{{Result: Permanent, Reason: ReasonReceiverRefused}}
	s.visit()
	first := only(t, s.next())
	s.pass(outboxAge)
	s.rest()
	second := s.sent[len(s.sent)-1]
	if first.Untold != 4 || second.Untold != 4 || second.ID == first.ID || len(s.sent) != sent+2 {
		t.Errorf("summaries of %d and then %d findings, want 4 in both", first.Untold, second.Untold)
	}
	s.wantIdle()
}
