package notify

import (
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// TestClockPutBack: no wait of a receiver becomes longer when the clock is set back by hours.
func TestClockPutBack(t *testing.T) {
	const jump = 7 * time.Hour
	for name, tt := range map[string]struct {
		arrange func(*story)
		// longest is the longest wait that is allowed after the jump.
		longest time.Duration
	}{
		"groupWait": {func(s *story) { s.find("a", finding.High, 0, 1); s.visit() }, 30 * time.Second},
		"groupInterval": {func(s *story) {
			s.find("a", finding.High, 0, 1)
			s.visit()
			s.next()
			s.find("a", finding.High, 1, 1)
			s.visit()
		}, 5 * time.Minute},
		"Retry-After": {func(s *story) {
			s.outcomes = []Outcome{{Result: RateLimited, RetryAfter: 10 * time.Minute}}
			s.find("a", finding.High, 0, 1)
			s.visit()
			s.next()
		}, 10 * time.Minute},
		"backoff": {func(s *story) {
			s.outcomes = []Outcome{{Result: Temporary}}
			s.find("a", finding.High, 0, 1)
			s.visit()
			s.next()
		}, 10 * time.Second},
		"stopped": {func(s *story) {
			s.outcomes = []Outcome{{Result: Permanent}}
			s.find("a", finding.High, 0, 1)
			s.visit()
			s.next()
		}, stoppedRetry},
	} {
		t.Run(name, func(t *testing.T) {
			s := begun(t, "a")
			tt.arrange(s)
			s.pass(-jump)
			s.visit()
			if wait := s.last.Next.Sub(s.now); wait <= 0 || wait > tt.longest {
				t.Fatalf("after the clock went back the next visit is in %s, want at most %s", wait, tt.longest)
			}
			only(t, s.next())
			s.wantIdle()
		})
	}
}

// TestClockPutBackBaseline: a baseline waits no longer than baselinePatience if DataSince lies in the future after the clock was set back.
func TestClockPutBackBaseline(t *testing.T) {
	s := newStory(t)
	s.coverage.DataSince = s.now
	s.image("a", ImagePending)
	s.find("b", finding.High, 0, 1)
	s.visit()
	s.pass(time.Minute)
	s.visit()
	s.pass(-7 * time.Hour)
	s.visit()
	if wait := s.last.Next.Sub(s.now); wait > baselinePatience {
		t.Errorf("the summary waits for %s, want at most %s", wait, baselinePatience)
	}
	for len(s.sent) == 0 {
		s.next()
	}
	if got := s.sent[0]; got.Kind != KindFirstScan || got.Remaining.Pending != 1 {
		t.Errorf("message %+v, want a summary that names the image without a result", got)
	}
}

// TestClockPutForward: after the clock was set forward and back, no message is sent twice. A message that seems older than a day is
// composed again.
func TestClockPutForward(t *testing.T) {
	s := begun(t, "a")
	s.outcomes = []Outcome{{Result: Temporary}}
	s.find("a", finding.High, 0, 1)
	s.visit()
	first := only(t, s.next())
	s.pass(30 * time.Hour)
	s.visit()
	s.pass(-30 * time.Hour)
	for s.visit(); !s.last.Next.IsZero(); {
		s.next()
	}
	taken := s.sent[1:]
	if second := only(t, taken); second.ID == first.ID || second.Totals.Total() != 1 {
		t.Errorf("messages %+v, want one anew with the one finding", taken)
	}
}
