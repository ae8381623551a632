package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// runningIn lets a Deployment of a namespace run an image, with a report of an engine.
func (f fixture) runningIn(t testing.TB, scanner, namespace, name, repository, engine string, findings ...finding.Finding) {
	t.Helper()
	must(t, f.SaveCatalog(t.Context(), store.Catalog{Engine: engine, Key: key(name), PlatformDigest: digest(name), CatalogedAt: f.clock.Now()}, nil))
	w := workload("runs "+name, repository)
	w.Namespace = namespace
	u := usedBy(engine, scanner, name, w)
	u.Namespace = namespace
	must(t, f.SetUsage(t.Context(), u))
	got[store.Difference](t)(f.SaveReport(t.Context(), store.Report{
		Subject: store.Subject{PlatformDigest: digest(name), Engine: engine}, DataVersion: "v1", MatchedAt: f.clock.Now(), Findings: findings,
	}, ""))
}

// testImagesOfVulnerability checks that lists of all and of some namespaces, and details, count the images of a vulnerability as the lists of each
// namespace do, also if another engine or tool finds it in each.
func (on suite) testImagesOfVulnerability(t *testing.T) {
	found := vulnerable("CVE-2026-0001", "lib")
	for name, run := range map[string]func(f fixture, namespace string){
		"another tool": func(f fixture, namespace string) {
			f.runningIn(t, "scanner of "+namespace, namespace, "in "+namespace, namespace, grype)
			must(t, f.SetAnnouncedSources(t.Context(), "scanner of "+namespace, []string{"ci"}))
			k := store.ExternalKey{Namespace: namespace, Digest: key("in " + namespace).Digest, Source: "ci"}
			f.saveExternal(t, externalReport(k, f.clock.Now(), namespace, found))
		},
		"two engines": func(f fixture, namespace string) {
			f.runningIn(t, "scanner of "+namespace, namespace, "in "+namespace, namespace, map[string]string{"a": grype, "b": clair}[namespace], found)
		},
	} {
		f := on.newStore(t)
		run(f, "a")
		run(f, "b")
		list := func(seen store.Sight) (images int) {
			for _, v := range got[store.VulnerabilitiesPage](t)(f.VulnerabilitiesPage(t.Context(), seen, store.VulnerabilityFilter{}, store.VulnerabilityCursor{}, 10)).Vulnerabilities {
				images += v.Images
			}
			return images
		}
		equal(t, name+": in all namespaces", list(store.Sight{All: true}), 2)
		equal(t, name+": in some namespaces", list(store.Sight{Namespaces: []string{"a", "b"}}), 2)
		equal(t, name+": in each", list(store.Sight{Namespaces: []string{"a"}})+list(store.Sight{Namespaces: []string{"b"}}), 2)
		equal(t, name+": details", got[store.VulnerabilityDetails](t)(f.Vulnerability(t.Context(), store.Sight{All: true}, found.ID)).Images, 2)
	}
}

// testOneKey checks that a vulnerability in packages with one name and different types counts once everywhere.
func (on suite) testOneKey(t *testing.T) {
	f := on.newStore(t)
	f.saveCatalogs(t, "debian", "alpine")
	for name, kind := range map[string]string{"debian": "deb", "alpine": "apk"} {
		w := workload("web", "ghcr.io/shop/web")
		w.Container = name
		f.use(t, "scanner", name, w)
		curl := vulnerable("CVE-2026-0001", "curl", fixed)
		curl.Package.Type = kind
		f.report(t, name, curl)
	}
	total := got[store.Totals](t)(f.ScannerTotals(t.Context(), "scanner", exception.Set{}))
	list := got[store.WorkloadsPage](t)(f.WorkloadsPage(t.Context(), store.WorkloadsQuery{Seen: store.Sight{All: true}}, store.WorkloadCursor{}, 10))
	details := got[store.WorkloadDetails](t)(f.Workload(t.Context(), store.WorkloadQuery{Namespace: "shop", Kind: "Deployment", Name: "web"}, 10))
	actions := got[store.ActionsPage](t)(f.ActionsPage(t.Context(), store.ActionsQuery{Seen: store.Sight{All: true}}, store.ActionCursor{}, 10))
	equal(t, "findings", total.Counts.Total(), 1)
	equal(t, "of the workload in the list", list.Workloads[0].Counts, total.Counts)
	equal(t, "of the workload", details.Counts, total.Counts)
	ends := 0
	for _, a := range actions.Repositories[0].Actions {
		ends += a.Counts.Total()
	}
	equal(t, "findings to act on", ends, total.ToActOn)
}

// testExceptionOfOneNamespace checks what an exception of one of two namespaces that run an image does: it suppresses there, is counted there, and its
// workloads are not named.
func (on suite) testExceptionOfOneNamespace(t *testing.T) {
	f := on.newStore(t)
	serious := vulnerable("CVE-2026-0001", "lib", severity(finding.Critical), exploited, fixed)
	for _, namespace := range []string{"blog", "shop"} {
		f.runningIn(t, "scanner", namespace, "web", "ghcr.io/web", grype, serious)
	}
	f.runningIn(t, "scanner", "kitchen", "without", "ghcr.io/web", grype)
	for name, e := range map[string]exception.Exception{
		"of the namespace":   {Namespace: "blog", Vulnerabilities: []string{"CVE-2026-0001"}},
		"that selects it":    {Namespaces: map[string]bool{"blog": true, "kitchen": true}, Vulnerabilities: []string{"CVE-2026-0001"}},
		"for its package":    {Namespace: "blog", Packages: []exception.Package{{Name: "l?b"}}},
		"for its repository": {Namespace: "blog", Packages: []exception.Package{{Name: "lib"}}, Images: []string{"*/web"}},
	} {
		e.UID = "x"
		set := exception.NewSet([]exception.Exception{e}, f.clock.Now())
		total, by, err := f.NamespaceTotals(t.Context(), "scanner", set)
		must(t, err)
		equal(t, name+": suppressed in all, in blog, in shop", []int{total.Suppressed, by["blog"].Suppressed, by["shop"].Suppressed}, []int{0, 1, 0})
		equal(t, name+": suppressed by the exception", total.ByException["x"], 1)
		filter := store.ChangeFilter{Exceptions: set}
		where := func(workloads []store.Workload) (namespaces []string) {
			for _, w := range workloads {
				namespaces = append(namespaces, w.Namespace)
			}
			return namespaces
		}
		pending, _, err := f.PendingChanges(t.Context(), "scanner", "slack", filter, 0)
		must(t, err)
		equal(t, name+": announced for", where(pending[0].Workloads), []string{"shop"})
		equal(t, name+": exploited for the longest time in", where(got[*store.FindingChange](t)(f.OldestExploited(t.Context(), "scanner", filter)).Workloads), []string{"shop"})
		actions := got[store.ActionsPage](t)(f.ActionsPage(t.Context(), store.ActionsQuery{Seen: store.Sight{All: true}, Exceptions: set}, store.ActionCursor{}, 10))
		equal(t, name+": to act on in", where(actions.Repositories[0].Workloads), []string{"shop"})
	}
}

// testCountSummary checks that the findings of an earlier summary, plus those opened, minus those ended, are those of the present one.
func (on suite) testCountSummary(t *testing.T) {
	f := on.newStore(t)
	var filter store.ChangeFilter
	before, number := 0, 0
	check := func(what string, opened, ended int) {
		t.Helper()
		earlier := fmt.Sprint("message ", number)
		counts := got[store.SummaryCounts](t)(f.CountSummary(t.Context(), "scanner", "slack", filter, earlier, nil))
		equal(t, what, []int{counts.Opened, counts.Ended, counts.Counts.Total()}, []int{opened, ended, before + opened - ended})
		number++
		announcement := store.Announcement{MessageID: fmt.Sprint("message ", number), Counted: &store.CountedFindings{Filter: filter, SnapshotID: counts.SnapshotID, Keep: earlier}}
		must(t, f.RecordAnnouncement(t.Context(), "scanner", "slack", announcement))
		before = counts.Counts.Total()
	}
	one, two, three := vulnerable("CVE-2026-0001", "a"), vulnerable("CVE-2026-0002", "a"), vulnerable("CVE-2026-0003", "b")
	check("nothing runs", 0, 0)
	f.runningIn(t, "scanner", "shop", "web", "ghcr.io/web", grype, one, two)
	check("an image starts", 2, 0)
	check("nothing changes", 0, 0)
	f.runningIn(t, "scanner", "blog", "web", "ghcr.io/web", grype, one, three)
	check("one more namespace, one finding comes and one goes", 1, 1)
	accept := func(exceptions ...exception.Exception) {
		filter.Exceptions = exception.NewSet(exceptions, f.clock.Now())
	}
	accept(exception.Exception{UID: "1", Namespace: "shop", Vulnerabilities: []string{one.ID}})
	check("an exception of one of the namespaces", 0, 0)
	accept(exception.Exception{UID: "1", Vulnerabilities: []string{one.ID}})
	check("an exception of both", 0, 1)
	accept()
	check("the exception ends", 1, 0)
	must(t, f.SetAnnouncedSources(t.Context(), "scanner", []string{"ci"}))
	k := store.ExternalKey{Namespace: "shop", Digest: key("web").Digest, Source: "ci"}
	f.clock.pass(time.Second)
	f.saveExternal(t, externalReport(k, f.clock.Now(), "shop", one, two))
	check("another tool", 1, 0)
	filter.Engine = clair
	check("another engine without a result", 0, 3)
	filter.Engine = grype
	f.runningIn(t, "scanner", "shop", "old", "ghcr.io/old", grype, one)
	check("an image whose findings are known elsewhere", 4, 0)
	gone := used("scanner", "old")
	gone.Namespace = "shop"
	must(t, f.SetUsage(t.Context(), gone))
	f.clock.pass(31 * 24 * time.Hour)
	check("an image stops", 0, 1)

	counts := got[store.SummaryCounts](t)(f.CountSummary(t.Context(), "scanner", "slack", filter, "message unknown", nil))
	equal(t, "since a message that was not recorded", []int{counts.Opened, counts.Ended}, []int{counts.Counts.Total(), 0})
	f.runningIn(t, "scanner", "shop", "new", "ghcr.io/new", grype, one)
	outdated := store.Announcement{MessageID: "late", Counted: &store.CountedFindings{Filter: filter, SnapshotID: counts.SnapshotID}}
	requireError(t, f.RecordAnnouncement(t.Context(), "scanner", "slack", outdated), store.ErrChanged)
}
