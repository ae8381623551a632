package clair

import (
	"encoding/pem"
	"fmt"
	"net/http/httptest"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/config"
	"github.com/scanner-operator/scanner-operator/registry/registrytest"
)

// TestAuthorityOfTheConfiguration: the CAs in the operator's configuration verify Clair's certificate, for all namespaces.
func TestAuthorityOfTheConfiguration(t *testing.T) {
	w := newWorld(t)
	server := httptest.NewTLSServer(w.clair)
	defer server.Close()
	authority := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	overTLS := func(c *v1alpha1.ClairBackend) { c.URL = server.URL }
	digest := w.push("web", registrytest.Image(t, files("base")))

	w.options.Config.Clair.Instances = []config.ClairInstance{{URL: server.URL}}
	w.start()
	shop := w.scanner("shop", overTLS)
	w.Eventually(func() string { _, err := w.For(shop).DataVersion(t.Context()); return fmt.Sprint(err) }).Should(
		And(HavePrefix(backend.ReasonClairUnavailable), ContainSubstring("certificate")))

	w.options.Config.Clair.Instances = []config.ClairInstance{{URL: server.URL, CABundle: authority, Updaters: []string{"debian/updater"}}}
	w.start()
	for _, namespace := range []string{"shop", "blog"} {
		scanner := w.scanner(namespace, overTLS)
		w.scan(scanner, w.run(scanner, "web", digest))
	}
}
