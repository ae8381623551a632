package controllers

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// requestTest sets the annotation that requests a test message.
func (w *notifyWorld) requestTest(value string) {
	w.t.Helper()
	w.scanner.Annotations = map[string]string{v1alpha1.AnnotationTestMessage: value}
	w.must(w.client.Update(w.t.Context(), w.scanner))
}

// testStatus returns the status of the test message, as the ScannerReconciler sets it.
func (w *notifyWorld) testStatus() *v1alpha1.TestMessageStatus {
	w.t.Helper()
	s := &scannerScope{scanner: w.scanner}
	s.receivers = map[string]announce.State{}
	for _, r := range w.scanner.Spec.Notifications {
		s.receivers[r.Name] = w.state(r.Name)
	}
	s.setTestMessage()
	return w.scanner.Status.TestMessage
}

// TestTestMessage: the annotation leads to one test message to the receiver that it names, beside other messages, and the status and an event have its
// outcome.
func TestTestMessage(t *testing.T) {
	w := newNotifyWorld(t, func(s *v1alpha1.Scanner) {
		s.Spec.Notifications = []v1alpha1.Receiver{slackReceiver("team"), slackReceiver("other")}
	})
	w.saveReport(finding.Critical)
	w.reconcile()
	w.requestTest("team 1")
	want := &v1alpha1.TestMessageStatus{Request: "team 1", Outcome: v1alpha1.TestMessagePending}
	if diff := cmp.Diff(want, w.testStatus()); diff != "" {
		t.Errorf("status before it is sent (-want +got):\n%s", diff)
	}
	if _, sent := w.reconcile(); len(sent) != 1 || sent[0].Message.Kind != announce.KindTest || sent[0].Receiver.SecretName != "slack-team" {
		t.Fatalf("messages %+v, want the test", sent)
	}
	w.wantEvent("Normal Delivered receiver team took a test message")
	want.Outcome, want.Time = v1alpha1.TestMessageDelivered, ptr.To(metav1.NewTime(notifyNoon))
	if diff := cmp.Diff(want, w.testStatus()); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	if _, sent := w.reconcileAfter(time.Minute); len(sent) != 2 || sent[0].Message.Kind != announce.KindFirstScan || sent[1].Message.Kind != announce.KindFirstScan {
		t.Fatalf("messages %+v, want the summaries and no second test", sent)
	}
	w.wantEvents("Normal Delivered receiver other took a message", "Normal Delivered receiver team took a message")

	w.receivers.outcomes["slack-team"] = announce.Outcome{Result: announce.Permanent, Reason: announce.ReasonInvalidURL, Message: "not an https URL"}
	w.requestTest("team 2")
	if next, sent := w.reconcile(); len(sent) != 1 || next > noticeInterval {
		t.Fatalf("messages %+v, want the second test", sent)
	}
	w.wantEvent("Warning InvalidURL test message to receiver team: not an https URL")
	want = &v1alpha1.TestMessageStatus{Request: "team 2", Outcome: v1alpha1.TestMessageFailed, Message: "InvalidURL: not an https URL"}
	if diff := cmp.Diff(want, w.testStatus(), cmpopts.IgnoreFields(v1alpha1.TestMessageStatus{}, "Time")); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	w.requestTest("team 3")
	if next, sent := w.reconcileAfter(time.Second); len(sent) != 0 || next > 10*time.Second {
		t.Errorf("%d messages, the next look in %s, want that the third test waits", len(sent), next)
	}
}

// TestTestMessageRefused: a request that leads to no message says why, and one without a name requests none.
func TestTestMessageRefused(t *testing.T) {
	long := strings.Repeat("x", 300)
	for value, want := range map[string]*v1alpha1.TestMessageStatus{
		"": nil, " ": nil,
		"nobody 1": {
			Request: "nobody 1", Outcome: v1alpha1.TestMessageFailed, Message: `spec.notifications has no receiver "nobody"; its receivers are: team`,
		},
		"dojo": {
			Request: "dojo", Outcome: v1alpha1.TestMessageFailed, Message: "dojo is an export, which gets no messages: status.exports has its last success and its last error",
		},
		"team 1": {Request: "team 1", Outcome: v1alpha1.TestMessagePending, Message: "spec.suspend is true: the message is sent when that ends"},
		long: {
			Request: truncate(long, 128), Outcome: v1alpha1.TestMessageFailed,
			Message: `spec.notifications has no receiver "` + truncate(long, 63) + `"; its receivers are: team`,
		},
	} {
		t.Run(truncate(value, 16), func(t *testing.T) {
			w := newNotifyWorld(t, func(s *v1alpha1.Scanner) {
				s.Spec.Suspend, s.Spec.Exports = ptr.To(true), []v1alpha1.Export{{Name: "dojo"}}
			})
			w.requestTest(value)
			if _, sent := w.reconcile(); len(sent) != 0 {
				t.Errorf("messages %+v, want none", sent)
			}
			if diff := cmp.Diff(want, w.testStatus()); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
		})
	}
}
