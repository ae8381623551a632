package notifier

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/scanner-operator/scanner-operator/notifier/receiver"
	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/egress"
)

// TestReceivers: there is one receiver of each type, and all use the network settings.
func TestReceivers(t *testing.T) {
	asked := 0
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	proxy := func(*http.Request) (*url.URL, error) { asked++; return nil, nil }
	receivers := NewReceivers(Network{Network: receiver.Network{Proxy: proxy}, SlackAPI: server.URL})
	want := []string{announce.ReceiverTypeAlertmanager, announce.ReceiverTypeEmail, announce.ReceiverTypeSlack, announce.ReceiverTypeSlackApp, announce.ReceiverTypeTeams, announce.ReceiverTypeWebhook}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(receivers))); diff != "" {
		t.Fatalf("types (-want +got):\n%s", diff)
	}
	to := receiver.Address{Target: egress.Trusted(server.URL)}
	for kind, r := range receivers {
		asked = 0
		d, questions := announce.Delivery{Message: announce.Message{ID: "1"}}, 1
		if kind == announce.ReceiverTypeEmail {
			// Proxies are for HTTP.
			questions = 0
			d.Receiver.Mail = &announce.MailRef{Server: server.Listener.Addr().String(), TLS: announce.MailImplicitTLS, From: "a@example.com", To: []string{"b@example.com"}}
		}
		// The system does not trust the server's certificate.
		if got := r.Post(t.Context(), to, d); got.Result != announce.Temporary || asked != questions {
			t.Errorf("%s: outcome %+v after %d questions for the proxy, want a temporary failure after %d", kind, got, asked, questions)
		}
	}
}
