package controllers

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/notifier/webhook"
	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// TestWebhook: a Scanner's messages reach a webhook as events, through manager and notifier. Its condition says what to do about a refusal, and
// after that the same changes arrive.
func TestWebhook(t *testing.T) {
	w := newDeliveryWorld(t)
	_, err := w.secrets.CoreV1().Secrets("shop").Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "tickets"}, Data: map[string][]byte{"address": []byte(w.url + "\n"), "token": []byte("verysecretkey4")},
	}, metav1.CreateOptions{})
	w.must(err)
	var titles []string
	answer := http.StatusAccepted
	w.intercept = func(rw http.ResponseWriter, r *http.Request) bool {
		var event struct{ Data webhook.Data }
		if err := json.NewDecoder(r.Body).Decode(&event); err != nil {
			t.Errorf("no event: %v", err)
		}
		rw.WriteHeader(answer)
		if answer == http.StatusAccepted {
			titles = append(titles, event.Data.Title)
		}
		return true
	}
	w.updateScanner(func(s *v1alpha1.Scanner) {
		r := &s.Spec.Notifications[0]
		r.Slack, r.Webhook = nil, &v1alpha1.WebhookReceiver{SecretRef: v1alpha1.SecretReference{Name: "tickets"}}
		r.Announce = []v1alpha1.Change{v1alpha1.ChangeNew, v1alpha1.ChangeFixed}
	})
	w.reconcile()
	w.reconcileAfter(30 * time.Second)
	answer = http.StatusRequestEntityTooLarge
	w.newReports(finding.Critical, finding.High)
	w.reconcileAfter(30 * time.Second)
	condition, receiver := w.condition()
	const advice = "raise the limit"
	if condition.Reason != announce.ReasonReceiverRefused || !strings.Contains(condition.Message, advice) || !strings.Contains(receiver.LastError, advice) {
		t.Errorf("condition %s %q, receiver %+v; want %q", condition.Reason, condition.Message, receiver, advice)
	}
	answer = http.StatusAccepted
	w.reconcileAfter(5 * time.Minute)
	if diff := cmp.Diff([]string{"First scan of shop: 1 finding in 1 image", "New: CVE-2026-0002 in shop"}, titles); diff != "" {
		t.Errorf("events (-want +got):\n%s\nlog:\n%s", diff, w.log)
	}
	for _, secret := range []string{"verysecrettoken3", "verysecretkey4"} {
		if strings.Contains(w.log.String(), secret) {
			t.Errorf("the log shows %s:\n%s", secret, w.log)
		}
	}
}
