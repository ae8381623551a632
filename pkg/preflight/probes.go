package preflight

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/limits"
)

const (
	// probeTimeout bounds how long a probe may take to send its request, and maxProbes how many do at once.
	probeTimeout = 10 * time.Second
	maxProbes    = 64
)

// ServeNotReady answers the kubelet's probes until stop is called: the process is alive, and not ready for the given reason. An address that
// disables the manager's probes disables these as well.
func ServeNotReady(ctx context.Context, address, reason string) (stop func(), err error) {
	if address == "" || address == "0" {
		return func() {}, nil
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, reason, http.StatusServiceUnavailable)
	})
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--health-probe-bind-address: %w", err)
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: probeTimeout}
	listener = (&limits.Connections{Max: maxProbes}).Limit(server, listener)
	go func() { _ = server.Serve(listener) }() // returns an error once the server is closed
	return func() {
		_ = server.Close()
		_ = listener.Close() // the server does not know the listener if Serve has not begun yet
	}, nil
}
