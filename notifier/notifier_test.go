package notifier_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/scanner-operator/scanner-operator/notifier/receiver"
	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/test/slackstandin/standin"
)

// TestDeliver: Slack accepts the posted message, and the outcome is Delivered.
func TestDeliver(t *testing.T) {
	w := newWorld(t, nil)
	if diff := cmp.Diff(announce.Outcome{Result: announce.Delivered}, w.send("1")); diff != "" {
		t.Fatalf("outcome (-want +got):\n%s\nlog:\n%s", diff, w.logs)
	}
	messages := w.slack.Messages()
	if len(messages) != 1 {
		t.Fatalf("Slack has %d messages, want 1", len(messages))
	}
	if len(messages[0].Violations) > 0 || !strings.Contains(messages[0].Text, "\n🟥 CVE-2024-1 Critical in openssl 1") {
		t.Errorf("Slack got %q with violations %v", messages[0].Text, messages[0].Violations)
	}
}

// TestOutcomes: each kind of failure has its result, a reason and a message with advice. None of them shows the address in the answer, the
// log or the metrics.
func TestOutcomes(t *testing.T) {
	tests := map[string]struct {
		secret  map[string]string // replaces Secret shop/slack; nil keeps it
		arrange func(w *world)
		ref     func(*announce.ReceiverRef)
		want    announce.Outcome // the message must contain its Message
	}{
		"the Secret may not be read": {
			ref: func(r *announce.ReceiverRef) { r.SecretName = "private" },
			want: announce.Outcome{Result: announce.Permanent, Reason: announce.ReasonSecretForbidden, Message: "kubectl -n shop create role scanner-operator-notifier-private --verb=get --resource=secrets --resource-name=private" +
				" && kubectl -n shop create rolebinding scanner-operator-notifier-private --role=scanner-operator-notifier-private --serviceaccount=scanner-operator-system:scanner-operator-notifier"},
		},
		"there is no such Secret": {
			ref:  func(r *announce.ReceiverRef) { r.SecretName = "none" },
			want: announce.Outcome{Result: announce.Permanent, Reason: announce.ReasonSecretNotFound, Message: "no Secret none in namespace shop"},
		},
		"the Secret has no such key": {
			ref:  func(r *announce.ReceiverRef) { r.SecretKey = "address" },
			want: announce.Outcome{Result: announce.Permanent, Reason: announce.ReasonSecretNotFound, Message: "Secret slack in namespace shop has no key address"},
		},
		"the API server fails": {
			// The token review must be cached, or the request would be refused earlier.
			arrange: func(w *world) { w.send("99"); w.pass(10 * time.Second); w.cluster.down = true },
			want:    announce.Outcome{Result: announce.Temporary, Reason: announce.ReasonClusterAPI, Message: "cannot read Secret slack in namespace shop"},
		},
		"not https": {
			secret: map[string]string{"url": "http://hooks.slack.com" + secretPath},
			want:   announce.Outcome{Result: announce.Permanent, Reason: announce.ReasonInvalidURL, Message: "key url of Secret slack in namespace shop is not an https URL"},
		},
		"not a URL at all": {
			secret: map[string]string{"url": "verysecrettoken3 %zz"},
			want:   announce.Outcome{Result: announce.Permanent, Reason: announce.ReasonInvalidURL, Message: "is not an https URL"},
		},
		"a host that is not allowed": {
			secret: map[string]string{"url": "https://kubernetes.default.svc" + secretPath},
			want:   announce.Outcome{Result: announce.Permanent, Reason: announce.ReasonInvalidURL, Message: "--allowed-webhook-hosts"},
		},
		"an allowed host at another port": {
			secret: map[string]string{"url": "https://hooks.slack.com:8443" + secretPath},
			want:   announce.Outcome{Result: announce.Permanent, Reason: announce.ReasonInvalidURL, Message: "--allowed-webhook-hosts"},
		},
		"a host that only looks allowed": {
			secret: map[string]string{"url": "https://hooks.slack.com@evil.example" + secretPath},
			want:   announce.Outcome{Result: announce.Permanent, Reason: announce.ReasonInvalidURL, Message: "user name"},
		},
		"Slack does not understand": slackAnswers(400, "invalid_blocks", announce.Outcome{Result: announce.Permanent, Reason: announce.ReasonReceiverRefused, Message: "Slack answers 400 Bad Request: invalid_blocks"}),
		"Slack forbids it":          slackAnswers(403, "action_prohibited", announce.Outcome{Result: announce.Permanent, Reason: announce.ReasonReceiverRefused, Message: "403 Forbidden: action_prohibited; the webhook was revoked"}),
		"the webhook is gone":       slackAnswers(404, "no_service", announce.Outcome{Result: announce.Permanent, Reason: announce.ReasonReceiverRefused, Message: "404 Not Found: no_service; the webhook was revoked"}),
		"the channel is archived":   slackAnswers(410, "channel_is_archived", announce.Outcome{Result: announce.Permanent, Reason: announce.ReasonReceiverRefused, Message: "410 Gone: channel_is_archived; its channel no longer exists"}),
		"Slack has trouble":         slackAnswers(500, "rollup_error", announce.Outcome{Result: announce.Temporary, Reason: announce.ReasonReceiverFailed, Message: "500 Internal Server Error: rollup_error"}),
		"a page of a proxy":         slackAnswers(502, "<html>https://hooks.slack.com"+secretPath+"</html>", announce.Outcome{Result: announce.Temporary, Reason: announce.ReasonReceiverFailed, Message: "Slack answers 502 Bad Gateway"}),
		"an answer with the token":  slackAnswers(404, "unknown verysecrettoken3", announce.Outcome{Result: announce.Permanent, Reason: announce.ReasonReceiverRefused, Message: "unknown (hidden)"}),
		"Slack requests a wait": {
			arrange: func(w *world) { w.slack.Expect(standin.Failure{Status: 429, RetryAfter: 17}) },
			want:    announce.Outcome{Result: announce.RateLimited, Reason: announce.ReasonReceiverLimited, Message: "Slack requests a wait", RetryAfter: 17 * time.Second},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			if tt.secret != nil {
				w.cluster.set("shop/slack", tt.secret)
			}
			if tt.arrange != nil {
				tt.arrange(w)
			}
			d := delivery("1")
			if tt.ref != nil {
				tt.ref(&d.Receiver)
			}
			got := w.manager.Send(context.Background(), d)
			if !strings.Contains(got.Message, tt.want.Message) {
				t.Errorf("message %q, want in it %q", got.Message, tt.want.Message)
			}
			got.Message, tt.want.Message = "", ""
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("outcome (-want +got):\n%s", diff)
			}
			assertAddressNotShown(t, w, d)
		})
	}
}

// assertAddressNotShown fails the test if the address is in the log, an answer or the metrics.
func assertAddressNotShown(t *testing.T, w *world, d announce.Delivery) {
	t.Helper()
	raw, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	_, answer := w.post(managerToken, string(raw))
	metrics := fmt.Sprint(must(w.registry.Gather()))
	for where, text := range map[string]string{"log": w.logs.String(), "answer": answer, "metrics": metrics} {
		if text == "" {
			t.Errorf("the %s is empty: nothing was looked at", where)
		}
		for _, secret := range []string{"T0SECRET1", "B0SECRET2", "verysecrettoken3", managerToken} {
			if strings.Contains(text, secret) {
				t.Errorf("the %s shows %s:\n%s", where, secret, text)
			}
		}
	}
}

func slackAnswers(status int, body string, want announce.Outcome) (tt struct {
	secret  map[string]string
	arrange func(w *world)
	ref     func(*announce.ReceiverRef)
	want    announce.Outcome
}) {
	tt.arrange = func(w *world) { w.slack.Expect(standin.Failure{Status: status, Body: body, Times: 2}) }
	tt.want = want
	return tt
}

// countingReceiver counts posts and blocks them until open is closed.
type countingReceiver struct {
	posts atomic.Int32
	// begun gets one signal when the first post begins. Closing open lets posts end.
	begun, open chan struct{}
}

func newCountingReceiver() *countingReceiver {
	return &countingReceiver{begun: make(chan struct{}, 1), open: make(chan struct{})}
}

func (c *countingReceiver) Post(context.Context, receiver.Address, announce.Delivery) announce.Outcome {
	if c.posts.Add(1) == 1 {
		c.begun <- struct{}{}
	}
	<-c.open
	return announce.Outcome{Result: announce.Delivered}
}

// outcomeReceiver returns itself as the outcome of each message.
type outcomeReceiver announce.Outcome

func (o outcomeReceiver) Post(context.Context, receiver.Address, announce.Delivery) announce.Outcome {
	return announce.Outcome(o)
}

// TestResultWithoutStatus: a result that has no status code of its own is answered as an unknown outcome.
func TestResultWithoutStatus(t *testing.T) {
	w := newWorld(t, outcomeReceiver{Result: "Later"})
	status, answer := w.post(managerToken, string(must(json.Marshal(delivery("1")))))
	if status != http.StatusGatewayTimeout || !strings.Contains(answer, "Later") {
		t.Errorf("status %d %q, want 504 with the result", status, answer)
	}
}

// TestConcurrentRequestsDeliverOnce: concurrent requests with the same ID are posted once.
func TestConcurrentRequestsDeliverOnce(t *testing.T) {
	receiver := newCountingReceiver()
	w := newWorld(t, receiver)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			if got := w.send("1"); got.Result != announce.Delivered {
				t.Errorf("outcome %+v, want Delivered", got)
			}
		})
	}
	close(receiver.open)
	group.Wait()
	if n := receiver.posts.Load(); n != 1 {
		t.Errorf("posted %d times, want once", n)
	}
}

// TestCallerDisconnects: a manager that disconnects does not stop the delivery, and learns the outcome when it retries.
func TestCallerDisconnects(t *testing.T) {
	receiver := newCountingReceiver()
	w := newWorld(t, receiver)
	ctx, cancel := context.WithCancel(context.Background())
	asked := make(chan announce.Outcome, 1)
	go func() { asked <- w.manager.Send(ctx, delivery("1")) }()
	select {
	case <-receiver.begun:
	case got := <-asked:
		t.Fatalf("outcome %+v before anything was posted", got)
	}
	cancel()
	if got := <-asked; got.Result != announce.UnknownOutcome {
		t.Errorf("outcome for who gave up %+v, want Unknown", got)
	}
	close(receiver.open)
	if got := w.send("1"); got.Result != announce.Delivered {
		t.Errorf("outcome %+v, want Delivered", got)
	}
	if n := receiver.posts.Load(); n != 1 {
		t.Errorf("posted %d times, want once", n)
	}
}

// TestBudgetIsShared: all deliveries to one webhook share its budget, whichever Secret holds its URL.
func TestBudgetIsShared(t *testing.T) {
	w := newWorld(t, nil)
	w.cluster.set("cart/slack", map[string]string{"url": w.slackURL})
	other := delivery("2")
	other.Receiver.Namespace = "cart"
	w.send("1")
	if got := w.manager.Send(context.Background(), other); got.Result != announce.Delivered {
		t.Fatalf("outcome %+v, want Delivered", got)
	}
	if w.waited != time.Second {
		t.Errorf("the second message waited %s, want 1s", w.waited)
	}
	w.slack.Expect(standin.Failure{Status: 429, RetryAfter: 60})
	w.send("3")
	other.Message.ID = delivery("4").Message.ID
	got := w.manager.Send(context.Background(), other)
	if got.Result != announce.RateLimited || got.RetryAfter < 50*time.Second {
		t.Errorf("outcome for another namespace while Slack throttles: %+v, want RateLimited for about a minute", got)
	}
	w.pass(time.Minute)
	if got := w.send("3"); got.Result != announce.Delivered {
		t.Errorf("outcome after the wait %+v, want Delivered", got)
	}
}

// TestOnlyManagerMayDeliver: only the manager, with a token for the notifier's audience, may request deliveries.
func TestOnlyManagerMayDeliver(t *testing.T) {
	w := newWorld(t, nil)
	manager := authenticationv1.UserInfo{Username: managerUser}
	w.cluster.reviews["elsewhere"] = authenticationv1.TokenReviewStatus{Authenticated: true, User: manager, Audiences: []string{"https://kubernetes.default.svc"}}
	w.cluster.reviews["no audience"] = authenticationv1.TokenReviewStatus{Authenticated: true, User: manager}
	w.cluster.reviews["somebody"] = authenticationv1.TokenReviewStatus{
		Authenticated: true, User: authenticationv1.UserInfo{Username: "system:serviceaccount:shop:default"}, Audiences: []string{announce.NotifierAudience},
	}
	body := string(must(json.Marshal(delivery("1"))))
	for token, want := range map[string]int{
		"": http.StatusUnauthorized, "unknown": http.StatusUnauthorized, "elsewhere": http.StatusUnauthorized,
		"no audience": http.StatusUnauthorized, "somebody": http.StatusForbidden, managerToken: http.StatusOK,
	} {
		if got, answer := w.post(token, body); got != want {
			t.Errorf("token %q: status %d (%s), want %d", token, got, answer, want)
		}
	}
	if n := len(w.slack.Messages()); n != 1 {
		t.Errorf("Slack has %d messages, want only the manager's", n)
	}
}

// TestReviewsAreCached: the result of a token review is cached for a minute, but not an error of the API server.
func TestReviewsAreCached(t *testing.T) {
	w := newWorld(t, nil)
	body := string(must(json.Marshal(delivery("1"))))
	w.cluster.down = true
	if status, _ := w.post(managerToken, body); status != http.StatusServiceUnavailable {
		t.Errorf("status %d while the API server is down, want 503", status)
	}
	w.cluster.down = false
	for range 3 {
		w.post(managerToken, body)
	}
	if w.cluster.reviewed != 1 {
		t.Errorf("%d reviews, want 1", w.cluster.reviewed)
	}
	w.pass(time.Minute + time.Second)
	w.cluster.reviews[managerToken] = authenticationv1.TokenReviewStatus{}
	if status, _ := w.post(managerToken, body); status != http.StatusUnauthorized {
		t.Errorf("status %d a minute after the token was revoked, want 401", status)
	}
}

// TestMalformed: the answer to a malformed request names the field.
func TestMalformed(t *testing.T) {
	w := newWorld(t, nil)
	change := func(f func(*announce.Delivery)) string {
		d := delivery("1")
		f(&d)
		return string(must(json.Marshal(d)))
	}
	for name, tt := range map[string]struct {
		body   string
		status int
		want   string
	}{
		"no JSON":     {"{", 400, "not valid JSON"},
		"id":          {change(func(d *announce.Delivery) { d.Message.ID = "../../x" }), 400, "digest.id"},
		"type":        {change(func(d *announce.Delivery) { d.Receiver.Type = "pager" }), 400, "receiver.type"},
		"namespace":   {change(func(d *announce.Delivery) { d.Receiver.Namespace = "a/b" }), 400, "receiver.namespace"},
		"secret name": {change(func(d *announce.Delivery) { d.Receiver.SecretName = "../x" }), 400, "receiver.secretName"},
		"no channel":  {change(func(d *announce.Delivery) { d.Receiver.Type = announce.ReceiverTypeSlackApp }), 400, "receiver.channel"},
		"channel": {change(func(d *announce.Delivery) {
			d.Receiver.Type, d.Receiver.Channel = announce.ReceiverTypeSlackApp, "@U0123456789"
		}), 400, "receiver.channel"},
		"two channels": {change(func(d *announce.Delivery) { d.Receiver.Channel = "#shop" }), 400, "receiver.channel"},
		"thread":       {change(func(d *announce.Delivery) { d.Thread = "1.1" }), 400, "thread"},
		"no key":       {change(func(d *announce.Delivery) { d.Receiver.SecretKey = "" }), 400, "receiver.secretKey"},
		"too large":    {change(func(d *announce.Delivery) { d.Message.ReadMore = strings.Repeat("x", announce.MaxDeliveryBytes) }), 413, "1048576"},
		"long after":   {change(func(*announce.Delivery) {}) + strings.Repeat(" ", announce.MaxDeliveryBytes), 413, "1048576"},
		"nothing else": {"", 400, "not valid JSON"},
	} {
		if status, answer := w.post(managerToken, tt.body); status != tt.status || !strings.Contains(answer, tt.want) {
			t.Errorf("%s: status %d %q, want %d and %q", name, status, answer, tt.status, tt.want)
		}
	}
	if n := len(w.slack.Messages()); n != 0 {
		t.Errorf("Slack has %d messages, want none", n)
	}
}
