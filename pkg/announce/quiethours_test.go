package announce

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/scanner-operator/scanner-operator/pkg/announce/calendar"
	"github.com/scanner-operator/scanner-operator/pkg/announce/diff"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

func exploited(f *finding.Finding) { f.KnownExploited = true }

// quietFor makes the scenario quiet from now on for some hours, every day. It returns when that ends.
func (s *scenario) quietFor(hours int) time.Time {
	start := time.Duration(s.now.Hour())*time.Hour + time.Duration(s.now.Minute())*time.Minute
	end := (start + time.Duration(hours)*time.Hour) % (24 * time.Hour)
	s.settings.QuietHours = []calendar.Period{{Start: start, End: end, Location: time.UTC}}
	return calendar.Until(s.settings.QuietHours, s.now)
}

// visit dispatches every ten minutes until a time, and whenever a visit is due before.
func (s *scenario) visit(until time.Time) {
	s.t.Helper()
	for s.now.Before(until) {
		next := earlier(s.now.Add(10*time.Minute), until)
		if due := s.last.Next; !due.IsZero() && due.After(s.now) {
			next = earlier(next, due)
		}
		s.now = next
		s.dispatch()
	}
}

// changesIn returns the IDs of the findings in the sections of a message, sorted.
func changesIn(m Message) (all []string) {
	for _, section := range m.Sections {
		all = append(all, ids(section.Items)...)
	}
	slices.Sort(all)
	return all
}

// TestQuietHours: what changes in quiet hours is one message when they end, and known exploited findings are announced at once, each thing once.
func TestQuietHours(t *testing.T) {
	s := afterBaseline(t, "web", "db")
	s.settings.Filter.Changes = []diff.Change{diff.ChangeNew, diff.ChangeFixAvailable, diff.ChangeNewImage}
	end := s.quietFor(8)
	s.addFindings("web", finding.Critical, 1, 2)
	s.visit(s.now.Add(2 * time.Hour))
	s.addFindings("db", finding.High, 3, 1)
	s.addFindings("clean", finding.Low, 4, 1)
	s.coverage.Notices = []Notice{{ID: "DataOutdated", Kind: NoticeDataOutdated}}
	s.settings.Notices = true
	s.visit(s.now.Add(time.Hour))
	none(t, s.sent, "nothing is known to be exploited")
	if state := s.state(); state.Pending != 3 || state.PendingSince.IsZero() {
		t.Errorf("%d pending since %s, want the three that wait", state.Pending, state.PendingSince)
	}
	s.addFindings("web", finding.Low, 5, 1, exploited)
	s.visit(s.now.Add(time.Minute))
	if m := single(t, s.sent); !cmp.Equal(changesIn(m), []string{"CVE-2026-0005"}) || len(m.NewImages)+len(m.Notices) != 0 || m.Totals.Total() != 1 || m.Sections[0].FirstTime {
		t.Errorf("message %+v, want only the known exploited finding", m)
	}
	s.visit(end.Add(-time.Second))
	if len(s.sent) != 1 {
		t.Fatalf("%d messages before the end, want 1", len(s.sent))
	}
	s.visit(end)
	m := single(t, s.sent[1:])
	if want := []string{"CVE-2026-0001", "CVE-2026-0002", "CVE-2026-0003"}; !cmp.Equal(changesIn(m), want) || !cmp.Equal(m.NewImages, []string{"clean"}) || len(m.Notices) != 1 {
		t.Errorf("message %+v at the end, want the rest: %v, the new image and the notice", m, want)
	}
	s.visit(end.Add(4 * time.Hour))
	if len(s.sent) != 2 || s.notAnnounced() != 0 {
		t.Errorf("%d messages and %d findings that are not announced, want 2 and 0", len(s.sent), s.notAnnounced())
	}
}

// TestQuietHoursChanged: what is held is sent at once when the quiet hours are deleted or moved.
func TestQuietHoursChanged(t *testing.T) {
	for name, change := range map[string]func(*scenario){
		"deleted": func(s *scenario) { s.settings.QuietHours = nil },
		"moved": func(s *scenario) {
			s.settings.QuietHours = []calendar.Period{{Start: 22 * time.Hour, End: 23 * time.Hour, Location: time.UTC}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := afterBaseline(t, "web")
			s.quietFor(8)
			s.addFindings("web", finding.Critical, 1, 2)
			s.visit(s.now.Add(time.Hour))
			change(s)
			s.settings.Generation++
			single(t, s.dispatch())
			s.wantIdle()
		})
	}
}

// TestFixedInQuietHours: what was held and is gone when the quiet hours end is not announced.
func TestFixedInQuietHours(t *testing.T) {
	s := afterBaseline(t, "web")
	end := s.quietFor(8)
	s.addFindings("web", finding.Critical, 1, 2)
	s.visit(s.now.Add(time.Hour))
	s.removeFindings("web")
	s.visit(end.Add(time.Hour))
	none(t, s.sent, "nothing is left")
	s.wantIdle()
}

// TestQuietHoursWithManyChanges: a known exploited finding is announced, however many other changes in other repositories are held.
func TestQuietHoursWithManyChanges(t *testing.T) {
	s := afterBaseline(t, "a", "z")
	s.quietFor(8)
	s.addFindings("a", finding.Critical, 1, maxChanges)
	s.addFindings("z", finding.Medium, 20_000, 1, exploited)
	s.dispatch()
	m := single(t, s.dispatchNext())
	if want := []string{"CVE-2026-20000"}; !cmp.Equal(changesIn(m), want) {
		t.Errorf("message about %v, want %v", changesIn(m), want)
	}
}

// TestQuietHoursBeforeBaseline: a summary waits for the end of the quiet hours, unless it has a known exploited finding.
func TestQuietHoursBeforeBaseline(t *testing.T) {
	s := newScenario(t)
	end := s.quietFor(8)
	s.addFindings("web", finding.Critical, 1, 2)
	s.visit(s.now.Add(time.Hour))
	none(t, s.sent, "nothing is known to be exploited")
	s.visit(end)
	if m := single(t, s.sent); m.Kind != KindFirstScan || m.Totals.Total() != 2 {
		t.Errorf("message %+v, want the summary", m)
	}
	s = newScenario(t)
	s.quietFor(8)
	s.addFindings("web", finding.Critical, 1, 2)
	s.visit(s.now.Add(time.Hour))
	s.addFindings("web", finding.Low, 3, 1, exploited)
	s.visit(s.now.Add(time.Minute))
	if m := single(t, s.sent); m.Kind != KindFirstScan || m.Totals.KnownExploited != 1 || m.Totals.Total() != 3 {
		t.Errorf("message %+v, want the summary at once", m)
	}
	s.visit(s.now.Add(12 * time.Hour))
	if len(s.sent) != 1 {
		t.Errorf("%d messages, want 1", len(s.sent))
	}
}

// TestQuietHoursBegin: a message that the receiver refused before quiet hours is not sent in them, so that an urgent one does not wait behind it.
// One that the receiver may have is sent on, so that nothing comes twice.
func TestQuietHoursBegin(t *testing.T) {
	for name, tt := range map[string]struct {
		first      Result
		inQuiet    int // messages in quiet hours
		whenTheEnd int // further ones when they end
	}{
		"refused": {Temporary, 1, 1}, "unanswered": {UnknownOutcome, 2, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := afterBaseline(t, "web")
			s.outcomes = []Outcome{{Result: tt.first}}
			s.addFindings("web", finding.Critical, 1, 2)
			s.dispatch()
			first := single(t, s.dispatchNext())
			s.pass(time.Second)
			end := s.quietFor(8)
			s.addFindings("web", finding.Low, 3, 1, exploited)
			s.visit(end.Add(-time.Second))
			if got := len(s.sent) - 1; got != tt.inQuiet {
				t.Errorf("%d messages in quiet hours, want %d: %+v", got, tt.inQuiet, s.sent)
			}
			if tt.first == UnknownOutcome && s.sent[1].ID != first.ID {
				t.Errorf("message %s is sent after the unanswered one, want %s again", s.sent[1].ID, first.ID)
			}
			if last := s.sent[len(s.sent)-1]; !cmp.Equal(changesIn(last), []string{"CVE-2026-0003"}) {
				t.Errorf("the last message is about %v, want the known exploited finding", changesIn(last))
			}
			s.visit(end.Add(time.Hour))
			if got := len(s.sent) - 1 - tt.inQuiet; got != tt.whenTheEnd || s.notAnnounced() != 0 {
				t.Errorf("%d messages when they end and %d findings that are not announced, want %d and 0", got, s.notAnnounced(), tt.whenTheEnd)
			}
		})
	}
}

// TestQuietHoursInThreads: replies wait as well. Those about known exploited findings are sent.
func TestQuietHoursInThreads(t *testing.T) {
	s := afterBaseline(t, "web")
	s.settings.Address.Type, s.settings.Address.Channel = ReceiverTypeSlackApp, "C0123456789"
	unfixed := func(f *finding.Finding) { f.FixState, f.FixVersions = finding.FixStateNotFixed, nil }
	s.addFindings("web", finding.Critical, 1, 1, unfixed)
	s.addFindings("web", finding.Critical, 2, 1, unfixed, exploited)
	s.dispatch()
	single(t, s.dispatchNext())
	s.pass(time.Hour)
	end := s.quietFor(8)
	s.addFindings("web", finding.Critical, 1, 1)
	s.addFindings("web", finding.Critical, 2, 1, exploited)
	s.visit(end.Add(-time.Minute))
	if m := single(t, s.sent[1:]); !cmp.Equal(changesIn(m), []string{"CVE-2026-0002"}) || s.threads[1] == "" {
		t.Errorf("message %+v in thread %q, want the fix of the known exploited finding as a reply", m, s.threads[1])
	}
	s.visit(end.Add(time.Hour))
	if m := single(t, s.sent[2:]); !cmp.Equal(changesIn(m), []string{"CVE-2026-0001"}) || s.threads[2] == "" {
		t.Errorf("message %+v in thread %q, want the other fix as a reply", m, s.threads[2])
	}
}

// TestNamespaceJoinsInQuietHours: the first scan of a namespace is announced when quiet hours end. Its known exploited findings are announced before.
func TestNamespaceJoinsInQuietHours(t *testing.T) {
	s := afterBaseline(t, "web")
	s.settings.Namespace, s.settings.Filter.Route = "", &store.Route{All: true}
	s.coverage.Namespaces = []Namespace{{Name: "shop", Complete: true}}
	s.dispatch()
	end := s.quietFor(8)
	s.addFindings("blog", finding.Critical, 1, 2)
	s.addFindings("blog", finding.Low, 3, 1, exploited)
	s.setUsed("blog", store.Workload{Namespace: "blog", Kind: "Deployment", Name: "blog", Container: "c", Repository: "blog", Reference: "blog:1.0"})
	s.coverage.Namespaces = []Namespace{{Name: "blog", Complete: true}, {Name: "shop", Complete: true}}
	for i := range s.coverage.Images {
		s.coverage.Images[i].Namespaces = []string{map[bool]string{true: "blog", false: "shop"}[s.coverage.Images[i].Repositories[0] == "blog"]}
	}
	s.visit(end.Add(-time.Minute))
	if m := single(t, s.sent); !cmp.Equal(changesIn(m), []string{"CVE-2026-0003"}) || len(m.JoinedNamespaces) != 0 {
		t.Errorf("message %+v, want the known exploited finding alone", m)
	}
	s.visit(end.Add(time.Hour))
	if m := single(t, s.sent[1:]); len(m.JoinedNamespaces) != 1 || m.JoinedNamespaces[0].Totals.Total() != 2 {
		t.Errorf("message %+v, want the first scan of the namespace", m)
	}
}

// TestQuietHoursAndClock: nothing is lost and nothing comes twice when the clock jumps within, into or out of quiet hours.
func TestQuietHoursAndClock(t *testing.T) {
	for name, jumps := range map[string][]time.Duration{
		"back within":           {-30 * time.Minute},
		"back before":           {-5 * time.Hour},
		"forward within":        {3 * time.Hour},
		"forward past the end":  {12 * time.Hour},
		"forward, and back":     {12 * time.Hour, -12 * time.Hour},
		"forward by a year":     {365 * 24 * time.Hour},
		"back by a year":        {-365 * 24 * time.Hour},
		"forward, back, again":  {30 * time.Hour, -30 * time.Hour, 30 * time.Hour},
		"by a second both ways": {time.Second, -time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			s := afterBaseline(t, "web")
			s.quietFor(8)
			s.addFindings("web", finding.Critical, 1, 2)
			s.visit(s.now.Add(time.Hour))
			none(t, s.sent, "it is quiet")
			for _, jump := range jumps {
				s.pass(jump)
				s.dispatch()
			}
			s.visit(s.now.Add(25 * time.Hour))
			if m := single(t, s.sent); !cmp.Equal(changesIn(m), []string{"CVE-2026-0001", "CVE-2026-0002"}) || s.notAnnounced() != 0 {
				t.Errorf("message %+v, want both findings once", m)
			}
		})
	}
}
