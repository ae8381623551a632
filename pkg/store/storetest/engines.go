package storetest

import (
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// Two instances of one engine are two engines. Their names contain special characters.
const (
	clair      = "clair https://clair.example.com"
	otherClair = "clair https://clair.example.com:8443/a?b='c'"
)

func usedBy(engine, scanner, name string, workloads ...store.Workload) store.ImageUsage {
	u := used(scanner, name, workloads...)
	u.Engine = engine
	return u
}

func catalogBy(engine, name string, at time.Time) store.Catalog {
	c := catalogOf(name, at)
	c.Engine = engine
	return c
}

func reportOf(engine, name string, findings ...finding.Finding) store.Report {
	r := report(name, findings...)
	r.Engine = engine
	return r
}

// testCatalogsOfEnginesAreIndependent checks that an engine never sees the catalog of another one.
func (on suite) testCatalogsOfEnginesAreIndependent(t *testing.T) {
	f := on.newStore(t)
	engines := []string{grype, clair, otherClair}
	texts := map[store.Artifact]string{store.ArtifactSBOM: "sbom", store.ArtifactMatchInput: "input"}
	must(t, f.SaveCatalog(t.Context(), catalogOf("app", f.clock.Now()), artifacts(texts)))
	check := func(what string, want ...string) {
		t.Helper()
		for _, engine := range engines {
			c, err := f.Catalog(t.Context(), engine, key("app"), store.Cluster)
			if has := slices.Contains(want, engine); has != (err == nil) || (!has && !errors.Is(err, store.ErrNotFound)) {
				t.Errorf("%s: %s has %+v, %v", what, engine, c, err)
			}
			if err == nil && c.Tool != "syft 1.0.0" && engine == grype {
				t.Errorf("%s: Grype's list is another engine's: %+v", what, c)
			}
			scopes := got[[]store.Scope](t)(f.CatalogScopes(t.Context(), engine, key("app"), ""))
			equal(t, what+": scopes of "+engine, len(scopes), len(slices.DeleteFunc(slices.Clone(want), func(e string) bool { return e != engine })))
		}
	}
	check("one has listed it", grype)
	listed := catalogBy(clair, "app", f.clock.Now())
	listed.Tool, listed.Packages = "clair 4.9", 3
	must(t, f.SaveCatalog(t.Context(), listed, nil))
	check("two have", grype, clair)
	equal(t, "what Clair has listed", got[store.Catalog](t)(f.Catalog(t.Context(), clair, key("app"), store.Cluster)), listed)
	equal(t, "the artifact stays", f.artifact(t, "app", store.ArtifactSBOM), "sbom")
	must(t, f.DeleteCatalog(t.Context(), clair, digest("app")))
	must(t, f.DeleteCatalog(t.Context(), otherClair, digest("app")))
	check("one is to list it anew", grype)
	must(t, f.DeleteCatalog(t.Context(), grype, digest("app")))
	check("nobody has")
}

// testHasReport checks that a report is found by each digest that resolves to its manifest, in its scope and by its engine, even
// while the image is to be cataloged again.
func (on suite) testHasReport(t *testing.T) {
	f := on.newStore(t)
	f.saveCatalogs(t, "app")
	has := func(engine, name string, scope store.Scope) bool {
		t.Helper()
		return got[bool](t)(f.HasReport(t.Context(), engine, key(name), scope))
	}
	equal(t, "before the first report", has(grype, "app", store.Cluster), false)
	f.report(t, "app")
	index := catalogOf("app", f.clock.Now())
	index.Key = key("index of app")
	must(t, f.SaveCatalog(t.Context(), index, nil))
	must(t, f.DeleteCatalog(t.Context(), grype, digest("app")))
	equal(t, "by its own digest", has(grype, "app", store.Cluster), true)
	equal(t, "by its index", has(grype, "index of app", store.Cluster), true)
	equal(t, "of another engine", has(clair, "app", store.Cluster), false)
	equal(t, "in another scope", has(grype, "app", "shop"), false)
	equal(t, "of an unknown image", has(grype, "unknown", store.Cluster), false)
}

// testQueuesOfEngines checks that an engine's queue has what it has cataloged itself, for Scanners that use it.
func (on suite) testQueuesOfEngines(t *testing.T) {
	f := on.newStore(t)
	for name, listedBy := range map[string][]string{"both": {grype, clair}, "only Grype": {grype}, "only Clair": {clair}} {
		for _, engine := range listedBy {
			must(t, f.SaveCatalog(t.Context(), catalogBy(engine, name, f.clock.Now()), nil))
		}
		f.use(t, "s-grype", name, workload("web", "r"))
		must(t, f.SetUsage(t.Context(), usedBy(clair, "s-clair", name, workload("web", "r"))))
	}
	must(t, f.SaveCatalog(t.Context(), catalogBy(clair, "not Clair's", f.clock.Now()), nil))
	f.use(t, "s-grype", "not Clair's", workload("web", "r"))
	for engine, want := range map[string][]string{grype: {"both", "only Grype"}, clair: {"both", "only Clair"}, otherClair: nil} {
		equal(t, "length for "+engine, got[int](t)(f.QueueLength(t.Context(), engine)), len(want))
		leases := got[[]store.Lease](t)(f.LeaseMatches(t.Context(), engine, "job", 9, f.clock.Now(), f.clock.Now().Add(time.Minute)))
		var digests, wanted []string
		for _, lease := range leases {
			equal(t, "engine of a lease", lease.Engine, engine)
			digests = append(digests, lease.PlatformDigest)
		}
		for _, name := range want {
			wanted = append(wanted, digest(name))
		}
		slices.Sort(digests)
		slices.Sort(wanted)
		equal(t, "lent to "+engine, digests, wanted)
	}
}

func (on suite) testManifests(t *testing.T) {
	f := on.newStore(t)
	ours := store.Manifest{Engine: clair, PlatformDigest: digest("app"), AddedByOperator: true}
	theirs := store.Manifest{Engine: otherClair, PlatformDigest: digest("app")}
	if _, err := f.Manifest(t.Context(), clair, digest("app")); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("before it is saved: %v, want ErrNotFound", err)
	}
	must(t, f.SaveManifest(t.Context(), ours))
	must(t, f.SaveManifest(t.Context(), theirs))
	// Saving a manifest again does not change who was first.
	must(t, f.SaveManifest(t.Context(), store.Manifest{Engine: clair, PlatformDigest: digest("app")}))
	must(t, f.SaveManifest(t.Context(), store.Manifest{Engine: otherClair, PlatformDigest: digest("app"), AddedByOperator: true}))
	for _, want := range []store.Manifest{ours, theirs} {
		equal(t, "who was first in "+want.Engine, got[store.Manifest](t)(f.Manifest(t.Context(), want.Engine, want.PlatformDigest)), want)
	}
	must(t, f.DeleteManifest(t.Context(), clair, digest("app")))
	must(t, f.DeleteManifest(t.Context(), clair, digest("app")))
	if _, err := f.Manifest(t.Context(), clair, digest("app")); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("after it was forgotten: %v, want ErrNotFound", err)
	}
	equal(t, "the other instance's", got[store.Manifest](t)(f.Manifest(t.Context(), otherClair, digest("app"))), theirs)
	for _, m := range []store.Manifest{{Engine: clair}, {PlatformDigest: digest("app")}} {
		if err := f.SaveManifest(t.Context(), m); err == nil {
			t.Errorf("saving %+v: got no error", m)
		}
	}
}

// unused returns those of the names whose manifests an engine may delete.
func (f fixture) unused(t *testing.T, except string, limit int, names ...string) (unused []string) {
	t.Helper()
	manifests := got[[]store.Manifest](t)(f.UnusedManifests(t.Context(), clair, except, "", limit))
	if !slices.IsSortedFunc(manifests, func(a, b store.Manifest) int { return cmpString(a.PlatformDigest, b.PlatformDigest) }) {
		t.Errorf("not in the order of their digests: %+v", manifests)
	}
	for _, name := range names {
		if slices.Contains(manifests, store.Manifest{Engine: clair, PlatformDigest: digest(name), AddedByOperator: true}) {
			unused = append(unused, name)
		}
	}
	if len(unused) != len(manifests) {
		t.Errorf("listed are %+v, of which only %q are known", manifests, unused)
	}
	return unused
}

// testUnusedManifests checks that a manifest is unused when no Scanner has it by that engine, in any scope, and that its record
// outlives Scanners and catalogs.
func (on suite) testUnusedManifests(t *testing.T) {
	f := on.newStore(t)
	names := []string{"used", "private", "by Grype", "by another instance", "by s1 alone", "by both", "retained", "nobody's"}
	for _, name := range names {
		must(t, f.SaveManifest(t.Context(), store.Manifest{Engine: clair, PlatformDigest: digest(name), AddedByOperator: true}))
		must(t, f.SaveManifest(t.Context(), store.Manifest{Engine: otherClair, PlatformDigest: digest(name), AddedByOperator: true}))
		f.saveCatalogs(t, name)
	}
	private := catalogBy(clair, "private", f.clock.Now())
	private.Scope = "shop"
	must(t, f.SaveCatalog(t.Context(), private, nil))
	inShop := usedBy(clair, "s2", "private", workload("web", "r"))
	inShop.Scope = "shop"
	for _, u := range []store.ImageUsage{
		usedBy(clair, "s2", "used", workload("web", "r")), inShop, used("s1", "by Grype", workload("web", "r")),
		usedBy(otherClair, "s1", "by another instance", workload("web", "r")), usedBy(clair, "s1", "by s1 alone", workload("web", "r")),
		usedBy(clair, "s1", "by both", workload("web", "r")), usedBy(clair, "s2", "by both", workload("web", "r")),
		usedBy(clair, "s2", "retained"),
	} {
		must(t, f.SetUsage(t.Context(), u))
	}
	equal(t, "unused", f.unused(t, "", 99, names...), []string{"by Grype", "by another instance", "nobody's"})
	equal(t, "unused but for s1", f.unused(t, "s1", 99, names...), []string{"by Grype", "by another instance", "by s1 alone", "nobody's"})
	equal(t, "at most two", len(f.unused(t, "", 2, names...)), 2)
	for scanner, want := range map[string]bool{"s1": true, "s2": true, "nobody": false} {
		equal(t, "held for "+scanner, got[bool](t)(f.HoldsManifests(t.Context(), clair, scanner)), want)
	}
	equal(t, "held by an engine that keeps nothing", got[bool](t)(f.HoldsManifests(t.Context(), grype, "s1")), false)
	must(t, f.ReleaseImage(t.Context(), store.ScannerImage{Scanner: "s1", Namespace: "shop", Key: key("by s1 alone")}, false))
	equal(t, "held for s1 of what others have", got[bool](t)(f.HoldsManifests(t.Context(), clair, "s1")), false)

	must(t, f.DeleteScanners(t.Context(), []string{"s1", "s2"}))
	f.clock.pass(time.Hour)
	equal(t, "swept", got[int](t)(f.Sweep(t.Context(), f.clock.Now())), len(names)+1)
	equal(t, "unused when all is forgotten", f.unused(t, "", 99, names...), names)
	must(t, f.DeleteManifest(t.Context(), clair, digest("used")))
	equal(t, "and when one is forgotten", f.unused(t, "", 99, names...), names[1:])
}

// testUnusedManifestsAmongMany checks that few unused manifests are found among ten thousand used ones.
func (on suite) testUnusedManifestsAmongMany(t *testing.T) {
	f := on.newStore(t)
	const many = 10_000
	for _, statement := range []string{
		`INSERT INTO manifests (id, platform_digest, scope, last_used) SELECT value, 'sha256:' || value, '', 0 FROM generated`,
		`INSERT INTO scanner_images (scanner, namespace, digest, platform, scope, engine, manifest_id)
			SELECT 's', 'shop', 'sha256:index' || value, 'linux/amd64', '', @engine, value FROM generated WHERE value % 1000 <> 0`,
		`INSERT INTO engine_manifests (engine, platform_digest, ours) SELECT @engine, 'sha256:' || value, 1 FROM generated`,
	} {
		const generated = `WITH RECURSIVE generated AS (SELECT 1 AS value UNION ALL SELECT value + 1 FROM generated WHERE value < @many) SELECT`
		f.exec(t, strings.Replace(statement, "SELECT", generated, 1), sql.Named("engine", clair), sql.Named("many", many))
	}
	unused := got[[]store.Manifest](t)(f.UnusedManifests(t.Context(), clair, "", "", 5))
	equal(t, "the first of ten", len(unused), 5)
	last := unused[4]
	equal(t, "from the last on", got[[]store.Manifest](t)(f.UnusedManifests(t.Context(), clair, "", last.PlatformDigest, 99))[0], last)
}

// twoEngines is a store with one image that two Scanners of one namespace have, each with its engine. Both engines find
// CVE-2026-0001 in openssl, and each finds one thing more.
func (on suite) twoEngines(t *testing.T) fixture {
	t.Helper()
	f := on.newStore(t)
	for _, engine := range []string{grype, clair} {
		must(t, f.SaveCatalog(t.Context(), catalogBy(engine, "app", f.clock.Now()), nil))
		must(t, f.SetUsage(t.Context(), usedBy(engine, "s-"+engine, "app", workload("web", "r"))))
	}
	otherPURL := func(v *finding.Finding) { v.Package.PURL = "pkg:deb/debian/openssl@1.0?distro=debian-12" }
	got[store.Difference](t)(f.SaveReport(t.Context(), report("app", vulnerable("CVE-2026-0001", "openssl"), vulnerable("CVE-2026-0002", "zlib")), ""))
	got[store.Difference](t)(f.SaveReport(t.Context(), reportOf(clair, "app",
		vulnerable("CVE-2026-0001", "openssl", severity(finding.Critical), fixed, otherPURL), vulnerable("CVE-2026-0003", "bash", exploited)), ""))
	return f
}

// testTwoScannersOfAnImage checks that each Scanner has what its engine found, and nothing of the other's.
func (on suite) testTwoScannersOfAnImage(t *testing.T) {
	f := on.twoEngines(t)
	for engine, want := range map[string]struct {
		counts  finding.Counts
		changes []string
	}{
		grype: {finding.Counts{High: 2}, []string{"CVE-2026-0001", "CVE-2026-0002"}},
		clair: {finding.Counts{Critical: 1, High: 1, Fixable: 1, KnownExploited: 1}, []string{"CVE-2026-0003", "CVE-2026-0001"}},
	} {
		scanner := "s-" + engine
		location := got[store.Location](t)(f.Locate(t.Context(), scanner, "shop", key("app")))
		equal(t, engine+": where its results are", location.Subject, store.Subject{PlatformDigest: digest("app"), Engine: engine})
		if location.Report == nil {
			t.Errorf("%s: no report is found", engine)
		}
		equal(t, engine+": counts", got[store.Totals](t)(f.ScannerTotals(t.Context(), scanner, exception.Set{})).Counts, want.counts)
		changes, total, err := f.PendingChanges(t.Context(), scanner, "slack", store.ChangeFilter{}, 0)
		must(t, err)
		equal(t, engine+": news", ids(changes), want.changes)
		equal(t, engine+": total", total, 2)
		equal(t, engine+": present", got[store.Present](t)(f.Present(t.Context(), scanner, "slack", store.ChangeFilter{}, 9)).Counts, want.counts)
		equal(t, engine+": reported", slices.Collect(maps.Keys(got[map[store.NamespacedImage]store.ReportAge](t)(f.ReportAges(t.Context(), scanner, engine)))), []store.NamespacedImage{{Namespace: "shop", Key: key("app")}})
		equal(t, engine+": in use", got[bool](t)(f.InUse(t.Context(), engine, key("app"), store.Cluster)), true)
		equal(t, engine+": wanted", got[bool](t)(f.IsNeeded(t.Context(), engine, key("app"), store.Cluster)), true)
		equal(t, engine+": images in use", got[int](t)(f.ImagesInUse(t.Context(), engine)), 1)

		// What was announced to one Scanner's receiver was not announced to the other's.
		must(t, f.RecordAnnouncement(t.Context(), scanner, "slack", store.Announcement{Findings: announcedFindings(announcementKey("r", "CVE-2026-0001", "openssl"))}))
		_, total, err = f.PendingChanges(t.Context(), scanner, "slack", store.ChangeFilter{}, 0)
		must(t, err)
		equal(t, engine+": changes when one was announced", total, 1)
	}
	// A released image no longer counts for the Scanner's engine.
	must(t, f.ReleaseImage(t.Context(), store.ScannerImage{Scanner: "s-" + grype, Namespace: "shop", Key: key("app")}, false))
	equal(t, "Grype's, released", got[bool](t)(f.InUse(t.Context(), grype, key("app"), store.Cluster)), false)
	equal(t, "wanted of Grype, released", got[bool](t)(f.IsNeeded(t.Context(), grype, key("app"), store.Cluster)), false)
	equal(t, "Clair's", got[bool](t)(f.InUse(t.Context(), clair, key("app"), store.Cluster)), true)
	f.clock.pass(time.Hour)
	equal(t, "swept while one has it", got[int](t)(f.Sweep(t.Context(), f.clock.Now())), 0)
	must(t, f.ReleaseImage(t.Context(), store.ScannerImage{Scanner: "s-" + clair, Namespace: "shop", Key: key("app")}, false))
	f.clock.pass(time.Hour)
	equal(t, "swept when nobody has", got[int](t)(f.Sweep(t.Context(), f.clock.Now())), 1)
}

// testPendingChangesByEngine checks a Scanner that changes its engine and has images with both for a while: queries return only what the
// requested engine found.
func (on suite) testPendingChangesByEngine(t *testing.T) {
	f := on.twoEngines(t)
	f.saveCatalogs(t, "old")
	f.use(t, "s-"+clair, "old", workload("old", "r"))
	f.report(t, "old", vulnerable("CVE-2026-0009", "tar"))
	for engine, want := range map[string][]string{
		"": {"CVE-2026-0003", "CVE-2026-0001", "CVE-2026-0009"}, clair: {"CVE-2026-0003", "CVE-2026-0001"}, grype: {"CVE-2026-0009"}, otherClair: nil,
	} {
		filter := store.ChangeFilter{Engine: engine}
		changes, total, err := f.PendingChanges(t.Context(), "s-"+clair, "slack", filter, 0)
		must(t, err)
		equal(t, "news by "+engine, ids(changes), want)
		equal(t, "total by "+engine, total, len(want))
		present := got[store.Present](t)(f.Present(t.Context(), "s-"+clair, "slack", filter, 9))
		equal(t, "present by "+engine, []int{present.NotAnnounced, present.Counts.Total()}, []int{len(want), len(want)})
	}
	present := got[store.Present](t)(f.Present(t.Context(), "s-"+clair, "slack", store.ChangeFilter{Engine: clair}, 0))
	must(t, f.RecordAnnouncement(t.Context(), "s-"+clair, "slack", store.Announcement{Snapshot: &store.FilteredSnapshot{Filter: store.ChangeFilter{Engine: clair}, SnapshotID: present.SnapshotID}}))
	changes, _, err := f.PendingChanges(t.Context(), "s-"+clair, "slack", store.ChangeFilter{}, 0)
	must(t, err)
	equal(t, "what was not announced with all of one", ids(changes), []string{"CVE-2026-0009"})
	equal(t, "reported by Clair", slices.Collect(maps.Keys(got[map[store.NamespacedImage]store.ReportAge](t)(f.ReportAges(t.Context(), "s-"+clair, clair)))), []store.NamespacedImage{{Namespace: "shop", Key: key("app")}})
}

// testRunsOfTwoEngines checks that a run is listed once with all engines that found the vulnerability, whatever the page size.
func (on suite) testRunsOfTwoEngines(t *testing.T) {
	f := on.twoEngines(t)
	both := f.runs(t, store.RunsQuery{ID: "CVE-2026-0001", All: true}, 5)
	if len(both) != 1 {
		t.Fatalf("%d answers, want one of both engines: %+v", len(both), both)
	}
	equal(t, "engines", both[0].Engines, []string{clair, grype})
	equal(t, "the worst that one says", []any{both[0].Finding.Severity, both[0].Finding.FixVersions}, []any{finding.Critical, []string{"1.1"}})
	for id, want := range map[string]string{"CVE-2026-0002": grype, "CVE-2026-0003": clair} {
		runs := f.runs(t, store.RunsQuery{ID: id, All: true}, 5)
		if len(runs) != 1 || !slices.Equal(runs[0].Engines, []string{want}) {
			t.Errorf("%s: %+v, want it found by %s", id, runs, want)
		}
	}
	// Each engine finds the vulnerability in some of many packages.
	var grypes, clairs []finding.Finding
	for i := range 9 {
		v := vulnerable("CVE-2026-0007", fmt.Sprint("lib", i))
		if i%2 == 0 {
			grypes = append(grypes, v)
		}
		if i%3 == 0 {
			clairs = append(clairs, v)
		}
	}
	got[store.Difference](t)(f.SaveReport(t.Context(), report("app", grypes...), ""))
	got[store.Difference](t)(f.SaveReport(t.Context(), reportOf(clair, "app", clairs...), ""))
	for limit := 1; limit < 8; limit++ {
		found := map[string]int{}
		for _, run := range f.runs(t, store.RunsQuery{ID: "CVE-2026-0007", All: true}, limit) {
			found[run.Finding.Package.Name] += len(run.Engines)
		}
		equal(t, fmt.Sprint("engines of each with pages of ", limit), found,
			map[string]int{"lib0": 2, "lib2": 1, "lib3": 1, "lib4": 1, "lib6": 2, "lib8": 1})
	}
	// What another engine finds or loses between two pages moves no run to another page.
	page := got[store.RunsPage](t)(f.RunsPage(t.Context(), store.RunsQuery{ID: "CVE-2026-0007", All: true}, store.RunCursor{}, 3))
	got[store.Difference](t)(f.SaveReport(t.Context(), reportOf(clair, "app", slices.Concat(grypes, clairs)...), ""))
	rest := got[store.RunsPage](t)(f.RunsPage(t.Context(), store.RunsQuery{ID: "CVE-2026-0007", All: true}, *page.Next, 9))
	var names []string
	for _, run := range slices.Concat(page.Runs, rest.Runs) {
		names = append(names, run.Finding.Package.Name)
	}
	slices.Sort(names)
	equal(t, "all of them, each once", names, []string{"lib0", "lib2", "lib3", "lib4", "lib6", "lib8"})
}

// testResetRepositories checks that a receiver whose repositories are reset knows those of the same announcement.
func (on suite) testResetRepositories(t *testing.T) {
	f := on.newStore(t)
	must(t, f.RecordAnnouncement(t.Context(), "s", "slack", store.Announcement{Repositories: []string{"a", "b"}, Findings: announcedFindings(announcementKey("c", "CVE-2026-0001", "x"))}))
	must(t, f.RecordAnnouncement(t.Context(), "s", "mail", store.Announcement{Repositories: []string{"a"}}))
	must(t, f.RecordAnnouncement(t.Context(), "s", "slack", store.Announcement{ResetRepositories: true, Repositories: []string{"b"}}))
	equal(t, "repositories", got[[]string](t)(f.KnownRepositories(t.Context(), "s", "slack")), []string{"b"})
	equal(t, "repositories of another receiver", got[[]string](t)(f.KnownRepositories(t.Context(), "s", "mail")), []string{"a"})
}
