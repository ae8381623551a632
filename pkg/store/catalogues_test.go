package store

import (
	"errors"
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/image"
)

func TestCatalogued(t *testing.T) {
	f := newStore(t)
	at := f.clock.Now()
	must(t, f.SaveCatalogue(t.Context(), catalogued("app", at), nil))
	private := catalogued("private", at)
	private.Scope = "shop"
	must(t, f.SaveCatalogue(t.Context(), private, nil))

	arm := image.Platform{OS: "linux", Architecture: "arm64", Variant: "v8"}
	for name, test := range map[string]struct {
		key   image.Key
		scope Scope
		want  Catalogued // zero: not found
	}{
		"by the digest that pods have":           {key("app"), Cluster, catalogued("app", at)},
		"not on another platform":                {image.Key{Digest: key("app").Digest, Platform: arm}, Cluster, Catalogued{}},
		"not in a namespace":                     {key("app"), "shop", Catalogued{}},
		"unknown":                                {key("other"), Cluster, Catalogued{}},
		"a namespace's own":                      {key("private"), "shop", private},
		"a namespace's not in the cluster":       {key("private"), Cluster, Catalogued{}},
		"a namespace's not in another namespace": {key("private"), "bank", Catalogued{}},
		"by the platform's digest, whatever its variant": {
			image.Key{Digest: digest("app"), Platform: arm}, Cluster, withKey(catalogued("app", at), image.Key{Digest: digest("app"), Platform: arm}),
		},
		"a namespace's platform digest not in the cluster": {image.Key{Digest: digest("private"), Platform: amd64}, Cluster, Catalogued{}},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := f.Catalogued(t.Context(), "grype", test.key, test.scope)
			if test.want == (Catalogued{}) {
				if !errors.Is(err, ErrNotFound) {
					t.Errorf("got %+v, %v, want ErrNotFound", c, err)
				}
				return
			}
			must(t, err)
			equal(t, "what is catalogued", c, test.want)
		})
	}
}

func withKey(c Catalogued, key image.Key) Catalogued {
	c.Key = key
	return c
}

func TestTwoDigestsMayLeadToOneManifest(t *testing.T) {
	f := newStore(t)
	f.catalogue(t, "app")
	again := withKey(catalogued("app", f.clock.Now().Add(time.Hour)), key("other index"))
	again.Packages = 8
	must(t, f.SaveCatalogue(t.Context(), again, nil))
	equal(t, "by the newer digest", got[Catalogued](t)(f.Catalogued(t.Context(), "grype", key("other index"), Cluster)), again)
	equal(t, "by the older digest", got[Catalogued](t)(f.Catalogued(t.Context(), "grype", key("app"), Cluster)), withKey(again, key("app")))
}

// TestADigestMayLeadElsewhere checks that the Scanners of a digest follow it when it resolves to another manifest.
func TestADigestMayLeadElsewhere(t *testing.T) {
	f := newStore(t)
	f.use(t, "scanner", "app", workload("api", "docker.io/library/api"))
	f.catalogue(t, "app")
	elsewhere := withKey(catalogued("elsewhere", f.clock.Now()), key("app"))
	must(t, f.SaveCatalogue(t.Context(), elsewhere, nil))
	f.report(t, "app", vulnerable("CVE-2026-0001", "openssl"))
	f.report(t, "elsewhere", vulnerable("CVE-2026-0002", "openssl"))
	news, _, err := f.News(t.Context(), "scanner", "slack", NewsFilter{}, 0)
	must(t, err)
	equal(t, "what is found where the digest leads now", ids(news), []string{"CVE-2026-0002"})
}

func TestCataloguesNeedDigests(t *testing.T) {
	f := newStore(t)
	for _, c := range []Catalogued{{Engine: "grype", Key: key("app")}, {Engine: "grype", PlatformDigest: digest("app")}, {Key: key("app"), PlatformDigest: digest("app")}} {
		if err := f.SaveCatalogue(t.Context(), c, nil); err == nil {
			t.Errorf("saving %+v: got no error", c)
		}
	}
}

// TestCataloguedScopes checks that CataloguedScopes and Catalogued agree, for digests of indexes and of platform manifests.
func TestCataloguedScopes(t *testing.T) {
	f := newStore(t)
	for _, scope := range []Scope{"zoo", Cluster, "shop"} {
		c := catalogued("app", f.clock.Now())
		c.Scope = scope
		must(t, f.SaveCatalogue(t.Context(), c, nil))
	}
	manifest := key("app")
	manifest.Digest = catalogued("app", f.clock.Now()).PlatformDigest
	for name, k := range map[string]image.Key{"by its index": key("app"), "by its manifest": manifest} {
		scopes := got[[]Scope](t)(f.CataloguedScopes(t.Context(), "grype", k))
		equal(t, name, scopes, []Scope{Cluster, "shop", "zoo"})
		for _, scope := range scopes {
			got[Catalogued](t)(f.Catalogued(t.Context(), "grype", k, scope))
		}
	}
	equal(t, "unknown", got[[]Scope](t)(f.CataloguedScopes(t.Context(), "grype", key("unknown"))), []Scope(nil))
}
