package notifier

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/scanner-operator/scanner-operator/pkg/announce"
)

// TestReceivers: there is one receiver of each type, and all use the network settings.
func TestReceivers(t *testing.T) {
	asked := 0
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	receivers := NewReceivers(Network{SlackAPI: server.URL, Proxy: func(*http.Request) (*url.URL, error) { asked++; return nil, nil }})
	if diff := cmp.Diff([]string{announce.ReceiverTypeSlack, announce.ReceiverTypeSlackApp}, slices.Sorted(maps.Keys(receivers))); diff != "" {
		t.Fatalf("types (-want +got):\n%s", diff)
	}
	for kind, receiver := range receivers {
		asked = 0
		// The system does not trust the server's certificate.
		if got := receiver.Post(t.Context(), server.URL, announce.Delivery{}); got.Result != announce.Temporary || asked != 1 {
			t.Errorf("%s: outcome %+v after %d questions for the proxy, want a temporary failure after one", kind, got, asked)
		}
	}
}
