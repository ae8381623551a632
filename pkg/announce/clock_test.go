package announce

import (
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
)

// TestClockPutBack: no wait of a receiver becomes longer when the clock is set back by hours.
func TestClockPutBack(t *testing.T) {
	const jump = 7 * time.Hour
	for name, tt := range map[string]struct {
		arrange func(*scenario)
		// longest is the longest wait that is allowed after the jump.
		longest time.Duration
	}{
		"groupWait": {func(s *scenario) { s.addFindings("a", finding.High, 0, 1); s.dispatch() }, 30 * time.Second},
		"groupInterval": {func(s *scenario) {
			s.addFindings("a", finding.High, 0, 1)
			s.dispatch()
			s.dispatchNext()
			s.addFindings("a", finding.High, 1, 1)
			s.dispatch()
		}, 5 * time.Minute},
		"Retry-After": {func(s *scenario) {
			s.outcomes = []Outcome{{Result: RateLimited, RetryAfter: 10 * time.Minute}}
			s.addFindings("a", finding.High, 0, 1)
			s.dispatch()
			s.dispatchNext()
		}, 10 * time.Minute},
		"backoff": {func(s *scenario) {
			s.outcomes = []Outcome{{Result: Temporary}}
			s.addFindings("a", finding.High, 0, 1)
			s.dispatch()
			s.dispatchNext()
		}, 10 * time.Second},
		"stopped": {func(s *scenario) {
			s.outcomes = []Outcome{{Result: Permanent}}
			s.addFindings("a", finding.High, 0, 1)
			s.dispatch()
			s.dispatchNext()
		}, stoppedRetry},
	} {
		t.Run(name, func(t *testing.T) {
			s := afterBaseline(t, "a")
			tt.arrange(s)
			s.pass(-jump)
			s.dispatch()
			if wait := s.last.Next.Sub(s.now); wait <= 0 || wait > tt.longest {
				t.Fatalf("after the clock went back the next visit is in %s, want at most %s", wait, tt.longest)
			}
			single(t, s.dispatchNext())
			s.wantIdle()
		})
	}
}

// TestClockPutBackBaseline: a baseline waits no longer than baselineTimeout if DataSince lies in the future after the clock was set back.
func TestClockPutBackBaseline(t *testing.T) {
	s := newScenario(t)
	s.coverage.DataSince = s.now
	s.image("a", image.Pending)
	s.addFindings("b", finding.High, 0, 1)
	s.dispatch()
	s.pass(time.Minute)
	s.dispatch()
	s.pass(-7 * time.Hour)
	s.dispatch()
	if wait := s.last.Next.Sub(s.now); wait > baselineTimeout {
		t.Errorf("the summary waits for %s, want at most %s", wait, baselineTimeout)
	}
	for len(s.sent) == 0 {
		s.dispatchNext()
	}
	if got := s.sent[0]; got.Kind != KindFirstScan || got.Remaining.Pending != 1 {
		t.Errorf("message %+v, want a summary that names the image without a result", got)
	}
}

// TestClockPutForward: after the clock was set forward and back, no message is sent twice. A message that seems older than a day is
// composed again.
func TestClockPutForward(t *testing.T) {
	s := afterBaseline(t, "a")
	s.outcomes = []Outcome{{Result: Temporary}}
	s.addFindings("a", finding.High, 0, 1)
	s.dispatch()
	first := single(t, s.dispatchNext())
	s.pass(30 * time.Hour)
	s.dispatch()
	s.pass(-30 * time.Hour)
	for s.dispatch(); !s.last.Next.IsZero(); {
		s.dispatchNext()
	}
	taken := s.sent[1:]
	if second := single(t, taken); second.ID == first.ID || second.Totals.Total() != 1 {
		t.Errorf("messages %+v, want one anew with the one finding", taken)
	}
}
