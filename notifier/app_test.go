package notifier_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/scanner-operator/scanner-operator/notifier"
	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/test/slackstandin/standin"
)

// appDelivery is a delivery by a Slack app to the channel #shop.
func appDelivery(id, thread string) announce.Delivery {
	d := delivery(id)
	d.Receiver = announce.ReceiverRef{Type: announce.ReceiverTypeSlackApp, Namespace: "shop", SecretName: "app", SecretKey: "token", Channel: "#shop"}
	d.Thread = thread
	return d
}

func (w *world) sendAsApp(id, thread string) announce.Outcome {
	w.t.Helper()
	w.pass(2 * time.Second)
	return w.manager.Send(context.Background(), appDelivery(id, thread))
}

// place is where a message is in Slack.
type place struct{ Channel, TS, ThreadTS string }

func (w *world) places() (all []place) {
	for _, m := range w.slack.Messages() {
		if len(m.Violations) > 0 {
			w.t.Errorf("message %s violates %v", m.TS, m.Violations)
		}
		all = append(all, place{m.Channel, m.TS, m.ThreadTS})
	}
	return all
}

// TestAppThreads: a reply is in the thread of its message. If that was deleted, the reply is in the channel, and the outcome says so. A message
// that was delivered before has the same outcome again.
func TestAppThreads(t *testing.T) {
	w := newWorld(t, nil)
	first := w.sendAsApp("1", "")
	if diff := cmp.Diff(announce.Outcome{Result: announce.Delivered, Timestamp: first.Timestamp}, first); diff != "" || first.Timestamp == "" {
		t.Fatalf("outcome (-want +got):\n%s\nlog:\n%s", diff, w.logs)
	}
	if diff := cmp.Diff(first, w.sendAsApp("1", "")); diff != "" {
		t.Errorf("outcome of the same message (-first +second):\n%s", diff)
	}
	reply := w.sendAsApp("2", first.Timestamp)
	if !reply.InThread || reply.Timestamp == first.Timestamp {
		t.Errorf("outcome of the reply %+v, want a timestamp of its own, in the thread", reply)
	}
	w.slack.Change(standin.Workspace{Delete: []string{first.Timestamp}})
	late := w.sendAsApp("3", first.Timestamp)
	if late.Result != announce.Delivered || late.InThread {
		t.Errorf("outcome after the thread was deleted %+v, want Delivered and not in the thread", late)
	}
	want := []place{{"#shop", first.Timestamp, ""}, {"#shop", reply.Timestamp, first.Timestamp}, {"#shop", late.Timestamp, ""}}
	if diff := cmp.Diff(want, w.places()); diff != "" {
		t.Errorf("messages in Slack (-want +got):\n%s", diff)
	}
}

// TestAppThreadRefused: a reply that Slack refuses because of its thread is sent to the channel at once.
func TestAppThreadRefused(t *testing.T) {
	for _, code := range []string{"thread_not_found", "invalid_thread_ts", "cannot_reply_to_message", "restricted_action_non_threadable_channel"} {
		w := newWorld(t, nil)
		w.slack.Expect(standin.Failure{Status: 200, Body: code})
		got := w.sendAsApp("1", "1777896000.000001")
		if got.Result != announce.Delivered || got.InThread || len(w.slack.Messages()) != 1 || w.slack.Messages()[0].ThreadTS != "" {
			t.Errorf("%s: outcome %+v with %d messages, want one in the channel", code, got, len(w.slack.Messages()))
		}
		w.slack.Expect(standin.Failure{Status: 200, Body: code})
		if got := w.sendAsApp("2", ""); got.Result != announce.Permanent {
			t.Errorf("%s: outcome of a message without a thread %+v, want Permanent", code, got)
		}
	}
}

// TestAppOutcomes: each of Slack's error codes has its result, and tells the user what to do. None shows the token.
func TestAppOutcomes(t *testing.T) {
	refused := func(message string) announce.Outcome {
		return announce.Outcome{Result: announce.Permanent, Reason: announce.ReasonReceiverRefused, Message: message}
	}
	failed := func(message string) announce.Outcome {
		return announce.Outcome{Result: announce.Temporary, Reason: announce.ReasonReceiverFailed, Message: message}
	}
	limited := func(wait time.Duration) announce.Outcome {
		return announce.Outcome{Result: announce.RateLimited, Reason: announce.ReasonReceiverLimited, Message: "Slack requests a wait", RetryAfter: wait}
	}
	lost := announce.Outcome{Result: announce.UnknownOutcome, Reason: announce.ReasonAnswerLost}
	answers := func(status int, body string) func(*world) {
		return func(w *world) { w.slack.Expect(standin.Failure{Status: status, Body: body, Times: 2}) }
	}
	channel := func(code string) func(*world) {
		return func(w *world) { w.slack.Change(standin.Workspace{Channels: map[string]string{"#shop": code}}) }
	}
	token := func(value string) func(*world) {
		return func(w *world) { w.cluster.set("shop/app", map[string]string{"token": value}) }
	}
	for name, tt := range map[string]struct {
		arrange func(*world)
		want    announce.Outcome // the message must contain its Message
	}{
		"channel_not_found":                     {channel("channel_not_found"), refused("channel_not_found; the app does not find the channel #shop: check its ID or name, and invite the app")},
		"not_in_channel":                        {channel("not_in_channel"), refused("not_in_channel; the app is not a member of the channel #shop: invite it there (/invite @…)")},
		"is_archived":                           {channel("is_archived"), refused("is_archived; the channel #shop is archived: unarchive it, or use another one")},
		"restricted_action_thread_only_channel": {channel("restricted_action_thread_only_channel"), refused("a setting of the workspace or the channel forbids it")},
		"invalid_auth":                          {answers(200, "invalid_auth"), refused("invalid_auth; put the bot token of the Slack app")},
		"token_revoked": {func(w *world) {
			w.slack.Change(standin.Workspace{Tokens: map[string]string{botToken: "token_revoked"}})
		}, refused("token_revoked; put the bot token")},
		"token_expired":                          {answers(200, "token_expired"), refused("token_expired; put the bot token")},
		"account_inactive":                       {answers(200, "account_inactive"), refused("account_inactive; put the bot token")},
		"missing_scope":                          {answers(200, "missing_scope"), refused("missing_scope; give the Slack app the bot scope chat:write")},
		"msg_too_long":                           {answers(200, "msg_too_long"), refused("msg_too_long; this is an error of the operator")},
		"invalid_blocks":                         {answers(200, "invalid_blocks"), refused("invalid_blocks; this is an error of the operator")},
		"a code that nobody knows":               {answers(200, "moon_phase"), refused("Slack answers moon_phase")},
		"a code with the token":                  {answers(200, "bad_"+botToken), refused("(hidden)")},
		"messages_tab_disabled":                  {answers(200, "messages_tab_disabled"), refused("turn on the Messages Tab under App Home of the app")},
		"internal_error":                         {answers(200, "internal_error"), failed("Slack answers internal_error")},
		"fatal_error":                            {answers(500, "fatal_error"), failed("Slack answers 500 Internal Server Error: fatal_error")},
		"a code that nobody knows, status 500":   {answers(500, "moon_phase"), failed("Slack answers 500 Internal Server Error: moon_phase")},
		"service_unavailable":                    {answers(503, "service_unavailable"), failed("Slack answers 503 Service Unavailable: service_unavailable")},
		"request_timeout":                        {answers(200, "request_timeout"), failed("Slack answers request_timeout")},
		"ratelimited":                            {func(w *world) { w.slack.Expect(standin.Failure{Status: 429, Body: "ratelimited", RetryAfter: 17}) }, limited(17 * time.Second)},
		"rate_limited with the status 200":       {answers(200, "rate_limited"), limited(30 * time.Second)},
		"a page of a proxy":                      {answers(502, "<html>"+botToken+"</html>"), failed("Slack answers 502 Bad Gateway")},
		"a page of a proxy that lets it through": {answers(200, "<html>signed in</html>"), lost},
		"an empty object":                        {answers(200, "{}"), lost},
		"a redirect":                             {answers(302, "<html></html>"), refused("Slack answers 302 Found")},
		"no answer":                              {func(w *world) { w.slack.Expect(standin.Failure{Drop: true}) }, lost},
		"an empty token":                         {token(" \n"), announce.Outcome{Result: announce.Permanent, Reason: announce.ReasonInvalidToken, Message: "key token of Secret app in namespace shop is empty"}},
		"a webhook's URL":                        {token("https://hooks.slack.com" + secretPath), announce.Outcome{Result: announce.Permanent, Reason: announce.ReasonInvalidToken, Message: "does not hold the bot token of a Slack app"}},
		"a token with a line break":              {token("xoxb-1\r\nHost: evil.example"), announce.Outcome{Result: announce.Permanent, Reason: announce.ReasonInvalidToken, Message: "does not hold the bot token"}},
		"a token that is too long":               {token("xoxb-" + strings.Repeat("1", 1024)), announce.Outcome{Result: announce.Permanent, Reason: announce.ReasonInvalidToken, Message: "does not hold the bot token"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			tt.arrange(w)
			got := w.sendAsApp("1", "")
			if !strings.Contains(got.Message, tt.want.Message) {
				t.Errorf("message %q, want in it %q", got.Message, tt.want.Message)
			}
			got.Message, tt.want.Message = "", ""
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("outcome (-want +got):\n%s", diff)
			}
			assertAddressNotShown(t, w, appDelivery("1", ""))
		})
	}
}

// TestDirectMessages: an app posts to persons only where the administrator allows that.
func TestDirectMessages(t *testing.T) {
	for channel, isDirect := range map[string]bool{"U0123456789": true, "W0123456789": true, "D0123456789": true, "C0123456789": false, "#dw-U": false} {
		for _, allowed := range []bool{false, true} {
			w := newWorldWith(t, nil, notifier.Network{SlackDirectMessages: allowed})
			d := appDelivery("1", "")
			d.Receiver.Channel = channel
			got := w.manager.Send(t.Context(), d)
			if isDirect && !allowed {
				if got.Result != announce.Permanent || got.Reason != announce.ReasonChannelNotAllowed || len(w.slack.Messages()) != 0 ||
					!strings.Contains(got.Message, "--slack-direct-messages") || !strings.Contains(got.Message, "notifier.slackDirectMessages") {
					t.Errorf("%s, not allowed: outcome %+v with %d messages, want ChannelNotAllowed that names the flag and the value", channel, got, len(w.slack.Messages()))
				}
			} else if got.Result != announce.Delivered || len(w.slack.Messages()) != 1 {
				t.Errorf("%s, allowed %t: outcome %+v, want Delivered", channel, allowed, got)
			}
		}
	}
}

// TestAppRateLimitIsPerChannel: a channel that Slack limits delays no other channel of the same app.
func TestAppRateLimitIsPerChannel(t *testing.T) {
	w := newWorld(t, nil)
	w.slack.Expect(standin.Failure{Status: 429, Body: "ratelimited", RetryAfter: 600})
	if got := w.sendAsApp("1", ""); got.Result != announce.RateLimited {
		t.Fatalf("outcome %+v, want RateLimited", got)
	}
	if got := w.sendAsApp("2", ""); got.Result != announce.RateLimited || got.RetryAfter < 9*time.Minute {
		t.Errorf("outcome for the same channel %+v, want RateLimited for about 10 minutes", got)
	}
	other := appDelivery("3", "")
	other.Receiver.Channel = "C0123456789"
	if got := w.manager.Send(context.Background(), other); got.Result != announce.Delivered || w.waited != 0 {
		t.Errorf("outcome for another channel %+v after %s, want Delivered at once", got, w.waited)
	}
}
