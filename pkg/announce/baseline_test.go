package announce

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/scanner-operator/scanner-operator/pkg/announce/diff"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// TestFirstScanSummary: one summary is sent when all images of the snapshot have a result. After that only changes are announced.
func TestFirstScanSummary(t *testing.T) {
	s := newScenario(t)
	s.image("web", image.Pending)
	none(t, s.dispatch(), "the snapshot is open for groupWait")
	s.wantNext(30 * time.Second)
	s.image("clean", image.Scanned)
	none(t, s.dispatch(), "the snapshot is still open")
	none(t, s.dispatchNext(), "web has no result yet")
	s.wantNext(30*time.Minute - 30*time.Second)

	s.addFindings("web", finding.Critical, 1, 7)
	s.addFindings("web", finding.Medium, 100, 3)
	d := single(t, s.dispatch())
	if d.Kind != KindFirstScan || d.Images != 2 || len(d.Sections) != 0 || len(d.Worst) != 2 || d.Worst[0].Repository != "web" {
		t.Errorf("summary %+v, want the worst 2 of 2 images and no sections", d)
	}
	update := UpdateAction{
		Repository: "web", References: []string{"1.0"}, Workloads: []string{"Deployment shop/app"}, WorkloadNamespaces: 1,
		Package: "lib", Versions: []string{"1"}, Fixes: []Fix{{Version: "2", Findings: 7}}, Ends: finding.Counts{Critical: 7, Fixable: 7}, Items: 2,
	}
	if diff := cmp.Diff([]UpdateAction{update}, d.Actions); diff != "" {
		t.Errorf("the update that ends most (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(finding.Counts{Critical: 7, Medium: 3, Fixable: 10}, d.Totals); diff != "" {
		t.Errorf("the summary counts everything, also what is below the threshold (-want +got):\n%s", diff)
	}
	s.wantIdle()

	s.addFindings("web", finding.High, 200, 1)
	s.pass(time.Hour)
	s.dispatch()
	d = single(t, s.dispatchNext())
	if d.Kind != KindChanges || d.Totals.Total() != 1 || d.Sections[0].FirstTime {
		t.Errorf("message %+v, want the one new finding in a known image", d)
	}
}

// TestBaselineCompletes: the summary is sent when each image of the snapshot is scanned, excluded, gone or has failed once, or after 30
// minutes with vulnerability data. It counts the images without a result.
func TestBaselineCompletes(t *testing.T) {
	for name, tt := range map[string]struct {
		arrange func(s *scenario)
		after   time.Duration // since the first visit; 0: never
		want    Remaining
	}{
		"all have a result": {func(s *scenario) { s.image("b", image.Scanned) }, 30 * time.Second, Remaining{}},
		"one failed":        {func(s *scenario) { s.image("b", image.Failed) }, 30 * time.Second, Remaining{Failed: map[string]int{"Broken": 1}}},
		"one excluded":      {func(s *scenario) { s.image("b", image.Excluded) }, 30 * time.Second, Remaining{Excluded: 1}},
		"one in parts":      {func(s *scenario) { s.image("b", image.Scanned); s.markPartlyCovered("b") }, 30 * time.Second, Remaining{Partly: 1}},
		"one gone":          {func(s *scenario) { s.release("b") }, 30 * time.Second, Remaining{}},
		"one came later and is pending": {
			func(s *scenario) { s.image("b", image.Scanned); s.pass(time.Minute); s.image("c", image.Pending) }, time.Minute, Remaining{Pending: 1},
		},
		"one takes too long": {func(*scenario) {}, 30 * time.Minute, Remaining{Pending: 1}},
		"data came late":     {func(s *scenario) { s.coverage.DataSince = noon.Add(10 * time.Minute) }, 40 * time.Minute, Remaining{Pending: 1}},
		"never any data":     {func(s *scenario) { s.coverage.DataSince = time.Time{} }, 0, Remaining{}},
		"one is being pulled": {
			func(s *scenario) {
				s.image("b", image.Scanned)
				s.coverage.Others.Pending = 1
				s.dispatch()
				s.pass(2 * time.Minute)
				s.coverage.Others.Pending = 0
				s.image("c", image.Pending)
				s.dispatch()
				s.pass(3 * time.Minute)
				s.dispatch()
				s.image("c", image.Scanned)
			}, 5 * time.Minute, Remaining{},
		},
		"one is never pulled": {
			func(s *scenario) { s.image("b", image.Scanned); s.coverage.Others.Pending = 1 }, 5 * time.Minute, Remaining{Pending: 1},
		},
		"others that have no key": {
			func(s *scenario) {
				s.image("b", image.Scanned)
				s.coverage.Others = Remaining{Failed: map[string]int{"NotPulled": 2}, Excluded: 1}
			}, 30 * time.Second, Remaining{Failed: map[string]int{"NotPulled": 2}, Excluded: 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScenario(t)
			s.image("a", image.Scanned)
			s.image("b", image.Pending)
			s.dispatch()
			tt.arrange(s)
			var got []Message
			for got = s.dispatch(); len(got) == 0 && !s.last.Next.IsZero(); {
				got = s.dispatchNext()
			}
			if tt.after == 0 {
				none(t, got, "there is nothing to match with")
				return
			}
			if diff := cmp.Diff(tt.want, single(t, got).Remaining); diff != "" {
				t.Errorf("what remains (-want +got):\n%s", diff)
			}
			if s.now.Sub(noon) != tt.after {
				t.Errorf("sent after %s, want %s", s.now.Sub(noon), tt.after)
			}
		})
	}
}

// TestFirstScanSilent: what is present at the beginning is not announced. Everything found later is.
func TestFirstScanSilent(t *testing.T) {
	s := newScenario(t)
	s.settings.FirstScan = FirstScanSilent
	s.addFindings("web", finding.Critical, 1, 7)
	s.dispatch()
	none(t, s.dispatchNext(), "the baseline is silent")
	s.wantIdle()
	s.addFindings("web", finding.Critical, 100, 1)
	s.dispatch()
	if d := single(t, s.dispatchNext()); d.Totals.Total() != 1 {
		t.Errorf("%d findings are announced, want the new one only", d.Totals.Total())
	}
}

// TestFirstScanAll: everything is announced as a change from the start, new images included.
func TestFirstScanAll(t *testing.T) {
	s := newScenario(t)
	s.settings.FirstScan = FirstScanAll
	s.addFindings("web", finding.Critical, 1, 7)
	none(t, s.dispatch(), "groupWait")
	d := single(t, s.dispatchNext())
	if d.Kind != KindChanges || len(d.Sections) != 1 || len(d.Sections[0].Items) != 7 || d.Sections[0].FirstTime {
		t.Errorf("message %+v, want all 7 findings as news", d)
	}
}

// TestNothingAtFirst: without any image there is no summary, and the first image is announced as a new one.
func TestNothingAtFirst(t *testing.T) {
	s := newScenario(t)
	s.dispatch()
	none(t, s.dispatchNext(), "there are no images")
	s.wantIdle()
	s.addFindings("web", finding.High, 1, 2)
	s.dispatch()
	if d := single(t, s.dispatchNext()); d.Kind != KindChanges || !d.Sections[0].FirstTime {
		t.Errorf("message %+v, want a first-time section", d)
	}
}

// TestStoreRenewed: after a store was lost, each receiver gets one summary that claims nothing to be new, with every firstScan policy.
func TestStoreRenewed(t *testing.T) {
	for _, policy := range []FirstScan{FirstScanSummary, FirstScanSilent, FirstScanAll} {
		s := newScenario(t)
		s.settings.FirstScan, s.settings.StoreRenewed = policy, true
		s.addFindings("web", finding.Critical, 1, 7)
		s.dispatch()
		// The Scanner's status records the new store as soon as the baseline has begun.
		s.settings.StoreRenewed = false
		if d := single(t, s.dispatchNext()); d.Kind != KindBaselineRenewed || d.Totals.Critical != 7 {
			t.Errorf("firstScan %s: message %+v, want the renewed baseline with 7 findings", policy, d)
		}
		s.wantIdle()
	}
}

// TestBelowThreshold: a finding below the threshold is not announced by the summary, and is new when it crosses the threshold.
func TestBelowThreshold(t *testing.T) {
	s := newScenario(t)
	s.addFindings("web", finding.Medium, 1, 1)
	s.dispatch()
	if d := single(t, s.dispatchNext()); len(d.Worst) != 0 || d.Totals.Medium != 1 {
		t.Errorf("summary %+v, want one Medium finding counted and none shown", d)
	}
	s.addFindings("web", finding.Critical, 1, 1) // the same finding, now worse
	s.pass(time.Hour)
	s.dispatch()
	if d := single(t, s.dispatchNext()); d.Sections[0].Items[0].Severity != finding.Critical || d.Sections[0].FirstTime {
		t.Errorf("message %+v, want the finding as news in a known image", d)
	}
}

// TestBaselineRetried: a summary that cannot be delivered is retried unchanged, and no other message is sent before it.
func TestBaselineRetried(t *testing.T) {
	s := newScenario(t)
	s.addFindings("web", finding.Critical, 1, 1)
	s.outcomes = []Outcome{{Result: Temporary, Reason: ReasonReceiverFailed}}
	s.dispatch()
	first := single(t, s.dispatchNext())
	s.addFindings("web", finding.Critical, 2, 1)
	second := single(t, s.dispatchNext())
	if diff := cmp.Diff(first, second); diff != "" {
		t.Errorf("the message changed between two attempts (-first +second):\n%s", diff)
	}
	s.dispatch()
	if d := single(t, s.dispatchNext()); d.Kind != KindChanges || d.Sections[0].Items[0].ID != "CVE-2026-0002" {
		t.Errorf("message %+v, want what was found while the summary was on its way", d)
	}
}

// TestBaselineOfAnySize: a baseline records all findings, however many, and none of them is announced as a change later. The state stays
// small.
func TestBaselineOfAnySize(t *testing.T) {
	for name, arrange := range map[string]func(*Settings){
		"summary": func(*Settings) {},
		"silent":  func(s *Settings) { s.FirstScan = FirstScanSilent },
		"renewed": func(s *Settings) { s.StoreRenewed = true },
	} {
		t.Run(name, func(t *testing.T) {
			s := newScenario(t)
			arrange(&s.settings)
			for i := range 3 {
				s.addFindings(fmt.Sprintf("app-%02d", i), finding.High, 1, 400)
			}
			s.addFindings("app-02", finding.Critical, 5000, 1)
			s.dispatch()
			messages := s.dispatchNext()
			if name == "silent" {
				none(t, messages, "the baseline is silent")
			} else if d := single(t, messages); d.Totals.Total() != 1201 || d.Worst[0].Severity != finding.Critical {
				t.Errorf("the summary counts %d and begins with %v, want 1201 and the critical one", d.Totals.Total(), d.Worst[0])
			}
			if len(s.encoded()) > 10_000 {
				t.Errorf("the state has %d bytes, want it without the findings", len(s.encoded()))
			}
			s.wantIdle()
			if s.last.After.Pending != 0 {
				t.Errorf("%d findings are pending, want none", s.last.After.Pending)
			}
			s.addFindings("app-01", finding.High, 6000, 1)
			s.pass(time.Hour)
			s.dispatch()
			if d := single(t, s.dispatchNext()); d.Totals.Total() != 1 || d.Sections[0].FirstTime {
				t.Errorf("message %+v, want the one new finding of a known image", d)
			}
		})
	}
}

// TestFoundWhileComposing: a finding that is saved while the summary is composed is part of it, or announced later. It is never dropped.
func TestFoundWhileComposing(t *testing.T) {
	s := newScenario(t)
	s.addFindings("web", finding.High, 1, 3)
	s.dispatch()
	s.store.onPresent = func() {
		s.store.onPresent = nil
		s.addFindings("web", finding.High, 10, 1)
	}
	if d := single(t, s.dispatchNext()); d.Totals.High != 4 {
		t.Errorf("the summary counts %d findings, want it composed again with all 4", d.Totals.High)
	}
	s.wantIdle()

	// During a large first scan, a result is saved during each read. The second read blocks writers.
	s = newScenario(t)
	s.addFindings("web", finding.High, 1, 3)
	s.dispatch()
	looks := 0
	s.store.onPresent = func() {
		looks++
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		s.findings["web"] = append(s.findings["web"], finding.Finding{ID: fmt.Sprintf("CVE-2026-%04d", 100+looks), Severity: finding.High, Package: finding.Package{Name: "lib"}})
		_, err := s.store.SaveReport(ctx, store.Report{
			Subject:     store.Subject{PlatformDigest: digestOf("web"), Engine: grype},
			DataVersion: fmt.Sprint("data ", looks), MatchedAt: s.now, Findings: s.findings["web"],
		}, "")
		if saved := err == nil; saved != (looks == 1) {
			t.Errorf("with look %d a result is saved: %t (%v)", looks, saved, err)
		}
	}
	if d := single(t, s.dispatchNext()); d.Totals.High != 4 || looks != 2 {
		t.Errorf("the summary counts %d findings after %d looks, want all 4 and 2 looks", d.Totals.High, looks)
	}
	s.store.onPresent = nil
	s.report("web")
	s.dispatchUntilIdle()
	if last := s.sent[len(s.sent)-1]; len(s.sent) != 2 || last.Kind != KindChanges || last.Totals.Total() != 1 {
		t.Errorf("after the summary: %+v, want the one finding that came too late for it", last)
	}
}

// TestUndeliveredSummary: findings of a summary that was never delivered are part of the next one.
func TestUndeliveredSummary(t *testing.T) {
	s := newScenario(t)
	s.addFindings("web", finding.High, 1, 3)
	s.dispatch()
	s.outcomes = []Outcome{{Result: Temporary, Reason: ReasonReceiverFailed}}
	first := single(t, s.dispatchNext())
	s.addFindings("web", finding.High, 10, 1)
	s.pass(30 * 24 * time.Hour)
	s.store.broken = 1 // a crash before the summary is discarded
	if err := s.tryDispatch(); err == nil {
		t.Fatal("no error, want that of the store")
	}
	second := single(t, s.dispatch())
	if second.Kind != KindFirstScan || second.ID == first.ID || second.Totals.High != 4 || second.Actions[0].Ends.High != 4 {
		t.Errorf("message %+v, want a new summary of all 4", second)
	}
	s.wantIdle()
	if n := s.notAnnounced(); n != 0 {
		t.Errorf("%d findings do not count as announced, want none", n)
	}
}

// TestSummaryAfterCrash: wherever the manager crashes, each finding is announced exactly once, by the summary or later.
func TestSummaryAfterCrash(t *testing.T) {
	for name, crash := range map[string]func(s *scenario){
		"before it is recorded":             func(s *scenario) { s.store.broken = 1 },
		"after it is recorded, before sent": func(s *scenario) { s.store.recordedOnly = true },
		"after it is taken":                 func(s *scenario) { s.onSent = func() { s.store.broken = 1 } },
	} {
		t.Run(name, func(t *testing.T) {
			s := newScenario(t)
			s.addFindings("web", finding.High, 1, 3)
			s.dispatch()
			s.now = s.last.Next
			crash(s)
			if err := s.tryDispatch(); err == nil {
				t.Fatal("no error, want that of the store")
			}
			s.onSent, s.store.recordedOnly, s.store.broken = nil, false, 0
			s.addFindings("web", finding.High, 10, 1)
			s.pass(minBackoff)
			summary := single(t, s.dispatch())
			announced := summary.Totals.High
			for !s.last.Next.IsZero() {
				for _, d := range s.dispatchNext() {
					announced += d.Totals.High
				}
			}
			if announced != 4 || summary.Kind != KindFirstScan {
				t.Errorf("%d findings are announced by %+v and after it, want each of 4 once", announced, summary)
			}
		})
	}
}

// TestFirstScanWithoutNew: a receiver that does not want changes of the kind New still gets a first summary with the most urgent update.
func TestFirstScanWithoutNew(t *testing.T) {
	s := newScenario(t)
	s.settings.Filter.Changes = []diff.Change{diff.ChangeFixed}
	s.addFindings("web", finding.High, 1, 3)
	s.dispatch()
	d := single(t, s.dispatchNext())
	if d.Actions[0].Ends.High != 3 || d.Totals.High != 3 {
		t.Errorf("the summary's update ends %d of %d findings, want 3 of 3", d.Actions[0].Ends.High, d.Totals.High)
	}
	s.addFindings("web", finding.High, 4, 1)
	s.dispatchUntilIdle()
	s.removeFindings("web")
	s.dispatchUntilIdle()
	s.data++
	s.report("web")
	s.dispatch()
	if d := single(t, s.dispatchNext()); len(d.Sections) != 1 || len(d.Sections[0].Items) != 4 {
		t.Errorf("message %+v, want four fixed ones, which were announced or passed over", d)
	}
}
