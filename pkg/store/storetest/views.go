package storetest

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// testLocate checks that results are found only where the Scanner has the image.
func (on suite) testLocate(t *testing.T) {
	f := on.newStore(t)
	if _, err := f.Locate(t.Context(), "scanner", "shop", key("web")); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("an image that nobody has is located: %v", err)
	}
	f.use(t, "scanner", "web", workload("web", "ghcr.io/shop/web"))
	equal(t, "before it is cataloged", got[store.Location](t)(f.Locate(t.Context(), "scanner", "shop", key("web"))), store.Location{
		Subject: store.Subject{Engine: grype}, Names: []exception.Image{imageNamed("ghcr.io/shop/web:1", key("web").Digest)},
	})

	must(t, f.SaveCatalog(t.Context(), catalogOf("web", f.clock.Now()), artifacts(map[store.Artifact]string{store.ArtifactSBOM: "sbom"})))
	location := got[store.Location](t)(f.Locate(t.Context(), "scanner", "shop", key("web")))
	if location.PlatformDigest != digest("web") || location.Report != nil || location.SBOM == 0 {
		t.Errorf("before it is matched: %+v, want a digest and an SBOM and no report", location)
	}
	if location.CycloneDX != 0 || location.SPDX != 0 {
		t.Errorf("without additional formats: %+v, want only an SBOM", location)
	}
	must(t, f.SaveCatalog(t.Context(), catalogOf("web", f.clock.Now()), artifacts(map[store.Artifact]string{
		store.ArtifactSBOM: "sbom", store.ArtifactCycloneDX: "cyclonedx", store.ArtifactSPDX: "spdx",
	})))
	formats := got[store.Location](t)(f.Locate(t.Context(), "scanner", "shop", key("web")))
	ids := map[int64]bool{0: true, location.SBOM: true}
	for _, id := range []int64{formats.SBOM, formats.CycloneDX, formats.SPDX} {
		if ids[id] {
			t.Errorf("with additional formats: %+v after %+v, want three documents that were never there before", formats, location)
		}
		ids[id] = true
	}

	f.report(t, "web", vulnerable("CVE-2026-0001", "openssl"))
	report := got[store.Location](t)(f.Locate(t.Context(), "scanner", "shop", key("web"))).Report
	if report == nil || report.DataVersion != "v1" || report.Distro != "debian 12" || !report.Current || !report.MatchedAt.Equal(f.clock.Now()) {
		t.Errorf("the report is %+v", report)
	}
	must(t, f.SetDataVersion(t.Context(), grype, store.DataVersion{Version: "v1", Tool: "grype 1"}))
	if report := got[store.Location](t)(f.Locate(t.Context(), "scanner", "shop", key("web"))).Report; !report.Current || report.Tool != "grype 1" {
		t.Errorf("with this data the report is %+v, want it current, by grype 1", report)
	}
	must(t, f.SetDataVersion(t.Context(), grype, store.DataVersion{Version: "v2", Tool: "grype 2"}))
	if report := got[store.Location](t)(f.Locate(t.Context(), "scanner", "shop", key("web"))).Report; report.Current || report.Tool != "" {
		t.Errorf("with newer data the report is %+v, want it outdated", report)
	}

	for what, ask := range map[string]func() (store.Location, error){
		"another Scanner":   func() (store.Location, error) { return f.Locate(t.Context(), "other", "shop", key("web")) },
		"another namespace": func() (store.Location, error) { return f.Locate(t.Context(), "scanner", "blog", key("web")) },
		"another platform": func() (store.Location, error) {
			return f.Locate(t.Context(), "scanner", "shop", image.Key{Digest: key("web").Digest, Platform: image.Platform{OS: "linux", Architecture: "arm64"}})
		},
	} {
		if location, err := ask(); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s gets the image: %+v, %v", what, location, err)
		}
	}
}

// testLocateInScope checks that what a namespace's own Jobs cataloged is found by its Scanners only.
func (on suite) testLocateInScope(t *testing.T) {
	f := on.newStore(t)
	for namespace, scope := range map[string]store.Scope{"shop": "shop", "blog": store.Cluster} {
		must(t, f.SetUsage(t.Context(), store.ImageUsage{Scanner: "of " + namespace, Namespace: namespace, Key: key("web"), Scope: scope, Engine: grype, Workloads: []store.Workload{workload("web", "ghcr.io/shop/web")}}))
	}
	c := catalogOf("web", f.clock.Now())
	c.Scope = "shop"
	must(t, f.SaveCatalog(t.Context(), c, nil))
	if l := got[store.Location](t)(f.Locate(t.Context(), "of shop", "shop", key("web"))); l.PlatformDigest == "" || l.Scope != "shop" {
		t.Errorf("the namespace's own catalog is not found: %+v", l)
	}
	if l := got[store.Location](t)(f.Locate(t.Context(), "of blog", "blog", key("web"))); l.PlatformDigest != "" || l.Scope != store.Cluster {
		t.Errorf("another namespace finds the catalog of shop: %+v", l)
	}
}

// pages reads the findings of all pages.
func (f fixture) pages(t testing.TB, s store.Subject, filter store.FindingFilter, limit int) (all []finding.Finding) {
	t.Helper()
	mark := store.FindingCursor{}
	for {
		page := got[store.FindingPage](t)(f.FindingsPage(t.Context(), s, filter, mark, limit))
		for _, seen := range page.Findings {
			all = append(all, seen.Finding)
		}
		if page.Next == nil {
			if page.Total != len(all) {
				t.Errorf("%d findings on all pages, %d are counted", len(all), page.Total)
			}
			return all
		}
		if len(page.Findings) == 0 || len(page.Findings) > limit {
			t.Fatalf("a page that is not the last has %d findings, want 1 to %d", len(page.Findings), limit)
		}
		mark = *page.Next
	}
}

// testFindingsFilter checks each filter alone, and all together.
func (on suite) testFindingsFilter(t *testing.T) {
	f := on.newStore(t)
	f.saveCatalogs(t, "web")
	f.report(t, "web",
		vulnerable("CVE-2026-0001", "openssl", severity(finding.Critical), fixed, exploited),
		vulnerable("CVE-2026-0002", "openssl", severity(finding.High), func(f *finding.Finding) { f.Aliases = []string{"GHSA-aaaa-bbbb-cccc"} }),
		vulnerable("CVE-2026-0003", "zlib", severity(finding.Low), fixed, func(f *finding.Finding) { f.Description = `A "Heap" overflow, 100% of it` }),
		vulnerable("GHSA-dddd-eeee-ffff", "zlib", severity(finding.Unknown)),
	)
	for name, tt := range map[string]struct {
		filter store.FindingFilter
		want   string
	}{
		"nothing":               {store.FindingFilter{}, "0001 0002 0003 ffff"},
		"severities":            {store.FindingFilter{Severities: []finding.Severity{finding.High, finding.Unknown}}, "0002 ffff"},
		"no severity":           {store.FindingFilter{Severities: []finding.Severity{}}, ""},
		"fixable":               {store.FindingFilter{Fixable: ptr.To(true)}, "0001 0003"},
		"not fixable":           {store.FindingFilter{Fixable: ptr.To(false)}, "0002 ffff"},
		"known exploited":       {store.FindingFilter{KnownExploited: ptr.To(true)}, "0001"},
		"not known exploited":   {store.FindingFilter{KnownExploited: ptr.To(false)}, "0002 0003 ffff"},
		"a package":             {store.FindingFilter{Package: "zlib"}, "0003 ffff"},
		"a part of a package":   {store.FindingFilter{Package: "zli"}, ""},
		"an id":                 {store.FindingFilter{ID: "CVE-2026-0002"}, "0002"},
		"an id in another case": {store.FindingFilter{ID: "cve-2026-0002"}, "0002"},
		"an alias":              {store.FindingFilter{ID: "GHSA-AAAA-bbbb-cccc"}, "0002"},
		"a part of an id":       {store.FindingFilter{ID: "CVE-2026"}, ""},
		"text of an id":         {store.FindingFilter{Text: "cve-2026"}, "0001 0002 0003"},
		"text of an id, apart":  {store.FindingFilter{Text: "cve 2026"}, "0001 0002 0003"},
		"text of an alias":      {store.FindingFilter{Text: "bbbb"}, "0002"},
		"text of a package":     {store.FindingFilter{Text: "SSL"}, "0001 0002"},
		"text of a description": {store.FindingFilter{Text: "heap"}, "0003"},
		"what LIKE would read":  {store.FindingFilter{Text: "%"}, "0003"},
		"what is nowhere":       {store.FindingFilter{Text: "log4j"}, ""},
		"all together":          {store.FindingFilter{Severities: []finding.Severity{finding.Critical}, Fixable: ptr.To(true), KnownExploited: ptr.To(true), Package: "openssl", ID: "CVE-2026-0001", Text: "2026"}, "0001"},
	} {
		t.Run(name, func(t *testing.T) {
			var ids []string
			for _, f := range f.pages(t, subject("web"), tt.filter, 3) {
				ids = append(ids, f.ID[len(f.ID)-4:])
			}
			if got := strings.Join(ids, " "); got != tt.want {
				t.Errorf("found %q, want %q", got, tt.want)
			}
		})
	}
}

// testFindingsPages checks that each finding is on exactly one page, worst first, whatever the page size.
func (on suite) testFindingsPages(t *testing.T) {
	f := on.newStore(t)
	f.saveCatalogs(t, "web")
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(0, 30).Draw(rt, "findings")
		var findings []finding.Finding
		for i := range n {
			findings = append(findings, vulnerable(fmt.Sprintf("CVE-2026-%04d", rapid.IntRange(0, 9).Draw(rt, "id")), fmt.Sprint("p", i), func(f *finding.Finding) {
				f.Severity = finding.Severity(rapid.IntRange(0, 5).Draw(rt, "severity"))
				f.EPSS = float64(rapid.IntRange(0, 3).Draw(rt, "epss")) / 4
				f.Package.Type = rapid.SampledFrom([]string{"deb", "npm"}).Draw(rt, "type")
				f.Paths = rapid.SliceOfN(rapid.SampledFrom([]string{"/a", "/a/b", "/b"}), 0, 2).Draw(rt, "paths")
			}))
		}
		f.report(t, "web", findings...)
		want := got[[]finding.Finding](t)(f.Findings(t.Context(), subject("web")))
		equal(t, "findings on all pages", f.pages(t, subject("web"), store.FindingFilter{}, rapid.IntRange(1, 11).Draw(rt, "limit")), want)
	})
}

// testFindingsPagesWhileOrderChanges checks reports of another image that change the order. Either each finding is still on
// one page, or the caller gets ErrChanged.
func (on suite) testFindingsPagesWhileOrderChanges(t *testing.T) {
	f := on.newStore(t)
	f.saveCatalogs(t, "web", "api")
	random := rand.New(rand.NewPCG(1, 2))
	likely := func() (all []finding.Finding) {
		for i := range 20 {
			all = append(all, vulnerable(fmt.Sprintf("CVE-2026-%04d", i), "p", func(f *finding.Finding) { f.EPSS = random.Float64() }))
		}
		return all
	}
	f.report(t, "web", likely()...)
	again, through := 0, 0
	for round := range 60 {
		seen := map[string]int{}
		mark := store.FindingCursor{}
		for {
			page, err := f.FindingsPage(t.Context(), subject("web"), store.FindingFilter{}, mark, 7)
			if errors.Is(err, store.ErrChanged) {
				again++
				break
			}
			must(t, err)
			for _, one := range page.Findings {
				seen[one.ID]++
			}
			if page.Next == nil {
				through++
				if len(seen) != 20 || slices.Max(slices.Collect(maps.Values(seen))) != 1 {
					t.Fatalf("on all pages: %v, want each of 20 once", seen)
				}
				break
			}
			mark = *page.Next
			if round%2 == 0 {
				f.report(t, "api", likely()...)
			}
		}
	}
	if again == 0 || through < 30 {
		t.Errorf("%d times to begin again, %d times to the end: this proves nothing", again, through)
	}
}

// testFindingsPageExpires checks that a mark of a replaced report, or an invalid mark, is refused.
func (on suite) testFindingsPageExpires(t *testing.T) {
	f := on.newStore(t)
	f.saveCatalogs(t, "web")
	if _, err := f.FindingsPage(t.Context(), subject("web"), store.FindingFilter{}, store.FindingCursor{}, 1); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("without a report: %v, want ErrNotFound and no empty page", err)
	}
	findings := []finding.Finding{vulnerable("CVE-2026-0001", "a"), vulnerable("CVE-2026-0002", "a"), vulnerable("CVE-2026-0003", "a")}
	f.report(t, "web", findings...)
	mark := *got[store.FindingPage](t)(f.FindingsPage(t.Context(), subject("web"), store.FindingFilter{}, store.FindingCursor{}, 1)).Next
	for what, change := range map[string]func(m *store.FindingCursor){
		"behind the end":        func(m *store.FindingCursor) { m.Count = 4 },
		"before the beginning":  func(m *store.FindingCursor) { m.Count = -1 },
		"after other findings":  func(m *store.FindingCursor) { m.Sum++ },
		"in another report":     func(m *store.FindingCursor) { m.Report++ },
		"in an earlier version": func(m *store.FindingCursor) { m.Revision-- },
	} {
		wrong := mark
		change(&wrong)
		if _, err := f.FindingsPage(t.Context(), subject("web"), store.FindingFilter{}, wrong, 1); !errors.Is(err, store.ErrChanged) {
			t.Errorf("a place %s: %v, want ErrChanged", what, err)
		}
	}
	f.report(t, "web", findings...)
	if _, err := f.FindingsPage(t.Context(), subject("web"), store.FindingFilter{}, mark, 1); !errors.Is(err, store.ErrChanged) {
		t.Errorf("after the report was replaced: %v, want ErrChanged", err)
	}
}

// testLargeFindings checks that a page is bounded to a few MiB however large an image makes its findings, and that none is lost.
func (on suite) testLargeFindings(t *testing.T) {
	f := on.newStore(t)
	f.saveCatalogs(t, "web")
	var findings []finding.Finding
	for i := range 12 {
		findings = append(findings, vulnerable("CVE-2026-0001", fmt.Sprint(i, strings.Repeat("x", 1<<20))))
	}
	f.report(t, "web", findings...)
	page := got[store.FindingPage](t)(f.FindingsPage(t.Context(), subject("web"), store.FindingFilter{}, store.FindingCursor{}, 500))
	if n := len(page.Findings); n == 0 || n > 4 || page.Total != 12 {
		t.Errorf("a page has %d findings of 2 MiB each (total %d), want one at least and about 4 MiB", n, page.Total)
	}
	if n := len(f.pages(t, subject("web"), store.FindingFilter{}, 500)); n != 12 {
		t.Errorf("%d findings on all pages, want 12", n)
	}
}

// runs reads the runs of all pages.
func (f fixture) runs(t testing.TB, q store.RunsQuery, limit int) (all []store.Run) {
	t.Helper()
	after := store.RunCursor{}
	for {
		page := got[store.RunsPage](t)(f.RunsPage(t.Context(), q, after, limit))
		all = append(all, page.Runs...)
		if page.Next == nil {
			if page.Total != len(all) {
				t.Errorf("%d on all pages, %d are counted", len(all), page.Total)
			}
			return all
		}
		if len(page.Runs) != limit {
			t.Fatalf("a page that is not the last has %d, want %d", len(page.Runs), limit)
		}
		after = *page.Next
	}
}

// inNamespace records that an image runs in a namespace, for the named Scanner.
func (f fixture) inNamespace(t testing.TB, namespace, scanner, name string, workloads ...string) {
	t.Helper()
	u := store.ImageUsage{Scanner: scanner, Namespace: namespace, Key: key(name), Engine: grype}
	for _, w := range workloads {
		u.Workloads = append(u.Workloads, store.Workload{Namespace: namespace, Kind: "Deployment", Name: w, Container: "main", Repository: "r/" + name, Reference: "r/" + name + ":1"})
	}
	must(t, f.SetUsage(t.Context(), u))
}

// testRuns checks which containers run an image with a vulnerability, by any of its names, in the requested namespaces.
func (on suite) testRuns(t *testing.T) {
	f := on.newStore(t)
	f.saveCatalogs(t, "web", "api", "clean")
	f.inNamespace(t, "shop", "s1", "web", "front", "back")
	f.inNamespace(t, "shop", "s2", "web", "front") // the same workload, recorded by another Scanner
	f.inNamespace(t, "blog", "s3", "api", "blog")
	f.inNamespace(t, "blog", "s3", "clean", "clean")
	f.inNamespace(t, "idle", "s4", "api") // kept, but nothing runs it
	alias := func(f *finding.Finding) { f.Aliases = []string{"GHSA-aaaa-bbbb-cccc", "ALAS-1"} }
	f.report(t, "web", vulnerable("CVE-2026-0001", "openssl", alias, fixed), vulnerable("CVE-2026-0001", "libssl", fixed), vulnerable("CVE-2026-0002", "zlib"))
	f.report(t, "api", vulnerable("CVE-2026-0001", "openssl", severity(finding.Critical)), vulnerable("CVE-2026-0003", "zlib", func(f *finding.Finding) { f.Aliases = []string{"ALAS-1"} }))
	f.report(t, "clean")
	for name, tt := range map[string]struct {
		q    store.RunsQuery
		want string
	}{
		"everywhere":         {store.RunsQuery{ID: "CVE-2026-0001", All: true}, "blog/blog:openssl shop/back:libssl shop/back:openssl shop/front:libssl shop/front:openssl"},
		"in one namespace":   {store.RunsQuery{ID: "CVE-2026-0001", Namespaces: []string{"blog"}}, "blog/blog:openssl"},
		"in others":          {store.RunsQuery{ID: "CVE-2026-0002", Namespaces: []string{"blog", "idle"}}, ""},
		"in none":            {store.RunsQuery{ID: "CVE-2026-0001"}, ""},
		"in another case":    {store.RunsQuery{ID: "cve-2026-0002", All: true}, "shop/back:zlib shop/front:zlib"},
		"by an alias":        {store.RunsQuery{ID: "ghsa-AAAA-bbbb-cccc", All: true}, "shop/back:openssl shop/front:openssl"},
		"by an alias of two": {store.RunsQuery{ID: "ALAS-1", All: true}, "blog/blog:zlib shop/back:openssl shop/front:openssl"},
		"an unknown one":     {store.RunsQuery{ID: "CVE-2026-9999", All: true}, ""},
		"a pattern":          {store.RunsQuery{ID: "CVE-%", All: true}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			for limit := 1; limit < 7; limit++ {
				var found, workloads []string
				for _, run := range f.runs(t, tt.q, limit) {
					workloads = append(workloads, run.Namespace+"/"+run.Name)
					found = append(found, run.Namespace+"/"+run.Name+":"+run.Finding.Package.Name)
				}
				if !slices.IsSorted(workloads) {
					t.Errorf("with pages of %d the workloads are in this order: %q", limit, workloads)
				}
				slices.Sort(found)
				if got := strings.Join(found, " "); got != tt.want {
					t.Errorf("with pages of %d: %q, want %q", limit, got, tt.want)
				}
			}
		})
	}
	run := f.runs(t, store.RunsQuery{ID: "CVE-2026-0001", Namespaces: []string{"blog"}}, 5)[0]
	equal(t, "what is listed of it", run, store.Run{
		Namespace: "blog", Kind: "Deployment", Name: "blog", Container: "main", Reference: "r/api:1", Key: key("api"), Engines: []string{grype},
		Finding: finding.Finding{ID: "CVE-2026-0001", Severity: finding.Critical, FixState: finding.FixStateNotFixed, Package: vulnerable("", "openssl").Package},
	})
}

// testRunsOfGoneFindings checks that gone findings have no runs, and that a withdrawn alias finds nothing.
func (on suite) testRunsOfGoneFindings(t *testing.T) {
	f := on.newStore(t)
	f.saveCatalogs(t, "web")
	f.inNamespace(t, "shop", "s1", "web", "front")
	f.report(t, "web", vulnerable("CVE-2026-0001", "openssl", func(f *finding.Finding) { f.Aliases = []string{"ALAS-1"} }))
	f.report(t, "web", vulnerable("CVE-2026-0001", "openssl"))
	if runs := f.runs(t, store.RunsQuery{ID: "ALAS-1", All: true}, 5); len(runs) != 0 {
		t.Errorf("an alias that is not one any more leads to %+v", runs)
	}
	f.report(t, "web")
	if runs := f.runs(t, store.RunsQuery{ID: "CVE-2026-0001", All: true}, 5); len(runs) != 0 {
		t.Errorf("a finding that is gone is found: %+v", runs)
	}
}

// testRunsAreBounded checks that texts chosen by a pod's author or an image cannot make a result large.
func (on suite) testRunsAreBounded(t *testing.T) {
	f := on.newStore(t)
	f.saveCatalogs(t, "web")
	long := strings.Repeat("ä", 1<<20)
	must(t, f.SetUsage(t.Context(), store.ImageUsage{Scanner: "s", Namespace: "shop", Key: key("web"), Engine: grype, Workloads: []store.Workload{
		{Namespace: "shop", Kind: long, Name: long, Container: "main", Repository: "r", Reference: long},
	}}))
	f.report(t, "web", vulnerable("CVE-2026-0001", long, version(long)))
	runs := f.runs(t, store.RunsQuery{ID: "CVE-2026-0001", All: true}, 1)
	if len(runs) != 1 || len(runs[0].Kind)+len(runs[0].Name) > 2*2*253 || len(runs[0].Reference)+len(runs[0].Finding.Package.Name)+len(runs[0].Finding.Package.PURL) > 3*2*maxRunText {
		t.Errorf("%d answers; the first has texts of %d, %d, %d bytes", len(runs), len(runs[0].Kind), len(runs[0].Reference), len(runs[0].Finding.Package.Name))
	}
}

// testTextsCompareBytewise: texts are different that differ in case only, or only at the end of a long name.
func (on suite) testTextsCompareBytewise(t *testing.T) {
	f := on.newStore(t)
	f.saveCatalogs(t, "web", "api")
	long := strings.Repeat("x", 4<<10)
	for _, name := range []string{"web", "api"} {
		f.use(t, "scanner", name, store.Workload{Namespace: "shop", Kind: "Job", Name: "build", Container: "main", Repository: "r", Reference: "r:1"},
			store.Workload{Namespace: "shop", Kind: "job", Name: "build", Container: "main", Repository: "r", Reference: "r:1"})
		f.report(t, name, vulnerable("CVE-2026-0001", long+"a"), vulnerable("CVE-2026-0001", long+"b"))
	}
	var kinds []string
	for _, run := range f.runs(t, store.RunsQuery{ID: "CVE-2026-0001", All: true}, 3) {
		kinds = append(kinds, run.Kind)
	}
	equal(t, "the kinds of the workloads, for each of two images and two packages", strings.Join(kinds, " "), "Job Job Job Job job job job job")
	total := got[store.Totals](t)(f.ScannerTotals(t.Context(), "scanner", exception.Set{}))
	equal(t, "findings of the repository", total.Counts.Total(), 2)
}

// testRunsKeepNoLongTexts: a page holds no more of a finding's texts than what it shows.
func (on suite) testRunsKeepNoLongTexts(t *testing.T) {
	f := on.newStore(t)
	f.saveCatalogs(t, "web")
	var workloads []store.Workload
	for n := range 100 {
		workloads = append(workloads, workload(fmt.Sprintf("w%d", n), "registry.example.com/web"))
	}
	f.use(t, "s", "web", workloads...)
	long := strings.Repeat("x", 200<<10)
	f.report(t, "web", vulnerable("CVE-2026-0001", long, version(long), func(f *finding.Finding) { f.Package.Type = long }))
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	page := got[store.RunsPage](t)(f.RunsPage(t.Context(), store.RunsQuery{ID: "CVE-2026-0001", All: true}, store.RunCursor{}, 100))
	runtime.GC()
	runtime.ReadMemStats(&after)
	if held := int64(after.HeapAlloc) - int64(before.HeapAlloc); len(page.Runs) != 100 || held > 4<<20 {
		t.Errorf("a page of %d runs holds %d MiB", len(page.Runs), held>>20)
	}
	runtime.KeepAlive(page)
}
