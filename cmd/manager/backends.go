package main

import (
	"crypto/rand"
	"crypto/tls"
	"fmt"
	mathrand "math/rand/v2"
	"net/http"
	"time"

	"github.com/operator-framework/operator-lib/proxy"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/backend/clair"
	"github.com/scanner-operator/scanner-operator/pkg/backend/fake"
	"github.com/scanner-operator/scanner-operator/pkg/backend/grype"
	"github.com/scanner-operator/scanner-operator/registry"
)

// listingTimeout bounds one request for the listing of vulnerability databases.
const listingTimeout = 30 * time.Second

// setupBackends creates the engines, by the API's constants.
func (op *operator) setupBackends() error {
	listing, err := listingClient(op.config.Grype.Database.CABundle)
	if err != nil {
		return fmt.Errorf("grype.database.caBundle: %w", err)
	}
	op.grype = grype.New(grype.Options{
		Client: op.manager.GetClient(), Reader: op.manager.GetAPIReader(), Store: op.store, Config: op.config, Clock: op.clock,
		Log: ctrl.Log.WithName("grype"), HTTP: op.withMetrics("listing", listing),
		Namespace: op.options.Namespace, WorkerImage: op.options.WorkerImage,
		ServerURL: op.options.IngestURL, ServerCA: op.authority.Bundle, Wake: op.wakeImage, DataChanged: op.dataChanged, Relay: op.relay,
		Metrics: ctrlmetrics.Registry, Loops: op.loops,
		Random: randomSuffix, Proxy: proxy.ReadProxyVarsFromEnv(),
	})
	registries, err := registry.NewTransport(op.config.RegistrySettings())
	if err != nil {
		return fmt.Errorf("registries: %w", err)
	}
	op.clairs = clair.NewEngines(clair.Options{
		Reader: op.manager.GetAPIReader(), Store: op.store, Config: op.config, Clock: op.clock, Log: ctrl.Log.WithName("clair"),
		Namespace: op.options.Namespace, ServiceAccount: op.options.Account, Registries: op.requests.Transport("registry", registries),
		Metrics: ctrlmetrics.Registry, Loops: op.loops, Requests: op.requests,
		Wake: op.wakeups.Image, DataChanged: op.enqueueScanners, Random: mathrand.Float64,
	})
	op.backends = backend.Choosers{v1alpha1.BackendGrype: backend.Always(op.grype), v1alpha1.BackendClair: op.clairs.For}
	if op.options.FakeBackend {
		op.backends[v1alpha1.BackendGrype] = backend.Always(&fake.Backend{Store: op.store, Clock: op.clock, Log: ctrl.Log.WithName("fake")})
	}
	return nil
}

// listingClient returns the HTTP client that reads the listing of vulnerability databases. It uses the proxies from the environment, and
// trusts the given authorities (PEM) in addition to the well-known ones.
func listingClient(authorities string) (*http.Client, error) {
	client := &http.Client{Timeout: listingTimeout}
	if authorities == "" {
		return client, nil
	}
	roots, err := registry.Authorities(authorities)
	if err != nil {
		return nil, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	client.Transport = transport
	return client, nil
}

// withMetrics adds metrics to a client's transport and returns the client.
func (op *operator) withMetrics(server string, client *http.Client) *http.Client {
	transport := client.Transport
	if transport == nil {
		transport = http.DefaultTransport
	}
	client.Transport = op.requests.Transport(server, transport)
	return client
}

// randomSuffix returns n letters and digits for names that nobody can predict.
func randomSuffix(n int) string {
	const alphabet = "abcdefghijklmnopqrstuvwxyz012345" // 32 characters: each is equally likely
	suffix := make([]byte, n)
	_, _ = rand.Read(suffix) // never fails: crypto/rand ends the process instead
	for i := range suffix {
		suffix[i] = alphabet[int(suffix[i])%len(alphabet)]
	}
	return string(suffix)
}
