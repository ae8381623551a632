package store

import (
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
)

// TestLocate checks that results are found only where the Scanner has the image.
func TestLocate(t *testing.T) {
	f := newStore(t)
	if _, err := f.Locate(t.Context(), "scanner", "shop", key("web")); !errors.Is(err, ErrNotFound) {
		t.Errorf("an image that nobody has is located: %v", err)
	}
	f.use(t, "scanner", "web", workload("web", "ghcr.io/shop/web"))
	equal(t, "before it is cataloged", got[Location](t)(f.Locate(t.Context(), "scanner", "shop", key("web"))), Location{
		Subject: Subject{Engine: grype}, Names: []exception.Image{imageNamed("ghcr.io/shop/web:1", key("web").Digest)},
	})

	must(t, f.SaveCatalog(t.Context(), catalogOf("web", f.clock.Now()), artifacts(map[Artifact]string{ArtifactSBOM: "sbom"})))
	location := got[Location](t)(f.Locate(t.Context(), "scanner", "shop", key("web")))
	if location.PlatformDigest != digest("web") || location.Report != nil || location.SBOM == 0 {
		t.Errorf("before it is matched: %+v, want a digest and an SBOM and no report", location)
	}

	f.report(t, "web", vulnerable("CVE-2026-0001", "openssl"))
	report := got[Location](t)(f.Locate(t.Context(), "scanner", "shop", key("web"))).Report
	if report == nil || report.DataVersion != "v1" || report.Distro != "debian 12" || !report.Current || !report.MatchedAt.Equal(f.clock.Now()) {
		t.Errorf("the report is %+v", report)
	}
	must(t, f.SetDataVersion(t.Context(), grype, DataVersion{Version: "v1", Tool: "grype 1"}))
	if report := got[Location](t)(f.Locate(t.Context(), "scanner", "shop", key("web"))).Report; !report.Current || report.Tool != "grype 1" {
		t.Errorf("with this data the report is %+v, want it current, by grype 1", report)
	}
	must(t, f.SetDataVersion(t.Context(), grype, DataVersion{Version: "v2", Tool: "grype 2"}))
	if report := got[Location](t)(f.Locate(t.Context(), "scanner", "shop", key("web"))).Report; report.Current || report.Tool != "" {
		t.Errorf("with newer data the report is %+v, want it outdated", report)
	}

	for what, ask := range map[string]func() (Location, error){
		"another Scanner":   func() (Location, error) { return f.Locate(t.Context(), "other", "shop", key("web")) },
		"another namespace": func() (Location, error) { return f.Locate(t.Context(), "scanner", "blog", key("web")) },
		"another platform": func() (Location, error) {
			return f.Locate(t.Context(), "scanner", "shop", image.Key{Digest: key("web").Digest, Platform: image.Platform{OS: "linux", Architecture: "arm64"}})
		},
	} {
		if location, err := ask(); !errors.Is(err, ErrNotFound) {
			t.Errorf("%s gets the image: %+v, %v", what, location, err)
		}
	}
}

// TestLocateInScope checks that what a namespace's own Jobs cataloged is found by its Scanners only.
func TestLocateInScope(t *testing.T) {
	f := newStore(t)
	for namespace, scope := range map[string]Scope{"shop": "shop", "blog": Cluster} {
		must(t, f.SetUsage(t.Context(), ImageUsage{Scanner: "of " + namespace, Namespace: namespace, Key: key("web"), Scope: scope, Engine: grype, Workloads: []Workload{workload("web", "ghcr.io/shop/web")}}))
	}
	c := catalogOf("web", f.clock.Now())
	c.Scope = "shop"
	must(t, f.SaveCatalog(t.Context(), c, nil))
	if l := got[Location](t)(f.Locate(t.Context(), "of shop", "shop", key("web"))); l.PlatformDigest == "" || l.Scope != "shop" {
		t.Errorf("the namespace's own catalog is not found: %+v", l)
	}
	if l := got[Location](t)(f.Locate(t.Context(), "of blog", "blog", key("web"))); l.PlatformDigest != "" || l.Scope != Cluster {
		t.Errorf("another namespace finds the catalog of shop: %+v", l)
	}
}

// pages reads the findings of all pages.
func (f fixture) pages(t testing.TB, s Subject, filter FindingFilter, limit int) (all []finding.Finding) {
	t.Helper()
	mark := FindingCursor{}
	for {
		page := got[FindingPage](t)(f.FindingsPage(t.Context(), s, filter, mark, limit))
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

// TestFindingsFilter checks each filter alone, and all together.
func TestFindingsFilter(t *testing.T) {
	f := newStore(t)
	f.saveCatalogs(t, "web")
	f.report(t, "web",
		vulnerable("CVE-2026-0001", "openssl", severity(finding.Critical), fixed, exploited),
		vulnerable("CVE-2026-0002", "openssl", severity(finding.High), func(f *finding.Finding) { f.Aliases = []string{"GHSA-aaaa-bbbb-cccc"} }),
		vulnerable("CVE-2026-0003", "zlib", severity(finding.Low), fixed, func(f *finding.Finding) { f.Description = `A "Heap" overflow, 100% of it` }),
		vulnerable("GHSA-dddd-eeee-ffff", "zlib", severity(finding.Unknown)),
	)
	for name, tt := range map[string]struct {
		filter FindingFilter
		want   string
	}{
		"nothing":               {FindingFilter{}, "0001 0002 0003 ffff"},
		"severities":            {FindingFilter{Severities: []finding.Severity{finding.High, finding.Unknown}}, "0002 ffff"},
		"no severity":           {FindingFilter{Severities: []finding.Severity{}}, ""},
		"fixable":               {FindingFilter{Fixable: ptr.To(true)}, "0001 0003"},
		"not fixable":           {FindingFilter{Fixable: ptr.To(false)}, "0002 ffff"},
		"known exploited":       {FindingFilter{KnownExploited: ptr.To(true)}, "0001"},
		"not known exploited":   {FindingFilter{KnownExploited: ptr.To(false)}, "0002 0003 ffff"},
		"a package":             {FindingFilter{Package: "zlib"}, "0003 ffff"},
		"a part of a package":   {FindingFilter{Package: "zli"}, ""},
		"an id":                 {FindingFilter{ID: "CVE-2026-0002"}, "0002"},
		"an id in another case": {FindingFilter{ID: "cve-2026-0002"}, "0002"},
		"an alias":              {FindingFilter{ID: "GHSA-AAAA-bbbb-cccc"}, "0002"},
		"a part of an id":       {FindingFilter{ID: "CVE-2026"}, ""},
		"text of an id":         {FindingFilter{Text: "cve-2026"}, "0001 0002 0003"},
		"text of an alias":      {FindingFilter{Text: "bbbb"}, "0002"},
		"text of a package":     {FindingFilter{Text: "SSL"}, "0001 0002"},
		"text of a description": {FindingFilter{Text: "heap"}, "0003"},
		"what LIKE would read":  {FindingFilter{Text: "%"}, "0003"},
		"what is nowhere":       {FindingFilter{Text: "log4j"}, ""},
		"all together":          {FindingFilter{Severities: []finding.Severity{finding.Critical}, Fixable: ptr.To(true), KnownExploited: ptr.To(true), Package: "openssl", ID: "CVE-2026-0001", Text: "2026"}, "0001"},
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

// TestFindingsPages checks that each finding is on exactly one page, worst first, whatever the page size.
func TestFindingsPages(t *testing.T) {
	f := newStore(t)
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
		equal(t, "findings on all pages", f.pages(t, subject("web"), FindingFilter{}, rapid.IntRange(1, 11).Draw(rt, "limit")), want)
	})
}

// TestFindingsPagesWhileOrderChanges checks reports of another image that change the order. Either each finding is still on
// one page, or the caller gets ErrChanged.
func TestFindingsPagesWhileOrderChanges(t *testing.T) {
	f := newStore(t)
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
		mark := FindingCursor{}
		for {
			page, err := f.FindingsPage(t.Context(), subject("web"), FindingFilter{}, mark, 7)
			if errors.Is(err, ErrChanged) {
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

// TestFindingsPageExpires checks that a mark of a replaced report, or an invalid mark, is refused.
func TestFindingsPageExpires(t *testing.T) {
	f := newStore(t)
	f.saveCatalogs(t, "web")
	if _, err := f.FindingsPage(t.Context(), subject("web"), FindingFilter{}, FindingCursor{}, 1); !errors.Is(err, ErrNotFound) {
		t.Errorf("without a report: %v, want ErrNotFound and no empty page", err)
	}
	findings := []finding.Finding{vulnerable("CVE-2026-0001", "a"), vulnerable("CVE-2026-0002", "a"), vulnerable("CVE-2026-0003", "a")}
	f.report(t, "web", findings...)
	mark := *got[FindingPage](t)(f.FindingsPage(t.Context(), subject("web"), FindingFilter{}, FindingCursor{}, 1)).Next
	for what, change := range map[string]func(m *FindingCursor){
		"behind the end":        func(m *FindingCursor) { m.Count = 4 },
		"before the beginning":  func(m *FindingCursor) { m.Count = -1 },
		"after other findings":  func(m *FindingCursor) { m.Sum++ },
		"in another report":     func(m *FindingCursor) { m.Report++ },
		"in an earlier version": func(m *FindingCursor) { m.Revision-- },
	} {
		wrong := mark
		change(&wrong)
		if _, err := f.FindingsPage(t.Context(), subject("web"), FindingFilter{}, wrong, 1); !errors.Is(err, ErrChanged) {
			t.Errorf("a place %s: %v, want ErrChanged", what, err)
		}
	}
	f.report(t, "web", findings...)
	if _, err := f.FindingsPage(t.Context(), subject("web"), FindingFilter{}, mark, 1); !errors.Is(err, ErrChanged) {
		t.Errorf("after the report was replaced: %v, want ErrChanged", err)
	}
}

// TestLargeFindings checks that a page is bounded to a few MiB however large an image makes its findings, and that none is lost.
func TestLargeFindings(t *testing.T) {
	f := newStore(t)
	f.saveCatalogs(t, "web")
	var findings []finding.Finding
	for i := range 12 {
		findings = append(findings, vulnerable("CVE-2026-0001", fmt.Sprint(i, strings.Repeat("x", 1<<20))))
	}
	f.report(t, "web", findings...)
	page := got[FindingPage](t)(f.FindingsPage(t.Context(), subject("web"), FindingFilter{}, FindingCursor{}, 500))
	if n := len(page.Findings); n == 0 || n > 4 || page.Total != 12 {
		t.Errorf("a page has %d findings of 2 MiB each (total %d), want one at least and about 4 MiB", n, page.Total)
	}
	if n := len(f.pages(t, subject("web"), FindingFilter{}, 500)); n != 12 {
		t.Errorf("%d findings on all pages, want 12", n)
	}
}

// runs reads the runs of all pages.
func (f fixture) runs(t testing.TB, q RunsQuery, limit int) (all []Run) {
	t.Helper()
	after := RunCursor{}
	for {
		page := got[RunsPage](t)(f.RunsPage(t.Context(), q, after, limit))
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
	u := ImageUsage{Scanner: scanner, Namespace: namespace, Key: key(name), Engine: grype}
	for _, w := range workloads {
		u.Workloads = append(u.Workloads, Workload{Namespace: namespace, Kind: "Deployment", Name: w, Container: "main", Repository: "r/" + name, Reference: "r/" + name + ":1"})
	}
	must(t, f.SetUsage(t.Context(), u))
}

// TestRuns checks which containers run an image with a vulnerability, by any of its names, in the requested namespaces.
func TestRuns(t *testing.T) {
	f := newStore(t)
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
		q    RunsQuery
		want string
	}{
		"everywhere":         {RunsQuery{ID: "CVE-2026-0001", All: true}, "blog/blog:openssl shop/back:libssl shop/back:openssl shop/front:libssl shop/front:openssl"},
		"in one namespace":   {RunsQuery{ID: "CVE-2026-0001", Namespaces: []string{"blog"}}, "blog/blog:openssl"},
		"in others":          {RunsQuery{ID: "CVE-2026-0002", Namespaces: []string{"blog", "idle"}}, ""},
		"in none":            {RunsQuery{ID: "CVE-2026-0001"}, ""},
		"in another case":    {RunsQuery{ID: "cve-2026-0002", All: true}, "shop/back:zlib shop/front:zlib"},
		"by an alias":        {RunsQuery{ID: "ghsa-AAAA-bbbb-cccc", All: true}, "shop/back:openssl shop/front:openssl"},
		"by an alias of two": {RunsQuery{ID: "ALAS-1", All: true}, "blog/blog:zlib shop/back:openssl shop/front:openssl"},
		"an unknown one":     {RunsQuery{ID: "CVE-2026-9999", All: true}, ""},
		"a pattern":          {RunsQuery{ID: "CVE-%", All: true}, ""},
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
	run := f.runs(t, RunsQuery{ID: "CVE-2026-0001", Namespaces: []string{"blog"}}, 5)[0]
	equal(t, "what is listed of it", run, Run{
		Namespace: "blog", Kind: "Deployment", Name: "blog", Container: "main", Reference: "r/api:1", Key: key("api"), Engines: []string{grype},
		Finding: finding.Finding{ID: "CVE-2026-0001", Severity: finding.Critical, FixState: finding.FixStateNotFixed, Package: vulnerable("", "openssl").Package},
	})
}

// TestRunsOfGoneFindings checks that gone findings have no runs, and that a withdrawn alias finds nothing.
func TestRunsOfGoneFindings(t *testing.T) {
	f := newStore(t)
	f.saveCatalogs(t, "web")
	f.inNamespace(t, "shop", "s1", "web", "front")
	f.report(t, "web", vulnerable("CVE-2026-0001", "openssl", func(f *finding.Finding) { f.Aliases = []string{"ALAS-1"} }))
	f.report(t, "web", vulnerable("CVE-2026-0001", "openssl"))
	if runs := f.runs(t, RunsQuery{ID: "ALAS-1", All: true}, 5); len(runs) != 0 {
		t.Errorf("an alias that is not one any more leads to %+v", runs)
	}
	f.report(t, "web")
	if runs := f.runs(t, RunsQuery{ID: "CVE-2026-0001", All: true}, 5); len(runs) != 0 {
		t.Errorf("a finding that is gone is found: %+v", runs)
	}
}

// TestRunsAreBounded checks that texts chosen by a pod's author or an image cannot make a result large.
func TestRunsAreBounded(t *testing.T) {
	f := newStore(t)
	f.saveCatalogs(t, "web")
	long := strings.Repeat("ä", 1<<20)
	must(t, f.SetUsage(t.Context(), ImageUsage{Scanner: "s", Namespace: "shop", Key: key("web"), Engine: grype, Workloads: []Workload{
		{Namespace: "shop", Kind: long, Name: long, Container: "main", Repository: "r", Reference: long},
	}}))
	f.report(t, "web", vulnerable("CVE-2026-0001", long, version(long)))
	runs := f.runs(t, RunsQuery{ID: "CVE-2026-0001", All: true}, 1)
	if len(runs) != 1 || len(runs[0].Kind)+len(runs[0].Name) > 2*2*253 || len(runs[0].Reference)+len(runs[0].Finding.Package.Name)+len(runs[0].Finding.Package.PURL) > 3*2*maxRunText {
		t.Errorf("%d answers; the first has texts of %d, %d, %d bytes", len(runs), len(runs[0].Kind), len(runs[0].Reference), len(runs[0].Finding.Package.Name))
	}
}

// TestRunsKeepNoLongTexts: a page holds no more of a finding's texts than what it shows.
func TestRunsKeepNoLongTexts(t *testing.T) {
	f := newStore(t)
	f.saveCatalogs(t, "web")
	var workloads []Workload
	for n := range 100 {
		workloads = append(workloads, workload(fmt.Sprintf("w%d", n), "registry.example.com/web"))
	}
	f.use(t, "s", "web", workloads...)
	long := strings.Repeat("x", 200<<10)
	f.report(t, "web", vulnerable("CVE-2026-0001", long, version(long), func(f *finding.Finding) { f.Package.Type = long }))
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	page := got[RunsPage](t)(f.RunsPage(t.Context(), RunsQuery{ID: "CVE-2026-0001", All: true}, RunCursor{}, 100))
	runtime.GC()
	runtime.ReadMemStats(&after)
	if held := int64(after.HeapAlloc) - int64(before.HeapAlloc); len(page.Runs) != 100 || held > 4<<20 {
		t.Errorf("a page of %d runs holds %d MiB", len(page.Runs), held>>20)
	}
	runtime.KeepAlive(page)
}

// TestNamesOfOlderStores: a store that was made before has its vulnerabilities found by all names too.
func TestNamesOfOlderStores(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	olderStore(t, path, 2,
		`INSERT INTO manifests (id, platform_digest, scope, last_used) VALUES (1, '`+digest("web")+`', '', 0)`,
		`INSERT INTO images (digest, platform, scope, manifest_id) VALUES ('`+key("web").Digest+`', 'linux/amd64', '', 1)`,
		`INSERT INTO reports (id, revision, manifest_id, engine, data_version, matched_at, distro) VALUES (1, 1, 1, 'grype', 'v1', 0, '')`,
		`INSERT INTO vulnerabilities (id, canonical_id, engine, description, url, cvss, epss, known_exploited)
			VALUES (1, 'CVE-2026-0001', 'grype', '', '', 0, 0, 0), (2, 'CVE-2026-0002', 'grype', '', '', 0, 0, 0)`,
		`INSERT INTO findings (report_id, key, vulnerability_id, package, version, type, purl, paths, severity, known_exploited, fixable,
			fix_state, fix_versions, aliases, advisories, content, first_seen)
			VALUES (1, x'01', 1, 'openssl', '1', 'deb', '', x'', 4, 0, 0, 'not-fixed', '', '["ALAS-1","alas-1"]', '', 0, 0),
			(1, x'02', 2, 'zlib', '1', 'deb', '', x'', 4, 0, 0, 'not-fixed', '', '', '', 0, 0)`,
	)
	f := openStore(t, path)
	f.inNamespace(t, "shop", "s1", "web", "front")
	for _, id := range []string{"CVE-2026-0001", "ALAS-1", "CVE-2026-0002"} {
		if runs := f.runs(t, RunsQuery{ID: id, All: true}, 5); len(runs) != 1 {
			t.Errorf("%s is found %d times, want once", id, len(runs))
		}
	}
}

// TestViewsUseIndexes checks that no query scans a whole table.
func TestViewsUseIndexes(t *testing.T) {
	f := newStore(t)
	f.requireIndexes(t, selectLocation, []any{"sbom", "s", "d", "p", "n"})
	f.requireIndexes(t, selectPassing, []any{
		sql.Named("report", 1), sql.Named("every", true), sql.Named("severities", "[]"), sql.Named("fixable", -1), sql.Named("exploited", -1),
		sql.Named("package", ""), sql.Named("id", "x"), sql.Named("text", "")}, "findings_present")
	f.requireIndexes(t, selectByID, []any{"[[1,0]]"})
	f.requireIndexes(t, countRuns, []any{sql.Named("id", "x"), sql.Named("every", true), sql.Named("namespaces", "[]")},
		"findings_by_vulnerability")
}
