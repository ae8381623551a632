package announce

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/scanner-operator/scanner-operator/pkg/announce/calendar"
	"github.com/scanner-operator/scanner-operator/pkg/announce/diff"
	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// schedule gives the scenario's receiver a schedule by the clock of UTC.
func (s *scenario) schedule(expression string) {
	s.t.Helper()
	schedule, err := calendar.ParseSchedule(expression, time.UTC)
	s.must(err)
	s.settings.Schedule = schedule
}

// summaries returns the scheduled summaries that were sent, and clears what was sent.
func (s *scenario) summaries() (all []Message) {
	all = slices.DeleteFunc(s.sent, func(m Message) bool { return m.Kind != KindScheduledSummary })
	s.sent = nil
	return all
}

// day returns a time on a day of May 2026. The scenario begins at noon of the fourth.
func day(day, hour int) time.Time { return time.Date(2026, 5, day, hour, 0, 0, 0, time.UTC) }

// scheduledDaily returns a scenario with a summary at eight each day, on the morning of the fifth before the first.
func scheduledDaily(t *testing.T) *scenario {
	t.Helper()
	s := afterBaseline(t, "web")
	s.schedule("0 8 * * *")
	s.dispatch()
	return s
}

// TestScheduledSummary: a summary comes at its time, once, with what has happened since the one before. It announces nothing.
func TestScheduledSummary(t *testing.T) {
	s := scheduledDaily(t)
	s.addFindings("web", finding.High, 1, 3)
	s.addFindings("web", finding.Low, 4, 1, exploited)
	s.visit(day(5, 8).Add(-time.Second))
	none(t, s.summaries(), "it is not eight yet")
	s.visit(day(5, 9))
	first := single(t, s.summaries())
	if !first.CreatedAt.Equal(day(5, 8)) || first.Totals.Total() != 4 || first.Images != 1 || len(first.Sections)+len(first.Worst) != 0 {
		t.Errorf("summary %+v, want one at eight about four findings in one image", first)
	}
	if want := (&Trend{Since: noon.Add(30 * time.Second), Opened: 4}); !cmp.Equal(want, first.Trend) {
		t.Errorf("trend (-want +got):\n%s", cmp.Diff(want, first.Trend))
	}
	if first.OldestExploited == nil || first.OldestExploited.ID != "CVE-2026-0004" || first.OldestExploited.Repository != "web" || len(first.OldestExploited.Workloads) != 1 {
		t.Errorf("oldest known exploited finding %+v, want CVE-2026-0004 in web", first.OldestExploited)
	}
	for range 2 { // versions of the data, without which nothing counts as fixed
		s.data++
		s.removeFindings("web")
	}
	s.visit(day(6, 9))
	second := single(t, s.summaries())
	if want := (&Trend{Since: day(5, 8), Fixed: 4, Before: &first.Totals}); !cmp.Equal(want, second.Trend) || second.OldestExploited != nil {
		t.Errorf("oldest known exploited finding %+v, want none; trend (-want +got):\n%s", second.OldestExploited, cmp.Diff(want, second.Trend))
	}
}

// TestSummaryAndChanges: a summary neither announces changes, nor delays them or is delayed by them.
func TestSummaryAndChanges(t *testing.T) {
	s := scheduledDaily(t)
	s.settings.GroupInterval = 24 * time.Hour
	s.visit(day(5, 8).Add(-10 * time.Second))
	s.addFindings("web", finding.High, 1, 1)
	s.dispatch()
	s.visit(day(5, 9))
	if len(s.sent) != 2 || s.sent[0].Kind != KindScheduledSummary || s.sent[1].Kind != KindChanges || !s.sent[1].CreatedAt.Equal(day(5, 8).Add(20*time.Second)) {
		t.Errorf("messages %+v, want the summary at eight and the change 30 s after it was found", s.sent)
	}
	if at, title := s.state().LastDelivered(); !at.Equal(s.sent[1].CreatedAt) || title != s.sent[1].Title() {
		t.Errorf("last delivered %q at %s, want the change", title, at)
	}
	s.addFindings("web", finding.High, 2, 1)
	s.visit(day(6, 9))
	if last := s.sent[2:]; len(last) != 2 || last[0].Kind != KindScheduledSummary || last[1].Kind != KindChanges {
		t.Errorf("messages %+v, want the summary, and the change a day after the last one, whatever summaries came", last)
	}
}

// TestSummaryInQuietHours: a summary comes at its time. What quiet hours hold is announced when they end.
func TestSummaryInQuietHours(t *testing.T) {
	s := scheduledDaily(t)
	s.settings.QuietHours = []calendar.Period{{Start: 20 * time.Hour, End: 10 * time.Hour, Location: time.UTC}}
	s.visit(day(4, 21))
	s.addFindings("web", finding.High, 1, 1)
	s.visit(day(5, 9))
	if m := single(t, s.sent); m.Kind != KindScheduledSummary || m.Trend.Opened != 1 {
		t.Errorf("message %+v in quiet hours, want the summary", m)
	}
	s.visit(day(5, 11))
	if m := single(t, s.sent[1:]); m.Kind != KindChanges || !m.CreatedAt.Equal(day(5, 10)) || m.Changes[diff.ChangeNew] != 1 {
		t.Errorf("message %+v, want the change at ten", m)
	}
}

// TestSummaryMissed: a summary that was missed comes once if it is recent. The next one counts from the last that was sent.
func TestSummaryMissed(t *testing.T) {
	for name, tt := range map[string]struct {
		back time.Time // when the manager runs again
		want []time.Time
	}{
		"an hour":                 {day(5, 9), []time.Time{day(5, 9), day(6, 8)}},
		"days, back in time":      {day(9, 19), []time.Time{day(9, 19), day(10, 8)}},
		"days, back in the night": {day(9, 21), []time.Time{day(10, 8), day(11, 8)}},
	} {
		t.Run(name, func(t *testing.T) {
			s := scheduledDaily(t)
			s.addFindings("web", finding.High, 1, 1)
			s.visit(day(4, 14))
			s.sent = nil
			s.now = tt.back
			s.dispatch()
			s.visit(tt.want[1].Add(time.Hour))
			var got []time.Time
			sent := s.summaries()
			for _, m := range sent {
				got = append(got, m.CreatedAt)
			}
			if !cmp.Equal(tt.want, got) || sent[0].Trend.Opened != 1 || sent[1].Trend.Opened != 0 {
				t.Errorf("summaries at %v, want %v, the first with one finding that was opened: %+v", got, tt.want, sent)
			}
		})
	}
}

// TestSummaryNotTwice: a summary whose delivery fails, is not answered or is not recorded comes once more by the same ID or as composed again, and is
// not composed twice after it was delivered.
func TestSummaryNotTwice(t *testing.T) {
	t.Run("refused for an hour", func(t *testing.T) {
		s := scheduledDaily(t)
		s.outcomes = slices.Repeat([]Outcome{{Result: Temporary}}, 8)
		s.visit(day(6, 7))
		delivered := s.summaries()[8:]
		single(t, delivered)
	})
	t.Run("unanswered", func(t *testing.T) {
		s := scheduledDaily(t)
		s.outcomes = []Outcome{{Result: UnknownOutcome}, {Result: UnknownOutcome}}
		s.visit(day(6, 7))
		if sent := s.summaries(); len(sent) != 3 || sent[0].ID != sent[1].ID || sent[0].ID != sent[2].ID {
			t.Errorf("messages %+v, want one, three times by the same ID", sent)
		}
	})
	t.Run("the manager ends before it records the delivery", func(t *testing.T) {
		s := scheduledDaily(t)
		s.visit(day(5, 8).Add(-time.Second))
		s.now = day(5, 8)
		s.onSent = func() { s.store.broken = 1 }
		if err := s.tryDispatch(); err == nil {
			t.Fatal("want an error")
		}
		s.onSent = nil
		s.visit(day(6, 7))
		if sent := s.summaries(); len(sent) != 2 || sent[0].ID != sent[1].ID {
			t.Errorf("messages %+v, want one, twice by the same ID", sent)
		}
	})
}

// TestScheduleChanged: a new schedule begins when it is set: it sends nothing for times before. Without one nothing is sent.
func TestScheduleChanged(t *testing.T) {
	s := scheduledDaily(t)
	s.visit(day(5, 15))
	single(t, s.summaries())
	s.schedule("0 14 * * *")
	s.visit(day(6, 13))
	none(t, s.summaries(), "two o'clock was over, and eight is no time of the schedule any more")
	s.visit(day(6, 15))
	if m := single(t, s.summaries()); !m.Trend.Since.Equal(day(5, 8)) {
		t.Errorf("since %s, want the summary of the schedule before", m.Trend.Since)
	}
	s.settings.Schedule = calendar.Schedule{}
	s.visit(day(8, 0))
	none(t, s.summaries(), "there is no schedule")
	if s.state().Summary != nil {
		t.Errorf("state %+v, want none without a schedule", s.state().Summary)
	}
}

// TestScheduleAndClock: when the clock jumps, no summary comes twice for the same time, and after a jump at most one is left out.
func TestScheduleAndClock(t *testing.T) {
	for name, tt := range map[string]struct {
		jumps []time.Duration // at ten on the fifth, two hours after a summary
		days  int             // that are watched from then on
		least int             // summaries, and one more at most
	}{
		"none":                       {nil, 3, 3},
		"back by seconds":            {[]time.Duration{-2*time.Hour - 5*time.Second}, 3, 2},
		"back by hours":              {[]time.Duration{-5 * time.Hour}, 3, 2},
		"back by a year":             {[]time.Duration{-365 * 24 * time.Hour}, 3, 2},
		"forward by a year":          {[]time.Duration{365 * 24 * time.Hour}, 3, 3},
		"forward by a year and back": {[]time.Duration{365 * 24 * time.Hour, -365 * 24 * time.Hour}, 3, 2},
		"forward by hours and back":  {[]time.Duration{23 * time.Hour, -23 * time.Hour}, 3, 2},
	} {
		t.Run(name, func(t *testing.T) {
			s := scheduledDaily(t)
			s.visit(day(5, 10))
			single(t, s.summaries())
			for _, jump := range tt.jumps {
				s.pass(jump)
				s.dispatch()
			}
			s.visit(s.now.Add(time.Duration(tt.days) * 24 * time.Hour))
			sent := s.summaries()
			if len(sent) < tt.least || len(sent) > tt.least+1 {
				t.Errorf("%d summaries, want %d or one more", len(sent), tt.least)
			}
			for i := 1; i < len(sent); i++ {
				if sent[i].CreatedAt.Equal(sent[i-1].CreatedAt) {
					t.Errorf("two summaries at %s", sent[i].CreatedAt)
				}
			}
		})
	}
}

// TestSummariesAndEmergenciesOnly: a new receiver whose hours are all quiet gets its summaries, and what is known to be exploited at once.
func TestSummariesAndEmergenciesOnly(t *testing.T) {
	s := newScenario(t)
	s.schedule("0 8 * * *")
	s.settings.QuietHours = []calendar.Period{{Location: time.UTC}}
	s.addFindings("web", finding.Critical, 1, 3)
	s.visit(day(12, 9))
	if got := s.summaries(); len(got) != 8 {
		t.Errorf("%d summaries in eight days, want one each day", len(got))
	}
	s.addFindings("web", finding.Critical, 4, 1, exploited)
	s.visit(day(12, 10))
	if m := single(t, s.sent); m.Kind != KindFirstScan || m.Totals.KnownExploited != 1 {
		t.Errorf("message %+v, want the first scan with what is known to be exploited", m)
	}
}

// TestSummariesDuringBaselines: the summaries of a receiver whose hours are all quiet come each day after each reason for a baseline, which stays open.
func TestSummariesDuringBaselines(t *testing.T) {
	for name, change := range map[string]func(*scenario){
		"another version of the engine": func(s *scenario) { s.settings.Tool = "grype 2" },
		"another engine":                func(s *scenario) { s.settings.Filter.Engine = "clair" },
		"a wider filter":                func(s *scenario) { s.settings.Filter.MinSeverity = finding.Negligible },
		"a restored store":              func(s *scenario) { s.settings.RestoredFrom = s.now.Add(-time.Hour) },
		"a lost store":                  func(s *scenario) { s.settings.StoreRenewed = true },
		"nothing runs any more":         func(s *scenario) { s.settings.Tool = "grype 2"; s.release("web") },
	} {
		t.Run(name, func(t *testing.T) {
			s := afterBaseline(t, "web")
			s.settings.FirstScan, s.settings.Tool, s.settings.Filter.MinSeverity = FirstScanSummary, "grype 1", finding.High
			s.schedule("0 8 * * *")
			s.settings.QuietHours = []calendar.Period{{Location: time.UTC}}
			s.visit(day(6, 9))
			if got := s.summaries(); len(got) != 2 {
				t.Fatalf("%d summaries, want 2", len(got))
			}
			s.data++
			s.addFindings("web", finding.Low, 1, 1)
			change(s)
			s.visit(day(12, 9))
			if got := s.summaries(); len(got) != 6 {
				t.Errorf("%d summaries in six days, want 6", len(got))
			}
		})
	}
}

// requireSum fails the test unless the findings of the summary before, plus those opened, minus those ended, are those of the summary.
func requireSum(t *testing.T, what string, m Message) {
	t.Helper()
	if before := m.Trend.Before.Total(); before+m.Trend.Opened-m.Trend.Fixed != m.Totals.Total() {
		t.Errorf("%s: before %d, %d opened, %d ended, now %d: it does not add up", what, before, m.Trend.Opened, m.Trend.Fixed, m.Totals.Total())
	}
}

// TestSummariesAddUp: whatever begins or ends between two summaries, they add up, and the second says of how many findings the end is not proven.
func TestSummariesAddUp(t *testing.T) {
	accepted := exception.Exception{UID: "x", Namespace: "shop", Name: "accepted", Status: "not_affected", Vulnerabilities: []string{"CVE-2026-0001"}}
	except := func(s *scenario, all ...exception.Exception) {
		s.settings.Filter.Exceptions = exception.NewSet(all, s.now)
	}
	lose := func(s *scenario, n int) {
		s.data++
		s.findings["web"] = s.findings["web"][n:]
		s.report("web")
	}
	announce := func(s *scenario) {
		s.must(s.store.SetAnnouncedSources(context.Background(), scannerUID, []string{"trivy-ci"}))
	}
	rollOut := func(s *scenario) {
		s.release("web")
		s.setUsed("next", store.Workload{Namespace: "shop", Kind: "Deployment", Name: "app", Container: "c", Repository: "web", Reference: "web:2.0"})
		s.coverage.Images = append(s.coverage.Images, Image{Key: "next", Repositories: []string{"web"}, State: image.Pending, Current: true})
	}
	for name, tt := range map[string]struct {
		first, then              func(*scenario)
		opened, ended, notProven int
	}{
		"nothing":                     {nil, func(*scenario) {}, 0, 0, 0},
		"new findings":                {nil, func(s *scenario) { s.data++; s.addFindings("web", finding.Low, 9, 2) }, 2, 0, 0},
		"an exception starts":         {nil, func(s *scenario) { except(s, accepted) }, 0, 1, 0},
		"an exception ends":           {func(s *scenario) { except(s, accepted) }, func(s *scenario) { except(s) }, 1, 0, 0},
		"suppressed, then fixed":      {func(s *scenario) { except(s, accepted) }, func(s *scenario) { s.data += 2; s.findings["web"] = s.findings["web"][1:]; s.report("web") }, 0, 0, 0},
		"one version lacks it":        {nil, func(s *scenario) { lose(s, 1) }, 0, 1, 1},
		"two versions lack it":        {nil, func(s *scenario) { lose(s, 1); lose(s, 0) }, 0, 1, 0},
		"one of three is fixed":       {nil, func(s *scenario) { lose(s, 1); lose(s, 1) }, 0, 2, 1},
		"one version, and suppressed": {nil, func(s *scenario) { lose(s, 1); except(s, accepted) }, 0, 1, 0},
		"partly covered":              {nil, func(s *scenario) { lose(s, 1); lose(s, 0); s.markPartlyCovered("web") }, 0, 1, 1},
		"another engine":              {nil, func(s *scenario) { s.settings.Filter.Engine = "clair" }, 0, 3, 3},
		"another engine has results":  {nil, func(s *scenario) { s.switchTo(clair); s.addFindings("web", finding.High, 2, 1) }, 0, 2, 2},
		"an image stops":              {nil, func(s *scenario) { s.release("web"); s.pass(40 * 24 * time.Hour) }, 0, 3, 0},
		"a rollout":                   {nil, func(s *scenario) { s.replaceImage("web", "web:2") }, 0, 3, 0},
		"a rollout without a result":  {nil, rollOut, 0, 3, 3},
		"an image of unknown content": {nil, func(s *scenario) { s.release("web"); s.coverage.UnknownRepositories = []string{"web"} }, 0, 3, 3},
		"a source is silent":          {nil, func(s *scenario) { lose(s, 1); lose(s, 0); announce(s) }, 0, 1, 1},
		"a source has reported":       {nil, func(s *scenario) { lose(s, 1); lose(s, 0); announce(s); s.external("web", 1) }, 0, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := scheduledDaily(t)
			s.addFindings("web", finding.High, 1, 3)
			if tt.first != nil {
				tt.first(s)
			}
			s.visit(day(5, 9))
			s.summaries()
			tt.then(s)
			s.visit(s.now.Add(24 * time.Hour))
			all := s.summaries()
			m := all[0]
			requireSum(t, name, m)
			if m.Trend.Opened != tt.opened || m.Trend.Fixed != tt.ended || m.Trend.NotProven != tt.notProven {
				t.Errorf("%d opened and %s, want %d, %d and %d", m.Trend.Opened, m.Trend.Ended(), tt.opened, tt.ended, tt.notProven)
			}
		})
	}
}

// TestSummariesOfAClusterScannerAddUp: a finding of an image that runs in two namespaces counts once.
func TestSummariesOfAClusterScannerAddUp(t *testing.T) {
	s := newScenario(t)
	s.settings.FirstScan = FirstScanSilent
	s.ofCluster("blog", "shop")
	s.runIn("blog", "web")
	s.runIn("shop", "web")
	s.report("web")
	s.coverage.Images = []Image{{Key: "web", Repositories: []string{"web"}, Namespaces: []string{"blog", "shop"}, State: image.Scanned, Current: true}}
	s.schedule("0 8 * * *")
	s.visit(day(5, 9))
	s.summaries()
	s.data++
	s.findings["web"] = []finding.Finding{
		{ID: "CVE-2026-0001", Severity: finding.Critical, Package: finding.Package{Name: "lib", Version: "1", Type: "deb"}},
		{ID: "CVE-2026-0002", Severity: finding.Critical, Package: finding.Package{Name: "lib", Version: "1", Type: "deb"}},
	}
	s.report("web")
	s.visit(day(6, 9))
	m := single(t, s.summaries())
	requireSum(t, "an image in two namespaces", m)
	if m.Trend.Opened != 2 {
		t.Errorf("%d opened, want 2", m.Trend.Opened)
	}
}

// TestSummaryOfAnImageWithAnOldReport: the findings of an image that was scanned long ago are opened when it begins to run, as in a rollback.
func TestSummaryOfAnImageWithAnOldReport(t *testing.T) {
	s := scheduledDaily(t)
	s.findings["old"] = []finding.Finding{{ID: "CVE-2026-0007", Severity: finding.High, Package: finding.Package{Name: "lib", Version: "1", Type: "deb"}}}
	_, err := s.store.Catalog(t.Context(), grype, keyOf("old"), store.Cluster)
	if err != nil {
		s.must(s.store.SaveCatalog(t.Context(), store.Catalog{Engine: grype, Key: keyOf("old"), PlatformDigest: digestOf("old"), CatalogedAt: s.now}, nil))
	}
	s.report("old")
	s.visit(day(5, 9))
	s.summaries()
	s.image("old", image.Scanned)
	s.visit(day(6, 9))
	requireSum(t, "an image with an old report", single(t, s.summaries()))
}

// TestSummaryNamesWhoRunsTheOldestExploited: of a repository that runs in two versions, only the workloads of the affected one are named.
func TestSummaryNamesWhoRunsTheOldestExploited(t *testing.T) {
	s := scheduledDaily(t)
	s.addFindings("web", finding.Critical, 1, 1, exploited)
	worker := store.Workload{Namespace: "shop", Kind: "Deployment", Name: "worker", Container: "c", Repository: "web", Reference: "web:2.0"}
	s.setUsed("fixed web", worker)
	s.report("fixed web")
	s.coverage.Images = append(s.coverage.Images, Image{Key: "fixed web", Repositories: []string{"web"}, State: image.Scanned, Current: true})
	s.visit(day(5, 9))
	m := single(t, s.summaries())
	if got := m.OldestExploited.Workloads; len(got) != 1 || got[0] != "Deployment shop/app" {
		t.Errorf("known exploited for the longest time: %s, where it runs: %v; want only Deployment shop/app, since worker runs web:2.0 without it", m.OldestExploited.ID, got)
	}
}
