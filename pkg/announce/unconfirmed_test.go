package announce

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

var answerLost = Outcome{Result: UnknownOutcome, Reason: ReasonAnswerLost, Message: "its answer was lost"}

// leaveUnanswered leaves all attempts during d without an answer, and returns the number of attempts by message ID.
func (s *scenario) leaveUnanswered(d time.Duration) (copies map[string]int) {
	s.t.Helper()
	copies = map[string]int{}
	for end := s.now.Add(d); s.now.Before(end) && !s.last.Next.IsZero(); {
		s.outcomes = []Outcome{answerLost}
		for _, sent := range s.dispatchNext() {
			copies[sent.ID]++
		}
	}
	s.outcomes = nil
	return copies
}

// log returns the store's log of messages, the latest first.
func (s *scenario) log() []store.Message {
	s.t.Helper()
	messages, err := s.store.Messages(context.Background(), scannerUID, s.settings.Receiver, 0, 100)
	s.must(err)
	return messages
}

// TestUnansweredMessageIsGivenUp: a message that is never answered is sent 14 times within hours and then given up. Its content counts as
// announced. Later findings follow, with fewer attempts.
func TestUnansweredMessageIsGivenUp(t *testing.T) {
	s := readyToSend(t)
	s.outcomes = []Outcome{answerLost}
	first := single(t, s.dispatchNext())
	s.addFindings("web", finding.Critical, 2, 1)
	began := s.now
	copies := s.leaveUnanswered(7 * 24 * time.Hour)
	if got := copies[first.ID] + 1; got != maxUnanswered {
		t.Errorf("in a week the same message was sent %d times, want %d", got, maxUnanswered)
	}
	delete(copies, first.ID)
	if len(copies) != 1 {
		t.Fatalf("%d other messages, want one about what was found meanwhile", len(copies))
	}
	for id, n := range copies {
		if n != maxUnansweredWhileSilent {
			t.Errorf("message %s was sent %d times, want %d", id, n, maxUnansweredWhileSilent)
		}
	}
	log := s.log()
	if len(log) != 2 || !log[0].Unconfirmed || !log[1].Unconfirmed || log[1].MessageID != first.ID {
		t.Fatalf("log %+v, want both messages marked as unconfirmed", log)
	}
	if took := log[1].At.Sub(began); took < 3*time.Hour || took > 12*time.Hour {
		t.Errorf("given up after %s, want hours and not days", took)
	}
	if s.notAnnounced() != 0 {
		t.Errorf("%d findings are not announced, want none: what was given up counts as announced", s.notAnnounced())
	}
	s.wantIdle()
}

// TestUnconfirmedIsReported: the receiver's status and the next message mention unconfirmed messages, until a message is confirmed.
func TestUnconfirmedIsReported(t *testing.T) {
	s := readyToSend(t)
	s.leaveUnanswered(24 * time.Hour)
	reason, message := s.state().Problem()
	if reason != ReasonUnconfirmed || !strings.Contains(message, "1 message sent since") || !strings.Contains(message, "New: CVE-2026-0001 in shop") {
		t.Errorf("problem %q %q, want that one message was never confirmed, and which", reason, message)
	}
	s.addFindings("web", finding.Critical, 2, 1)
	s.dispatch()
	next := single(t, s.dispatchNext())
	if next.Unconfirmed == nil || next.Unconfirmed.Count != 1 || next.Unconfirmed.Title != "New: CVE-2026-0001 in shop" {
		t.Errorf("the next message says %+v of unconfirmed ones, want one with its title", next.Unconfirmed)
	}
	if state := s.state(); state.LastError != nil || state.Unconfirmed != nil || state.Unanswered != 0 {
		t.Errorf("state %+v after a delivery, want no problem", state)
	}
	if log := s.log(); log[0].Unconfirmed || !log[1].Unconfirmed {
		t.Errorf("log %+v, want only the earlier message unconfirmed", log)
	}
	s.pass(time.Hour)
	s.addFindings("web", finding.Critical, 3, 1)
	s.dispatch()
	if d := single(t, s.dispatchNext()); d.Unconfirmed != nil {
		t.Errorf("the message after that says %+v, want nothing of it any more", d.Unconfirmed)
	}
}

// TestRefusedAfterNoAnswer: a refusal does not answer earlier attempts. A refused message that the receiver may have keeps its ID and
// content. It is given up after a day, and later findings follow.
func TestRefusedAfterNoAnswer(t *testing.T) {
	for name, refusal := range map[string]Outcome{
		"fails":        {Result: Temporary, Reason: ReasonReceiverFailed},
		"rate limited": {Result: RateLimited, Reason: ReasonReceiverLimited, RetryAfter: time.Hour},
		"refuses":      {Result: Permanent, Reason: ReasonReceiverRefused},
	} {
		t.Run(name, func(t *testing.T) {
			s := readyToSend(t, answerLost)
			first := single(t, s.dispatchNext())
			s.addFindings("web", finding.Critical, 2, 1)
			for len(s.log()) == 0 && s.now.Before(first.CreatedAt.Add(48*time.Hour)) {
				s.outcomes = []Outcome{refusal}
				s.dispatchNext()
			}
			log := s.log()
			if len(log) != 1 || !log[0].Unconfirmed || log[0].MessageID != first.ID || log[0].At.Sub(first.CreatedAt) < maxOutboxAge {
				t.Fatalf("log %+v, want message %s given up a day after %s", log, first.ID, first.CreatedAt)
			}
			for _, d := range s.sent {
				if d.ID != first.ID {
					t.Fatalf("message %s is sent about %v, want only message %s until that is given up", d.ID, ids(d.Sections[0].Items), first.ID)
				}
			}
			s.outcomes = nil
			next := single(t, s.dispatchNext())
			if got := ids(next.Sections[0].Items); !cmp.Equal([]string{"CVE-2026-0002"}, got) || next.Unconfirmed == nil {
				t.Errorf("the next message is about %v and says %+v of unconfirmed ones, want what was found meanwhile and one", got, next.Unconfirmed)
			}
			s.wantIdle()
		})
	}
}

// TestAnsweredAfterRefusals: a message that the receiver may have, and that was refused for hours, is delivered once the receiver accepts
// it.
func TestAnsweredAfterRefusals(t *testing.T) {
	s := readyToSend(t, answerLost)
	first := single(t, s.dispatchNext())
	for s.now.Before(first.CreatedAt.Add(12 * time.Hour)) {
		s.outcomes = []Outcome{{Result: Temporary, Reason: ReasonReceiverFailed}}
		s.dispatchNext()
	}
	if d := single(t, s.dispatchNext()); d.ID != first.ID {
		t.Errorf("message %s is sent, want %s", d.ID, first.ID)
	}
	if log := s.log(); len(log) != 1 || log[0].Unconfirmed {
		t.Errorf("log %+v, want one message, which is confirmed", log)
	}
	s.wantIdle()
}

// TestRefusedOnceAfterDowntime: a message that the receiver may have is not given up after a single refusal when no manager ran for days.
func TestRefusedOnceAfterDowntime(t *testing.T) {
	s := readyToSend(t, answerLost)
	first := single(t, s.dispatchNext())
	s.pass(60 * time.Hour)
	s.outcomes = []Outcome{{Result: Temporary, Reason: ReasonNotifierUnavail}}
	s.dispatch()
	if log := s.log(); len(log) != 0 {
		t.Fatalf("log %+v, want the message to be sent again after one refusal", log)
	}
	if d := single(t, s.dispatchNext()); d.ID != first.ID {
		t.Errorf("message %s is sent, want %s", d.ID, first.ID)
	}
	if log := s.log(); len(log) != 1 || log[0].Unconfirmed {
		t.Errorf("log %+v, want one message, which is confirmed", log)
	}
}

// TestRefusedBeforeDowntime: the same holds if the message was refused before the manager stopped. The day of refusals starts anew.
func TestRefusedBeforeDowntime(t *testing.T) {
	refused := Outcome{Result: Temporary, Reason: ReasonReceiverFailed}
	s := readyToSend(t, answerLost, refused)
	first := single(t, s.dispatchNext())
	s.dispatchNext()
	s.pass(60 * time.Hour)
	s.outcomes = []Outcome{refused}
	s.dispatch()
	if log := s.log(); len(log) != 0 || len(s.sent) != 3 {
		t.Fatalf("sent %d times, log %+v, want the message to be sent once more, and kept", len(s.sent), log)
	}
	back := s.now
	for len(s.log()) == 0 && s.now.Before(back.Add(48*time.Hour)) {
		s.outcomes = []Outcome{refused}
		s.dispatchNext()
	}
	if log := s.log(); len(log) != 1 || !log[0].Unconfirmed || log[0].MessageID != first.ID || log[0].At.Sub(back) < maxOutboxAge {
		t.Errorf("log %+v, want message %s given up a day after %s", log, first.ID, back)
	}
}

// TestUnansweredBetweenRefusals: a receiver that refuses every other attempt and does not answer the rest does not get the same findings
// without end.
func TestUnansweredBetweenRefusals(t *testing.T) {
	s := readyToSend(t)
	copies := 0
	for end := s.now.Add(7 * 24 * time.Hour); s.now.Before(end) && !s.last.Next.IsZero(); {
		outcome := answerLost
		if len(s.sent)%2 == 1 {
			outcome = Outcome{Result: Temporary, Reason: ReasonReceiverFailed}
		}
		s.outcomes = []Outcome{outcome}
		if sent := s.dispatchNext(); len(sent) > 0 && outcome == answerLost {
			copies++
		}
	}
	if copies != maxUnanswered || s.notAnnounced() != 0 {
		t.Errorf("in a week %d copies may have arrived and %d findings are not announced, want %d and none", copies, s.notAnnounced(), maxUnanswered)
	}
}

// TestCrashWithEachAttempt: a process that crashes during each attempt sends the message as often, and with the same waits, as one whose
// attempts are not answered.
func TestCrashWithEachAttempt(t *testing.T) {
	s := readyToSend(t)
	s.now = s.last.Next
	s.onSent = func() { s.store.broken = 1 }
	for began := s.now; s.now.Before(began.Add(12 * time.Hour)); s.pass(time.Minute) {
		_ = s.tryDispatch()
		if s.now.Before(began.Add(3*time.Hour)) && len(s.sent) == maxUnanswered {
			t.Fatalf("sent %d times within %s, want waits between them that become longer", len(s.sent), s.now.Sub(began))
		}
	}
	if len(s.sent) != maxUnanswered || !s.log()[0].Unconfirmed {
		t.Errorf("sent %d times, log %+v; want %d times, and given up then", len(s.sent), s.log(), maxUnanswered)
	}
}

// TestUnansweredSummary: a first summary that is given up ends the baseline. Later findings are new.
func TestUnansweredSummary(t *testing.T) {
	s := newScenario(t)
	s.addFindings("web", finding.High, 1, 3)
	s.dispatch()
	s.leaveUnanswered(24 * time.Hour)
	if state := s.state(); state.Baseline.Phase != BaselineDone || state.Outbox != nil || s.notAnnounced() != 0 {
		t.Fatalf("state %+v with %d findings not announced, want the baseline done", state, s.notAnnounced())
	}
	s.addFindings("web", finding.Critical, 9, 1)
	s.dispatch()
	d := single(t, s.dispatchNext())
	if d.Kind != KindChanges || d.Totals.Total() != 1 || d.Unconfirmed == nil {
		t.Errorf("message %+v, want the new finding and that the summary was not confirmed", d)
	}
	if _, err := json.Marshal(d); err != nil {
		t.Error(err)
	}
}
