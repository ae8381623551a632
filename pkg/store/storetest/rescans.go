package storetest

import (
	"errors"
	"testing"

	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// testRescans checks that a request leaves the catalog to all others, that only a Job of the Scanner that requested it replaces the catalog, and that
// the time between two such results is bounded, whoever requests the next one.
func (on suite) testRescans(t *testing.T) {
	f := on.newStore(t)
	shop, blog := used("shop", "app"), used("blog", "app")
	blog.Namespace = "blog"
	must(t, f.SetUsage(t.Context(), shop))
	must(t, f.SetUsage(t.Context(), blog))
	image := func(u store.ImageUsage) store.ScannerImage {
		return store.ScannerImage{Scanner: u.Scanner, Namespace: u.Namespace, Key: u.Key}
	}
	requested := func(what string, u store.ImageUsage, want bool) {
		t.Helper()
		equal(t, what, got[bool](t)(f.RescanRequested(t.Context(), image(u))), want)
	}
	must(t, f.RequestRescan(t.Context(), image(blog)))
	requested("a request for an image without a catalog", blog, false)

	jobs := map[string]store.JobResult{}
	for _, job := range []string{"shop", "blog", "poison"} {
		result := f.jobResult(t, job, "app", "SBOM by "+job)
		record := catalogJob(f, job+"-job", "job of "+job)
		record.Scanner, record.Scope = job, store.Cluster
		if job == "poison" { // a Job for another image of the Scanner that requested this one
			record.Scanner, record.Key, result.Key = "blog", key("bait"), key("bait")
		}
		must(t, f.SaveJob(t.Context(), record))
		result.JobUID = record.UID
		jobs[job] = result
	}
	f.saveCatalogs(t, "app")
	must(t, f.RequestRescan(t.Context(), image(blog)))
	for what, tt := range map[string]struct {
		job  store.Job
		want bool
	}{
		"its scanner's":          {store.Job{Scanner: "blog", Key: key("app"), Scope: store.Cluster}, true}, // whichever namespace it is for
		"another scanner's":      {store.Job{Scanner: "shop", Key: key("app"), Scope: store.Cluster}, false},
		"with other credentials": {store.Job{Scanner: "blog", Key: key("app"), Scope: "blog"}, false},
		"of another image":       {store.Job{Scanner: "blog", Key: key("bait"), Scope: store.Cluster}, false},
	} {
		equal(t, "a Job replaces the catalog, "+what, got[bool](t)(f.JobRescans(t.Context(), tt.job)), tt.want)
	}
	must(t, f.SetUsage(t.Context(), blog)) // the recreated ImageScan records its use
	requested("the request of blog", blog, true)
	requested("a request of shop", shop, false)
	for _, other := range []string{"shop", "poison"} {
		if got[bool](t)(f.SaveJobResult(t.Context(), jobs[other])) {
			t.Errorf("the result of %s replaces the catalog, which only blog's Job for this image may", other)
		}
	}
	got[store.Catalog](t)(f.Catalog(t.Context(), "grype", key("app"), store.Cluster))
	requested("the request of blog, after other Jobs", blog, true)
	if !got[bool](t)(f.SaveJobResult(t.Context(), jobs["blog"])) {
		t.Error("the result of the Scanner that requested it is not kept")
	}
	equal(t, "the SBOM", f.artifact(t, "app", store.ArtifactSBOM), "SBOM by blog")
	requested("the request of blog, after its result", blog, false)

	for _, u := range []store.ImageUsage{shop, blog} {
		if err := f.RequestRescan(t.Context(), image(u)); !errors.Is(err, store.ErrRescannedLately) {
			t.Errorf("another request of %s: %v, want ErrRescannedLately", u.Namespace, err)
		}
	}
	f.clock.pass(store.RescanInterval)
	must(t, f.RequestRescan(t.Context(), image(shop)))
	requested("a later request of shop", shop, true)
	f.saveCatalogs(t, "app") // as an engine without Jobs does
	requested("the request of shop, after another catalog", shop, false)
}
