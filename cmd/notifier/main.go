// Command notifier sends messages to receivers, such as Slack, on behalf of the manager. Package notifier documents its guarantees.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	// The image has no CA certificates of its own.
	_ "golang.org/x/crypto/x509roots/fallback"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/scanner-operator/scanner-operator/notifier"
	"github.com/scanner-operator/scanner-operator/notifier/receiver"
	"github.com/scanner-operator/scanner-operator/pkg/flagenv"
	"github.com/scanner-operator/scanner-operator/pkg/kubeauth"
	"github.com/scanner-operator/scanner-operator/pkg/limits"
	"github.com/scanner-operator/scanner-operator/pkg/metrics"
	"github.com/scanner-operator/scanner-operator/workerapi/version"
)

// shutdownTimeout is longer than a delivery takes.
const shutdownTimeout = 30 * time.Second

func main() {
	options := notifier.NewOptions(os.Getenv)
	options.AddFlags(flag.CommandLine)
	printVersion := flag.Bool("version", false, "Print the version and end.")
	flag.Parse()
	if *printVersion {
		fmt.Println(version.Line("scanner-notifier"))
		return
	}
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := flagenv.Complete(flag.CommandLine, "SCANNER_NOTIFIER_")
	if err == nil {
		err = run(ctx, options, log)
	}
	stop()
	if err != nil {
		log.Error("the notifier ends", "error", err)
		os.Exit(1)
	}
}

// cluster returns the configuration for the Kubernetes API. It calls InClusterConfig itself, since BuildConfigFromFlags without a file logs
// a warning that this might not work.
func cluster(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		return rest.InClusterConfig()
	}
	return clientcmd.BuildConfigFromFlags("", kubeconfig)
}

// run wires everything and serves until the context ends.
func run(ctx context.Context, options *notifier.Options, log *slog.Logger) error {
	if err := options.Complete(); err != nil {
		return err
	}
	roots, err := notifier.LoadRoots(options.CAFile, log)
	if err != nil {
		return err
	}
	policy, err := options.Egress()
	if err != nil {
		return err
	}
	config, err := cluster(options.Kubeconfig)
	if err != nil {
		return fmt.Errorf("address of the Kubernetes API: %w", err)
	}
	core, authentication, err := clients(config)
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	metrics.RegisterNotifierBuild(registry, version.Version)
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	webhooks, err := clairWebhooks(ctx, config, options, registry, log)
	if err != nil {
		return err
	}
	lease, err := newLease(config, options, log)
	if err != nil {
		return err
	}
	notifier.RegisterSender(registry, lease)
	certificate := notifier.SecretCertificate(core.Secrets(options.Namespace), options.ServingSecret, log)
	network := notifier.Network{Network: receiver.Network{Roots: roots.Pool, Proxy: http.ProxyFromEnvironment}, SlackAPI: options.SlackAPIURL, SlackDirectMessages: options.SlackDirectMessages}
	server := notifier.New(notifier.Config{
		Callers:   notifier.NewTokenReviews(authentication, options.ManagerServiceAccount, clock.RealClock{}),
		Addresses: notifier.NewSecretAddresses(core, options.Namespace, options.ServiceAccount, policy),
		Receivers: notifier.NewReceivers(network),
		Exporters: notifier.NewExporters(network),
		Budget:    notifier.NewBudget(clock.RealClock{}, notifier.Sleep, rand.Float64),
		Lease:     lease,
		Metrics:   notifier.NewMetrics(registry),
		Log:       log,
		Clock:     clock.RealClock{},
	})
	go certificate.Run(ctx, notifier.Sleep)
	log.Info("the notifier starts", "version", version.Version, "commit", version.Commit, "go", runtime.Version(),
		"listen", options.Listen, "manager", options.ManagerServiceAccount, "hosts", options.AllowedWebhookHosts, "slackAPI", options.SlackAPIURL)
	return holding(ctx, lease, func() error {
		return serve(ctx, append(servers(options, server.Handler(), certificate, lease, registry), webhooks...))
	})
}

// newLease returns the Lease that decides whether this notifier sends, or nil if it is the only one.
func newLease(config *rest.Config, options *notifier.Options, log *slog.Logger) (*notifier.Lease, error) {
	if !options.LeaderElect {
		return nil, nil
	}
	address, err := options.DeliveryAddress()
	if err != nil {
		return nil, err
	}
	client, err := coordinationclient.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("client for the lease: %w", err)
	}
	klog.SetSlogLogger(log) // client-go's leader election
	return notifier.NewLease(notifier.LeaseConfig{
		Client: client, Namespace: options.Namespace, Pod: options.PodName, Address: address,
		Times: options.Lease, Clock: clock.RealClock{}, Log: log,
	}), nil
}

// holding competes for the Lease while serve runs. The Lease is renewed until the last delivery has ended, and then released, so that another
// notifier takes over at once.
func holding(ctx context.Context, lease *notifier.Lease, serve func() error) error {
	if lease == nil {
		return serve()
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	released := make(chan error, 1)
	go func() { released <- lease.Run(ctx) }()
	err := serve()
	stop()
	return errors.Join(err, <-released)
}

func clients(config *rest.Config) (*coreclient.CoreV1Client, *authenticationclient.AuthenticationV1Client, error) {
	core, err := coreclient.NewForConfig(config)
	if err != nil {
		return nil, nil, fmt.Errorf("client for Secrets: %w", err)
	}
	authentication, err := authenticationclient.NewForConfig(kubeauth.ClientConfig(config))
	if err != nil {
		return nil, nil, fmt.Errorf("client for token reviews: %w", err)
	}
	return core, authentication, nil
}

// servers returns the servers for deliveries and probes, and the one for metrics if it is enabled.
func servers(options *notifier.Options, deliveries http.Handler, certificate *notifier.Certificate, lease *notifier.Lease, registry *prometheus.Registry) []*http.Server {
	main := newServer(options.Listen, deliveries)
	main.TLSConfig = &tls.Config{GetCertificate: certificate.Get, MinVersion: tls.VersionTLS12}
	all := []*http.Server{main, newServer(options.HealthListen, health(certificate, lease))}
	if options.MetricsListen != "" {
		mux := http.NewServeMux()
		mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
		all = append(all, newServer(options.MetricsListen, mux))
	}
	return all
}

// serve runs the listeners until the context ends or one of them fails.
func serve(ctx context.Context, servers []*http.Server) error {
	failed := make(chan error, len(servers))
	for _, s := range servers {
		go func() {
			failed <- listen(s)
		}()
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	// Deliveries in progress are completed.
	ending, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	for _, s := range servers {
		err = errors.Join(err, s.Shutdown(ending))
	}
	return err
}

// maxConnections bounds the memory that the connections to one listener use.
const maxConnections = 512

// listen serves until the server is shut down, over TLS if the server has a TLS configuration.
func listen(s *http.Server) error {
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", s.Addr)
	if err != nil {
		return err
	}
	// The manager has few connections.
	listener = (&limits.Connections{Max: maxConnections, MaxPerOwner: maxConnections / 2}).Limit(s, listener)
	if s.TLSConfig != nil {
		return s.ServeTLS(listener, "", "")
	}
	return s.Serve(listener)
}

func newServer(address string, handler http.Handler) *http.Server {
	return &http.Server{
		Addr: address, Handler: handler, MaxHeaderBytes: 64 << 10,
		ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 20 * time.Second, WriteTimeout: time.Minute, IdleTimeout: time.Minute,
	}
}

// health answers the kubelet's probes: /healthz always succeeds, /readyz only once there is a serving certificate. A standby is ready, too. Its
// answer says who sends.
func health(certificate *notifier.Certificate, lease *notifier.Lease) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		switch {
		case !certificate.Ready():
			http.Error(w, "no serving certificate yet", http.StatusServiceUnavailable)
		case lease != nil && !lease.Sends():
			why, _ := lease.Standby()
			fmt.Fprintln(w, "ok: "+why)
		default:
			fmt.Fprintln(w, "ok")
		}
	})
	return mux
}
