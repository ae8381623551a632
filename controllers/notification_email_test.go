package controllers

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// TestEmail: the notifier gets the server, the addresses and the Secret of a receiver that sends mails. An event names the recipients that did not
// get a delivered mail.
func TestEmail(t *testing.T) {
	receiver := v1alpha1.Receiver{Name: "team", Email: &v1alpha1.EmailReceiver{
		Server: "mail.example.com", From: "scanner@example.com", To: []v1alpha1.EmailAddress{"a@example.com", "b@example.com"},
	}}
	mail := announce.MailRef{Server: "mail.example.com", TLS: announce.MailStartTLS, From: "scanner@example.com", To: []string{"a@example.com", "b@example.com"}}
	for name, tt := range map[string]struct {
		secret string
		want   announce.ReceiverRef
	}{
		"with a password": {"smtp", announce.ReceiverRef{Type: announce.ReceiverTypeEmail, Namespace: "shop", SecretName: "smtp", SecretKey: "password", Mail: &mail}},
		"without":         {"", announce.ReceiverRef{Type: announce.ReceiverTypeEmail, Namespace: "shop", Mail: &mail}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newNotifyWorld(t, func(s *v1alpha1.Scanner) {
				receiver.Email.SecretRef.Name = tt.secret
				s.Spec.Notifications = []v1alpha1.Receiver{receiver}
			})
			w.saveReport(finding.Critical)
			w.receivers.outcomes[tt.want.SecretName] = announce.Outcome{
				Result: announce.Delivered, Reason: announce.ReasonRecipientsRefused, Message: "took the message for 1 of 2 recipients",
			}
			w.reconcile()
			_, sent := w.reconcileAfter(30 * time.Second)
			if len(sent) != 1 {
				t.Fatalf("%d messages, want 1", len(sent))
			}
			if diff := cmp.Diff(tt.want, sent[0].Receiver); diff != "" {
				t.Errorf("receiver (-want +got):\n%s", diff)
			}
			w.wantEvents("Normal Delivered receiver team took a message", "Warning RecipientsRefused receiver team: took the message for 1 of 2 recipients")
		})
	}
}
