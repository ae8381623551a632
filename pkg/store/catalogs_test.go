package store

import (
	"errors"
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/image"
)

func TestCatalog(t *testing.T) {
	f := newStore(t)
	at := f.clock.Now()
	must(t, f.SaveCatalog(t.Context(), catalogOf("app", at), nil))
	private := catalogOf("private", at)
	private.Scope = "shop"
	must(t, f.SaveCatalog(t.Context(), private, nil))

	arm := image.Platform{OS: "linux", Architecture: "arm64", Variant: "v8"}
	for name, test := range map[string]struct {
		key   image.Key
		scope Scope
		want  Catalog // zero: not found
	}{
		"by the digest that pods have":           {key("app"), Cluster, catalogOf("app", at)},
		"not on another platform":                {image.Key{Digest: key("app").Digest, Platform: arm}, Cluster, Catalog{}},
		"not in a namespace":                     {key("app"), "shop", Catalog{}},
		"unknown":                                {key("other"), Cluster, Catalog{}},
		"a namespace's own":                      {key("private"), "shop", private},
		"a namespace's not in the cluster":       {key("private"), Cluster, Catalog{}},
		"a namespace's not in another namespace": {key("private"), "bank", Catalog{}},
		"by the platform's digest, whatever its variant": {
			image.Key{Digest: digest("app"), Platform: arm}, Cluster, withKey(catalogOf("app", at), image.Key{Digest: digest("app"), Platform: arm}),
		},
		"a namespace's platform digest not in the cluster": {image.Key{Digest: digest("private"), Platform: amd64}, Cluster, Catalog{}},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := f.Catalog(t.Context(), "grype", test.key, test.scope)
			if test.want == (Catalog{}) {
				if !errors.Is(err, ErrNotFound) {
					t.Errorf("got %+v, %v, want ErrNotFound", c, err)
				}
				return
			}
			must(t, err)
			equal(t, "what is cataloged", c, test.want)
		})
	}
}

func withKey(c Catalog, key image.Key) Catalog {
	c.Key = key
	return c
}

func TestTwoDigestsResolveToOneManifest(t *testing.T) {
	f := newStore(t)
	f.saveCatalogs(t, "app")
	again := withKey(catalogOf("app", f.clock.Now().Add(time.Hour)), key("other index"))
	again.Packages = 8
	must(t, f.SaveCatalog(t.Context(), again, nil))
	equal(t, "by the newer digest", got[Catalog](t)(f.Catalog(t.Context(), "grype", key("other index"), Cluster)), again)
	equal(t, "by the older digest", got[Catalog](t)(f.Catalog(t.Context(), "grype", key("app"), Cluster)), withKey(again, key("app")))
}

// TestDigestResolvesToAnotherManifest checks that the Scanners of a digest follow it when it resolves to another manifest.
func TestDigestResolvesToAnotherManifest(t *testing.T) {
	f := newStore(t)
	f.use(t, "scanner", "app", workload("api", "docker.io/library/api"))
	f.saveCatalogs(t, "app")
	elsewhere := withKey(catalogOf("elsewhere", f.clock.Now()), key("app"))
	must(t, f.SaveCatalog(t.Context(), elsewhere, nil))
	f.report(t, "app", vulnerable("CVE-2026-0001", "openssl"))
	f.report(t, "elsewhere", vulnerable("CVE-2026-0002", "openssl"))
	changes, _, err := f.PendingChanges(t.Context(), "scanner", "slack", ChangeFilter{}, 0)
	must(t, err)
	equal(t, "what is found where the digest leads now", ids(changes), []string{"CVE-2026-0002"})
}

func TestCatalogsNeedDigests(t *testing.T) {
	f := newStore(t)
	for _, c := range []Catalog{{Engine: "grype", Key: key("app")}, {Engine: "grype", PlatformDigest: digest("app")}, {Key: key("app"), PlatformDigest: digest("app")}} {
		if err := f.SaveCatalog(t.Context(), c, nil); err == nil {
			t.Errorf("saving %+v: got no error", c)
		}
	}
}

// TestCatalogScopes checks that CatalogScopes and Catalog agree, for digests of indexes and of platform manifests.
func TestCatalogScopes(t *testing.T) {
	f := newStore(t)
	for _, scope := range []Scope{"zoo", Cluster, "shop"} {
		c := catalogOf("app", f.clock.Now())
		c.Scope = scope
		must(t, f.SaveCatalog(t.Context(), c, nil))
	}
	manifest := key("app")
	manifest.Digest = catalogOf("app", f.clock.Now()).PlatformDigest
	for name, k := range map[string]image.Key{"by its index": key("app"), "by its manifest": manifest} {
		scopes := got[[]Scope](t)(f.CatalogScopes(t.Context(), "grype", k))
		equal(t, name, scopes, []Scope{Cluster, "shop", "zoo"})
		for _, scope := range scopes {
			got[Catalog](t)(f.Catalog(t.Context(), "grype", k, scope))
		}
	}
	equal(t, "unknown", got[[]Scope](t)(f.CatalogScopes(t.Context(), "grype", key("unknown"))), []Scope(nil))
}
