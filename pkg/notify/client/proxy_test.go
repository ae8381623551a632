package client_test

import (
	"os"
	"strings"
	"testing"

	"github.com/scanner-operator/scanner-operator/pkg/notify"
	"github.com/scanner-operator/scanner-operator/pkg/notify/client"
)

// TestMain gives the whole process a proxy, as the manager may have one: Go reads it once. Nobody listens there.
func TestMain(m *testing.M) {
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY"} {
		os.Setenv(name, "http://robot:s3cret@127.0.0.1:1")
	}
	os.Unsetenv("NO_PROXY")
	os.Exit(m.Run())
}

// TestNeverThroughAProxy: the notifier is in the cluster, where a proxy for the internet does not lead, whatever
// NO_PROXY says.
func TestNeverThroughAProxy(t *testing.T) {
	_, config := notifierThat(t, nil)
	config.URL = "https://notifier.invalid"
	got := client.New(config).Send(t.Context(), someDelivery)
	if got.Result != notify.Temporary || strings.Contains(got.Message, "proxy") || !strings.Contains(got.Message, "notifier.invalid") {
		t.Errorf("outcome %+v, want that the name is not known, from asking for it directly", got)
	}
}
