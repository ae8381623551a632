package controllers

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/test/slackstandin/standin"
)

// TestSlackThatNeverAnswersIsNotFlooded: if Slack receives each message but all its answers are lost, the channel has few copies of a
// message after a day. One event and the condition report that the message was never confirmed.
func TestSlackThatNeverAnswersIsNotFlooded(t *testing.T) {
	w := newDeliveryWorld(t)
	w.slack.Expect(standin.Failure{Drop: true, Times: 10_000})
	next := 30 * time.Second
	for end := w.clock.Now().Add(24 * time.Hour); w.clock.Now().Before(end); {
		next, _ = w.reconcileAfter(next)
	}
	copies := map[string]int{}
	for _, message := range w.slack.Messages() {
		copies[message.Text]++
	}
	if len(copies) != 1 {
		t.Fatalf("%d different messages, want one", len(copies))
	}
	for _, n := range copies {
		if n < 2 || n > 20 {
			t.Errorf("in a day the same message came %d times, want several and 20 at most", n)
		}
	}
	condition, receiver := w.condition()
	if condition.Reason != announce.ReasonUnconfirmed || !strings.Contains(receiver.LastError, "1 message sent since") {
		t.Errorf("NotificationsDelivered has the reason %s, the receiver %q; want that one message was never confirmed", condition.Reason, receiver.LastError)
	}
	reported := w.takeEvents()
	if n := len(slices.DeleteFunc(reported, func(e string) bool { return !strings.HasPrefix(e, "Warning "+announce.ReasonUnconfirmed) })); n != 1 {
		t.Errorf("%d events say that the message was given up, want one", n)
	}
}

// TestUnconfirmedReceiverNotice: when messages to one receiver were given up, the Scanner's other receivers get a notice, and
// another one when the receiver answers again. The receiver itself gets none.
func TestUnconfirmedReceiverNotice(t *testing.T) {
	w := newNotifyWorld(t, func(s *v1alpha1.Scanner) {
		s.Spec.Notifications = []v1alpha1.Receiver{slackReceiver("silent"), slackReceiver("team")}
	})
	w.receivers.outcomes["slack-silent"] = announce.Outcome{Result: announce.UnknownOutcome, Reason: announce.ReasonAnswerLost}
	w.saveReport(finding.Critical)
	next, _ := w.reconcile()
	notices := func(d time.Duration) (notified []string) {
		for end := w.clock.Now().Add(d); w.clock.Now().Before(end); {
			var sent []announce.Delivery
			next, sent = w.reconcileAfter(next)
			for _, d := range sent {
				for _, n := range d.Message.Notices {
					text := d.Receiver.SecretName + " is notified of " + n.Name
					if n.Over {
						text += " again"
					}
					notified = append(notified, text)
				}
			}
		}
		return notified
	}
	if got, want := notices(24*time.Hour), []string{"slack-team is notified of silent"}; !slices.Equal(got, want) {
		t.Errorf("notices %q, want %q", got, want)
	}
	delete(w.receivers.outcomes, "slack-silent")
	w.saveReport(finding.Critical, finding.High)
	if got, want := notices(time.Hour), []string{"slack-team is notified of silent again"}; !slices.Equal(got, want) {
		t.Errorf("when it answers again: notices %q, want %q", got, want)
	}
}

// TestRemovedReceiverHasNoRecoveryNotice: when a receiver that does not answer is removed from the Scanner, the others get no notice that it
// answers again.
func TestRemovedReceiverHasNoRecoveryNotice(t *testing.T) {
	w := newNotifyWorld(t, func(s *v1alpha1.Scanner) {
		s.Spec.Notifications = []v1alpha1.Receiver{slackReceiver("silent"), slackReceiver("team")}
	})
	w.receivers.outcomes["slack-silent"] = announce.Outcome{Result: announce.UnknownOutcome, Reason: announce.ReasonAnswerLost}
	w.saveReport(finding.Critical)
	next, _ := w.reconcile()
	notices := func(d time.Duration) (said []announce.Notice) {
		for end := w.clock.Now().Add(d); w.clock.Now().Before(end); {
			var sent []announce.Delivery
			next, sent = w.reconcileAfter(max(next, time.Minute))
			for _, d := range sent {
				said = append(said, d.Message.Notices...)
			}
		}
		return said
	}
	if said := notices(24 * time.Hour); len(said) != 1 {
		t.Fatalf("notices %+v, want one that a receiver does not answer", said)
	}
	w.updateScanner(func(s *v1alpha1.Scanner) { s.Spec.Notifications = []v1alpha1.Receiver{slackReceiver("team")} })
	if said := notices(24 * time.Hour); len(said) != 0 {
		t.Errorf("when it is removed: notices %+v, want none", said)
	}
}

// TestSingleReceiverStateIsNotRead: nobody gets notices about the only receiver of a Scanner, so its state is not read for them.
func TestSingleReceiverStateIsNotRead(t *testing.T) {
	for name, tt := range map[string]struct {
		receivers []v1alpha1.Receiver
		fails     bool
	}{
		"one receiver":  {[]v1alpha1.Receiver{slackReceiver("team")}, false},
		"two receivers": {[]v1alpha1.Receiver{slackReceiver("team"), slackReceiver("other")}, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newNotifyWorld(t, func(s *v1alpha1.Scanner) { s.Spec.Notifications = tt.receivers })
			w.must(w.store.SaveReceiverState(t.Context(), string(w.scanner.UID), "team", []byte("{")))
			if _, err := w.reconciler.newScope(t.Context(), w.scanner); (err != nil) != tt.fails {
				t.Errorf("the error is %v, want one: %v", err, tt.fails)
			}
		})
	}
}
