package store

import (
	"testing"

	"github.com/scanner-operator/scanner-operator/pkg/image"
)

// TestNamespaceOfReport: a report takes the share of the namespace whose budget it counts against, also if the image was pulled without credentials.
func TestNamespaceOfReport(t *testing.T) {
	eachDatabase(t, func(t *testing.T, f fixture) {
		for _, scope := range []Scope{Cluster, "blog"} {
			c := Catalog{Engine: "grype", Key: image.Key{Digest: "sha256:index"}, Scope: scope, PlatformDigest: "sha256:app", Namespace: "shop"}
			if scope != Cluster {
				c.Namespace = string(scope)
			}
			must(t, f.SaveCatalog(t.Context(), c, nil))
		}
		for want, s := range map[string]Subject{
			"shop": {PlatformDigest: "sha256:app"},
			"blog": {PlatformDigest: "sha256:app", Scope: "blog"},
			"":     {PlatformDigest: "sha256:other"},
		} {
			if namespace := got[string](t)(f.namespaceOf(t.Context(), s)); namespace != want {
				t.Errorf("the report of %+v takes the share of %q, want %q", s, namespace, want)
			}
		}
	})
}
