package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/announce/diff"
	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// testNamespaceChanges checks what counts as a change since a time: new findings, fixes, and what newer data or a rollout has ended.
func (on suite) testNamespaceChanges(t *testing.T) {
	f := on.newStore(t)
	f.saveCatalogs(t, "old", "new", "api", "blog", "last")
	run := func(name string, workloads ...string) {
		t.Helper()
		u := used("scanner", name)
		for _, w := range workloads {
			u.Workloads = append(u.Workloads, workload(w, "ghcr.io/shop/web"))
		}
		must(t, f.SetUsage(t.Context(), u))
	}
	run("old", "web")
	f.use(t, "scanner", "api", workload("api", "ghcr.io/shop/api"))
	elsewhere := used("other", "blog", workload("blog", "ghcr.io/blog/blog"))
	elsewhere.Namespace, elsewhere.Workloads[0].Namespace = "blog", "blog"
	must(t, f.SetUsage(t.Context(), elsewhere))
	f.report(t, "old", vulnerable("CVE-2026-0001", "openssl"), vulnerable("CVE-2026-0002", "zlib"))
	f.report(t, "api", vulnerable("CVE-2026-0003", "curl"))
	f.report(t, "blog")
	f.clock.pass(time.Hour)
	since := f.clock.Now()
	changes := func(exceptions ...exception.Exception) (lines []string) {
		t.Helper()
		asked := store.ChangesQuery{Namespace: "shop", Since: since, Exceptions: exception.NewSet(exceptions, f.clock.Now())}
		found := got[store.NamespaceChanges](t)(f.NamespaceChanges(t.Context(), asked, 10))
		totals := map[diff.Change]int{}
		for _, c := range found.Changes {
			line := fmt.Sprintf("%s %s in %s of %s after %s", c.Change, c.ID, c.Package.Name, c.Repository, c.At.Sub(since))
			if c.Exception != nil {
				line += " by " + c.Exception.Name
			}
			lines = append(lines, line)
			totals[c.Change]++
		}
		equal(t, "totals", found.Totals, totals)
		for _, repository := range found.Unknown {
			lines = append(lines, "unknown "+repository)
		}
		return lines
	}
	equal(t, "at first", changes(), []string(nil))
	f.clock.pass(time.Hour)
	f.report(t, "api", vulnerable("CVE-2026-0003", "curl", fixed), vulnerable("CVE-2026-0004", "curl"))
	f.report(t, "blog", vulnerable("CVE-2026-0005", "curl"))
	const fix = "FixAvailable CVE-2026-0003 in curl of ghcr.io/shop/api after 1h0m0s"
	equal(t, "after new data", changes(), []string{"New CVE-2026-0004 in curl of ghcr.io/shop/api after 1h0m0s", fix})
	equal(t, "with an exception", changes(exception.Exception{UID: "1", Name: "accepted", Namespace: "shop", Vulnerabilities: []string{"CVE-2026-0004"}}), []string{
		"New CVE-2026-0004 in curl of ghcr.io/shop/api after 1h0m0s by accepted", fix,
	})

	// A rollout takes zlib away and brings libxml. While it has no report, nothing counts as fixed.
	f.clock.pass(time.Hour)
	run("new", "web")
	run("old")
	equal(t, "in the middle of a rollout", changes(), []string{"New CVE-2026-0004 in curl of ghcr.io/shop/api after 1h0m0s", fix, "unknown ghcr.io/shop/web"})
	f.clock.pass(time.Hour)
	f.report(t, "new", vulnerable("CVE-2026-0001", "openssl"), vulnerable("CVE-2026-0006", "libxml"))
	after := changes()
	want := []string{
		"New CVE-2026-0004 in curl of ghcr.io/shop/api after 1h0m0s", "New CVE-2026-0006 in libxml of ghcr.io/shop/web after 3h0m0s", fix,
		"Fixed CVE-2026-0002 in zlib of ghcr.io/shop/web after 2h0m0s",
	}
	equal(t, "after a rollout", after, want)
	since = since.Add(150 * time.Minute)
	equal(t, "since then", changes(), []string{"New CVE-2026-0006 in libxml of ghcr.io/shop/web after 30m0s"})

	// What no running image of the repository has, but one that nobody replaced, is not fixed.
	run("last", "job")
	f.report(t, "last", vulnerable("CVE-2026-0007", "jq"))
	run("last")
	equal(t, "of a workload that is gone", changes(), []string{"New CVE-2026-0006 in libxml of ghcr.io/shop/web after 30m0s"})
}

// testFixedInNamespace: what a rollout took away is fixed if the engine in use knew it, covers the new image in full, and its data has no anomaly.
func (on suite) testFixedInNamespace(t *testing.T) {
	const repository = "ghcr.io/shop/web"
	hasAnomaly := func(scanner, engine string) func(fixture) {
		return func(f fixture) {
			var many []finding.Finding
			for i := range 60 {
				many = append(many, vulnerable(fmt.Sprintf("CVE-2025-%04d", i), "lib"))
			}
			f.runningIn(t, scanner, "shop", "beside", "ghcr.io/shop/beside", engine, many...)
			got[store.Difference](t)(f.SaveReport(t.Context(), store.Report{Subject: store.Subject{PlatformDigest: digest("beside"), Engine: engine}, DataVersion: "v2"}, ""))
		}
	}
	nothing := func(fixture) {}
	for name, test := range map[string]struct {
		engine  string
		prepare func(fixture)
		gaps    []string
		fixed   int
		unknown []string
	}{
		"the same engine":                           {grype, nothing, nil, 1, nil},
		"another engine":                            {clair, nothing, nil, 0, nil},
		"the data has an anomaly":                   {grype, hasAnomaly("scanner", grype), nil, 0, []string{"ghcr.io/shop/beside", repository}},
		"the data of another engine has an anomaly": {grype, hasAnomaly("clair's", clair), nil, 1, []string{"ghcr.io/shop/beside"}},
		"a gap of the engine":                       {grype, nothing, []string{"Swift"}, 1, nil},
		"a gap of another engine":                   {grype, nothing, []string{"npm"}, 0, []string{repository}},
		"a gap of the image":                        {grype, nothing, []string{"OS packages (deb)", "Swift"}, 0, []string{repository}},
		"a gap of other packages": {grype, func(f fixture) {
			f.report(t, "old", vulnerable("CVE-2026-0002", "lodash", func(f *finding.Finding) { f.Package.Type = "npm" }))
		}, []string{"OS packages (deb)"}, 1, []string{repository}},
		"a gap of an image beside": {grype, func(f fixture) {
			f.runningIn(t, "scanner", "shop", "beside", repository, grype)
			got[store.Difference](t)(f.SaveReport(t.Context(), store.Report{Subject: store.Subject{PlatformDigest: digest("beside"), Engine: grype}, DataVersion: "v1", NotCovered: []string{"npm"}}, ""))
		}, nil, 0, []string{repository}},
		"a gap of an image of another repository": {grype, func(f fixture) {
			f.runningIn(t, "scanner", "shop", "beside", "ghcr.io/shop/beside", grype)
			got[store.Difference](t)(f.SaveReport(t.Context(), store.Report{Subject: store.Subject{PlatformDigest: digest("beside"), Engine: grype}, DataVersion: "v1", NotCovered: []string{"npm"}}, ""))
		}, nil, 1, []string{"ghcr.io/shop/beside"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := on.newStore(t)
			f.runningIn(t, "scanner", "shop", "old", repository, grype, vulnerable("CVE-2026-0001", "openssl"))
			since := f.clock.Now()
			f.clock.pass(time.Hour)
			test.prepare(f)
			must(t, f.SaveCatalog(t.Context(), store.Catalog{Engine: test.engine, Key: key("new"), PlatformDigest: digest("new"), CatalogedAt: f.clock.Now()}, nil))
			must(t, f.SetUsage(t.Context(), usedBy(test.engine, "scanner", "new", workload("runs old", repository))))
			f.use(t, "scanner", "old")
			got[store.Difference](t)(f.SaveReport(t.Context(), store.Report{Subject: store.Subject{PlatformDigest: digest("new"), Engine: test.engine}, DataVersion: "v1", MatchedAt: f.clock.Now(), NotCovered: test.gaps}, ""))
			asked := store.ChangesQuery{Namespace: "shop", Since: since, EngineGaps: map[string][]string{grype: {"Swift"}, clair: {"npm"}}}
			changes := got[store.NamespaceChanges](t)(f.NamespaceChanges(t.Context(), asked, 10))
			equal(t, "fixed", changes.Totals[diff.ChangeFixed], test.fixed)
			equal(t, "unknown", changes.Unknown, test.unknown)
		})
	}
}
