package notifier_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/scanner-operator/scanner-operator/notifier"
	"github.com/scanner-operator/scanner-operator/notifier/alertmanager"
	"github.com/scanner-operator/scanner-operator/notifier/receiver"
	"github.com/scanner-operator/scanner-operator/notifier/webhook"
	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/announce/diff"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/test/slackstandin/standin"
)

// The tests in this file are the contract that each type of receiver keeps: from the manager's request, over the Secret, to a real server, and
// back. A new type needs a member of receiverTypes, and tests of its own for what its messages look like and for its server's own words.

// receiverType is what the contract needs to know of a type of receiver.
type receiverType struct {
	// ref returns what the manager sends of the receiver.
	ref func(server string) announce.ReceiverRef
	// secret returns what the receiver's Secret holds.
	secret func(server string) map[string]string
	// secrets are the texts of the Secret that must not appear anywhere.
	secrets []string
	// accepts is the body of the answer with which the server accepts a message. Without one, the status alone means that.
	accepts string
	// fixedServer is true if the administrator decides about the server, and not the Secret.
	fixedServer bool
	// isMail is true for a receiver whose server has SMTP, and not HTTP.
	isMail bool
	// check fails the test unless the server would accept the request.
	check func(t testing.TB, r request, d announce.Delivery)
}

const signingKey = "verysecretkey4"

var receiverTypes = map[string]receiverType{
	announce.ReceiverTypeSlack: {
		ref:     secretRef("url", ""),
		secret:  func(server string) map[string]string { return map[string]string{"url": server + secretPath} },
		secrets: []string{"T0SECRET1", "B0SECRET2", "verysecrettoken3"},
		accepts: "ok", check: checkSlack,
	},
	announce.ReceiverTypeSlackApp: {
		ref:     secretRef("token", "#shop"),
		secret:  func(string) map[string]string { return map[string]string{"token": botToken} },
		secrets: []string{botToken, "verysecrettoken3"},
		accepts: `{"ok":true}`, fixedServer: true, check: checkSlack,
	},
	announce.ReceiverTypeWebhook: {
		ref: secretRef("address", ""),
		secret: func(server string) map[string]string {
			return map[string]string{"address": server + "/hook/verysecretpath5?code=verysecretcode6", "token": signingKey, "headers": "Authorization: Bearer verysecretbearer7"}
		},
		secrets: []string{signingKey, "verysecretpath5", "verysecretcode6", "verysecretbearer7"},
		check:   checkWebhook,
	},
	announce.ReceiverTypeTeams: {
		ref: secretRef("address", ""),
		secret: func(server string) map[string]string {
			return map[string]string{"address": server + "/workflows/verysecretpath5/triggers/manual/paths/invoke?sig=verysecretcode6"}
		},
		secrets: []string{"verysecretpath5", "verysecretcode6"},
		check:   checkTeams,
	},
	announce.ReceiverTypeAlertmanager: {
		ref: secretRef("address", ""),
		secret: func(server string) map[string]string {
			return map[string]string{"address": server + "/verysecretpath5\n", "username": "robot", "password": mailPassword, "headers": "X-Scope-OrgID: verysecretheader9"}
		},
		secrets: []string{"verysecretpath5", mailPassword, "verysecretheader9", basicAuthorization},
		check:   checkAlertmanager,
	},
	announce.ReceiverTypeEmail: {
		ref: mailRef,
		secret: func(string) map[string]string {
			return map[string]string{"username": mailUser, "password": mailPassword + "\n"}
		},
		secrets: []string{mailPassword},
		isMail:  true, check: checkMail,
	},
}

func (r receiverType) plainScheme() string {
	if r.isMail {
		return "smtp"
	}
	return "http"
}

// secretRef references the receiver's Secret.
func secretRef(key, channel string) func(string) announce.ReceiverRef {
	return func(string) announce.ReceiverRef {
		return announce.ReceiverRef{Namespace: "shop", SecretName: "team", SecretKey: key, Channel: channel}
	}
}

// request is a request that the server got.
type request struct {
	path   string
	header http.Header
	body   []byte
}

// checkSlack checks a message to Slack.
func checkSlack(t testing.TB, r request, _ announce.Delivery) {
	t.Helper()
	for _, violation := range standin.Check(r.body) {
		t.Errorf("Slack would not take the message, or we do not want it: %s %s", violation.Error, violation.Detail)
	}
}

// checkWebhook checks what the page on receivers promises about requests to a webhook.
func checkWebhook(t testing.TB, r request, d announce.Delivery) {
	t.Helper()
	mac := hmac.New(sha256.New, []byte(signingKey))
	mac.Write(r.body)
	want := map[string]string{
		"Content-Type": "application/cloudevents+json; charset=utf-8", "Idempotency-Key": `"` + d.Message.ID + `"`,
		"X-Signature": "sha256=" + hex.EncodeToString(mac.Sum(nil)), "Authorization": "Bearer verysecretbearer7", "User-Agent": "scanner-operator",
	}
	got := map[string]string{}
	for name := range want {
		got[name] = r.header.Get(name)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
	if r.path != "/hook/verysecretpath5?code=verysecretcode6" {
		t.Errorf("path %s, want that of the address", r.path)
	}
	var event cloudevents.Event
	if err := json.Unmarshal(r.body, &event); err != nil {
		t.Fatalf("not a CloudEvent: %v", err)
	}
	if err := event.Validate(); err != nil || event.ID() != d.Message.ID || event.Type() != webhook.EventType {
		t.Errorf("event %s, error %v, want the message's ID", event, err)
	}
	decoder := json.NewDecoder(bytes.NewReader(event.Data()))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&webhook.Data{}); err != nil {
		t.Errorf("data: %v", err)
	}
}

var basicAuthorization = base64.StdEncoding.EncodeToString([]byte("robot:" + mailPassword))

// checkAlertmanager checks that a request has what Alertmanager requires of alerts.
func checkAlertmanager(t testing.TB, r request, d announce.Delivery) {
	t.Helper()
	got := []string{r.path, r.header.Get("Content-Type"), r.header.Get("Authorization"), r.header.Get("X-Scope-OrgID")}
	if diff := cmp.Diff([]string{"/verysecretpath5/api/v2/alerts", "application/json", "Basic " + basicAuthorization, "verysecretheader9"}, got); diff != "" {
		t.Errorf("path and headers (-want +got):\n%s", diff)
	}
	var alerts []alertmanager.Alert
	decoder := json.NewDecoder(bytes.NewReader(r.body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&alerts); err != nil {
		t.Fatalf("no alerts: %v", err)
	}
	if want := len(d.Alerts.List) + 1; len(alerts) != want || alerts[want-1].Labels["alertname"] != alertmanager.MoreAlert {
		t.Errorf("%d alerts, want %d, the last of which counts those that are missing", len(alerts), want)
	}
	for _, alert := range alerts {
		if alert.Labels["alertname"] == "" || alert.Labels["severity"] == "" || alert.Annotations["summary"] == "" || !alert.EndsAt.Equal(d.Alerts.EndsAt) {
			t.Errorf("the alert %+v", alert)
		}
		for _, address := range []string{alert.GeneratorURL, alert.Annotations["link"]} {
			if u, err := url.Parse(address); address != "" && (err != nil || u.Scheme != "https") {
				t.Errorf("a link to %q", address)
			}
		}
		for name, value := range alert.Labels {
			if value == "" || !utf8.ValidString(value) {
				t.Errorf("the label %s is %q", name, value)
			}
		}
	}
}

// maxTeamsBytes is the limit of Teams for a card (https://learn.microsoft.com/microsoftteams/limits-specifications-teams#chat), as a text within JSON.
const maxTeamsBytes = 28 << 10

// checkTeams checks the limits of Teams, and that a card has only text and links.
func checkTeams(t testing.TB, r request, _ announce.Delivery) {
	t.Helper()
	if n := len(must(json.Marshal(string(r.body)))); n > maxTeamsBytes {
		t.Errorf("the card has %d bytes, more than Teams takes", n)
	}
	var message struct {
		Type        string
		Attachments []struct {
			ContentType string
			Content     struct {
				Schema       string `json:"$schema"`
				Type         string
				Version      string
				FallbackText string
				MSTeams      struct{ Width string }
				Body         []struct {
					Type      string
					Spacing   string
					Separator bool
					Inlines   []struct {
						Type, Text, Size, Weight, FontType string
						IsSubtle                           bool
						SelectAction                       *struct{ Type, URL string }
					}
				}
			}
		}
	}
	decoder := json.NewDecoder(bytes.NewReader(r.body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&message); err != nil {
		t.Fatalf("not the body of a card: %v", err)
	}
	if message.Type != "message" || len(message.Attachments) != 1 || message.Attachments[0].ContentType != "application/vnd.microsoft.card.adaptive" {
		t.Fatalf("the message is %+v, want one card", message)
	}
	card := message.Attachments[0].Content
	if card.Type != "AdaptiveCard" || card.FallbackText == "" || len(card.Body) < 2 {
		t.Errorf("the card is %+v, want a title and a sender at least", card)
	}
	for _, block := range card.Body {
		if block.Type != "RichTextBlock" || len(block.Inlines) == 0 {
			t.Errorf("the block %+v has no text", block)
		}
		for _, run := range block.Inlines {
			if run.Type != "TextRun" || run.Text == "" {
				t.Errorf("the run %+v has no text", run)
			}
			if to := run.SelectAction; to != nil && (to.Type != "Action.OpenUrl" || !strings.HasPrefix(to.URL, "https://")) {
				t.Errorf("a link leads to %+v", to)
			}
		}
	}
}

// server is the server that a receiver's messages go to.
type server struct {
	// URL has the scheme smtps or smtp for a mail server.
	URL string
	// certificate is nil without TLS.
	certificate *x509.Certificate
	stop        func()

	mu sync.Mutex
	// answer answers requests; nil accepts all. isSilent is true for a mail server that takes a message and gives no answer.
	answer   http.HandlerFunc
	isSilent bool
	requests []request
}

// newServer returns a server for a type of receiver, which has TLS unless it is plain.
func newServer(t testing.TB, kind string, plain bool) *server {
	t.Helper()
	switch {
	case receiverTypes[kind].isMail:
		return newMailServer(t, plain)
	case plain:
		return startServer(t, kind, (*httptest.Server).Start)
	}
	return startServer(t, kind, (*httptest.Server).StartTLS)
}

// startServer returns a server for a type of receiver with HTTP.
func startServer(t testing.TB, kind string, start func(*httptest.Server)) *server {
	t.Helper()
	s, accepts := &server{}, receiverTypes[kind].accepts
	backend := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		s.requests = append(s.requests, request{path: r.URL.RequestURI(), header: r.Header, body: body})
		answer := s.answer
		s.mu.Unlock()
		if answer != nil {
			answer(w, r)
			return
		}
		_, _ = io.WriteString(w, accepts)
	}))
	start(backend)
	s.URL, s.certificate, s.stop = backend.URL, backend.Certificate(), backend.Close
	t.Cleanup(s.stop)
	return s
}

// host returns the server's host and port.
func (s *server) host() string { return must(url.Parse(s.URL)).Host }

// losesAnswers has the server take messages, and not answer.
func (s *server) losesAnswers(loses bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isSilent, s.answer = loses, nil; loses {
		s.answer = func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	}
}

func (s *server) answers(answer http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

func (s *server) got() []request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// contract is a notifier with one receiver.
type contract struct {
	*world
	kind   string
	of     receiverType
	server *server
}

// impatient is a receiver with a deadline of its own.
type impatient struct {
	notifier.Receiver
	deadline time.Duration
}

func (i impatient) Post(ctx context.Context, to receiver.Address, d announce.Delivery) announce.Outcome {
	ctx, cancel := context.WithTimeout(ctx, i.deadline)
	defer cancel()
	return i.Receiver.Post(ctx, to, d)
}

// newContract returns a notifier that trusts the server's certificate and allows the server, or the given hosts. It waits for an answer as long as a
// busy machine may need.
func newContract(t testing.TB, kind string, s *server, hosts ...string) *contract {
	t.Helper()
	return newContractWithin(t, kind, s, 20*time.Second, hosts...)
}

// deadlineOf returns how long to wait for the answer of a server: not long for one that gives none.
func deadlineOf(says string) time.Duration {
	if strings.Contains(says, "no answer in time") {
		return time.Second
	}
	return 20 * time.Second
}

// newContractWithin does what newContract does, and waits as long as the deadline.
func newContractWithin(t testing.TB, kind string, s *server, deadline time.Duration, hosts ...string) *contract {
	t.Helper()
	return newContractWith(t, kind, s, contractSettings{deadline: deadline}, hosts...)
}

// contractSettings are how long a receiver may take, and when the notifier answers at the latest.
type contractSettings struct{ deadline, answerWithin time.Duration }

func newContractWith(t testing.TB, kind string, s *server, settings contractSettings, hosts ...string) *contract {
	t.Helper()
	c := &contract{world: newBareWorld(t), kind: kind, of: receiverTypes[kind], server: s}
	c.answerWithin = settings.answerWithin
	roots := x509.NewCertPool()
	if s.certificate != nil {
		roots.AddCert(s.certificate)
	}
	receivers := notifier.NewReceivers(notifier.Network{Network: receiver.Network{Roots: receiver.Trusting(roots)}, SlackAPI: s.URL})
	if len(hosts) == 0 {
		hosts = []string{s.host()}
	}
	c.start(map[string]notifier.Receiver{kind: impatient{receivers[kind], settings.deadline}}, hosts...)
	c.cluster.secrets["shop/team"] = c.of.secret(s.URL)
	return c
}

// delivery is a delivery of a message to the receiver.
func (c *contract) delivery(m announce.Message) announce.Delivery {
	ref := c.of.ref(c.server.URL)
	ref.Type = c.kind
	d := announce.Delivery{Receiver: ref, Message: m}
	if c.kind == announce.ReceiverTypeAlertmanager {
		d.Alerts = alertsOf(m)
	}
	return d
}

// alertsOf returns alerts with the names of a message.
func alertsOf(m announce.Message) *announce.Alerts {
	alerts := &announce.Alerts{EndsAt: noon.Add(time.Hour), More: 1}
	for _, section := range m.Sections {
		for _, item := range section.Items {
			alerts.List = append(alerts.List, announce.Alert{
				Namespace: "shop", Workload: strings.Join(section.Workloads, ""), Image: section.Repository, Vulnerability: item.ID, Package: item.Package, Version: item.Version,
				FixedIn: item.FixedIn, Severity: item.Severity, KnownExploited: true, URL: item.URL, StartsAt: item.FirstSeen,
			})
		}
	}
	return alerts
}

// deliver sends a message as the manager does, and checks that no output shows a secret or a document of the server.
func (c *contract) deliver(m announce.Message) announce.Outcome {
	c.t.Helper()
	outcome := c.manager.Send(c.t.Context(), c.delivery(m))
	for where, text := range map[string]string{"outcome": fmt.Sprint(outcome), "log": c.logs.String(), "metrics": fmt.Sprint(must(c.registry.Gather()))} {
		for _, secret := range append(c.of.secrets, managerToken, "<html") {
			if strings.Contains(text, secret) {
				c.t.Errorf("the %s shows %s:\n%s", where, secret, text)
			}
		}
	}
	return outcome
}

// forEachHTTPType runs a test for each type of receiver whose server has HTTP.
func forEachHTTPType(t *testing.T, test func(t *testing.T, kind string)) {
	t.Helper()
	forEachType(t, func(t *testing.T, kind string) {
		if !receiverTypes[kind].isMail {
			test(t, kind)
		}
	})
}

// forEachType runs a test for each type of receiver.
func forEachType(t *testing.T, test func(t *testing.T, kind string)) {
	t.Helper()
	want := slices.Sorted(maps.Keys(notifier.NewReceivers(notifier.Network{})))
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(receiverTypes))); diff != "" {
		t.Fatalf("types that the contract covers (-want +got):\n%s", diff)
	}
	for kind := range receiverTypes {
		t.Run(kind, func(t *testing.T) { test(t, kind) })
	}
}

// TestContractOutcomes: the same answer, or failure, of a server has the same outcome for each type of receiver with HTTP.
func TestContractOutcomes(t *testing.T) {
	status := func(code int, header ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			for i := 0; i+1 < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			w.WriteHeader(code)
			// A server, or a proxy, may repeat whatever the request has.
			_, _ = fmt.Fprintf(w, "<html>%s %v</html>", r.URL, r.Header)
		}
	}
	delivered := announce.Outcome{Result: announce.Delivered}
	refused := announce.Outcome{Result: announce.Permanent, Reason: announce.ReasonReceiverRefused}
	failed := announce.Outcome{Result: announce.Temporary, Reason: announce.ReasonReceiverFailed}
	lost := announce.Outcome{Result: announce.UnknownOutcome, Reason: announce.ReasonAnswerLost}
	wait := func(seconds int) announce.Outcome {
		return announce.Outcome{Result: announce.RateLimited, Reason: announce.ReasonReceiverLimited, RetryAfter: time.Duration(seconds) * time.Second}
	}
	for name, tt := range map[string]struct {
		answer http.HandlerFunc
		want   announce.Outcome
		says   string
	}{
		"accepted":                 {nil, delivered, ""},
		"301":                      {status(301, "Location", "/elsewhere"), refused, "answers 301 Moved Permanently"},
		"302":                      {status(302, "Location", "/elsewhere"), refused, "answers 302 Found"},
		"307":                      {status(307, "Location", "/elsewhere"), refused, "answers 307 Temporary Redirect"},
		"308 to an address inside": {status(308, "Location", "https://169.254.169.254/"), refused, "answers 308 Permanent Redirect"},
		"304":                      {status(304), refused, "answers 304 Not Modified"},
		"400":                      {status(400), refused, "answers 400 Bad Request"},
		"401":                      {status(401), refused, "answers 401 Unauthorized"},
		"403":                      {status(403), refused, "answers 403 Forbidden"},
		"404":                      {status(404), refused, "answers 404 Not Found"},
		"405":                      {status(405), refused, "answers 405 Method Not Allowed"},
		"410":                      {status(410), refused, "answers 410 Gone"},
		"413":                      {status(413), refused, " KiB, more than the receiver or a proxy in front of it accepts: raise the limit"},
		"415":                      {status(415), refused, "answers 415 Unsupported Media Type"},
		"422":                      {status(422), refused, "answers 422 Unprocessable Entity"},
		"an unknown refusal":       {status(499), refused, "answers 499"},
		"408":                      {status(408), failed, "answers 408 Request Timeout"},
		"425":                      {status(425), failed, "answers 425 Too Early"},
		"500":                      {status(500), failed, "answers 500 Internal Server Error"},
		"501":                      {status(501), failed, "answers 501 Not Implemented"},
		"502":                      {status(502), failed, "answers 502 Bad Gateway"},
		"503":                      {status(503), failed, "answers 503 Service Unavailable"},
		"504":                      {status(504), failed, "answers 504 Gateway Timeout"},
		"429":                      {status(429, "Retry-After", "17"), wait(17), "requests a wait of 17s"},
		"429 without a time":       {status(429), wait(30), "requests a wait of 30s"},
		"429 with a date":          {status(429, "Retry-After", "Wed, 21 Oct 2026 07:28:00 GMT"), wait(30), ""},
		"429 for a day":            {status(429, "Retry-After", "86400"), wait(3600), ""},
		"503 with a time":          {status(503, "Retry-After", "90"), wait(90), "requests a wait of 1m30s"},
		"a word that repeats the address": {func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, lastPart(r))
		}, refused, ""},
		"an endless refusal": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadRequest)
			for {
				if _, err := w.Write(make([]byte, 1<<16)); err != nil {
					return
				}
			}
		}, refused, "answers 400 Bad Request"},
		"a refusal that dribbles": {func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
			for r.Context().Err() == nil {
				if _, err := w.Write([]byte("x")); err != nil {
					return
				}
				_ = http.NewResponseController(w).Flush()
			}
		}, failed, "answers 500"},
		"endless headers": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Long", strings.Repeat("x", 1<<20))
		}, lost, "answer was lost"},
		"no answer": {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, lost, "answer was lost: no answer in time"},
		"cut off":   {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, lost, "answer was lost"},
		"not HTTP": {func(w http.ResponseWriter, _ *http.Request) {
			connection, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				_, _ = io.WriteString(connection, "220 mail.example.com ESMTP\r\n")
				_ = connection.Close()
			}
		}, lost, "answer was lost"},
	} {
		t.Run(name, func(t *testing.T) {
			forEachHTTPType(t, func(t *testing.T, kind string) {
				s := newServer(t, kind, false)
				c := newContractWithin(t, kind, s, deadlineOf(tt.says))
				s.answers(tt.answer)
				got := c.deliver(delivery("1").Message)
				if !strings.Contains(got.Message, tt.says) {
					t.Errorf("message %q, want in it %q", got.Message, tt.says)
				}
				got.Message = ""
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("outcome (-want +got):\n%s", diff)
				}
				if requests := s.got(); len(requests) != 1 {
					t.Errorf("the server got %d requests, want 1", len(requests))
				}
			})
		})
	}
}

// TestContractSuccess: an answer with a status of success counts only if it is one of the receiver's. The page of a proxy is not.
func TestContractSuccess(t *testing.T) {
	const page = "<html><title>This site is blocked by your administrator</title></html>"
	for name, tt := range map[string]struct {
		body string
		// isForeign reports whether the answer is none of a receiver's that accepts with this body.
		isForeign func(accepts string) bool
	}{
		"a page":              {page, func(string) bool { return true }},
		"a page with a type":  {"\n<!DOCTYPE html>" + page, func(string) bool { return true }},
		"a page with a mark":  {"\xef\xbb\xbf<!DOCTYPE html>" + page, func(string) bool { return true }},
		"a page with XML":     {"<?xml version=\"1.0\"?>\n<!-- portal -->" + page, func(string) bool { return true }},
		"a page of a script":  {strings.Repeat("\n", 4000) + "<script>location='https://login.example.com'</script>", func(string) bool { return true }},
		"nothing":             {"", func(accepts string) bool { return accepts != "" }},
		"a text":              {"no_service", func(accepts string) bool { return accepts != "" }},
		"a text that has ok":  {"it looks ok", func(accepts string) bool { return accepts != "" }},
		"a line that accepts": {"", nil},
	} {
		t.Run(name, func(t *testing.T) {
			forEachHTTPType(t, func(t *testing.T, kind string) {
				s := newServer(t, kind, false)
				c := newContract(t, kind, s)
				body, want := tt.body, announce.Delivered
				switch accepts := c.of.accepts; {
				case tt.isForeign == nil:
					body = accepts + "\n"
				case tt.isForeign(accepts):
					want = announce.UnknownOutcome
				}
				s.answers(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) })
				if got := c.deliver(delivery("1").Message); got.Result != want || want != announce.Delivered && got.Reason != announce.ReasonAnswerLost {
					t.Errorf("outcome of %q %+v, want %s", body, got, want)
				}
			})
		})
	}
}

// TestContractCutAnswers: where the text of an answer decides, one that is cut short is lost, and no other server's. Elsewhere the status counts.
func TestContractCutAnswers(t *testing.T) {
	forEachHTTPType(t, func(t *testing.T, kind string) {
		s := newServer(t, kind, false)
		c := newContract(t, kind, s)
		s.answers(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "500")
			_, _ = io.WriteString(w, c.of.accepts[:len(c.of.accepts)/2])
		})
		got := c.deliver(delivery("1").Message)
		if c.of.accepts == "" {
			if got.Result != announce.Delivered {
				t.Errorf("outcome %+v, want Delivered", got)
			}
		} else if got.Result != announce.UnknownOutcome || got.Reason != announce.ReasonAnswerLost || !strings.Contains(got.Message, "answer was lost") {
			t.Errorf("outcome %+v, want that the answer was lost", got)
		}
	})
}

// lastPart returns the last part of a request's path, which is often the secret one.
func lastPart(r *http.Request) string { return r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:] }

// TestContractConnections: without a connection, a message was certainly not sent.
func TestContractConnections(t *testing.T) {
	for name, tt := range map[string]struct {
		arrange func(c *contract)
		says    string
	}{
		"nobody listens": {func(c *contract) { c.server.stop() }, "connection refused"},
		"the certificate is not trusted": {func(c *contract) {
			receivers := notifier.NewReceivers(notifier.Network{Network: receiver.Network{Roots: receiver.Trusting(x509.NewCertPool())}, SlackAPI: c.server.URL})
			c.registry = prometheus.NewRegistry()
			c.start(map[string]notifier.Receiver{c.kind: receivers[c.kind]}, c.server.host())
			c.cluster.secrets["shop/team"] = c.of.secret(c.server.URL)
		}, "certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			forEachType(t, func(t *testing.T, kind string) {
				c := newContract(t, kind, newServer(t, kind, false))
				tt.arrange(c)
				got := c.deliver(delivery("1").Message)
				if got.Result != announce.Temporary || got.Reason != announce.ReasonNetwork || !strings.Contains(got.Message, tt.says) {
					t.Errorf("outcome %+v, want Temporary, Network and %q", got, tt.says)
				}
				if n := len(c.server.got()); n != 0 {
					t.Errorf("the server got %d requests, want none", n)
				}
			})
		})
	}
}

// TestContractDuplicates: a delivered message is not sent again under its ID for a day. One whose answer was lost is sent again, the same.
func TestContractDuplicates(t *testing.T) {
	forEachType(t, func(t *testing.T, kind string) {
		s := newServer(t, kind, false)
		c := newContract(t, kind, s)
		first, second := delivery("1").Message, delivery("2").Message
		for range 3 {
			if got := c.deliver(first); got.Result != announce.Delivered {
				t.Fatalf("outcome %+v, want Delivered", got)
			}
		}
		c.pass(24 * time.Hour)
		c.deliver(first)
		if n := len(s.got()); n != 1 {
			t.Fatalf("the server has %d messages after a day, want 1", n)
		}
		s.losesAnswers(true)
		if got := c.deliver(second); got.Result != announce.UnknownOutcome {
			t.Errorf("outcome of a lost answer %+v, want Unknown", got)
		}
		s.losesAnswers(false)
		if got := c.deliver(second); got.Result != announce.Delivered {
			t.Errorf("outcome when sent again %+v, want Delivered", got)
		}
		requests := s.got()
		if len(requests) != 3 {
			t.Fatalf("the server has %d messages, want 3: without an answer it is sent twice", len(requests))
		}
		if diff := cmp.Diff(string(requests[1].body), string(requests[2].body)); diff != "" {
			t.Errorf("the message differs when it is sent again:\n%s", diff)
		}
		c.of.check(t, requests[2], c.delivery(second))
	})
}

// TestContractMessages: whatever names an image has, and however much there is to announce, the server accepts the message.
func TestContractMessages(t *testing.T) {
	for name, m := range map[string]announce.Message{
		"a finding":      delivery("1").Message,
		"hostile names":  fullMessage("\"}],<!channel> <script>alert(1)</script>\u202e\x00\x1b[31m\r\nX-Evil: 1\xff\u2028`*_~|", 1),
		"from the right": fullMessage("\u05d0\u05d1\u05d2", 1),
		"huge":           fullMessage(strings.Repeat("<&\"é", 64), 4),
		"a ClusterScanner": func() announce.Message {
			m := fullMessage("x", 1)
			m.ScannerKind, m.Namespace = announce.ClusterScannerKind, ""
			return m
		}(),
		"nothing": {ID: strings.Repeat("0", 32)},
	} {
		t.Run(name, func(t *testing.T) {
			forEachType(t, func(t *testing.T, kind string) {
				s := newServer(t, kind, false)
				c := newContract(t, kind, s)
				if got := c.deliver(m); got.Result != announce.Delivered {
					t.Fatalf("outcome %+v, want Delivered", got)
				}
				r := s.got()[0]
				c.of.check(t, r, c.delivery(m))
				if len(r.body) > announce.MaxDeliveryBytes {
					t.Errorf("the request has %d bytes, more than %d", len(r.body), announce.MaxDeliveryBytes)
				}
			})
		})
	}
}

// TestContractTestMessages: whoever reads a test message sees that it is one. The alert of a test ends by itself, and counts as no finding.
func TestContractTestMessages(t *testing.T) {
	m := announce.Message{ID: strings.Repeat("0", 32), Kind: announce.KindTest, Namespace: "shop", Scanner: "default", CreatedAt: noon}
	forEachType(t, func(t *testing.T, kind string) {
		s := newServer(t, kind, false)
		c := newContract(t, kind, s)
		d := c.delivery(m)
		d.Alerts = nil
		if got := c.manager.Send(t.Context(), d); got.Result != announce.Delivered {
			t.Fatalf("outcome %+v, want Delivered", got)
		}
		body := s.got()[0].body
		if !strings.Contains(string(body), "Test message for shop") {
			t.Errorf("nothing says that it is a test: %s", body)
		}
		if kind == announce.ReceiverTypeAlertmanager {
			var alerts []alertmanager.Alert
			if err := json.Unmarshal(body, &alerts); err != nil || len(alerts) != 1 || alerts[0].Labels["alertname"] != alertmanager.TestAlert || !alerts[0].EndsAt.After(noon) ||
				alerts[0].EndsAt.Sub(noon) > time.Hour {
				t.Errorf("alerts %+v, %v, want one of its own name that ends within the hour", alerts, err)
			}
			return
		}
		c.of.check(t, s.got()[0], d)
	})
}

// fullMessage returns a message with every part, n of each, whose names are all the given text.
func fullMessage(text string, n int) announce.Message {
	item := announce.Item{
		Change: diff.ChangeEscalated, ID: text, Severity: finding.Critical, SeverityBefore: finding.Low, Package: text, Version: text, FixedIn: text,
		FixState: text, EPSS: 0.5, KnownExploited: true, URL: "https://example.com/" + text, FirstSeen: noon, FixSince: noon, ExploitedSince: noon,
		ExceptionEnded: true, Repository: text, Workloads: []string{text}, MoreWorkloads: 1, WorkloadNamespaces: 1,
	}
	action := announce.UpdateAction{
		Repository: text, References: []string{text}, Workloads: []string{text}, MoreWorkloads: 1, WorkloadNamespaces: 1, Package: text, Versions: []string{text},
		MoreVersions: 1, Fixes: []announce.Fix{{Version: text, Findings: 1}}, Ends: finding.Counts{Critical: 1}, AtLeast: true, Items: 1,
	}
	section := announce.Section{
		Repository: text, References: []string{text}, Workloads: []string{text}, MoreWorkloads: 1, WorkloadNamespaces: 1, FirstTime: true,
		Totals: finding.Counts{Critical: 1}, Actions: slices.Repeat([]announce.UpdateAction{action}, n), MoreActions: 1,
		Items: slices.Repeat([]announce.Item{item}, n), MoreItems: 1,
	}
	namespace := announce.NamespaceSummary{Namespace: text, Totals: finding.Counts{High: 1}, Images: 1, Actions: []announce.UpdateAction{action}}
	notice := announce.Notice{
		ID: text, Kind: announce.NoticeImagesFailed, Since: noon, Until: noon, Reason: text, Name: text, Detail: text, Count: 1, Examples: []string{text},
	}
	return announce.Message{
		ID: strings.Repeat("a", 32), Kind: announce.KindChanges, Namespace: "shop", Scanner: "default", CreatedAt: noon, Engine: text, EngineBefore: text,
		Totals: finding.Counts{Critical: n}, Suppressed: 1, RestoredFrom: noon, NotAnnounced: 1, Changes: map[diff.Change]int{diff.ChangeEscalated: n}, Images: n,
		Sections: slices.Repeat([]announce.Section{section}, n), Rest: announce.Rest{Images: 1, Findings: 1, Repositories: []string{text}},
		NewImages: slices.Repeat([]string{text}, n), MoreNewImages: 1, Notices: slices.Repeat([]announce.Notice{notice}, n),
		Actions: []announce.UpdateAction{action}, MoreActions: 1, Worst: []announce.Item{item}, Namespaces: []announce.NamespaceSummary{namespace}, MoreNamespaces: 1,
		JoinedNamespaces: []announce.NamespaceSummary{namespace}, MoreJoinedNamespaces: 1,
		Remaining:   announce.Remaining{Pending: 1, Failed: map[string]int{text: 1}, Excluded: 1, Partly: 1},
		Unconfirmed: &announce.Unconfirmed{Count: 1, Since: noon, Title: text}, ReadMore: text, WebUI: "https://scanner.example.com",
	}
}

// TestContractHosts: a receiver gets messages only at hosts, ports and addresses that the administrator allows, and over TLS unless the
// administrator allows plain HTTP for the host.
func TestContractHosts(t *testing.T) {
	const notAllowed, addAdvice = announce.ReasonInvalidURL, "--allowed-webhook-hosts"
	for name, tt := range map[string]struct {
		// plain starts the server without TLS. byName has the Secret name the server localhost, and not 127.0.0.1.
		plain, byName bool
		// allow is the list, in which SERVER is the host and port of the server.
		allow  string
		reason string
		says   string
	}{
		"a host that is not listed":             {allow: "hooks.slack.com", reason: notAllowed, says: addAdvice},
		"another port":                          {allow: "127.0.0.1", reason: notAllowed, says: addAdvice},
		"a listed host":                         {allow: "SERVER"},
		"a name with an address inside":         {byName: true, allow: "SERVER", reason: notAllowed, says: "not a public address: 127.0.0.1:"},
		"a name with an address that is listed": {byName: true, allow: "SERVER,127.0.0.0/8", reason: announce.ReasonNetwork, says: "not localhost"},
		"a wildcard for a name inside":          {byName: true, allow: "*.localhost.example.com", reason: notAllowed, says: addAdvice},
		"plain HTTP":                            {plain: true, allow: "SERVER", reason: notAllowed, says: "only the administrator can allow that"},
		"plain HTTP, which is listed":           {plain: true, allow: "http://SERVER"},
	} {
		t.Run(name, func(t *testing.T) {
			forEachType(t, func(t *testing.T, kind string) {
				of := receiverTypes[kind]
				if of.fixedServer {
					return
				}
				s := newServer(t, kind, tt.plain)
				at := must(url.Parse(s.URL))
				if tt.byName {
					at.Host = "localhost:" + at.Port()
				}
				allow := strings.Replace(tt.allow, "http:", of.plainScheme()+":", 1)
				c := newContract(t, kind, s, strings.Split(strings.ReplaceAll(allow, "SERVER", at.Host), ",")...)
				s.URL = at.String()
				c.cluster.secrets["shop/team"] = of.secret(s.URL)
				got := c.deliver(delivery("1").Message)
				if got.Reason != tt.reason || !strings.Contains(got.Message, tt.says) {
					t.Errorf("outcome %+v, want the reason %q and %q", got, tt.reason, tt.says)
				}
				if delivered, n := got.Result == announce.Delivered, len(s.got()); delivered != (tt.reason == "") || delivered != (n == 1) {
					t.Errorf("outcome %+v and %d requests", got, n)
				}
			})
		})
	}
}

// TestWebhookSlowsDownOneSender: whoever posts to the URL of another namespace's webhook with other credentials, and is asked to wait, stops no
// message of that namespace. With the same credentials, the server takes both for one sender.
func TestWebhookSlowsDownOneSender(t *testing.T) {
	s := newServer(t, announce.ReceiverTypeWebhook, false)
	s.answers(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer verysecretbearer7" {
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	})
	c := newContract(t, announce.ReceiverTypeWebhook, s)
	stranger := c.delivery(delivery("1").Message)
	stranger.Receiver.Namespace = "blog"
	for name, credentials := range map[string]map[string]string{"headers": {"headers": "Authorization: Bearer guessed"}, "nothing": {"headers": "", "token": ""}} {
		c.cluster.secrets["blog/team"] = c.of.secret(s.URL)
		maps.Copy(c.cluster.secrets["blog/team"], credentials)
		if got := c.manager.Send(t.Context(), stranger); got.Result != announce.RateLimited {
			t.Fatalf("%s: outcome for the stranger %+v, want RateLimited", name, got)
		}
	}
	if got := c.deliver(delivery("2").Message); got.Result != announce.Delivered {
		t.Errorf("outcome for the namespace whose webhook it is %+v, want Delivered", got)
	}
	s.answers(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	c.deliver(delivery("3").Message)
	c.cluster.secrets["blog/team"] = c.of.secret(s.URL)
	before := len(s.got())
	if got := c.manager.Send(t.Context(), stranger); got.Result != announce.RateLimited || len(s.got()) != before {
		t.Errorf("outcome with the same credentials %+v after %d more requests, want RateLimited without one", got, len(s.got())-before)
	}
}

// TestWebhookSecret: each mistake in a webhook's Secret names its key and not its value.
func TestWebhookSecret(t *testing.T) {
	for name, tt := range map[string]struct {
		key, value   string
		reason, says string
	}{
		"no headers":        {"headers", "", "", ""},
		"two headers":       {"headers", "X-A: verysecretbearer7\nX-B: b\n", "", ""},
		"no signature":      {"token", "", "", ""},
		"empty":             {"address", " \n", announce.ReasonInvalidURL, "key address of Secret team in namespace shop is empty"},
		"no URL":            {"address", "verysecretpath5", announce.ReasonInvalidURL, "is not an https URL"},
		"another scheme":    {"address", "ftp://example.com/verysecretpath5", announce.ReasonInvalidURL, "is not an https URL"},
		"a user":            {"address", "https://verysecretpath5@example.com/", announce.ReasonInvalidURL, "user name"},
		"too long":          {"address", "https://example.com/" + strings.Repeat("x", 2048), announce.ReasonInvalidURL, "too long"},
		"a long token":      {"token", strings.Repeat("x", 1025), announce.ReasonInvalidToken, "key token of Secret team in namespace shop is longer than 1024 bytes"},
		"no map":            {"headers", "verysecretbearer7", announce.ReasonInvalidToken, "key headers of Secret team in namespace shop is not a map"},
		"a map of maps":     {"headers", "Authorization: {a: verysecretbearer7}", announce.ReasonInvalidToken, "is not a map"},
		"a name with space": {"headers", "\"X A\": verysecretbearer7", announce.ReasonInvalidToken, "a name that no header can have"},
		"a line break":      {"headers", "X-A: \"verysecretbearer7\\r\\nX-B: b\"", announce.ReasonInvalidToken, "control characters, for the header \"X-A\""},
		"a long value":      {"headers", "X-A: " + strings.Repeat("x", 4097), announce.ReasonInvalidToken, "too long"},
		"a header twice":    {"headers", "X-Key: verysecretbearer7\nx-key: other", announce.ReasonInvalidToken, "the header \"X-Key\" twice"},
		"our signature":     {"headers", "x-signature: verysecretbearer7", announce.ReasonInvalidToken, "the header X-Signature, which the notifier sets itself"},
		"another host":      {"headers", "Host: verysecretbearer7", announce.ReasonInvalidToken, "the header Host"},
		"many headers":      {"headers", manyHeaders(), announce.ReasonInvalidToken, "more than 16 headers"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newContract(t, announce.ReceiverTypeWebhook, newServer(t, announce.ReceiverTypeWebhook, false))
			c.cluster.secrets["shop/team"][tt.key] = tt.value
			got := c.deliver(delivery("1").Message)
			if got.Reason != tt.reason || !strings.Contains(got.Message, tt.says) {
				t.Errorf("outcome %+v, want the reason %q and %q", got, tt.reason, tt.says)
			}
			for _, r := range c.server.got() {
				if _, signed := r.header["X-Signature"]; signed == (tt.key == "token") {
					t.Errorf("the request is signed: %t", signed)
				}
			}
		})
	}
}

func manyHeaders() string {
	var all strings.Builder
	for i := range 17 {
		fmt.Fprintf(&all, "X-%d: a\n", i)
	}
	return all.String()
}

// TestAlertmanagerSecret: each mistake in an Alertmanager's Secret names its key and not its value.
func TestAlertmanagerSecret(t *testing.T) {
	for name, tt := range map[string]struct {
		secret       map[string]string
		reason, says string
		want         string
	}{
		"a user":                  {nil, "", "", "Basic " + basicAuthorization},
		"a token":                 {map[string]string{"username": "", "token": "verysecrettoken7\n"}, "", "", "Bearer verysecrettoken7"},
		"nothing":                 {map[string]string{"username": "", "headers": ""}, "", "", ""},
		"a user and a token":      {map[string]string{"token": "verysecrettoken7"}, announce.ReasonInvalidToken, "key token of Secret team in namespace shop stands beside username", ""},
		"a token of a line":       {map[string]string{"username": "", "token": "verysecrettoken7\r\nX-A: b"}, announce.ReasonInvalidToken, "key token of Secret team in namespace shop has control characters", ""},
		"a long password":         {map[string]string{"password": strings.Repeat("x", 1025)}, announce.ReasonInvalidToken, "key password of Secret team in namespace shop has", ""},
		"headers that are no map": {map[string]string{"headers": "verysecretheader9"}, announce.ReasonInvalidToken, "key headers of Secret team in namespace shop is not a map", ""},
		"a user and a header":     {map[string]string{"headers": "authorization: verysecretheader9"}, announce.ReasonInvalidToken, "key headers of Secret team in namespace shop has the header Authorization", ""},
		"no address":              {map[string]string{"address": " "}, announce.ReasonInvalidURL, "key address of Secret team in namespace shop is empty", ""},
		"no URL":                  {map[string]string{"address": "verysecretpath5"}, announce.ReasonInvalidURL, "is not an https URL", ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := newContract(t, announce.ReceiverTypeAlertmanager, newServer(t, announce.ReceiverTypeAlertmanager, false))
			maps.Copy(c.cluster.secrets["shop/team"], tt.secret)
			got := c.deliver(delivery("1").Message)
			if got.Reason != tt.reason || !strings.Contains(got.Message, tt.says) || strings.Contains(got.Message+c.logs.String(), "verysecret") {
				t.Errorf("outcome %+v, want the reason %q and %q", got, tt.reason, tt.says)
			}
			for _, r := range c.server.got() {
				if authorization := r.header.Get("Authorization"); authorization != tt.want {
					t.Errorf("authorization %q, want %q", authorization, tt.want)
				}
			}
		})
	}
}
