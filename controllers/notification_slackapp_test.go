package controllers

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/test/slackstandin/standin"
)

const appToken = "xoxb-1234567890-verysecrettoken3"

// newAppWorld returns a deliveryWorld whose receiver is a Slack app that posts to #shop and wants all changes.
func newAppWorld(t *testing.T) *deliveryWorld {
	t.Helper()
	w := newDeliveryWorld(t)
	_, err := w.secrets.CoreV1().Secrets("shop").Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "slack-app"}, Data: map[string][]byte{"token": []byte(appToken + "\n")},
	}, metav1.CreateOptions{})
	w.must(err)
	w.updateScanner(func(s *v1alpha1.Scanner) {
		r := &s.Spec.Notifications[0]
		r.Slack = &v1alpha1.SlackReceiver{TokenSecretRef: v1alpha1.TokenSecretReference{Name: "slack-app"}, Channel: "#shop"}
		r.Announce = []v1alpha1.Change{v1alpha1.ChangeNew, v1alpha1.ChangeFixed}
	})
	w.reconcile()
	w.reconcileAfter(30 * time.Second)
	return w
}

// inSlack returns the messages in Slack: the channel, the number of the message that it replies to (0 for none), and the first line.
func (w *deliveryWorld) inSlack() (all []string) {
	w.t.Helper()
	numbers := map[string]string{"": "0"}
	for i, m := range w.slack.Messages() {
		if len(m.Violations) > 0 {
			w.t.Errorf("message %d violates %v", i+1, m.Violations)
		}
		numbers[m.TS] = string(rune('1' + i))
		title, _, _ := strings.Cut(m.Text, "\n")
		all = append(all, m.Channel+" "+numbers[m.ThreadTS]+" "+title)
	}
	return all
}

// TestSlackApp: a Scanner's messages go to the app's channel, and what became of their findings to their threads, through manager, notifier and
// Slack.
func TestSlackApp(t *testing.T) {
	w := newAppWorld(t)
	want := []string{"#shop 0 First scan of shop: 1 finding in 1 image"}
	if diff := cmp.Diff(want, w.inSlack()); diff != "" {
		t.Fatalf("the first message (-want +got):\n%s\nlog:\n%s", diff, w.log)
	}
	w.newReports(finding.Critical, finding.High)
	w.reconcileAfter(30 * time.Second)
	want = append(want, "#shop 0 New: CVE-2026-0002 in shop")
	w.newReports()
	w.reconcileAfter(30 * time.Second)
	w.reconcileAfter(2 * time.Second)
	want = append(want, "#shop 1 Fixed: CVE-2026-0001 in shop", "#shop 2 Fixed: CVE-2026-0002 in shop")
	if diff := cmp.Diff(want, w.inSlack()); diff != "" {
		t.Errorf("messages in Slack (-want +got):\n%s", diff)
	}
	if strings.Contains(w.log.String(), "verysecrettoken3") {
		t.Errorf("the log shows the token:\n%s", w.log)
	}
}

// newReports saves two reports with later data, after an hour: what they lack is fixed then.
func (w *deliveryWorld) newReports(severities ...finding.Severity) {
	w.t.Helper()
	w.clock.SetTime(w.clock.Now().Add(time.Hour))
	for range 2 {
		w.data++
		w.saveReport(severities...)
	}
	w.reconcile()
}

// TestSlackAppRefused: the condition says what to do about a channel that the app may not post to. When that is done, the message arrives.
func TestSlackAppRefused(t *testing.T) {
	for code, advice := range map[string]string{
		"channel_not_found": "check its ID or name", "not_in_channel": "invite it there", "is_archived": "unarchive it", "token_revoked": "put the bot token",
	} {
		w := newAppWorld(t)
		w.newReports(finding.Critical, finding.High)
		w.slack.Change(standin.Workspace{Channels: map[string]string{"#shop": code}})
		w.reconcileAfter(30 * time.Second)
		condition, receiver := w.condition()
		if condition.Reason != announce.ReasonReceiverRefused || !strings.Contains(condition.Message, advice) || !strings.Contains(receiver.LastError, advice) {
			t.Errorf("%s: condition %s %q, receiver %+v; want %q", code, condition.Reason, condition.Message, receiver, advice)
		}
		w.slack.Change(standin.Workspace{Channels: map[string]string{"#shop": ""}})
		w.reconcileAfter(5 * time.Minute)
		if got := w.inSlack(); len(got) != 2 {
			t.Errorf("%s: after the repair Slack has %v, want two messages", code, got)
		}
	}
}
