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
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/scanner-operator/scanner-operator/pkg/certificate"
	"github.com/scanner-operator/scanner-operator/pkg/listener"
	"github.com/scanner-operator/scanner-operator/pkg/restapi"
)

// Bounds of the REST API's listener.
const (
	apiConnections = 256
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
		Reader: restapi.WatchedReader{Reader: op.manager.GetClient(), Namespaces: op.options.Watched}, TokenReviews: tokenReviews, AccessReviews: accessReviews, Store: op.store, Clock: op.clock,
		Log: ctrl.Log.WithName("api"), Metrics: metrics.Registry,
	}
	handler, err := api.Handler()
	if err != nil {
		return fmt.Errorf("REST API: %w", err)
	}
	listening, err := new(net.ListenConfig).Listen(ctx, "tcp", op.options.APIAddress)
	if err != nil {
		return fmt.Errorf("--api-bind-address: %w", err)
	}
	// localhost is for "kubectl port-forward".
	certificates := &certificate.Server{Authority: op.authority, Names: append(serviceDNSNames(apiService, op.options.Namespace), "localhost")}
	return op.manager.Add(&manager.Server{
		Name: "api", OnlyServeWhenLeader: true,
		Server: &http.Server{
			Handler: listener.CloseUnauthorized(handler), ReadHeaderTimeout: headerTimeout, WriteTimeout: apiWriteTimeout, IdleTimeout: apiIdleTimeout, MaxHeaderBytes: apiHeaderBytes,
			// Downloads are aborted at shutdown instead of being waited for.
			BaseContext: func(net.Listener) context.Context { return ctx },
		},
		Listener: tls.NewListener(listener.Limit(listening, apiConnections),
			&tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: certificates.GetCertificate}),
	})
}

// newReviewClient returns a client with a rate limit of its own, so that requests to the API do not use up the rate limit of the controllers.
func (op *operator) newReviewClient() (ctrlclient.Client, error) {
	config := rest.CopyConfig(op.manager.GetConfig())
	config.QPS, config.Burst, config.RateLimiter = reviewsPerSecond, reviewsBurst, nil
	return ctrlclient.New(config, ctrlclient.Options{Scheme: op.manager.GetScheme()})
}
