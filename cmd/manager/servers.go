package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"time"

	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/scanner-operator/scanner-operator/pkg/backend/grype"
	"github.com/scanner-operator/scanner-operator/pkg/backend/grype/ingest"
	"github.com/scanner-operator/scanner-operator/pkg/certificate"
	"github.com/scanner-operator/scanner-operator/pkg/listener"
	"github.com/scanner-operator/scanner-operator/pkg/restapi"
)

const (
	// maxConnections bounds the connections to each server. A worker has one, as has a caller of the REST API.
	maxConnections = 256
	headerTimeout  = 10 * time.Second
	// ingestIdleTimeout closes connections that nobody uses. Workers keep one connection for several images.
	ingestIdleTimeout  = 2 * time.Minute
	spoolSweepInterval = time.Minute
	// apiHeaderBytes has room for a token and a continue parameter.
	apiHeaderBytes = 64 << 10
	// apiWriteTimeout bounds a response, unless the API sets a longer deadline. There is no read timeout: a request is a header only, and
	// net/http would also apply a read timeout to the time that the response takes.
	apiWriteTimeout = time.Minute
	// apiIdleTimeout is short, since callers without a token may read the OpenAPI document too.
	apiIdleTimeout = 15 * time.Second
	// reviewsPerSecond and reviewsBurst are the rate limit of each reviewer: one for callers' tokens, one for callers' permissions.
	reviewsPerSecond = 50
	reviewsBurst     = 200
)

// addIngest serves the ingest API while this process leads.
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
		SpoolBytes: budgets.SpoolSize.Value(), SpoolShare: budgets.SpoolSizePerNamespace.Value(), StoreBytes: budgets.StoreSizePerNamespace.Value(),
	}
	handler, err := ingest.Handler()
	if err != nil {
		return fmt.Errorf("ingest API: %w", err)
	}
	if err := op.manager.Add(op.periodic(spoolSweepInterval, "spool", "Tidying the spool", ingest.Sweep)); err != nil {
		return err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: headerTimeout, IdleTimeout: ingestIdleTimeout}
	return op.serve(ctx, "ingest", server, op.options.IngestAddress, serviceDNSNames(ingestService, op.options.Namespace))
}

// addAPI serves the REST API while this process leads, unless it is disabled.
func (op *operator) addAPI(ctx context.Context) error {
	if op.options.APIAddress == "0" {
		return nil
	}
	tokenReviews, err := op.newReviewClient()
	if err != nil {
		return err
	}
	accessReviews, err := op.newReviewClient()
	if err != nil {
		return err
	}
	api := &restapi.API{
		Reader:       restapi.WatchedReader{Reader: op.manager.GetClient(), Namespaces: op.options.Watched},
		TokenReviews: tokenReviews, AccessReviews: accessReviews, Store: op.store, Inventory: op.inventory(), Clock: op.clock,
		Log: ctrl.Log.WithName("api"), Metrics: ctrlmetrics.Registry,
	}
	handler, err := api.Handler()
	if err != nil {
		return fmt.Errorf("REST API: %w", err)
	}
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: headerTimeout, WriteTimeout: apiWriteTimeout, IdleTimeout: apiIdleTimeout, MaxHeaderBytes: apiHeaderBytes,
	}
	// localhost is for "kubectl port-forward".
	names := append(serviceDNSNames(apiService, op.options.Namespace), "localhost")
	return op.serve(ctx, "api", server, op.options.APIAddress, names)
}

// serve runs a server while this process leads, on the address of the flag --<name>-bind-address. Its certificate has the given DNS names. At shutdown, requests are aborted
// instead of being waited for: workers wait for work, and downloads are long.
func (op *operator) serve(ctx context.Context, name string, server *http.Server, address string, names []string) error {
	listening, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("--%s-bind-address: %w", name, err)
	}
	certificates := &certificate.Server{Authority: op.authority, Names: names}
	server.Handler = listener.CloseUnauthorized(server.Handler)
	server.BaseContext = func(net.Listener) context.Context { return ctx }
	return op.manager.Add(&manager.Server{
		Name: name, OnlyServeWhenLeader: true, Server: server,
		Listener: tls.NewListener(listener.Limit(listening, maxConnections),
			&tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: certificates.GetCertificate}),
	})
}

// newReviewClient returns a client with a rate limit of its own, so that requests to the API do not use up the rate limit of the controllers.
func (op *operator) newReviewClient() (ctrlclient.Client, error) {
	config := rest.CopyConfig(op.manager.GetConfig())
	config.QPS, config.Burst, config.RateLimiter = reviewsPerSecond, reviewsBurst, nil
	return ctrlclient.New(config, ctrlclient.Options{Scheme: op.manager.GetScheme()})
}

// serviceDNSNames returns the DNS names by which pods reach a Service.
func serviceDNSNames(service, namespace string) []string {
	return []string{service + "." + namespace + ".svc", service + "." + namespace + ".svc.cluster.local", service + "." + namespace}
}
