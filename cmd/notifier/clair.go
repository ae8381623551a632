package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/notifier"
	"github.com/scanner-operator/scanner-operator/notifier/clairwebhook"
	"github.com/scanner-operator/scanner-operator/pkg/config"
)

// clairRequestsPerSecond bounds the requests to the API server on behalf of webhooks. Webhooks have their own clients, so that deliveries
// never wait for them.
const clairRequestsPerSecond = 50

// clairWebhooks returns the server for Clair's webhooks, or nil if they are disabled. Its certificate is read until the context ends.
func clairWebhooks(
	ctx context.Context, cluster *rest.Config, options *notifier.Options, registry *prometheus.Registry, log *slog.Logger,
) ([]*http.Server, error) {
	if options.ClairWebhookListen == "" {
		return nil, nil
	}
	settings, err := config.Load(options.Config)
	if err != nil {
		return nil, fmt.Errorf("--config: %w", err)
	}
	instances := settings.Clair.ByURL()
	if len(instances) == 0 {
		log.Warn("all webhooks of Clair will be refused: clair.instances in the operator's configuration lists no Clair", "config", options.Config)
	}
	objects, secrets, err := clairClients(cluster)
	if err != nil {
		return nil, err
	}
	server := newServer(options.ClairWebhookListen, clairwebhook.New(clairwebhook.Config{
		Cluster: objects, Secrets: secrets, Instances: instances,
		GrantCommands: func(namespace, secret string) string {
			return notifier.GrantCommands(namespace, secret, options.Namespace, options.ServiceAccount)
		},
		Metrics: clairwebhook.NewMetrics(registry), Log: log, Clock: clock.RealClock{},
	}).Handler())
	// Clients that are not authenticated can connect to the listener: keep their headers small.
	server.MaxHeaderBytes = 16 << 10
	if options.ClairWebhookCertDir != "" {
		certificate := notifier.DirectoryCertificate(options.ClairWebhookCertDir, log)
		go certificate.Run(ctx, notifier.Sleep)
		server.TLSConfig = &tls.Config{GetCertificate: certificate.Get, MinVersion: tls.VersionTLS12}
	}
	log.Info("Clair's webhooks are enabled", "listen", options.ClairWebhookListen, "tls", server.TLSConfig != nil, "instances", len(instances))
	return []*http.Server{server}, nil
}

// clairClients returns the clients for Scanners and ImageScans, and for Secrets.
func clairClients(cluster *rest.Config) (client.Client, *coreclient.CoreV1Client, error) {
	cluster = rest.CopyConfig(cluster)
	cluster.QPS, cluster.Burst = clairRequestsPerSecond, 2*clairRequestsPerSecond
	scheme, mapper := runtime.NewScheme(), meta.NewDefaultRESTMapper(nil)
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, nil, err
	}
	for _, kind := range []string{"Scanner", "ImageScan"} {
		mapper.Add(v1alpha1.GroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	objects, err := client.New(cluster, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		return nil, nil, fmt.Errorf("client for Scanners and ImageScans: %w", err)
	}
	secrets, err := coreclient.NewForConfig(cluster)
	if err != nil {
		return nil, nil, fmt.Errorf("client for the Secrets of Clair's webhooks: %w", err)
	}
	return objects, secrets, nil
}
