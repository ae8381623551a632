package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	restclient "github.com/scanner-operator/scanner-operator/api/rest/v1/client"
	"github.com/scanner-operator/scanner-operator/test/process"
)

// TestAPIIsServed: the complete process serves the REST API with a certificate that the published bundle verifies, and has a real API
// server review its callers.
func TestAPIIsServed(t *testing.T) {
	needAPIServer(t)
	g := NewWithT(t)
	g.Expect(startSharedServer()).To(Succeed())
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	g.Expect(os.WriteFile(kubeconfig, sharedServer.KubeConfig, 0o600)).To(Succeed())
	t.Setenv("KUBECONFIG", kubeconfig)
	client, err := ctrlclient.New(sharedServer.Config, ctrlclient.Options{Scheme: newScheme()})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "scanners"}})).To(Succeed())

	address, port, err := process.FreeAddress()
	g.Expect(err).NotTo(HaveOccurred())
	ctx, end := context.WithCancel(t.Context())
	op, err := newOperator(ctx, options{
		Namespace: "scanners", WorkerImage: "scanner-grype", DataDir: t.TempDir(), SpoolDir: t.TempDir(), APIAddress: address,
		IngestAddress: "127.0.0.1:0", IngestURL: "https://ingest", NotifierURL: "https://notifier", ProbeAddress: "0", MetricsAddr: "0",
		SweepInterval: time.Hour,
	})
	g.Expect(err).NotTo(HaveOccurred())
	ended := make(chan error, 1)
	go func() { ended <- op.run(ctx) }()
	t.Cleanup(func() {
		end()
		if err := <-ended; err != nil {
			t.Errorf("the process ended with: %v", err)
		}
	})

	var published corev1.ConfigMap
	g.Expect(client.Get(t.Context(), types.NamespacedName{Namespace: "scanners", Name: authorityBundle}, &published)).To(Succeed())
	pool := x509.NewCertPool()
	g.Expect(pool.AppendCertsFromPEM([]byte(published.Data["ca.crt"]))).To(BeTrue())
	browser := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13}, ForceAttemptHTTP2: true}}
	api, err := restclient.NewClientWithResponses("https://localhost:"+port, restclient.WithHTTPClient(browser))
	g.Expect(err).NotTo(HaveOccurred())
	g.Eventually(func() error {
		answer, err := api.ListScannersWithResponse(t.Context(), nil)
		if err == nil && answer.StatusCode() != http.StatusUnauthorized {
			err = fmt.Errorf("without a token: %d %s, want 401", answer.StatusCode(), answer.Body)
		}
		return err
	}, "30s", "100ms").Should(Succeed())
	answer, err := api.ListScannersWithResponse(t.Context(), nil, func(_ context.Context, r *http.Request) error {
		r.Header.Set("Authorization", "Bearer forged")
		return nil
	})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(answer.StatusCode()).To(Equal(http.StatusUnauthorized))

	// The web UI is at the same address, over HTTP/2.
	for path, status := range map[string]int{"/": http.StatusOK, "/vulnerabilities": http.StatusOK, "/nothing": http.StatusNotFound} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://localhost:"+port+path, nil)
		g.Expect(err).NotTo(HaveOccurred())
		response, err := browser.Do(request)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(response.Body.Close()).To(Succeed())
		g.Expect([]any{response.StatusCode, response.ProtoMajor}).To(Equal([]any{status, 2}), "GET "+path)
	}
}
