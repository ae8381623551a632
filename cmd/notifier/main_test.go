package main

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"flag"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"

	"github.com/scanner-operator/scanner-operator/notifier"
	"github.com/scanner-operator/scanner-operator/pkg/election"
)

// TestFlagsAreFree: no package that the notifier imports has registered a flag of the same name. Otherwise the notifier would end at its start.
func TestFlagsAreFree(t *testing.T) {
	options := notifier.NewOptions(func(string) string { return "" })
	flags := flag.NewFlagSet("notifier", flag.PanicOnError)
	options.AddFlags(flags)
	flags.VisitAll(func(f *flag.Flag) {
		if flag.Lookup(f.Name) != nil {
			t.Errorf("--%s is registered already", f.Name)
		}
	})
}

// TestProbes: a notifier is ready once it has a certificate, whether it sends or stands by, so that a rolling update does not wait for the one
// that sends. The answer says which of the two it is.
func TestProbes(t *testing.T) {
	lease := notifier.NewLease(notifier.LeaseConfig{Pod: "notifier-1", Clock: clock.RealClock{}, Log: slog.New(slog.DiscardHandler)})
	none := notifier.DirectoryCertificate(t.TempDir(), slog.New(slog.DiscardHandler))
	for name, tt := range map[string]struct {
		certificate *notifier.Certificate
		lease       *notifier.Lease
		status      int
		want        string
	}{
		"without a certificate": {none, nil, http.StatusServiceUnavailable, "no serving certificate yet"},
		"the only one":          {certificate(t), nil, http.StatusOK, "ok\n"},
		"a standby":             {certificate(t), lease, http.StatusOK, "ok: stands by: no notifier holds the Lease"},
	} {
		probes := health(tt.certificate, tt.lease)
		answer := httptest.NewRecorder()
		probes.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/readyz", nil))
		if answer.Code != tt.status || !strings.HasPrefix(answer.Body.String(), tt.want) {
			t.Errorf("%s: /readyz has status %d and %q, want %d and %q", name, answer.Code, answer.Body, tt.status, tt.want)
		}
		answer = httptest.NewRecorder()
		probes.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/healthz", nil))
		if answer.Code != http.StatusOK {
			t.Errorf("%s: /healthz has status %d, want 200", name, answer.Code)
		}
	}
}

// certificate returns a serving certificate, from files.
func certificate(t *testing.T) *notifier.Certificate {
	t.Helper()
	server := httptest.NewTLSServer(nil)
	t.Cleanup(server.Close)
	pair, dir := server.TLS.Certificates[0], t.TempDir()
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{
		"tls.crt": {Type: "CERTIFICATE", Bytes: pair.Certificate[0]}, "tls.key": {Type: "PRIVATE KEY", Bytes: key},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return notifier.DirectoryCertificate(dir, slog.New(slog.DiscardHandler))
}

// TestLeaseOutlivesDeliveries: a notifier that is stopped holds its Lease until its last delivery has ended, and then releases it, so that the next
// one need not wait until the Lease expires.
func TestLeaseOutlivesDeliveries(t *testing.T) {
	g, leases := gomega.NewWithT(t), fake.NewClientset().CoordinationV1()
	lease := notifier.NewLease(notifier.LeaseConfig{
		Client: leases, Namespace: "system", Pod: "notifier-1", Address: "192.0.2.1:8443",
		Times: election.Times{LeaseDuration: 3 * time.Second, RenewDeadline: 2 * time.Second, RetryPeriod: 50 * time.Millisecond},
		Clock: clock.RealClock{}, Log: slog.New(slog.DiscardHandler),
	})
	holder := func() string {
		found, err := leases.Leases("system").Get(context.Background(), notifier.LeaseName, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return *found.Spec.HolderIdentity
	}
	ctx, stop := context.WithCancel(t.Context())
	failed := errors.New("a listener has failed")
	err := holding(ctx, lease, func() error {
		g.Eventually(lease.Sends, "30s", "10ms").Should(gomega.BeTrue())
		stop()
		g.Consistently(lease.Sends, "500ms", "10ms").Should(gomega.BeTrue(), "while a delivery is in progress")
		g.Expect(holder()).To(gomega.Equal("notifier-1_192.0.2.1:8443"))
		return failed
	})
	if !errors.Is(err, failed) {
		t.Errorf("error %v, want that of the listener", err)
	}
	if got := holder(); got != "" || lease.Sends() {
		t.Errorf("the Lease is held by %q, may send: %t; want that it is released", got, lease.Sends())
	}
	if err := holding(t.Context(), nil, func() error { return failed }); !errors.Is(err, failed) {
		t.Errorf("error %v without a Lease, want that of the listener", err)
	}
}
