package ingest_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/worker/clock"
	"github.com/scanner-operator/scanner-operator/worker/ingest"
	"github.com/scanner-operator/scanner-operator/worker/internal/fixture"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// TestMain sets proxies for the whole process, as a worker's pod may have them. Go reads them once. Nothing listens at their address.
func TestMain(m *testing.M) {
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY"} {
		os.Setenv(name, "http://robot:s3cret@127.0.0.1:1")
	}
	os.Unsetenv("NO_PROXY")
	os.Exit(m.Run())
}

// TestTheIngestAPIIsNeverReachedThroughAProxy checks that the token does not pass through a proxy, whatever NO_PROXY contains, since
// the server is in the cluster.
func TestTheIngestAPIIsNeverReachedThroughAProxy(t *testing.T) {
	server := fixture.NewIngest(t)
	client, err := ingest.New(ingest.Config{
		Server: "https://ingest.invalid:9443", CA: server.CA, TokenFile: server.TokenFile,
		Dial: func(_ context.Context, _, address string) (net.Conn, error) {
			return nil, fmt.Errorf("no connection to %s", address)
		},
		Clock: clock.NewFake(time.Now()), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	err = client.Post(t.Context(), workerapi.PathCatalogResult, workerapi.CatalogResult{}, nil)
	if err == nil || strings.Contains(err.Error(), "proxy") || !strings.Contains(err.Error(), "no connection to ingest.invalid:9443") {
		t.Errorf("got %v, want that it fails to connect to the server itself", err)
	}
}
