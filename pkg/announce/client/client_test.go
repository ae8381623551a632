package client_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/announce/client"
)

var someDelivery = announce.Delivery{
	Receiver: announce.ReceiverRef{Type: announce.ReceiverTypeSlack, Namespace: "shop", SecretName: "slack", SecretKey: "url"},
	Message:  announce.Message{ID: strings.Repeat("0", 32), Kind: announce.KindChanges},
}

// newNotifier starts a notifier with the given handler and returns a client configuration for it.
func newNotifier(t *testing.T, handler http.HandlerFunc) (*httptest.Server, client.Config) {
	t.Helper()
	server := httptest.NewTLSServer(handler)
	t.Cleanup(server.Close)
	return server, client.Config{URL: server.URL + "/", TokenFile: tokenFile(t, "secret-token\n"), CA: trust(server)}
}

func trust(server *httptest.Server) func() (*x509.CertPool, error) {
	return func() (*x509.CertPool, error) {
		pool := x509.NewCertPool()
		pool.AddCert(server.Certificate())
		return pool, nil
	}
}

func tokenFile(t *testing.T, token string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestSend: the notifier gets the message with the current token, and the client returns the whole outcome.
func TestSend(t *testing.T) {
	want := announce.Outcome{Result: announce.RateLimited, Reason: announce.ReasonReceiverLimited, Message: "later", RetryAfter: 17 * time.Second}
	var tokens []string
	_, config := newNotifier(t, func(w http.ResponseWriter, r *http.Request) {
		tokens = append(tokens, r.Header.Get("Authorization"))
		var got announce.Delivery
		if err := json.NewDecoder(r.Body).Decode(&got); err != nil || r.URL.Path != announce.DeliveryPath || r.Method != http.MethodPost {
			t.Errorf("%s %s with error %v, want POST %s with a delivery", r.Method, r.URL.Path, err, announce.DeliveryPath)
		}
		if diff := cmp.Diff(someDelivery, got); diff != "" {
			t.Errorf("delivery (-want +got):\n%s", diff)
		}
		w.WriteHeader(http.StatusTooManyRequests)
		_ = json.NewEncoder(w).Encode(want)
	})
	c := client.New(config)
	if diff := cmp.Diff(want, c.Send(t.Context(), someDelivery)); diff != "" {
		t.Errorf("outcome (-want +got):\n%s", diff)
	}
	if err := os.WriteFile(config.TokenFile, []byte("renewed-token"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.Send(t.Context(), someDelivery)
	if diff := cmp.Diff([]string{"Bearer secret-token", "Bearer renewed-token"}, tokens); diff != "" {
		t.Errorf("tokens (-want +got):\n%s", diff)
	}
}

// TestAnswers: each answer has its result. Only an answer with a matching outcome is a delivery.
func TestAnswers(t *testing.T) {
	announcement := func(result announce.Result) string { return fmt.Sprintf(`{"result":%q}`, result) }
	for name, tt := range map[string]struct {
		status int
		body   string
		want   announce.Result
		reason string
	}{
		"delivered":             {200, announcement(announce.Delivered), announce.Delivered, ""},
		"permanent":             {422, announcement(announce.Permanent), announce.Permanent, ""},
		"temporary":             {502, announcement(announce.Temporary), announce.Temporary, ""},
		"unknown":               {504, announcement(announce.UnknownOutcome), announce.UnknownOutcome, ""},
		"ok without an outcome": {200, "", announce.UnknownOutcome, announce.ReasonAnswerLost},
		"ok for somebody else":  {200, "<html>", announce.UnknownOutcome, announce.ReasonAnswerLost},
		"contradicts itself":    {200, announcement(announce.Temporary), announce.UnknownOutcome, announce.ReasonAnswerLost},
		"a proxy's 502":         {502, "bad gateway", announce.UnknownOutcome, announce.ReasonAnswerLost},
		"not authenticated":     {401, "no", announce.Temporary, announce.ReasonNotifierUnavail},
		"forbidden":             {403, "no", announce.Temporary, announce.ReasonNotifierUnavail},
		"malformed":             {400, "no", announce.Temporary, announce.ReasonNotifierUnavail},
		"somebody's conflict":   {409, "no", announce.Temporary, announce.ReasonNotifierUnavail},
		"too large":             {413, "no", announce.Temporary, announce.ReasonNotifierUnavail},
		"review failed":         {503, "no", announce.Temporary, announce.ReasonNotifierUnavail},
		"elsewhere":             {302, "", announce.Temporary, announce.ReasonNotifierUnavail},
	} {
		_, config := newNotifier(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Location", "https://127.0.0.1:1/")
			w.WriteHeader(tt.status)
			_, _ = io.WriteString(w, tt.body)
		})
		got := client.New(config).Send(t.Context(), someDelivery)
		if got.Result != tt.want || got.Reason != tt.reason {
			t.Errorf("%s: %+v, want %s %s", name, got, tt.want, tt.reason)
		}
	}
}

// TestSendWithEpoch: a delivery carries the epoch that the manager has at that time. The refusal of the notifier is an outcome with the reason.
func TestSendWithEpoch(t *testing.T) {
	var got []string
	_, config := newNotifier(t, func(w http.ResponseWriter, r *http.Request) {
		got = append(got, strings.Join(r.Header.Values(announce.EpochHeader), ","))
		w.WriteHeader(http.StatusConflict)
		_ = json.NewEncoder(w).Encode(announce.EpochRefusal{Reason: announce.ReasonDeposed, Message: "another one leads", Epoch: 9})
	})
	var epoch int64
	config.Epoch = func() int64 { return epoch }
	c := client.New(config)
	for _, epoch = range []int64{0, 7, 8} {
		outcome := c.Send(t.Context(), someDelivery)
		if outcome.Result != announce.Temporary || outcome.Reason != announce.ReasonDeposed || !strings.Contains(outcome.Message, "epoch 9") {
			t.Errorf("outcome for epoch %d: %+v, want Temporary, Deposed and the newer epoch", epoch, outcome)
		}
	}
	if diff := cmp.Diff([]string{"", "7", "8"}, got); diff != "" {
		t.Errorf("epochs that the notifier got (-want +got):\n%s", diff)
	}
}

// TestBeginEpoch: the new leader's epoch is announced with its token. A higher epoch is an error of its own; other errors are to be retried.
func TestBeginEpoch(t *testing.T) {
	refusal := `{"reason":"Deposed","epoch":9}`
	for name, tt := range map[string]struct {
		status  int
		body    string
		deposed bool
		want    string // in the error; empty for none
	}{
		"accepted":             {204, "", false, ""},
		"a newer leader":       {409, refusal, true, "epoch 9"},
		"a proxy's conflict":   {409, "conflict", false, "status 409"},
		"a refusal as success": {200, refusal, false, "status 200"},
		"an older notifier":    {404, "404 page not found", false, "of the same version"},
		"not authenticated":    {401, "no", false, "token"},
		"review failed":        {503, "the token could not be reviewed", false, "could not be reviewed"},
	} {
		_, config := newNotifier(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodPut || r.URL.Path != announce.EpochPath+"8" || r.Header.Get("Authorization") != "Bearer secret-token" {
				t.Errorf("%s: %s %s, want PUT %s8 with the token", name, r.Method, r.URL.Path, announce.EpochPath)
			}
			w.WriteHeader(tt.status)
			_, _ = io.WriteString(w, tt.body)
		})
		err := client.New(config).BeginEpoch(t.Context(), 8)
		if errors.Is(err, announce.ErrDeposed) != tt.deposed {
			t.Errorf("%s: error %v is ErrDeposed: %t, want %t", name, err, !tt.deposed, tt.deposed)
		}
		if tt.want == "" != (err == nil) || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %q in it", name, err, tt.want)
		}
		if deposed, ok := errors.AsType[*announce.DeposedError](err); ok && (deposed.Epoch != 8 || deposed.Current != 9) {
			t.Errorf("%s: error %+v, want epoch 8, and 9 as the current one", name, deposed)
		}
	}
	server, config := newNotifier(t, nil)
	server.Close()
	if err := client.New(config).BeginEpoch(t.Context(), 8); err == nil || errors.Is(err, announce.ErrDeposed) {
		t.Errorf("without a notifier: error %v, want one to retry", err)
	}
}

// TestStandby: a request that a standby refuses is repeated at the notifier that it names, with the same token and epoch and over a verified
// connection.
func TestStandby(t *testing.T) {
	holder, _ := newNotifier(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret-token" || r.Method == http.MethodPost && r.Header.Get(announce.EpochHeader) != "3" {
			t.Errorf("the notifier that sends got the headers %v, want the token and the epoch", r.Header)
		}
		if r.Method == http.MethodPut {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		_, _ = io.WriteString(w, `{"result":"Delivered"}`)
	})
	stopped := httptest.NewTLSServer(nil)
	stopped.Close()
	address := func(s *httptest.Server) string { return strings.TrimPrefix(s.URL, "https://") }
	for name, tt := range map[string]struct {
		sender string
		want   announce.Result
		text   string
	}{
		"another one sends":       {address(holder), announce.Delivered, ""},
		"nobody sends":            {"", announce.Temporary, "stands by"},
		"the other one has ended": {address(stopped), announce.Temporary, "connection refused"},
		"no address":              {"notifier.example.com:443", announce.Temporary, "stands by"},
	} {
		_, config := newNotifier(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(announce.SenderHeader, tt.sender)
			http.Error(w, "stands by", http.StatusServiceUnavailable)
		})
		config.Epoch = func() int64 { return 3 }
		c := client.New(config)
		if got := c.Send(t.Context(), someDelivery); got.Result != tt.want || !strings.Contains(got.Message, tt.text) {
			t.Errorf("%s: %+v, want %s and %q", name, got, tt.want, tt.text)
		}
		if err := c.BeginEpoch(t.Context(), 3); (err == nil) != (tt.want == announce.Delivered) {
			t.Errorf("%s: error %v of the epoch, want none if another one sends", name, err)
		}
	}
}

// TestStandbysInCircles: two notifiers that name each other get each request once.
func TestStandbysInCircles(t *testing.T) {
	var requests int
	var self string
	server, config := newNotifier(t, func(w http.ResponseWriter, _ *http.Request) {
		requests++
		w.Header().Set(announce.SenderHeader, self)
		http.Error(w, "stands by", http.StatusServiceUnavailable)
	})
	self = strings.TrimPrefix(server.URL, "https://")
	if got := client.New(config).Send(t.Context(), someDelivery); got.Result != announce.Temporary || requests != 2 {
		t.Errorf("%+v after %d requests, want Temporary after 2", got, requests)
	}
}

// TestSenderIsVerified: an address that a standby names is trusted no more than any other.
func TestSenderIsVerified(t *testing.T) {
	impostor := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the impostor got the request") }))
	impostor.TLS = &tls.Config{Certificates: []tls.Certificate{selfSigned(t)}}
	impostor.StartTLS()
	t.Cleanup(impostor.Close)
	_, config := newNotifier(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(announce.SenderHeader, strings.TrimPrefix(impostor.URL, "https://"))
		http.Error(w, "stands by", http.StatusServiceUnavailable)
	})
	if got := client.New(config).Send(t.Context(), someDelivery); got.Result != announce.Temporary || !strings.Contains(got.Message, "certificate") {
		t.Errorf("%+v, want Temporary and a word about the certificate", got)
	}
}

// selfSigned returns a certificate for 127.0.0.1 that nobody trusts.
func selfSigned(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// TestUnreachable: a message that was certainly not sent is Temporary.
func TestUnreachable(t *testing.T) {
	server, good := newNotifier(t, func(http.ResponseWriter, *http.Request) { t.Error("the notifier was asked, want that it is not") })
	stopped := httptest.NewTLSServer(nil)
	stopped.Close()
	for name, tt := range map[string]struct {
		change func(*client.Config)
		want   string
	}{
		"nobody listens": {func(c *client.Config) { c.URL = stopped.URL }, "connection refused"},
		"untrusted":      {func(c *client.Config) { c.CA = func() (*x509.CertPool, error) { return x509.NewCertPool(), nil } }, "certificate"},
		"no certificates": {func(c *client.Config) {
			c.CA = func() (*x509.CertPool, error) { return nil, errors.New("not made yet") }
		}, "not made yet"},
		"no token":           {func(c *client.Config) { c.TokenFile = "/nowhere/token" }, "token"},
		"no address":         {func(c *client.Config) { c.URL = "http://[" }, "address"},
		"another name in it": {func(c *client.Config) { c.URL = strings.Replace(server.URL, "127.0.0.1", "localhost", 1) }, "certificate"},
	} {
		config := good
		tt.change(&config)
		got := client.New(config).Send(t.Context(), someDelivery)
		if got.Result != announce.Temporary || got.Reason != announce.ReasonNotifierUnavail || !strings.Contains(got.Message, tt.want) {
			t.Errorf("%s: %+v, want Temporary, NotifierUnavailable and %q", name, got, tt.want)
		}
		if strings.Contains(got.Message, "secret-token") {
			t.Errorf("%s: the message shows the token: %s", name, got.Message)
		}
	}
}

// TestLost: a message that was sent and not answered is UnknownOutcome, within the deadline.
func TestLost(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"closed": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"silent": func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body); <-r.Context().Done() },
		"halved": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, `{"result":"Delivered"}`)
		},
	} {
		_, config := newNotifier(t, handler)
		config.Deadline = 500 * time.Millisecond
		got := client.New(config).Send(context.Background(), someDelivery)
		if got.Result != announce.UnknownOutcome || got.Reason != announce.ReasonAnswerLost {
			t.Errorf("%s: %+v, want Unknown, AnswerLost", name, got)
		}
	}
}

// TestRotatedCA: a new certificate of the notifier is trusted as soon as the manager has its CA.
func TestRotatedCA(t *testing.T) {
	ok := func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"result":"Delivered"}`) }
	server, config := newNotifier(t, ok)
	pool := x509.NewCertPool()
	config.CA = func() (*x509.CertPool, error) { return pool, nil }
	c := client.New(config)
	if got := c.Send(t.Context(), someDelivery); got.Result != announce.Temporary {
		t.Errorf("%+v before the CA is known, want Temporary", got)
	}
	pool = x509.NewCertPool()
	pool.AddCert(server.Certificate())
	if got := c.Send(t.Context(), someDelivery); got.Result != announce.Delivered {
		t.Errorf("%+v with the CA, want Delivered", got)
	}
}
