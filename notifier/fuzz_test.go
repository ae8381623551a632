package notifier

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/utils/clock"

	"github.com/scanner-operator/scanner-operator/notifier/slack"
	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/egress"
)

// FuzzDelivery: a delivery is refused with a short text that names the wrong field, or it can be sent: its parts are names, and cannot be taken for those
// of another delivery.
func FuzzDelivery(f *testing.F) {
	const id = `"digest":{"id":"0123456789abcdef0123456789abcdef"}`
	for _, seed := range []string{
		`{"receiver":{"type":"slack","namespace":"shop","secretName":"slack","secretKey":"url"},` + id + `}`,
		`{"receiver":{"type":"slackApp","namespace":"shop","secretName":"app","secretKey":"token","channel":"#shop"},"thread":"1.2",` + id + `}`,
		`{"receiver":{"type":"slack","namespace":"../kube-system","secretName":"a/b","secretKey":"\u0000","channel":"C0123456789"},` + id + `}`,
		`{"receiver":{"type":"email","namespace":"shop","secretName":"team","secretKey":"password","mail":{"server":"mail.example.com:587","tls":"StartTLS","from":"a@example.com","to":["b@example.org"]}},` + id + `}`,
		`{"receiver":{"type":"email","namespace":"shop","mail":{"server":"[::1]:25","tls":"None","from":"a@example.com>","to":["b@example.org\r\nRCPT TO:<c@d.e>"]}},` + id + `}`,
		`{"digest":{"id":1}}`, `{"receiver":[]}`, `{}x`, ``,
	} {
		f.Add([]byte(seed))
	}
	s := New(Config{Receivers: NewReceivers(Network{}), Clock: clock.RealClock{}})
	fields := []string{"digest.id: ", "receiver.type: ", "receiver.namespace: ", "receiver.secretName: ", "receiver.secretKey: ", "receiver.channel: ", "receiver.mail: ", "receiver.mail.", "thread: ", "the delivery is not valid JSON: "}
	f.Fuzz(func(t *testing.T, body []byte) {
		read := func(body []byte) (announce.Delivery, error) {
			return s.read(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, announce.DeliveryPath, bytes.NewReader(body)))
		}
		d, err := read(body)
		if err != nil {
			const maxText = 512
			named := false
			for _, field := range fields {
				named = named || strings.HasPrefix(err.Error(), field)
			}
			if !named || len(err.Error()) > maxText {
				t.Errorf("%q is refused with %q", body, err)
			}
			return
		}
		ref := d.Receiver
		for _, part := range []string{d.Message.ID, ref.Type, ref.Namespace, ref.SecretName, ref.SecretKey, ref.Channel, d.Thread} {
			if strings.ContainsAny(part, "\x00/\r\n") {
				t.Errorf("%q is taken, with %q as a name", body, part)
			}
		}
		if mail := ref.Mail; mail != nil {
			for _, part := range append(mail.To, mail.From, mail.HostPort()) {
				if part == "" || strings.ContainsFunc(part, func(r rune) bool {
					return r <= ' ' || r > '~' || strings.ContainsRune("<>,;:\"\\", r) && part != mail.HostPort()
				}) {
					t.Errorf("%q is taken, with %q in a command to the mail server", body, part)
				}
			}
		}
		if d.Thread != "" && !slack.IsTimestamp(d.Thread) || (ref.Channel != "") != (ref.Type == announce.ReceiverTypeSlackApp) {
			t.Errorf("%q is taken, in the thread %q of %q", body, d.Thread, ref.Channel)
		}
		text, err := json.Marshal(d)
		if err != nil {
			t.Fatalf("%q is taken, and cannot be encoded: %v", body, err)
		}
		again, err := read(text)
		if diff := cmp.Diff(d, again, cmpopts.EquateEmpty()); err != nil || diff != "" {
			t.Errorf("%q is taken, and encoded again: %v (-first +again):\n%s", body, err, diff)
		}
	})
}

// FuzzAddress: an address is accepted only if a request to it goes to an allowed host, with its scheme and without a user. The reason for a refusal has no part of
// the address, and neither does an outcome that quoted it.
func FuzzAddress(f *testing.F) {
	for _, seed := range []string{
		"https://hooks.slack.com/services/T0SECRET1/B0SECRET2/verysecrettoken3", "https://HOOKS.slack.com:443/services/x?y=longenough#fragment", "https://hooks.slack.com@evil.example.com/x",
		"https://hooks.slack.com\\@evil.example.com/x", "https://hooks.slack.com.evil.example.com/", "http://hooks.slack.com/services/x", "https://hooks.slack.com:8443/", "//hooks.slack.com/", "https:hooks.slack.com",
		"https://hooks.slack.com/services/secret/secret-and-more", "xoxb-123456789012-verysecrettoken3", "",
	} {
		f.Add(seed)
	}
	policy, err := egress.NewPolicy([]string{"hooks.slack.com", "chat.example.com:8443", "http://plain.example.com"})
	if err != nil {
		f.Fatal(err)
	}
	a := NewSecretAddresses(nil, "scanner-operator-system", "scanner-operator-notifier", policy)
	f.Fuzz(func(t *testing.T, address string) {
		target, problem := a.target(address)
		if problem == "" || invalidToken(address) == "" {
			requireRedacted(t, address)
		}
		if problem != "" {
			if len(address) > len("https://") && strings.Contains(problem, address) {
				t.Errorf("%q is refused with %q", address, problem)
			}
			return
		}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, target.URL(), http.NoBody)
		if err != nil {
			return // the receiver refuses it then
		}
		server := request.URL.Scheme + "://" + strings.ToLower(request.URL.Host)
		allowed := []string{
			"https://hooks.slack.com", "https://hooks.slack.com:", "https://hooks.slack.com:443", "https://chat.example.com:8443",
			"http://plain.example.com", "http://plain.example.com:", "http://plain.example.com:80",
		}
		if !slices.Contains(allowed, server) || request.URL.User != nil || strings.TrimSuffix(request.URL.Host, ":") != request.Host {
			t.Errorf("%q is accepted, and leads to %s", address, request.URL)
		}
	})
}

// FuzzHeaders: the headers of a webhook are refused with a text that has no value of them, or a request has exactly these beside the notifier's own.
func FuzzHeaders(f *testing.F) {
	for _, seed := range []string{
		"Authorization: Bearer a-secret-token", "{\"X-Key\": \"a-secret-token\"}", "host: evil.example.com", "a b: c", "X-A: \"a-secret-token\\r\\nX-B: c\"", "- a-secret-token", "X-A: {b: a-secret-token}",
		"transfer-encoding: chunked", "X-A: 1\nx-a: 2", "", "X-A: " + strings.Repeat("a-secret-token", 400),
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		headers, problem := parseHeaders(text)
		if problem != "" {
			if headers != nil || strings.Contains(problem, "a-secret-token") && !bytes.Contains(text, []byte("a-secret-token:")) {
				t.Errorf("%q is refused with %q, beside %q", text, problem, headers)
			}
			return
		}
		request := httptest.NewRequest(http.MethodPost, "https://hooks.example.com/", http.NoBody)
		for name, value := range headers {
			request.Header.Set(name, value)
		}
		var sent bytes.Buffer
		if err := request.Write(&sent); err != nil {
			t.Fatalf("%q is accepted, and cannot be sent: %v", text, err)
		}
		received, err := http.ReadRequest(bufio.NewReader(&sent))
		if err != nil || received.Host != "hooks.example.com" || len(headers) > maxHeaders {
			t.Fatalf("%q is accepted, and sent as %q: %v", text, sent.Bytes(), err)
		}
		for name, value := range headers {
			if got := received.Header.Get(name); len(received.Header.Values(name)) != 1 || got != strings.Trim(value, " \t") {
				t.Errorf("%q is accepted, and %s is received as %q", text, name, got)
			}
		}
	})
}

// requireRedacted fails the test unless each part of a webhook's address behind its host, or of a token, that is long enough to be a secret is hidden.
func requireRedacted(t *testing.T, address string) {
	t.Helper()
	path, separators := address, "- /?&=#"
	if _, rest, isURL := strings.Cut(address, "://"); isURL {
		path, separators = rest[strings.IndexAny(rest+"/", "/?#"):], "/?&=#"
	}
	parts := strings.FieldsFunc(path, func(r rune) bool { return strings.ContainsRune(separators, r) })
	const mark = "(hidden)"
	for _, part := range parts {
		if strings.Contains(mark, part) {
			return // it makes the mark longer
		}
	}
	for _, part := range parts {
		if got := redact("<"+part+">", address); isLongEnough(part) && !isPathWord.MatchString(part) && got != "<"+mark+">" {
			t.Errorf("of %q, %q is shown as %q", address, part, got)
		}
	}
}
