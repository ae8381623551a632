package clair

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/registry/registrytest"
)

// TestFirstScan: an image is resolved, indexed once, and has the report of Clair.
func TestFirstScan(t *testing.T) {
	w := newWorld(t)
	shop := w.scanner("shop")
	img := w.run(shop, "web", w.push("web", registrytest.Image(t, files("base"), files("top"))))
	w.scan(shop, img)
	w.Expect(w.findings(shop, img)).To(Equal([]string{"CVE-2099-0001"}))
	w.Expect(w.clair.posts).To(HaveLen(1))
	w.Expect(w.clair.posts[0].Layers).To(HaveLen(2))
	catalogued, err := w.store.Catalogued(t.Context(), w.For(shop).Engine(), img.Key, store.Cluster)
	w.must(err)
	w.Expect(catalogued.Packages).To(Equal(2))
	w.Expect(catalogued.Distro).To(Equal("Debian GNU/Linux 12"))
}
