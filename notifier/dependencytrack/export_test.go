package dependencytrack

import (
	"bytes"
	"crypto/x509"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/scanner-operator/scanner-operator/notifier/receiver"
	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/egress"
	"github.com/scanner-operator/scanner-operator/pkg/export"
)

// TestMemory: an SBOM of the largest size is sent with a small part of the notifier's memory (128 MiB by default).
func TestMemory(t *testing.T) {
	var received int64
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		received, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, `{"token":"1"}`)
	}))
	defer server.Close()
	address, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	policy, err := egress.NewPolicy([]string{address.Host})
	if err != nil {
		t.Fatal(err)
	}
	target, allowed := policy.Target(address)
	if !allowed {
		t.Fatal("the server is not allowed")
	}
	var compressed bytes.Buffer
	encoder, err := zstd.NewWriter(&compressed)
	if err != nil {
		t.Fatal(err)
	}
	mebibyte := strings.Repeat(`{"type":"library"},`, 1<<20/19+1)[:1<<20]
	for range export.MaxSBOMBytes >> 20 {
		if _, err := io.WriteString(encoder, mebibyte); err != nil {
			t.Fatal(err)
		}
	}
	if err := encoder.Close(); err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	exporter := NewExporter(receiver.Network{Roots: receiver.Trusting(roots)})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	outcome := exporter.Export(t.Context(), receiver.Address{Target: target, Token: "key"}, export.Request{
		Project: export.Project{DependencyTrack: export.DependencyTrackProject{Name: "web", Version: "prod"}}, Document: compressed.Bytes(),
	})
	runtime.ReadMemStats(&after)
	if outcome.Result != announce.Delivered || received < export.MaxSBOMBytes {
		t.Fatalf("%+v, %d bytes received; want Delivered and the whole SBOM", outcome, received)
	}
	if allocated := (after.TotalAlloc - before.TotalAlloc) >> 20; allocated > 32 {
		t.Errorf("%d MiB were allocated for an SBOM of %d MiB, want at most 32", allocated, export.MaxSBOMBytes>>20)
	} else {
		t.Logf("%d MiB allocated", allocated)
	}
}
