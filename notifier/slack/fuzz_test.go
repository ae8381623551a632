package slack

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/scanner-operator/scanner-operator/notifier/internal/outcometest"
	"github.com/scanner-operator/scanner-operator/notifier/receiver"
	"github.com/scanner-operator/scanner-operator/pkg/announce"
)

// FuzzAnswers: whatever Slack, or a proxy before it, answers, the outcome is one that the notifier may pass on: one bounded line, with the status code of
// its result, and a bounded wait exactly if it is rate limited. A message counts as delivered only if Slack accepted it.
func FuzzAnswers(f *testing.F) {
	f.Add(uint16(200), "", []byte(`{"ok":true,"ts":"1503435956.000247","message":{"thread_ts":"1503435956.000247"}}`), true)
	f.Add(uint16(200), "", []byte(`{"ok":false,"error":"channel_not_found"}`), false)
	f.Add(uint16(200), "", []byte(`<html>`), false)
	f.Add(uint16(200), "9", []byte(`{"error":"ratelimited"}`), true)
	f.Add(uint16(429), "999999999999", []byte(`{"ok":true}`), false)
	f.Add(uint16(403), "", []byte("invalid_token\n"), false)
	f.Add(uint16(404), "", []byte("no_service <https://hooks.slack.com/services/T/B/x>"), false)
	f.Add(uint16(302), "-1", []byte(strings.Repeat("a", 200)), false)
	f.Add(uint16(200), "", []byte("ok\n"), false)
	slackApp, poster := NewApp(receiver.Network{}, APIURL, false), NewPoster(receiver.Network{})
	f.Fuzz(func(t *testing.T, status uint16, retryAfter string, body []byte, inThread bool) {
		if status < 200 || status > 999 {
			t.Skip("an HTTP client returns no such response")
		}
		answer := receiver.Answer{Status: int(status), Header: http.Header{"Retry-After": {retryAfter}}, Body: body}
		d := announce.Delivery{Receiver: announce.ReceiverRef{Type: announce.ReceiverTypeSlackApp, Channel: "#" + strings.Repeat("ü", 80)}}
		if inThread {
			d.Thread = "1503435956.000247"
		}
		app, code := slackApp.outcome(answer, d)
		if app.Result == announce.Delivered && (!answer.IsOK() || !saysOK(body)) {
			t.Errorf("%d %q is taken for the delivery of a message", status, body)
		}
		if app.Timestamp != "" && (!IsTimestamp(app.Timestamp) || app.Result != announce.Delivered) || app.InThread && (!inThread || app.Timestamp == "") {
			t.Errorf("%d %q is taken for a message at %q, in the thread: %v", status, body, app.Timestamp, app.InThread)
		}
		if code != "" && app.Result == announce.Delivered {
			t.Errorf("%d %q is taken for a delivered message with the error %q", status, body, code)
		}
		webhook := poster.outcome(answer)
		if (webhook.Result == announce.Delivered) != (answer.IsOK() && strings.TrimSpace(string(body)) == "ok") {
			t.Errorf("%d %q of a webhook is taken for %s", status, body, webhook.Result)
		}
		for _, o := range []announce.Outcome{app, webhook} {
			if err := outcometest.Check(o); err != nil || (o.Reason == "") != (o.Result == announce.Delivered) {
				t.Errorf("%d %q becomes %+v: %v", status, body, o, err)
			}
		}
	})
}

// saysOK reports whether a body is an object that says that it is the answer to a posted message.
func saysOK(body []byte) bool {
	var answer map[string]any
	if json.Unmarshal(body, &answer) != nil {
		return false
	}
	for name, value := range answer {
		if strings.EqualFold(name, "ok") && value == true {
			return true
		}
	}
	return false
}

// FuzzText: text from outside cannot begin anything special in a message, is bounded, and is still valid when it is cut.
func FuzzText(f *testing.F) {
	for _, seed := range []string{"", "openssl", "<!channel>", "a&amp;b", "https://example.com/a|b>c", strings.Repeat("&", 100), "\u202eevil", "אבג", "a\x00b\r\n", "\xff", "`code`"} {
		f.Add(seed, "https://nvd.nist.gov/vuln/detail/CVE-2026-0001", uint8(70))
	}
	f.Add("id", "https://user@example.com/", uint8(0))
	f.Add("id", "https://example.com/?a=<b>&c", uint8(200))
	f.Fuzz(func(t *testing.T, text, address string, room uint8) {
		limit := int(room) + 16
		name := escapedName(text, limit)
		unescaped := strings.NewReplacer("&lt;", "<", "&gt;", ">", "&amp;", "&").Replace(name)
		switch {
		case len(name) > limit, name == "", !utf8.ValidString(name), strings.ContainsAny(name, "<>\r\n\x00\u202e"):
			t.Errorf("%q becomes %q in %d bytes", text, name, limit)
		case escape(unescaped) != name:
			t.Errorf("%q becomes %q, in which an escaped character is cut", text, name)
		case strings.ContainsFunc(unescaped, unicode.IsControl):
			t.Errorf("%q becomes %q, which has control characters", text, name)
		}
		if again := clean(clean(text, limit), limit); again != clean(text, limit) {
			t.Errorf("%q becomes %q, and that %q", text, clean(text, limit), again)
		}
		linked := link(address, text)
		if inner, isLink := strings.CutPrefix(linked, "<"); isLink {
			target, label, _ := strings.Cut(strings.TrimSuffix(inner, ">"), "|")
			if !strings.HasPrefix(target, "https://") || len(target) > maxLink || strings.ContainsAny(target+label, "<>|") || !linkable(address) || len(label) > maxID {
				t.Errorf("the link from %q to %q is %q", text, address, linked)
			}
		} else if strings.ContainsAny(linked, "<>") {
			t.Errorf("the link from %q to %q is %q", text, address, linked)
		}
		if quoted := code(text); strings.Count(quoted, "`") != 2 || len(quoted) > maxCommand+2 {
			t.Errorf("%q in code is %q", text, quoted)
		}
		names := strings.Split(text, ",")
		if joined := list(names, maxPackage, limit, 3); len(joined) > limit+len(" and 1000000 more") || !strings.HasSuffix(joined, " more") {
			t.Errorf("the list of %q in %d bytes is %q, want one that counts what does not fit, and three more", names, limit, joined)
		}
	})
}
