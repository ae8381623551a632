package announce

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// testSender keeps what was sent, and answers with the outcomes in order. Further messages are delivered.
type testSender struct {
	sent     []Message
	outcomes []Outcome
}

func (s *testSender) Send(_ context.Context, d Delivery) Outcome {
	s.sent = append(s.sent, d.Message)
	if len(s.outcomes) == 0 {
		return Outcome{Result: Delivered}
	}
	outcome := s.outcomes[0]
	s.outcomes = s.outcomes[1:]
	return outcome
}

// dispatchTest calls Dispatcher.DispatchTest as a new process would.
func (s *scenario) dispatchTest(to *testSender, request string) DispatchResult {
	s.t.Helper()
	d := Dispatcher{Store: s.store, Sender: to, Random: s.random, Now: func() time.Time { return s.now }}
	result, err := d.DispatchTest(context.Background(), scannerUID, s.settings, request)
	s.must(err)
	return result
}

// TestTestMessage: a request leads to one message that is marked as a test, whatever becomes of it. Only another request leads to another one.
func TestTestMessage(t *testing.T) {
	for name, outcome := range map[string]Outcome{
		"delivered":    {Result: Delivered},
		"refused":      {Result: Permanent, Reason: ReasonReceiverRefused, Message: "no"},
		"rate limited": {Result: RateLimited, Reason: ReasonReceiverLimited, RetryAfter: time.Minute},
		"failed":       {Result: Temporary, Reason: ReasonNetwork},
		"lost":         {Result: UnknownOutcome, Reason: ReasonAnswerLost},
	} {
		t.Run(name, func(t *testing.T) {
			s, to := newScenario(t), &testSender{outcomes: []Outcome{outcome}}
			first := s.dispatchTest(to, "team 1")
			if m := single(t, to.sent); m.Kind != KindTest || m.Title() != "Test message for shop" || m.Scanner != s.settings.Scanner || m.Totals.Total() != 0 {
				t.Errorf("message %+v, want a test", m)
			}
			if diff := cmp.Diff(&outcome, first.Outcome); diff != "" || !s.state().Test.IsDone() || !first.Next.IsZero() {
				t.Errorf("outcome (-want +got):\n%s\nor the test is not done", diff)
			}
			s.pass(time.Hour)
			if s.dispatchTest(to, "team 1"); len(to.sent) != 1 {
				t.Errorf("%d messages after the same request again, want 1", len(to.sent))
			}
			if s.dispatchTest(to, "team 2"); len(to.sent) != 2 || to.sent[1].ID == to.sent[0].ID {
				t.Errorf("messages %+v after another request, want another one", to.sent)
			}
		})
	}
}

// TestTestMessageOften: requests that come often lead to one message each testGap, also after the clock was set back.
func TestTestMessageOften(t *testing.T) {
	s, to := newScenario(t), &testSender{}
	s.dispatchTest(to, "team 1")
	for _, request := range []string{"team 2", "team 3", "team 4"} {
		s.pass(testGap / 5)
		if result := s.dispatchTest(to, request); len(to.sent) != 1 || result.Next.Sub(s.now) > testGap || !result.Next.After(s.now) {
			t.Fatalf("%d messages, the next one at %s, want none until %s have passed", len(to.sent), result.Next, testGap)
		}
	}
	s.pass(testGap)
	if s.dispatchTest(to, "team 1"); len(to.sent) != 1 {
		t.Errorf("%d messages, want none for the request that was handled last", len(to.sent))
	}
	if s.dispatchTest(to, "team 2"); len(to.sent) != 2 {
		t.Errorf("%d messages, want the second", len(to.sent))
	}
	s.pass(-time.Hour)
	if s.dispatchTest(to, "team 3"); len(to.sent) != 3 {
		t.Errorf("%d messages after the clock was set back, want the third", len(to.sent))
	}
}

// TestTestMessageInProgress: a receiver that takes long is asked again with the same message until the outcome is known. So is one whose outcome a crash has
// lost.
func TestTestMessageInProgress(t *testing.T) {
	s := newScenario(t)
	slow := Outcome{Result: UnknownOutcome, Reason: ReasonInProgress, RetryAfter: 15 * time.Second}
	to := &testSender{outcomes: []Outcome{slow, slow}}
	for range 2 {
		result := s.dispatchTest(to, "team 1")
		if result.Outcome != nil || s.state().Test.IsDone() || result.Next.Sub(s.now) != slow.RetryAfter {
			t.Fatalf("result %+v while it is in progress", result)
		}
		if again := s.dispatchTest(to, "team 1"); again.Next != result.Next {
			t.Errorf("the next attempt at %s, want %s", again.Next, result.Next)
		}
		s.pass(slow.RetryAfter)
	}
	s.dispatchTest(to, "team 1")
	lost := s.state()
	lost.Test.Outcome = nil
	encoded, err := lost.Encode()
	s.must(err)
	s.must(s.store.SaveReceiverState(t.Context(), scannerUID, s.settings.Receiver, encoded))
	s.pass(testGap)
	s.dispatchTest(to, "team 1")
	if len(to.sent) != 4 || !s.state().Test.IsDone() {
		t.Fatalf("%d attempts, want 4", len(to.sent))
	}
	for _, m := range to.sent {
		if m.ID != to.sent[0].ID {
			t.Errorf("the attempts have the IDs %s and %s, want one", to.sent[0].ID, m.ID)
		}
	}
}

// TestTestMessageRecordsNothing: a test between two deliveries, and a refused one, change nothing about what is announced.
func TestTestMessageRecordsNothing(t *testing.T) {
	tested, other := newScenario(t), newScenario(t)
	to := &testSender{outcomes: []Outcome{{Result: Permanent, Reason: ReasonReceiverRefused}}}
	for _, s := range []*scenario{tested, other} {
		s.addFindings("web", finding.Critical, 1, 3)
		s.dispatchUntilIdle()
		s.addFindings("web", finding.Critical, 10, 2)
		s.dispatch()
		if s == tested {
			s.dispatchTest(to, "team 1")
		}
		s.dispatchUntilIdle()
	}
	if len(to.sent) != 1 || len(tested.sent) != 2 || len(other.sent) != 2 {
		t.Fatalf("%d test messages, %d and %d messages, want 1, 2 and 2", len(to.sent), len(tested.sent), len(other.sent))
	}
	got, want := tested.state(), other.state()
	got.Test = nil
	if diff := cmp.Diff(want, got); diff != "" || tested.notAnnounced() != other.notAnnounced() {
		t.Errorf("state (-without a test +with one):\n%s\n%d and %d findings are not announced", diff, tested.notAnnounced(), other.notAnnounced())
	}
}
