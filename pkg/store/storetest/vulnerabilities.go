package storetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// usageKey is an image that a scanner has in a namespace.
type usageKey struct{ scanner, namespace, image string }

// reportKey is the report of an engine about a manifest in a credential scope.
type reportKey struct {
	manifest string
	scope    store.Scope
	engine   string
}

// aliasKey is an image in a credential scope.
type aliasKey struct {
	image string
	scope store.Scope
}

// sightModel is a simple model of what runs where and of the reports about it, with the store that is compared with it.
type sightModel struct {
	fixture
	// manifests has the manifest of each image that is cataloged. Images can lead to the same one.
	manifests map[aliasKey]string
	usages    map[usageKey]store.ImageUsage
	reports   map[reportKey][]finding.Finding
	// external has the findings of external reports, and announced the sources of Scanners.
	external  map[store.ExternalKey][]finding.Finding
	announced map[string][]string
	// shared is what the latest report of an engine has for a vulnerability, and firstSeen when the first report had it.
	shared    map[[2]string]finding.Finding
	firstSeen map[[2]string]time.Time
}

var (
	sightNamespaces = []string{"blog", "kitchen", "shop"}
	sightEngines    = []string{grype, "clair https://clair.example.com"}
	sightImages     = []string{"one", "two", "three", "four"}
	sightManifests  = []string{"a", "b"}
	sightSources    = []string{"ci", "nightly"}
	sightScopes     = []store.Scope{store.Cluster, store.Cluster, "shop"}
)

func pick[T any](t *rapid.T, from []T, label string) T { return rapid.SampledFrom(from).Draw(t, label) }

func (m *sightModel) catalog(t *rapid.T) {
	name, manifest := pick(t, sightImages, "image"), pick(t, sightManifests, "manifest")
	c := catalogOf(name, m.clock.Now())
	c.PlatformDigest, c.Engine, c.Scope = digest(manifest), pick(t, sightEngines, "engine"), pick(t, sightScopes, "scope")
	must(t, m.SaveCatalog(context.Background(), c, nil))
	m.manifests[aliasKey{name, c.Scope}] = manifest
}

func (m *sightModel) use(t *rapid.T) {
	namespace := pick(t, sightNamespaces, "namespace")
	cluster := rapid.Bool().Draw(t, "cluster")
	u := store.ImageUsage{
		Scanner: "scanner of " + namespace, Cluster: cluster, Namespace: namespace, Key: key(pick(t, sightImages, "image")),
		Engine: pick(t, sightEngines, "engine"),
	}
	if namespace == "shop" {
		u.Scope = pick(t, sightScopes, "scope")
	}
	if cluster {
		u.Scanner = "cluster scanner"
	}
	name := sightImages[slices.IndexFunc(sightImages, func(name string) bool { return key(name) == u.Key })]
	for range rapid.IntRange(0, 2).Draw(t, "workloads") {
		w := workload(fmt.Sprint("w", rapid.IntRange(0, 2).Draw(t, "workload")), pick(t, []string{"api", "web"}, "repository"))
		w.Namespace = namespace
		u.Workloads = append(u.Workloads, w)
	}
	must(t, m.SetUsage(context.Background(), u))
	k := usageKey{u.Scanner, namespace, name}
	if before, known := m.usages[k]; known && len(u.Workloads) == 0 {
		u.Engine, u.Scope = before.Engine, before.Scope
	}
	m.usages[k] = u
}

func (m *sightModel) release(t *rapid.T) {
	keys := slices.SortedFunc(maps.Keys(m.usages), func(a, b usageKey) int { return cmpString(fmt.Sprint(a), fmt.Sprint(b)) })
	if len(keys) == 0 {
		return
	}
	k := pick(t, keys, "image of a scanner")
	must(t, m.ReleaseImage(context.Background(), store.ScannerImage{Scanner: k.scanner, Namespace: k.namespace, Key: key(k.image)}, false))
	delete(m.usages, k)
}

func (m *sightModel) deleteScanner(t *rapid.T) {
	scanner := pick(t, []string{"cluster scanner", "scanner of shop"}, "scanner")
	must(t, m.DeleteScanners(context.Background(), []string{scanner}))
	maps.DeleteFunc(m.usages, func(k usageKey, _ store.ImageUsage) bool { return k.scanner == scanner })
	delete(m.announced, scanner)
}

func (m *sightModel) report(t *rapid.T) {
	k, findings := reportKey{pick(t, sightManifests, "manifest"), pick(t, sightScopes, "scope"), pick(t, sightEngines, "engine")}, drawFindings(t)
	r := report(k.manifest, findings...)
	r.Engine, r.Scope, r.DataVersion = k.engine, k.scope, fmt.Sprint("v", rapid.IntRange(0, 9).Draw(t, "data"))
	got[store.Difference](t)(m.SaveReport(context.Background(), r, ""))
	m.reports[k] = findings
	m.learn(k.engine, findings)
}

func (m *sightModel) saveExternal(t *rapid.T) {
	k, findings := pickExternal(t), drawFindings(t)
	got[store.SavedExternal](t)(m.SaveExternalReport(context.Background(), externalReport(k, m.clock.Now(), "text", findings...), anyReport))
	m.external[k] = findings
	m.learn(k.Subject().Engine, findings)
}

func (m *sightModel) deleteExternal(t *rapid.T) {
	k := pickExternal(t)
	if err := m.DeleteExternalReport(context.Background(), k, anyReport); !errors.Is(err, store.ErrNotFound) {
		must(t, err)
	}
	delete(m.external, k)
}

func pickExternal(t *rapid.T) store.ExternalKey {
	return store.ExternalKey{
		Namespace: pick(t, []string{"kitchen", "shop"}, "namespace"), Digest: key("one").Digest,
		Platform: pick(t, []string{"", "", key("one").Platform.String(), "linux/s390x"}, "platform"), Source: pick(t, sightSources, "source"),
	}
}

func (m *sightModel) announce(t *rapid.T) {
	scanner := pick(t, []string{"cluster scanner", "scanner of shop"}, "scanner")
	m.announced[scanner] = rapid.SliceOfNDistinct(rapid.SampledFrom(sightSources), 0, len(sightSources), rapid.ID).Draw(t, "sources")
	must(t, m.SetAnnouncedSources(context.Background(), scanner, m.announced[scanner]))
}

// announces reports whether the Scanner of an image announces an external report.
func (m *sightModel) announces(u usageKey, k store.ExternalKey) bool {
	return slices.Contains(m.announced[u.scanner], k.Source) && u.namespace == k.Namespace && key(u.image).Digest == k.Digest &&
		(k.Platform == "" || k.Platform == key(u.image).Platform.String())
}

// learn records what an engine states about vulnerabilities.
func (m *sightModel) learn(engine string, findings []finding.Finding) {
	about := make(map[string]finding.Finding)
	for _, f := range findings {
		v := about[f.ID]
		about[f.ID] = finding.Finding{EPSS: max(v.EPSS, f.EPSS), CVSS: max(v.CVSS, f.CVSS), KnownExploited: v.KnownExploited || f.KnownExploited}
		if shared := [2]string{f.ID, engine}; m.firstSeen[shared].IsZero() {
			m.firstSeen[shared] = m.clock.Now()
		}
	}
	for id, v := range about {
		m.shared[[2]string{id, engine}] = v
	}
}

// sweep deletes what has not been in use for some hours. The model forgets what the store has no more.
func (m *sightModel) sweep(t *rapid.T) {
	got[int](t)(m.Sweep(context.Background(), m.clock.Now().Add(-2*time.Hour)))
	maps.DeleteFunc(m.manifests, func(k aliasKey, _ string) bool {
		return m.count(t, fmt.Sprintf("images WHERE digest = '%s' AND scope = '%s'", key(k.image).Digest, k.scope)) == 0
	})
	maps.DeleteFunc(m.reports, func(k reportKey, _ []finding.Finding) bool {
		s := subject(k.manifest)
		s.Engine, s.Scope = k.engine, k.scope
		_, err := m.Findings(context.Background(), s)
		return errors.Is(err, store.ErrNotFound)
	})
	maps.DeleteFunc(m.external, func(k store.ExternalKey, _ []finding.Finding) bool {
		_, err := m.ExternalReport(context.Background(), k)
		return errors.Is(err, store.ErrNotFound)
	})
	maps.DeleteFunc(m.firstSeen, func(k [2]string, _ time.Time) bool {
		return m.count(t, fmt.Sprintf("vulnerabilities WHERE canonical_id = '%s' AND engine = '%s'", k[0], k[1])) == 0
	})
}

// runs returns the reports about images that run in a namespace.
func (m *sightModel) runs(namespace string) map[reportKey][]finding.Finding {
	runs := make(map[reportKey][]finding.Finding)
	for u, usage := range m.usages {
		if u.namespace == namespace && len(usage.Workloads) > 0 {
			maps.Copy(runs, m.reportsOf(u, usage))
		}
	}
	return runs
}

// reportsOf returns the reports about an image of a Scanner.
func (m *sightModel) reportsOf(u usageKey, usage store.ImageUsage) map[reportKey][]finding.Finding {
	reports := make(map[reportKey][]finding.Finding)
	if manifest, cataloged := m.manifests[aliasKey{u.image, usage.Scope}]; cataloged {
		k := reportKey{manifest, usage.Scope, usage.Engine}
		reports[k] = m.reports[k]
	}
	for k, findings := range m.external {
		if of := k.Subject(); m.announces(u, k) {
			reports[reportKey{of.PlatformDigest, of.Scope, of.Engine}] = findings
		}
	}
	return reports
}

// vulnerabilities returns what the store should list for some namespaces.
func (m *sightModel) vulnerabilities(namespaces []string) map[string]store.RunningVulnerability {
	all := make(map[string]store.RunningVulnerability)
	inNamespaces := make(map[string]map[string]int) // by ID and namespace
	for _, namespace := range namespaces {
		inNamespace := make(map[[2]string]int)
		for k, findings := range m.runs(namespace) {
			had := make(map[string]bool)
			for _, f := range findings {
				v, known := all[f.ID]
				shared, first := m.shared[[2]string{f.ID, k.engine}], m.firstSeen[[2]string{f.ID, k.engine}]
				v.ID, v.Severity, v.Fixable = f.ID, max(v.Severity, f.Severity), v.Fixable || f.Fixable()
				v.KnownExploited, v.EPSS, v.CVSS = v.KnownExploited || shared.KnownExploited, max(v.EPSS, shared.EPSS), max(v.CVSS, shared.CVSS)
				if !known || first.Before(v.FirstSeen) {
					v.FirstSeen = first
				}
				all[f.ID] = v
				if !had[f.ID] {
					had[f.ID] = true
					inNamespace[[2]string{f.ID, k.engine}]++
				}
			}
		}
		for k, n := range inNamespace {
			if inNamespaces[k[0]] == nil {
				inNamespaces[k[0]] = make(map[string]int)
			}
			inNamespaces[k[0]][namespace] = max(inNamespaces[k[0]][namespace], n)
		}
	}
	for id, v := range all {
		v.Namespaces = len(inNamespaces[id])
		for _, n := range inNamespaces[id] {
			v.Images += n
		}
		all[id] = v
	}
	return all
}

// asFinding has what finding.Worse compares.
func asFinding(v store.RunningVulnerability) finding.Finding {
	f := finding.Finding{ID: v.ID, Severity: v.Severity, KnownExploited: v.KnownExploited, EPSS: v.EPSS}
	if v.Fixable {
		fixed(&f)
	}
	return f
}

func (m *sightModel) check(t *rapid.T) {
	namespaces := rapid.SliceOfNDistinct(rapid.SampledFrom(sightNamespaces), 0, len(sightNamespaces), rapid.ID).Draw(t, "namespaces")
	seen := store.Sight{All: len(namespaces) == len(sightNamespaces), Namespaces: namespaces}
	var filter store.VulnerabilityFilter
	if rapid.Bool().Draw(t, "filtered") {
		filter = store.VulnerabilityFilter{
			Severities: rapid.SliceOfN(rapid.SampledFrom(finding.Severities()), 1, 4).Draw(t, "severities"),
			Fixable:    pick(t, []*bool{nil, ptr.To(true), ptr.To(false)}, "fixable"), KnownExploited: pick(t, []*bool{nil, ptr.To(true), ptr.To(false)}, "exploited"),
			MinEPSS: pick(t, []float64{0, 0.2}, "epss"), Text: pick(t, []string{"", "-0001", "cve-2026-0002", "2026 0001"}, "text"),
		}
		if seen.All {
			filter.FirstSeenSince = pick(t, []time.Time{{}, m.clock.Now().Add(-time.Hour)}, "since")
		}
	}
	var want []store.RunningVulnerability
	for _, v := range m.vulnerabilities(namespaces) {
		if !seen.All {
			v.FirstSeen = time.Time{}
		}
		if passesVulnerabilityFilter(v, filter) {
			want = append(want, v)
		}
	}
	slices.SortFunc(want, func(a, b store.RunningVulnerability) int { return finding.Worse(asFinding(a), asFinding(b)) })
	compare(t, fmt.Sprintf("vulnerabilities in %q by %+v", namespaces, filter), m.allVulnerabilities(t, seen, filter, rapid.IntRange(1, 5).Draw(t, "limit")), want)
}

// checkRuns compares who runs a vulnerability in some namespaces, and in how many images, with the model.
func (m *sightModel) checkRuns(t *rapid.T) {
	namespaces := rapid.SliceOfNDistinct(rapid.SampledFrom(sightNamespaces), 0, len(sightNamespaces), rapid.ID).Draw(t, "namespaces")
	seen := store.Sight{All: len(namespaces) == len(sightNamespaces), Namespaces: namespaces}
	id := pick(t, []string{"CVE-2026-0001", "CVE-2026-0002"}, "id")
	want, exploited := make(map[string]bool), false
	for u, usage := range m.usages {
		if !slices.Contains(namespaces, u.namespace) {
			continue
		}
		for k, findings := range m.reportsOf(u, usage) {
			for _, f := range findings {
				for _, w := range usage.Workloads {
					if f.ID == id {
						want[fmt.Sprint(u.namespace, "/", w.Name, " ", w.Reference, " ", f.Package.Name, " by ", k.engine)] = true
						exploited = exploited || m.shared[[2]string{f.ID, k.engine}].KnownExploited
					}
				}
			}
		}
	}
	found := make(map[string]bool)
	page := got[store.RunsPage](t)(m.RunsPage(context.Background(), store.RunsQuery{ID: id, All: seen.All, Namespaces: namespaces}, store.RunCursor{}, 1000))
	for _, r := range page.Runs {
		for _, engine := range r.Engines {
			found[fmt.Sprint(r.Namespace, "/", r.Name, " ", r.Reference, " ", r.Finding.Package.Name, " by ", engine)] = true
		}
	}
	compare(t, fmt.Sprintf("who runs %s in %q", id, namespaces), slices.Sorted(maps.Keys(found)), slices.Sorted(maps.Keys(want)))
	compare(t, "number of runs", page.Total, len(page.Runs))
	details := got[store.VulnerabilityDetails](t)(m.Vulnerability(context.Background(), seen, id))
	if (details.Images > 0) != (len(want) > 0) || len(want) > 0 && exploited && !details.KnownExploited {
		t.Fatalf("%s runs in %d images of %q (known exploited: %t), want those of %q", id, details.Images, namespaces, details.KnownExploited, slices.Sorted(maps.Keys(want)))
	}
}

func passesVulnerabilityFilter(v store.RunningVulnerability, f store.VulnerabilityFilter) bool {
	return (f.Severities == nil || slices.Contains(f.Severities, v.Severity)) && (f.Fixable == nil || *f.Fixable == v.Fixable) &&
		(f.KnownExploited == nil || *f.KnownExploited == v.KnownExploited) && v.EPSS >= f.MinEPSS && !v.FirstSeen.Before(f.FirstSeenSince) &&
		(f.Text == "" || containsFold(v.ID, finding.PartOfID(f.Text)))
}

// allVulnerabilities reads all pages.
func (f fixture) allVulnerabilities(t rapid.TB, seen store.Sight, filter store.VulnerabilityFilter, limit int) (all []store.RunningVulnerability) {
	t.Helper()
	for after := (store.VulnerabilityCursor{}); ; {
		page := got[store.VulnerabilitiesPage](t)(f.VulnerabilitiesPage(context.Background(), seen, filter, after, limit))
		all = append(all, page.Vulnerabilities...)
		if page.Next == nil {
			if page.Total != len(all) {
				t.Fatalf("%d vulnerabilities on all pages, and a total of %d", len(all), page.Total)
			}
			return all
		}
		after = *page.Next
	}
}

// testVulnerabilitiesAgreeWithModel checks any sequence of catalogs, reports, uses and deletions: the list of vulnerabilities and the actions are
// always those of the images that run, in each set of namespaces.
func (on suite) testVulnerabilitiesAgreeWithModel(t *testing.T) {
	on.eachCheck(t, func(t *rapid.T, f fixture) {
		m := &sightModel{
			fixture: f, manifests: make(map[aliasKey]string), usages: make(map[usageKey]store.ImageUsage), reports: make(map[reportKey][]finding.Finding),
			external: make(map[store.ExternalKey][]finding.Finding), announced: make(map[string][]string),
			shared: make(map[[2]string]finding.Finding), firstSeen: make(map[[2]string]time.Time),
		}
		t.Repeat(map[string]func(*rapid.T){
			"catalog":        m.catalog,
			"use":            m.use,
			"use another":    m.use,
			"release":        m.release,
			"delete scanner": m.deleteScanner,
			"report":         m.report,
			"report another": m.report,
			"save external":  m.saveExternal,
			"save another":   m.saveExternal,
			"drop external":  m.deleteExternal,
			"announce":       m.announce,
			"sweep":          m.sweep,
			"time":           func(*rapid.T) { m.clock.pass(time.Hour) },
			"restart":        func(t *rapid.T) { m.restart(t) },
			"":               func(t *rapid.T) { m.check(t); m.checkActions(t); m.checkRuns(t) },
		})
	})
}

// testVulnerabilitiesFollowTheScope checks an image that runs in another credential scope, and with another engine, than before.
func (on suite) testVulnerabilitiesFollowTheScope(t *testing.T) {
	f := on.newStore(t)
	for scope, id := range map[store.Scope]string{store.Cluster: "CVE-2026-0001", "shop": "CVE-2026-0002"} {
		c := catalogOf("web", f.clock.Now())
		c.Scope = scope
		must(t, f.SaveCatalog(t.Context(), c, nil))
		r := report("web", vulnerable(id, "openssl"))
		r.Scope = scope
		got[store.Difference](t)(f.SaveReport(t.Context(), r, ""))
	}
	u := used("scanner", "web", workload("web", "ghcr.io/shop/web"))
	for _, step := range []struct {
		scope  store.Scope
		engine string
		want   string
	}{
		{store.Cluster, grype, "CVE-2026-0001"}, {"shop", grype, "CVE-2026-0002"}, {"shop", "fake", ""}, {store.Cluster, grype, "CVE-2026-0001"},
	} {
		u.Scope, u.Engine = step.scope, step.engine
		must(t, f.SetUsage(t.Context(), u))
		for _, seen := range []store.Sight{{All: true}, {Namespaces: []string{"shop"}}} {
			ids := ""
			for _, v := range f.allVulnerabilities(t, seen, store.VulnerabilityFilter{}, 10) {
				ids += v.ID
			}
			equal(t, fmt.Sprintf("vulnerabilities of %+v in the scope %q by %s", seen, step.scope, step.engine), ids, step.want)
		}
	}
}
