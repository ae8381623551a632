package client_test

import (
	"os"
	"strings"
	"testing"

	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/announce/client"
)

// TestMain sets a proxy for the whole process, as the manager may have one, since Go reads these variables once. No server listens there.
func TestMain(m *testing.M) {
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY"} {
		os.Setenv(name, "http://robot:s3cret@127.0.0.1:1")
	}
	os.Unsetenv("NO_PROXY")
	os.Exit(m.Run())
}

// TestNeverThroughAProxy: the client never uses a proxy, whatever NO_PROXY is, since the notifier is in the cluster.
func TestNeverThroughAProxy(t *testing.T) {
	_, config := newNotifier(t, nil)
	config.URL = "https://notifier.invalid"
	got := client.New(config).Send(t.Context(), someDelivery)
	if got.Result != announce.Temporary || strings.Contains(got.Message, "proxy") || !strings.Contains(got.Message, "notifier.invalid") {
		t.Errorf("outcome %+v, want that the name is not known, from asking for it directly", got)
	}
}
