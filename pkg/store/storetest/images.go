package storetest

import (
	"testing"

	"github.com/scanner-operator/scanner-operator/pkg/store"
)

func (on suite) testUsedImages(t *testing.T) {
	f := on.newStore(t)
	f.saveCatalogs(t, "app")
	first, second := workload("api", "r"), workload("web", "r")
	second.Reference = "r:0"
	f.use(t, "b", "app", first, second, workload("other", "r"))
	retained := used("a", "new")
	retained.Key.Platform.Variant = "v2"
	must(t, f.SetUsage(t.Context(), retained))
	elsewhere := used("c", "app", workload("api", "m"))
	elsewhere.Namespace, elsewhere.Scope = "bank", "bank"
	must(t, f.SetUsage(t.Context(), elsewhere))
	equal(t, "images of all scanners", got[[]store.UsedImage](t)(f.UsedImages(t.Context())), []store.UsedImage{
		{Scanner: "c", Namespace: "bank", Key: key("app"), References: []string{"m:1"}, Subject: store.Subject{Scope: "bank", Engine: grype}},
		{Scanner: "a", Namespace: "shop", Key: retained.Key, Subject: store.Subject{Engine: grype}},
		{Scanner: "b", Namespace: "shop", Key: key("app"), References: []string{"r:0", "r:1"}, Subject: subject("app")},
	})
}
