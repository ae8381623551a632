package notifier_test

import (
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/announce"
)

const clientSecret = "verysecretclient+1"

// tokenEndpoint is a token server. It gives mailPassword as the access token, unless answer gives another answer.
type tokenEndpoint struct {
	*httptest.Server
	answer   func(w http.ResponseWriter)
	requests atomic.Int32
}

// newMailWithTokens returns a notifier with a mail server that takes access tokens, and the token server that gives them, with certificates from an
// authority that only the Secret names.
func newMailWithTokens(t *testing.T, deadline time.Duration, allow func(tokenHost string) []string) (*contract, *tokenEndpoint) {
	t.Helper()
	certificate, config := mailCertificate(t, false)
	tokens := &tokenEndpoint{}
	tokens.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tokens.requests.Add(1)
		id, secret, _ := r.BasicAuth()
		if r.Method != http.MethodPost || r.FormValue("grant_type") != "client_credentials" || r.FormValue("scope") != "https://mail.example.com/.default" ||
			id != "client" || secret != url.QueryEscape(clientSecret) {
			t.Errorf("unexpected request %s %v by %s", r.Method, r.Form, id)
		}
		if tokens.answer != nil {
			tokens.answer(w)
			return
		}
		_, _ = fmt.Fprintf(w, `{"access_token":%q,"token_type":"Bearer","expires_in":3600}`, mailPassword)
	}))
	tokens.TLS, tokens.Config.ErrorLog = config.Clone(), nil
	tokens.StartTLS()
	t.Cleanup(tokens.Close)
	s := &server{}
	host, _ := serveMail(t, s, config, false, func(session *mailSession) { session.mechanisms = []string{"XOAUTH2"} })
	s.URL = "smtps://" + host
	c := newContractWithin(t, announce.ReceiverTypeEmail, s, deadline, append(allow(strings.TrimPrefix(tokens.URL, "https://")), host)...)
	c.cluster.secrets["shop/team"] = map[string]string{
		"username": mailUser, "tokenURL": tokens.URL + "/oauth2/token\n", "clientID": "client", "clientSecret": clientSecret + "\n", "scope": "https://mail.example.com/.default",
		"ca.crt": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Raw})),
	}
	return c, tokens
}

func onlyTokenHost(host string) []string { return []string{host} }

// TestMailClientCredentials: the notifier gets an access token with the client's credentials, and uses it until shortly before its end.
func TestMailClientCredentials(t *testing.T) {
	for name, tt := range map[string]struct {
		expires string
		want    int32
	}{
		"a token for an hour":        {`"expires_in":3600`, 1},
		"a token for half a minute":  {`"expires_in":30`, 3},
		"an age as text":             {`"expires_in":"3599"`, 1},
		"a token of unknown age":     {`"token_type":"Bearer"`, 3},
		"a token without an end":     {`"expires_in":1e300`, 1},
		"a token that ended already": {`"expires_in":-5`, 3},
	} {
		t.Run(name, func(t *testing.T) {
			c, tokens := newMailWithTokens(t, deadlineOf(""), onlyTokenHost)
			tokens.answer = func(w http.ResponseWriter) { _, _ = fmt.Fprintf(w, `{"access_token":%q,%s}`, mailPassword, tt.expires) }
			for _, id := range []string{"1", "2", "3"} {
				if got := c.deliver(delivery(id).Message); got.Result != announce.Delivered {
					t.Fatalf("outcome %+v, want that the message is delivered\n%s", got, c.logs)
				}
			}
			if n := tokens.requests.Load(); n != tt.want || len(c.server.got()) != 3 {
				t.Errorf("%d requests for a token and %d mails, want %d and 3", n, len(c.server.got()), tt.want)
			}
			if strings.Contains(c.logs.String(), "verysecret") {
				t.Errorf("a secret is in the log:\n%s", c.logs)
			}
		})
	}
}

// TestMailRevokedToken: after the mail server has refused a token that is cached, the next mail gets another one. So it does with other credentials.
func TestMailRevokedToken(t *testing.T) {
	c, tokens := newMailWithTokens(t, deadlineOf(""), onlyTokenHost)
	token := "verysecretpassword9"
	tokens.answer = func(w http.ResponseWriter) { _, _ = fmt.Fprintf(w, `{"access_token":%q,"expires_in":3600}`, token) }
	got := c.deliver(delivery("1").Message)
	if got.Reason != announce.ReasonReceiverRefused || !strings.Contains(got.Message, "the client may not send as the user in username") || strings.Contains(got.Message+c.logs.String(), "verysecret") {
		t.Errorf("outcome %+v, want that the token is refused, without the token\n%s", got, c.logs)
	}
	token = mailPassword
	if got := c.deliver(delivery("2").Message); got.Result != announce.Delivered {
		t.Errorf("outcome %+v with another token, want that the message is delivered", got)
	}
	c.cluster.secrets["shop/team"]["clientID"] = ""
	if got := c.deliver(delivery("3").Message); got.Reason != announce.ReasonInvalidToken {
		t.Errorf("outcome %+v without a client, want no use of the cached token", got)
	}
}

// TestMailTokenServer: what is wrong with the token server or its keys is named, without secrets, and no mail server gets anything.
func TestMailTokenServer(t *testing.T) {
	status := func(code int, body string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			w.Header().Set("Location", "https://127.0.0.1:1/")
			w.WriteHeader(code)
			_, _ = w.Write([]byte(body))
		}
	}
	none := func(string) []string { return nil }
	byName := func(host string) []string { return []string{strings.Replace(host, "127.0.0.1", "localhost", 1)} }
	plain := func(host string) []string { return []string{"http://" + host} }
	for name, tt := range map[string]struct {
		allow        func(string) []string
		secret       map[string]string
		change       func(tokenURL string) string
		answer       func(http.ResponseWriter)
		result       announce.Result
		reason, says string
	}{
		"a host that is not allowed":     {allow: none, reason: announce.ReasonInvalidURL, says: "key tokenURL of Secret team in namespace shop holds a URL of a host that the notifier may not post to"},
		"a name with an address inside":  {allow: byName, change: func(u string) string { return strings.Replace(u, "127.0.0.1", "localhost", 1) }, reason: announce.ReasonInvalidURL, says: "the host of the token server has an address that may not be connected to"},
		"no TLS, although it is allowed": {allow: plain, change: func(u string) string { return strings.Replace(u, "https:", "http:", 1) }, reason: announce.ReasonInvalidURL, says: "key tokenURL of Secret team in namespace shop is not an https URL"},
		"no URL":                         {secret: map[string]string{"tokenURL": ""}, reason: announce.ReasonInvalidURL, says: "key tokenURL of Secret team in namespace shop is empty"},
		"no secret":                      {secret: map[string]string{"clientSecret": ""}, reason: announce.ReasonInvalidToken, says: "key clientSecret of Secret team in namespace shop is empty"},
		"no user":                        {secret: map[string]string{"username": ""}, reason: announce.ReasonInvalidToken, says: "key username of Secret team in namespace shop is empty"},
		"a token beside it":              {secret: map[string]string{"token": mailPassword}, reason: announce.ReasonInvalidToken, says: "stands beside token"},
		"a password beside it":           {secret: map[string]string{"password": mailPassword}, reason: announce.ReasonInvalidToken, says: "stands beside password"},
		"a secret that is wrong":         {answer: status(401, `{"error":"invalid_client","error_description":"verysecret"}`), reason: announce.ReasonReceiverRefused, says: "the token server answers 401 Unauthorized: invalid_client; check the keys clientID and clientSecret"},
		"a scope that is wrong":          {answer: status(400, `{"error":"invalid_scope"}`), reason: announce.ReasonReceiverRefused, says: "the token server answers 400 Bad Request: invalid_scope; check the key scope"},
		"another path":                   {answer: status(404, `<html>verysecret`), reason: announce.ReasonReceiverRefused, says: "the token server answers 404 Not Found; check the keys tokenURL"},
		"a redirect":                     {answer: status(302, ``), reason: announce.ReasonReceiverRefused, says: "redirects are not followed"},
		"an outage":                      {answer: status(503, ``), result: announce.Temporary, reason: announce.ReasonReceiverFailed, says: "the token server answers 503"},
		"a page":                         {answer: status(200, `<html>verysecret`), result: announce.Temporary, reason: announce.ReasonReceiverFailed, says: "has no access token"},
		"a token that ends the line":     {answer: status(200, `{"access_token":"a\u0001\u0001b\r\n"}`), result: announce.Temporary, reason: announce.ReasonReceiverFailed, says: "has no access token"},
		"a token that is endless":        {answer: status(200, `{"access_token":"`+strings.Repeat("x", 8<<10+1)+`"}`), result: announce.Temporary, reason: announce.ReasonReceiverFailed, says: "at most 8192 bytes"},
		"no answer":                      {answer: func(http.ResponseWriter) { panic(http.ErrAbortHandler) }, result: announce.Temporary, reason: announce.ReasonNetwork, says: "the token server's answer was lost: EOF"},
		"an answer that is late":         {answer: func(http.ResponseWriter) { time.Sleep(deadlineOf("no answer in time") + time.Second) }, result: announce.Temporary, reason: announce.ReasonNetwork, says: "no answer in time"},
	} {
		t.Run(name, func(t *testing.T) {
			if tt.allow == nil {
				tt.allow = onlyTokenHost
			}
			if tt.result == "" {
				tt.result = announce.Permanent
			}
			c, tokens := newMailWithTokens(t, deadlineOf(tt.says), tt.allow)
			tokens.answer = tt.answer
			secret := c.cluster.secrets["shop/team"]
			for key, value := range tt.secret {
				secret[key] = value
			}
			if tt.change != nil {
				secret["tokenURL"] = tt.change(secret["tokenURL"])
			}
			got := c.deliver(delivery("1").Message)
			if got.Result != tt.result || got.Reason != tt.reason || !strings.Contains(got.Message, tt.says) || strings.Contains(got.Message+c.logs.String(), "verysecret") {
				t.Errorf("outcome %+v, want %s, the reason %s and %q\n%s", got, tt.result, tt.reason, tt.says, c.logs)
			}
			if n := len(c.server.got()); n > 0 || tt.answer == nil && tokens.requests.Load() > 0 {
				t.Errorf("%d mails and %d requests for a token, want none", n, tokens.requests.Load())
			}
		})
	}
}
