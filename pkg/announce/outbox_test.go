package announce

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// readyToSend returns a scenario with one finding to announce, just before the message is sent.
func readyToSend(t *testing.T, outcomes ...Outcome) *scenario {
	s := afterBaseline(t, "web")
	s.addFindings("web", finding.High, 1, 1)
	s.dispatch()
	s.outcomes = outcomes
	return s
}

// TestBackoff: waits grow from 5 seconds to 15 minutes, or to 2 hours if the receiver may have the message. The content of the message
// stays the same. A message that the receiver may have also keeps its ID.
func TestBackoff(t *testing.T) {
	for result, longest := range map[Result]time.Duration{
		Temporary: 15 * time.Minute, UnknownOutcome: 2 * time.Hour, "SomethingNewer": 2 * time.Hour,
	} {
		s := readyToSend(t)
		for range 13 {
			s.outcomes = append(s.outcomes, Outcome{Result: result, Reason: ReasonNetwork, Message: "no route"})
		}
		first := single(t, s.dispatchNext())
		for n := range 13 {
			wait := s.last.Next.Sub(s.now)
			low, high := 5*time.Second<<n*3/4, 5*time.Second<<n*5/4
			if low = min(max(low, 5*time.Second), longest*3/4); wait < low || wait > min(high, longest) {
				t.Errorf("%s: wait %s after failure %d, want %s to %s", result, wait, n+1, low, min(high, longest))
			}
			now := single(t, s.dispatchNext())
			if result == Temporary {
				now.ID, now.CreatedAt = first.ID, first.CreatedAt
			}
			if diff := cmp.Diff(first, now); diff != "" {
				t.Fatalf("%s: the message changed (-first +now):\n%s", result, diff)
			}
		}
		if s.last.After.Failures != 0 || s.last.After.LastError != nil {
			t.Errorf("%s: state %+v after a delivery, want no fault", result, s.last.After)
		}
	}
}

// TestRateLimited: a wait that the receiver requests is no failure, and is shown as the last error.
func TestRateLimited(t *testing.T) {
	for asked, want := range map[time.Duration]time.Duration{
		0: time.Second, 7 * time.Second: 7 * time.Second, 48 * time.Hour: time.Hour,
	} {
		s := readyToSend(t, Outcome{Result: RateLimited, Reason: ReasonReceiverLimited, RetryAfter: asked})
		s.dispatchNext()
		s.wantNext(want)
		if s.last.After.Failures != 0 || s.last.After.LastError == nil || s.last.After.LastError.Reason != ReasonReceiverLimited {
			t.Errorf("state %+v, want no failure and the reason ReceiverLimited", s.last.After)
		}
		single(t, s.dispatchNext())
		s.wantIdle()
		if s.last.After.LastError != nil {
			t.Errorf("last error %+v after a delivery, want none", s.last.After.LastError)
		}
	}
}

// TestInProgress: while the receiver takes its time, the same message is asked about, without a failure and however often. Nothing else is sent.
func TestInProgress(t *testing.T) {
	inProgress := Outcome{Result: UnknownOutcome, Reason: ReasonInProgress, RetryAfter: 15 * time.Second}
	s := readyToSend(t, slices.Repeat([]Outcome{inProgress}, 2*maxUnanswered)...)
	first := ""
	for range 2 * maxUnanswered {
		s.dispatchNext()
		s.wantNext(15 * time.Second)
		outbox := s.last.After.Outbox
		if outbox == nil || !outbox.LatestUnanswered || s.last.After.Failures != 0 || first != "" && outbox.Message.ID != first {
			t.Fatalf("state %+v, want the same message, unanswered and without a failure", s.last.After)
		}
		first = outbox.Message.ID
	}
	single(t, s.dispatchNext())
	s.wantIdle()
}

// TestStopped: after a permanent error, the next attempt follows a change of the Scanner, or comes after five minutes.
func TestStopped(t *testing.T) {
	forbidden := Outcome{Result: Permanent, Reason: ReasonSecretForbidden, Message: "kubectl create role"}
	s := readyToSend(t, forbidden, forbidden, forbidden, forbidden)
	s.dispatchNext()
	stoppedAt := s.now
	s.wantNext(5 * time.Minute)
	s.pass(time.Minute)
	none(t, s.dispatch(), "nothing has changed")

	single(t, s.dispatchNext())
	if got := s.last.After.Stopped; got == nil || !got.Since.Equal(stoppedAt) || got.Reason != ReasonSecretForbidden {
		t.Errorf("stopped %+v, want since the first time for that reason", got)
	}

	s.settings.Generation++
	none(t, s.dispatch(), "not twice within a second")
	s.wantNext(time.Second)
	single(t, s.dispatchNext())
	s.wantNext(5 * time.Minute)
	s.pass(time.Second)
	none(t, s.dispatch(), "this generation was tried")

	s.settings.Generation++
	single(t, s.dispatch())
	s.outcomes = nil
	single(t, s.dispatchNext())
	if s.last.After.Stopped != nil || s.last.After.LastError != nil {
		t.Errorf("state %+v after a delivery, want it running", s.last.After)
	}
	s.wantIdle()
}

// TestReportedState: the state has what users see of a receiver at each stage.
func TestReportedState(t *testing.T) {
	if fresh, err := ParseState(nil); err != nil || fresh.Begun() || !cmp.Equal(fresh, State{}) {
		t.Errorf("state %+v, error %v of a receiver that was never seen, want neither", fresh, err)
	}
	s := readyToSend(t, Outcome{Result: Permanent, Reason: ReasonReceiverRefused, Message: "no_service" + strings.Repeat("x", 5000)})
	got := s.state()
	if reason, message := got.Problem(); !got.Begun() || got.Baseline.Phase != BaselineDone || got.Pending != 1 || !got.LastDelivery.IsZero() || reason+message != "" {
		t.Errorf("state %+v while a finding waits, want the baseline done, one finding pending and no problem", got)
	}
	s.dispatchNext()
	got = s.state()
	reason, message := got.Problem()
	if got.Stopped == nil || !got.Stopped.Since.Equal(s.now) || got.Outbox == nil || got.Pending != 1 || reason != ReasonReceiverRefused {
		t.Errorf("state %+v, want it stopped with one message on its way", got)
	}
	if len(message) > MaxMessageBytes || !strings.HasPrefix(message, "no_service") {
		t.Errorf("error of %d bytes %.20q, want the receiver's words, at most %d", len(message), message, MaxMessageBytes)
	}
	s.dispatchNext()
	got = s.state()
	reason, message = got.Problem()
	if !got.LastDelivery.Equal(s.now) || got.LastMessage != "New: CVE-2026-0001 in shop" || got.Pending != 0 || got.Outbox != nil || got.Stopped != nil || reason+message != "" {
		t.Errorf("state %+v after the delivery, want its time and title, and no problem", got)
	}
	if _, err := ParseState([]byte("{")); err == nil {
		t.Error("a broken state is no error, want one")
	}
}

// TestOldMessage: a message about changes that is refused for maxChangesAge is composed again, without findings that are gone.
func TestOldMessage(t *testing.T) {
	s := readyToSend(t)
	for range 200 {
		s.outcomes = append(s.outcomes, Outcome{Result: Temporary, Reason: ReasonReceiverFailed})
	}
	first := single(t, s.dispatchNext())
	s.removeFindings("web")
	s.addFindings("web", finding.Critical, 2, 1)
	for s.now.Before(first.CreatedAt.Add(maxChangesAge)) {
		s.dispatchNext()
	}
	s.dispatchNext()
	latest := s.sent[len(s.sent)-1]
	if latest.ID == first.ID || latest.Sections[0].Items[0].ID != "CVE-2026-0002" {
		t.Errorf("message %s about %v after a while, want a new one about CVE-2026-0002", latest.ID, ids(latest.Sections[0].Items))
	}
	if wait := s.last.Next.Sub(s.now); wait < 10*time.Minute {
		t.Errorf("next attempt in %s, want the new message to wait as long as the old one", wait)
	}
}

// TestMessageLeftForLong: a message that a suspended Scanner left in the outbox is not sent a month later, unless the receiver may have it.
// A newly composed message could then announce the same twice.
func TestMessageLeftForLong(t *testing.T) {
	for name, tt := range map[string]struct {
		outcome Outcome
		same    bool
	}{
		"failed":       {Outcome{Result: Temporary, Reason: ReasonReceiverFailed}, false},
		"stopped":      {Outcome{Result: Permanent, Reason: ReasonReceiverRefused}, false},
		"rate limited": {Outcome{Result: RateLimited, RetryAfter: time.Hour}, false},
		"answer lost":  {Outcome{Result: UnknownOutcome, Reason: ReasonAnswerLost}, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := readyToSend(t, tt.outcome)
			first := single(t, s.dispatchNext())
			s.removeFindings("web")
			s.addFindings("web", finding.Critical, 2, 1)
			s.pass(30 * 24 * time.Hour)
			d := single(t, s.dispatch())
			if same := d.ID == first.ID; same != tt.same {
				t.Errorf("the old message is sent: %t, want %t", same, tt.same)
			}
			for len(s.sent) < 10 && !s.last.Next.IsZero() {
				s.dispatchNext()
			}
			latest := s.sent[len(s.sent)-1]
			if got := ids(latest.Sections[0].Items); !cmp.Equal([]string{"CVE-2026-0002"}, got) {
				t.Errorf("the last message is about %v, want what is there now", got)
			}
			s.wantIdle()
		})
	}
}

// TestCrashBeforeTheAnswer: an attempt without a recorded answer counts as unanswered, since the receiver may have the message.
func TestCrashBeforeTheAnswer(t *testing.T) {
	s := readyToSend(t)
	s.now = s.last.Next
	s.onSent = func() { s.store.broken = 1 }
	if err := s.tryDispatch(); err == nil {
		t.Fatal("no error, want that of the store")
	}
	s.onSent = nil
	s.pass(30 * 24 * time.Hour)
	if d := single(t, s.dispatch()); d.ID != s.sent[0].ID {
		t.Errorf("message %s after the crash, want %s again", d.ID, s.sent[0].ID)
	}
}

// TestDeliveryIsCountedBeforeItIsSent: each attempt is counted outside the store, after it is stored and before the message is sent. So a
// store that is replaced by an older snapshot is noticed, whenever the manager was stopped.
func TestDeliveryIsCountedBeforeItIsSent(t *testing.T) {
	s := readyToSend(t, Outcome{Result: Temporary, Reason: ReasonReceiverFailed})
	for attempt := s.count + 1; len(s.sent) < 2; attempt++ {
		s.onSent = func() {
			if s.count != attempt {
				t.Errorf("%d deliveries are counted outside the store when delivery %d is handed over", s.count, attempt)
			}
		}
		single(t, s.dispatchNext())
	}
}

// TestCrash: after a crash before or after sending, the same message is sent again.
func TestCrash(t *testing.T) {
	s := readyToSend(t)
	s.now = s.last.Next
	s.store.broken = 1 // before the message is stored
	if err := s.tryDispatch(); err == nil || len(s.sent) != 0 {
		t.Fatalf("error %v, %d messages; want an error and none: nothing is sent that is not stored", err, len(s.sent))
	}
	single(t, s.dispatch())

	s = readyToSend(t)
	s.now = s.last.Next
	s.onSent = func() { s.store.broken = 1 } // after the message is delivered, before that is recorded
	if err := s.tryDispatch(); err == nil {
		t.Fatal("no error, want that of the store")
	}
	s.onSent = nil
	if diff := cmp.Diff(s.sent[0], single(t, append(s.dispatch(), s.dispatchNext()...))); diff != "" {
		t.Errorf("another message after the crash (-before +after):\n%s", diff)
	}
	s.wantIdle()
}

// TestMessageIDs: message IDs have 32 hexadecimal digits and are unique.
func TestMessageIDs(t *testing.T) {
	s := afterBaseline(t, "web")
	seen := map[string]bool{}
	for i := range 5 {
		s.addFindings("web", finding.High, i, 1)
		s.dispatch()
		id := single(t, s.dispatchNext()).ID
		if !regexp.MustCompile(`^[0-9a-f]{32}$`).MatchString(id) {
			t.Errorf("id %q, want 32 hexadecimal digits", id)
		}
		if seen[id] {
			t.Errorf("id %s is used twice", id)
		}
		seen[id] = true
	}
}
