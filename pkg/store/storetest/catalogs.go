package storetest

import (
	"errors"
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

func (on suite) testCatalog(t *testing.T) {
	f := on.newStore(t)
	at := f.clock.Now()
	must(t, f.SaveCatalog(t.Context(), catalogOf("app", at), nil))
	private := catalogOf("private", at)
	private.Scope = "shop"
	must(t, f.SaveCatalog(t.Context(), private, nil))

	arm := image.Platform{OS: "linux", Architecture: "arm64", Variant: "v8"}
	for name, test := range map[string]struct {
		key   image.Key
		scope store.Scope
		want  store.Catalog // zero: not found
	}{
		"by the digest that pods have":           {key("app"), store.Cluster, catalogOf("app", at)},
		"not on another platform":                {image.Key{Digest: key("app").Digest, Platform: arm}, store.Cluster, store.Catalog{}},
		"not in a namespace":                     {key("app"), "shop", store.Catalog{}},
		"unknown":                                {key("other"), store.Cluster, store.Catalog{}},
		"a namespace's own":                      {key("private"), "shop", private},
		"a namespace's not in the cluster":       {key("private"), store.Cluster, store.Catalog{}},
		"a namespace's not in another namespace": {key("private"), "bank", store.Catalog{}},
		"by the platform's digest, whatever its variant": {
			image.Key{Digest: digest("app"), Platform: arm}, store.Cluster, withKey(catalogOf("app", at), image.Key{Digest: digest("app"), Platform: arm}),
		},
		"a namespace's platform digest not in the cluster": {image.Key{Digest: digest("private"), Platform: amd64}, store.Cluster, store.Catalog{}},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := f.Catalog(t.Context(), "grype", test.key, test.scope)
			if test.want == (store.Catalog{}) {
				if !errors.Is(err, store.ErrNotFound) {
					t.Errorf("got %+v, %v, want ErrNotFound", c, err)
				}
				return
			}
			must(t, err)
			equal(t, "what is cataloged", c, test.want)
		})
	}
}

func withKey(c store.Catalog, key image.Key) store.Catalog {
	c.Key = key
	return c
}

func (on suite) testTwoDigestsResolveToOneManifest(t *testing.T) {
	f := on.newStore(t)
	f.saveCatalogs(t, "app")
	again := withKey(catalogOf("app", f.clock.Now().Add(time.Hour)), key("other index"))
	again.Packages = 8
	must(t, f.SaveCatalog(t.Context(), again, nil))
	equal(t, "by the newer digest", got[store.Catalog](t)(f.Catalog(t.Context(), "grype", key("other index"), store.Cluster)), again)
	equal(t, "by the older digest", got[store.Catalog](t)(f.Catalog(t.Context(), "grype", key("app"), store.Cluster)), withKey(again, key("app")))
}

// testDigestResolvesToAnotherManifest checks that the Scanners of a digest follow it when it resolves to another manifest.
func (on suite) testDigestResolvesToAnotherManifest(t *testing.T) {
	f := on.newStore(t)
	f.use(t, "scanner", "app", workload("api", "docker.io/library/api"))
	f.saveCatalogs(t, "app")
	elsewhere := withKey(catalogOf("elsewhere", f.clock.Now()), key("app"))
	must(t, f.SaveCatalog(t.Context(), elsewhere, nil))
	f.report(t, "app", vulnerable("CVE-2026-0001", "openssl"))
	f.report(t, "elsewhere", vulnerable("CVE-2026-0002", "openssl"))
	changes, _, err := f.PendingChanges(t.Context(), "scanner", "slack", store.ChangeFilter{}, 0)
	must(t, err)
	equal(t, "what is found where the digest leads now", ids(changes), []string{"CVE-2026-0002"})
}

func (on suite) testCatalogsNeedDigests(t *testing.T) {
	f := on.newStore(t)
	for _, c := range []store.Catalog{{Engine: "grype", Key: key("app")}, {Engine: "grype", PlatformDigest: digest("app")}, {Key: key("app"), PlatformDigest: digest("app")}} {
		if err := f.SaveCatalog(t.Context(), c, nil); err == nil {
			t.Errorf("saving %+v: got no error", c)
		}
	}
}

// testCatalogScopes checks that CatalogScopes and Catalog agree, for digests of indexes and of platform manifests.
func (on suite) testCatalogScopes(t *testing.T) {
	f := on.newStore(t)
	for _, scope := range []store.Scope{"zoo", store.Cluster, "shop"} {
		c := catalogOf("app", f.clock.Now())
		c.Scope = scope
		must(t, f.SaveCatalog(t.Context(), c, nil))
	}
	manifest := key("app")
	manifest.Digest = catalogOf("app", f.clock.Now()).PlatformDigest
	for name, k := range map[string]image.Key{"by its index": key("app"), "by its manifest": manifest} {
		scopes := got[[]store.Scope](t)(f.CatalogScopes(t.Context(), "grype", k, ""))
		equal(t, name, scopes, []store.Scope{store.Cluster, "shop", "zoo"})
		for _, scope := range scopes {
			got[store.Catalog](t)(f.Catalog(t.Context(), "grype", k, scope))
		}
	}
	equal(t, "unknown", got[[]store.Scope](t)(f.CatalogScopes(t.Context(), "grype", key("unknown"), "")), []store.Scope(nil))
}
