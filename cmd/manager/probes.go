package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	certutil "k8s.io/client-go/util/cert"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/scanner-operator/scanner-operator/pkg/limits"
	"github.com/scanner-operator/scanner-operator/pkg/metrics"
)

const (
	// maxMonitorConnections bounds the connections to the server of the probes, and to that of the metrics. controller-runtime's own servers have no
	// such bound.
	maxMonitorConnections = 64
	monitorWriteTimeout   = time.Minute
)

// addProbes adds the server for the kubelet's probes, which shares nothing with the others. The process is always alive; ready decides, by its name,
// whether it is ready.
func (op *operator) addProbes(ctx context.Context, name string, ready healthz.Checker) error {
	mux := http.NewServeMux()
	for path, all := range map[string]map[string]healthz.Checker{"/healthz": {"ping": healthz.Ping}, "/readyz": {name: ready}} {
		checks := http.StripPrefix(path, &healthz.Handler{Checks: all})
		mux.Handle(path, checks)
		mux.Handle(path+"/", checks)
	}
	return op.addMonitor(ctx, "health-probe", op.options.ProbeAddress, mux, nil)
}

// addMetrics adds the server for metrics. Its certificate is its own: those who scrape do not verify it, or have it from the Secret of a proxy.
func (op *operator) addMetrics(ctx context.Context) error {
	if isDisabled(op.options.MetricsAddr) {
		return nil
	}
	filter, err := metrics.RequireAccess(op.manager.GetConfig(), op.manager.GetHTTPClient())
	if err != nil {
		return err
	}
	handler, err := filter(ctrl.Log.WithName("metrics"), promhttp.HandlerFor(ctrlmetrics.Registry, promhttp.HandlerOpts{}))
	if err != nil {
		return err
	}
	certificate, key, err := certutil.GenerateSelfSignedCertKey("localhost", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err != nil {
		return fmt.Errorf("certificate of the metrics: %w", err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return fmt.Errorf("certificate of the metrics: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", handler)
	config := &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2", "http/1.1"}, MinVersion: tls.VersionTLS12}
	return op.addMonitor(ctx, "metrics", op.options.MetricsAddr, mux, config)
}

// addMonitor adds a server on the address of the flag --<name>-bind-address. It serves before this replica is elected.
func (op *operator) addMonitor(ctx context.Context, name, address string, handler http.Handler, config *tls.Config) error {
	if isDisabled(address) {
		return nil
	}
	listening, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("--%s-bind-address: %w", name, err)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: headerTimeout, WriteTimeout: monitorWriteTimeout, IdleTimeout: ingestIdleTimeout}
	limited := (&limits.Connections{Max: maxMonitorConnections, MaxPerOwner: maxMonitorConnections}).Limit(server, listening)
	if config != nil {
		limited = tls.NewListener(limited, config)
	}
	return op.manager.Add(&manager.Server{Name: name, Server: server, Listener: limited})
}

func isDisabled(address string) bool { return address == "" || address == "0" }
