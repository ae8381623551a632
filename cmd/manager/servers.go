package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"slices"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/scanner-operator/scanner-operator/pkg/backend/grype"
	"github.com/scanner-operator/scanner-operator/pkg/backend/grype/ingest"
	"github.com/scanner-operator/scanner-operator/pkg/certificate"
	"github.com/scanner-operator/scanner-operator/pkg/kubeauth"
	"github.com/scanner-operator/scanner-operator/pkg/limits"
	"github.com/scanner-operator/scanner-operator/pkg/restapi"
	"github.com/scanner-operator/scanner-operator/pkg/restapi/events"
	"github.com/scanner-operator/scanner-operator/ui"
	"github.com/scanner-operator/scanner-operator/workerapi/version"
)

const (
	// maxWorkerConnections bounds the connections to the ingest API. A worker has one.
	maxWorkerConnections    = 256
	maxConnectionsPerWorker = 16
	headerTimeout           = 10 * time.Second
	// ingestIdleTimeout closes connections that nobody uses. Workers keep one connection for several images.
	ingestIdleTimeout  = 2 * time.Minute
	spoolSweepInterval = time.Minute
	// maxAPIConnections has room for one open page of the web UI in each of 2,000 browsers, and for their requests.
	maxAPIConnections = 2560
	// maxConnectionsPerUser is enough for ten open pages in a browser with HTTP/1.1. All ServiceAccounts are users of their own.
	maxConnectionsPerUser = 64
	// apiStreams bounds the concurrent requests in one HTTP/2 connection. A proxy sends those of many users over one.
	apiStreams = 100
	// apiHeaderBytes has room for a token, a session's cookies and a continue parameter.
	apiHeaderBytes = 64 << 10
	// apiWriteTimeout bounds a response, unless the API sets a longer deadline. There is no read timeout: net/http
	// would also apply it to the time that the response takes. The API bounds the time of a body itself.
	apiWriteTimeout = time.Minute
	// apiIdleTimeout is short, since callers without a token may read the OpenAPI document too.
	apiIdleTimeout = 15 * time.Second
)

// addIngest adds the ingest API.
func (op *operator) addIngest(ctx context.Context) error {
	reviews, err := op.newReviewClient()
	if err != nil {
		return err
	}
	budgets := op.config.Ingest
	ingest := &ingest.Ingest{
		Store: op.store, Backend: op.grype, Clock: op.clock, Log: ctrl.Log.WithName("ingest"),
		Client: reviews, Reader: reviews, SpoolDir: op.options.SpoolDir,
		LeaseTime: grype.LeaseTime(op.config.Grype.Match), WorkerImage: op.options.WorkerImage, Metrics: ctrlmetrics.Registry,
		SpoolBytes: budgets.SpoolSize.Value(), SpoolShare: budgets.SpoolSizePerNamespace.Value(), StoreBytes: budgets.StoreSizePerNamespace.Value(), Closing: op.servers.closing,
	}
	handler, err := ingest.Handler()
	if err != nil {
		return fmt.Errorf("ingest API: %w", err)
	}
	if err := op.manager.Add(everywhere(op.periodic(spoolSweepInterval, "spool", "Tidying the spool", ingest.Sweep))); err != nil {
		return err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: headerTimeout, IdleTimeout: ingestIdleTimeout}
	certificates := &certificate.Server{Authority: op.authority, Names: serviceDNSNames(ingestService, op.options.Namespace)}
	return op.serve(ctx, "ingest", server, op.options.IngestAddress, &tls.Config{GetCertificate: certificates.GetCertificate},
		&limits.Connections{Max: maxWorkerConnections, MaxPerOwner: maxConnectionsPerWorker})
}

// addAPI adds the REST API and the web UI, unless the API is disabled.
func (op *operator) addAPI(ctx context.Context) error {
	if op.options.APIAddress == "0" {
		return nil
	}
	tokenReviews, err := op.newReviewClient()
	if err != nil {
		return err
	}
	accessReviews, err := ctrlclient.New(kubeauth.AccessConfig(op.manager.GetConfig()), ctrlclient.Options{Scheme: op.manager.GetScheme()})
	if err != nil {
		return err
	}
	settings := op.config.UI
	log := events.NewLog()
	watcher := &events.Watcher{
		Log: log, Store: op.store, Reader: op.manager.GetClient(), Informers: op.manager.GetCache(), Clock: op.clock, Logger: ctrl.Log.WithName("events"),
		EveryReplica: op.servesWhileFollowing(),
	}
	if err := op.manager.Add(watcher); err != nil {
		return err
	}
	build, err := ui.Build()
	if err != nil {
		return err
	}
	api := &restapi.API{
		ClusterName: op.config.ClusterName, WebUI: op.config.UI.URL,
		Statements: op.statements(),
		Reader:     restapi.WatchedReader{Reader: op.manager.GetClient(), Namespaces: op.options.Watched},
		ImageScans: op.manager.GetClient(), TokenReviews: tokenReviews, AccessReviews: accessReviews, Store: op.store, Inventory: op.inventory(nil), Clock: op.clock,
		EngineGaps:  op.engineGaps,
		SessionKeys: func() ([][]byte, error) { return op.authority.DeriveKeys("scanner-operator sessions v1") }, BasePath: settings.BasePath,
		Events:      &events.Server{Log: log, Version: version.Version, Build: build, Closing: op.servers.closing},
		RenderSlack: renderSlack, Replicas: op.replicas, Wake: op.wakeImage, ReportBudget: op.config.Ingest.StoreSizePerNamespace.Value(),
		Log: ctrl.Log.WithName("api"), Metrics: ctrlmetrics.Registry,
	}
	handler, err := api.Handler()
	if err != nil {
		return fmt.Errorf("REST API: %w", err)
	}
	if settings.Enabled {
		if handler, err = ui.Handler(handler, settings.BasePath); err != nil {
			return err
		}
	}
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: headerTimeout, WriteTimeout: apiWriteTimeout, IdleTimeout: apiIdleTimeout, MaxHeaderBytes: apiHeaderBytes,
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: apiStreams},
	}
	certificates, err := op.apiCertificates()
	if err != nil {
		return err
	}
	// net/http offers HTTP/2 only if the listener's configuration names it. A browser has at most six HTTP/1.1 connections to a host.
	config := &tls.Config{GetCertificate: certificates, NextProtos: []string{"h2", "http/1.1"}}
	return op.serve(ctx, "api", server, op.options.APIAddress, config,
		&limits.Connections{Max: maxAPIConnections, MaxPerOwner: maxConnectionsPerUser})
}

// certificateFunc chooses a certificate for tls.Config.
type certificateFunc = func(*tls.ClientHelloInfo) (*tls.Certificate, error)

// apiCertificates returns the certificates of the API: the configured one for browsers, and one of the operator's authority for clients that
// ask for a name of the Service or for localhost, which is for "kubectl port-forward".
func (op *operator) apiCertificates() (certificateFunc, error) {
	own := &certificate.Server{Authority: op.authority, Names: append(serviceDNSNames(apiService, op.options.Namespace), "localhost")}
	files := op.config.UI.TLS
	if files.CertFile == "" {
		return own.GetCertificate, nil
	}
	watcher, err := certwatcher.New(files.CertFile, files.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("ui.tls: %w", err)
	}
	return func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		if slices.Contains(own.Names, hello.ServerName) {
			return own.GetCertificate(hello)
		}
		return watcher.GetCertificate(hello)
	}, op.manager.Add(watcher)
}

// serve adds a server on the address of the flag --<name>-bind-address.
func (op *operator) serve(ctx context.Context, name string, server *http.Server, address string, config *tls.Config, bounds *limits.Connections) error {
	listening, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("--%s-bind-address: %w", name, err)
	}
	config.MinVersion = tls.VersionTLS13
	op.servers.add(server, tls.NewListener(bounds.Limit(server, listening), config))
	return nil
}

// newReviewClient returns a client with a rate limit of its own, so that requests to the API do not use up the rate limit of the controllers.
func (op *operator) newReviewClient() (ctrlclient.Client, error) {
	return ctrlclient.New(kubeauth.ClientConfig(op.manager.GetConfig()), ctrlclient.Options{Scheme: op.manager.GetScheme()})
}

// serviceDNSNames returns the DNS names by which pods reach a Service.
func serviceDNSNames(service, namespace string) []string {
	return []string{service + "." + namespace + ".svc", service + "." + namespace + ".svc.cluster.local", service + "." + namespace}
}
