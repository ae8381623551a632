package store_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/pkg/store/storetest"
)

// countsModel is an oracle of what runs: it shares no code with the store, except types.
type countsModel struct {
	t      *testing.T
	s      *store.Store
	now    time.Time
	r      *rand.Rand
	images map[string]*modelImage // by digest name
	// uses: namespace -> digest name -> workloads
	uses map[string]map[string][]store.Workload
	// ext: namespace -> digest -> findings
	ext       map[string]map[string][]finding.Finding
	announced bool
	data      int
}

type modelImage struct {
	name     string
	scanned  bool
	findings []finding.Finding
}

const modelScanner = "uid-of-cluster"

func sum(text string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(text))) }
func modelKey(name string) image.Key {
	return image.Key{Digest: sum("index " + name), Platform: image.Platform{OS: "linux", Architecture: "amd64"}}
}

func newCountsModel(t *testing.T, seed uint64) *countsModel {
	w := &countsModel{t: t, now: time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC), r: rand.New(rand.NewPCG(seed, 7)), images: map[string]*modelImage{}, uses: map[string]map[string][]store.Workload{}, ext: map[string]map[string][]finding.Finding{}}
	s, err := storetest.Open(context.Background(), filepath.Join(t.TempDir(), "s.db"), func() time.Time { return w.now }, store.OpenSQLite)
	if err != nil {
		t.Fatal(err)
	}
	w.s = s
	return w
}

func (w *countsModel) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *countsModel) anyFindings(external bool) (all []finding.Finding) {
	seen := map[string]bool{}
	for range w.r.IntN(6) {
		f := finding.Finding{
			ID:       fmt.Sprintf("CVE-2026-%04d", 1+w.r.IntN(8)),
			Severity: finding.Severity(w.r.IntN(6)), KnownExploited: w.r.IntN(8) == 0,
			Package: finding.Package{Name: []string{"openssl", "zlib", "libz*"}[w.r.IntN(3)], Version: []string{"1", "2"}[w.r.IntN(2)], Type: []string{"deb", "npm"}[w.r.IntN(2)]},
		}
		if w.r.IntN(2) == 0 {
			f.FixState, f.FixVersions = finding.FixStateFixed, []string{"9"}
		}
		if f.ID[len(f.ID)-1]%2 == 0 && (!external || w.r.IntN(2) == 0) { // a source may know no alias
			f.Aliases = []string{"GHSA-" + f.ID[len(f.ID)-4:] + "-xxxx-yyyy"}
		}
		if f.Package.Type == "npm" {
			f.Paths = []string{"/app"}
		}
		key := f.ID + f.Package.Name + f.Package.Version + f.Package.Type
		if seen[key] {
			continue
		}
		seen[key] = true
		all = append(all, f)
	}
	return all
}

func (w *countsModel) scan(name string) {
	img := w.images[name]
	if img == nil {
		img = &modelImage{name: name}
		w.images[name] = img
	}
	w.data++
	w.must(w.s.SaveCatalog(context.Background(), store.Catalog{Engine: "grype", Key: modelKey(name), PlatformDigest: sum(name), CatalogedAt: w.now}, nil))
	img.findings, img.scanned = w.anyFindings(false), true
	_, err := w.s.SaveReport(context.Background(), store.Report{Subject: store.Subject{PlatformDigest: sum(name), Engine: "grype"}, DataVersion: fmt.Sprint(w.data), MatchedAt: w.now, Findings: img.findings}, "")
	w.must(err)
}

func (w *countsModel) use(namespace, name string) {
	var all []store.Workload
	for range w.r.IntN(3) {
		repository := []string{"reg.io/web", "mirror.io/web", "reg.io/api"}[w.r.IntN(3)]
		wl := store.Workload{Namespace: namespace, Kind: "Deployment", Name: fmt.Sprint("app", w.r.IntN(3)), Container: "c", Repository: repository, Reference: repository + ":" + name}
		if !slices.ContainsFunc(all, func(o store.Workload) bool { return o == wl }) {
			all = append(all, wl)
		}
	}
	w.must(w.s.SetUsage(context.Background(), store.ImageUsage{Scanner: modelScanner, Cluster: true, Namespace: namespace, Key: modelKey(name), Engine: "grype", Workloads: all}))
	if w.uses[namespace] == nil {
		w.uses[namespace] = map[string][]store.Workload{}
	}
	w.uses[namespace][name] = all
}

func (w *countsModel) external(namespace, name string) {
	w.now = w.now.Add(time.Second)
	found := w.anyFindings(true)
	_, err := w.s.SaveExternalReport(context.Background(), store.ExternalReport{
		ExternalKey: store.ExternalKey{Namespace: namespace, Digest: modelKey(name).Digest, Source: "trivy-ci"}, Version: 1, Time: w.now, Tool: "trivy", Findings: found, Text: strings.NewReader("{}"),
	}, func(*store.ExternalState) error { return nil })
	w.must(err)
	if w.ext[namespace] == nil {
		w.ext[namespace] = map[string][]finding.Finding{}
	}
	w.ext[namespace][name] = found
}

func (w *countsModel) deleteExternal(namespace, name string) {
	if _, has := w.ext[namespace][name]; !has {
		return
	}
	w.must(w.s.DeleteExternalReport(context.Background(), store.ExternalKey{Namespace: namespace, Digest: modelKey(name).Digest, Source: "trivy-ci"}, func(*store.ExternalState) error { return nil }))
	delete(w.ext[namespace], name)
}

// exceptions
type modelException struct {
	namespace string // "" = cluster
	only      map[string]bool
	vulns     []string
	pkg       string
	version   string
	typ       string
	images    []string
}

func (w *countsModel) anyException() modelException {
	e := modelException{}
	if w.r.IntN(2) == 0 {
		e.namespace = []string{"a", "b"}[w.r.IntN(2)]
	} else if w.r.IntN(2) == 0 {
		e.only = map[string]bool{[]string{"a", "b", "c"}[w.r.IntN(3)]: true}
	}
	switch w.r.IntN(4) {
	case 0:
		e.vulns = []string{fmt.Sprintf("cve-2026-%04d", 1+w.r.IntN(8))}
	case 1:
		e.vulns = []string{fmt.Sprintf("GHSA-%04d-xxxx-YYYY", 1+w.r.IntN(8))}
	case 2:
		e.pkg = []string{"openssl", "zlib", "*", "lib*", "open?sl", "libz*"}[w.r.IntN(6)]
	case 3:
		e.vulns, e.pkg = []string{fmt.Sprintf("CVE-2026-%04d", 1+w.r.IntN(8))}, []string{"openssl", "*z*"}[w.r.IntN(2)]
	}
	if e.pkg != "" && w.r.IntN(3) == 0 {
		e.version = []string{"1", "2*", "?"}[w.r.IntN(3)]
	}
	if e.pkg != "" && w.r.IntN(3) == 0 {
		e.typ = []string{"deb", "npm"}[w.r.IntN(2)]
	}
	if w.r.IntN(3) == 0 {
		e.images = []string{[]string{"reg.io/*", "reg.io/web", "mirror.io/web:i1", "*@" + modelKey("i2").Digest, "*/web"}[w.r.IntN(5)]}
	}
	return e
}

func (e modelException) real(uid string) exception.Exception {
	x := exception.Exception{UID: uid, Namespace: e.namespace, Name: uid, Namespaces: e.only, Vulnerabilities: e.vulns, Images: e.images, Status: "not_affected"}
	if e.pkg != "" {
		x.Packages = []exception.Package{{Name: e.pkg, Version: e.version, Type: e.typ}}
	}
	return x
}

// glob is an independent matcher of * and ?.
func glob(pattern, text string) bool {
	if pattern == "" {
		return text == ""
	}
	switch pattern[0] {
	case '*':
		for i := 0; i <= len(text); i++ {
			if glob(pattern[1:], text[i:]) {
				return true
			}
		}
		return false
	case '?':
		return text != "" && glob(pattern[1:], text[1:])
	}
	return text != "" && text[0] == pattern[0] && glob(pattern[1:], text[1:])
}

func (e modelException) fits(namespace, name string, wl store.Workload, f finding.Finding) bool {
	if e.namespace != "" && e.namespace != namespace || e.namespace == "" && e.only != nil && !e.only[namespace] {
		return false
	}
	if len(e.vulns) > 0 {
		hit := false
		for _, id := range append([]string{f.ID}, f.Aliases...) {
			for _, v := range e.vulns {
				hit = hit || strings.EqualFold(id, v)
			}
		}
		if !hit {
			return false
		}
	}
	fits := glob(e.pkg, f.Package.Name) && (e.version == "" || glob(e.version, f.Package.Version)) && (e.typ == "" || e.typ == f.Package.Type)
	if e.pkg != "" && !fits {
		return false
	}
	if len(e.images) > 0 {
		hit := false
		for _, g := range e.images {
			hit = hit || glob(g, wl.Repository) || glob(g, wl.Reference) || glob(g, wl.Repository+"@"+modelKey(name).Digest)
		}
		return hit
	}
	return true
}

// counts of the oracle in some namespaces: one per (repository, id, package). A finding (row of a report) is suppressed in a repository if, under each
// name of the image in that repository and namespaces, some exception fits.
func (w *countsModel) counts(namespaces []string, exceptions []modelException) (c finding.Counts, suppressed int) {
	type group struct {
		worst      finding.Severity
		fix        bool
		unsup, all int
	}
	groups := map[string]*group{}
	type rowKey struct{ repository, report string }
	rows := map[rowKey][]finding.Finding{}
	names := map[rowKey][][3]any{}
	for _, ns := range namespaces {
		for name, wls := range w.uses[ns] {
			img := w.images[name]
			if img == nil || !img.scanned {
				continue
			}
			for _, wl := range wls {
				k := rowKey{wl.Repository, "engine " + name}
				rows[k] = img.findings
				names[k] = append(names[k], [3]any{ns, name, wl})
				if found, has := w.ext[ns][name]; has && w.announced {
					x := rowKey{wl.Repository, "ext " + ns + " " + name}
					rows[x] = found
					names[x] = append(names[x], [3]any{ns, name, wl})
				}
			}
		}
	}
	for k, found := range rows {
		for _, f := range found {
			sup := true
			for _, n := range names[k] {
				one := false
				for _, e := range exceptions {
					one = one || e.fits(n[0].(string), n[1].(string), n[2].(store.Workload), f)
				}
				sup = sup && one
			}
			id := k.repository + "|" + f.ID + "|" + f.Package.Name
			g := groups[id]
			if g == nil {
				g = &group{worst: -1}
				groups[id] = g
			}
			g.all++
			if !sup {
				g.unsup++
				g.worst = max(g.worst, f.Severity)
				g.fix = g.fix || len(f.FixVersions) > 0
			}
		}
	}
	for _, g := range groups {
		if g.unsup == 0 {
			suppressed++
			continue
		}
		c.Add(g.worst, 1)
		if g.fix {
			c.Fixable++
		}
	}
	return c, suppressed
}

// modelSeeds is how many random histories are compared.
const modelSeeds = 20

// TestCountsAgreeWithModel: totals of a ClusterScanner, of each namespace, the sum for some namespaces, and previews, against the oracle.
func TestCountsAgreeWithModel(t *testing.T) {
	previews := 0
	for seed := range uint64(modelSeeds) {
		w := newCountsModel(t, seed)
		names := []string{"i1", "i2", "i3", "i4"}
		for step := range 25 {
			ns, name := []string{"a", "b", "c"}[w.r.IntN(3)], names[w.r.IntN(4)]
			w.now = w.now.Add(time.Minute)
			switch w.r.IntN(7) {
			case 0, 1:
				w.scan(name)
			case 2, 3:
				w.use(ns, name)
			case 4:
				w.external(ns, name)
			case 5:
				w.deleteExternal(ns, name)
			case 6:
				w.announced = w.r.IntN(3) > 0
				var sources []string
				if w.announced {
					sources = []string{"trivy-ci"}
				}
				w.must(w.s.SetAnnouncedSources(context.Background(), modelScanner, sources))
			}
			var model []modelException
			var made []exception.Exception
			for i := range w.r.IntN(4) {
				e := w.anyException()
				model, made = append(model, e), append(made, e.real(fmt.Sprint("x", i)))
			}
			set := exception.NewSet(made, w.now)
			total, by, err := w.s.NamespaceTotals(context.Background(), modelScanner, set)
			w.must(err)
			check := func(what string, got store.Totals, namespaces []string) {
				want, suppressed := w.counts(namespaces, model)
				got.Counts.KnownExploited, want.KnownExploited = 0, 0
				if got.Counts != want || got.Suppressed != suppressed {
					t.Fatalf("seed %d step %d: %s: %+v suppressed %d, want %+v and %d; exceptions %+v", seed, step, what, got.Counts, got.Suppressed, want, suppressed, model)
				}
			}
			check("all", total, []string{"a", "b", "c"})
			for _, n := range []string{"a", "b", "c"} {
				check("namespace "+n, by[n], []string{n})
			}
			for _, n := range []string{"a", "b", "c"} {
				w.checkVulnerabilities(seed, step, n)
				w.checkRuns(seed, step, n)
			}
			// preview in one namespace equals the effect there
			candidate := w.anyException()
			n := []string{"a", "b", "c"}[w.r.IntN(3)]
			candidate.namespace, candidate.only = n, nil
			preview, err := w.s.PreviewSuppression(context.Background(), store.SuppressionQuery{Namespaces: []string{n}, Exception: exception.NewSet([]exception.Exception{candidate.real("c")}, w.now), InForce: set}, 100)
			w.must(err)
			previews++
			_, before := w.counts([]string{n}, model)
			_, after := w.counts([]string{n}, append(slices.Clone(model), candidate))
			if got := preview.Total - preview.Already; got != after-before {
				t.Fatalf("seed %d step %d: in %s the preview of %+v says %d (%d already) %+v, the effect is %d → %d suppressed\nuses %+v\next %v announced %t\nin force %+v", seed, step, n, candidate, preview.Total, preview.Already, preview.Findings, before, after, w.uses[n], w.ext[n], w.announced, model)
			}
		}
		w.must(w.s.Close())
	}
	if previews == 0 {
		t.Error("no preview was compared")
	}
}

// checkVulnerabilities compares the list of vulnerabilities of a namespace, page by page, with what runs there.
func (w *countsModel) checkVulnerabilities(seed uint64, step int, namespace string) {
	w.t.Helper()
	type facts struct {
		engine, ext int
		worst       finding.Severity
		fix         bool
	}
	want := map[string]*facts{}
	add := func(found []finding.Finding, external bool) {
		seen := map[string]bool{}
		for _, f := range found {
			v := want[f.ID]
			if v == nil {
				v = &facts{}
				want[f.ID] = v
			}
			v.worst, v.fix = max(v.worst, f.Severity), v.fix || len(f.FixVersions) > 0
			if !seen[f.ID] {
				if external {
					v.ext++
				} else {
					v.engine++
				}
			}
			seen[f.ID] = true
		}
	}
	for name, wls := range w.uses[namespace] {
		if len(wls) == 0 {
			continue
		}
		if img := w.images[name]; img != nil && img.scanned {
			add(img.findings, false)
		}
		if found, has := w.ext[namespace][name]; has && w.announced {
			add(found, true)
		}
	}
	got := 0
	for after := new(store.VulnerabilityCursor); after != nil; {
		page, err := w.s.VulnerabilitiesPage(context.Background(), store.Sight{Namespaces: []string{namespace}}, store.VulnerabilityFilter{}, *after, 1+w.r.IntN(3))
		w.must(err)
		if page.Total != len(want) {
			w.t.Fatalf("seed %d step %d: %d vulnerabilities in %s, want %d", seed, step, page.Total, namespace, len(want))
		}
		for _, v := range page.Vulnerabilities {
			got++
			f := want[v.ID]
			if f == nil || v.Images != max(f.engine, f.ext) || v.Severity != f.worst || v.Fixable != f.fix {
				w.t.Fatalf("seed %d step %d: %+v in %s, want %+v", seed, step, v, namespace, f)
			}
			d, err := w.s.Vulnerability(context.Background(), store.Sight{Namespaces: []string{namespace}}, v.ID)
			w.must(err)
			if d.Images != v.Images || d.Severity != v.Severity || d.Fixable != v.Fixable {
				w.t.Fatalf("seed %d step %d: details %+v, list %+v", seed, step, d.RunningVulnerability, v)
			}
		}
		after = page.Next
	}
	if got != len(want) {
		w.t.Fatalf("seed %d step %d: %d on all pages, want %d", seed, step, got, len(want))
	}
}

// checkRuns compares who runs a vulnerability in a namespace with what runs there.
func (w *countsModel) checkRuns(seed uint64, step int, namespace string) {
	w.t.Helper()
	id := fmt.Sprintf("CVE-2026-%04d", 1+w.r.IntN(8))
	want := map[string]bool{}
	for name, wls := range w.uses[namespace] {
		var found []finding.Finding
		if img := w.images[name]; img != nil && img.scanned {
			found = append(found, img.findings...)
		}
		if w.announced {
			found = append(found, w.ext[namespace][name]...)
		}
		for _, f := range found {
			if f.ID != id {
				continue
			}
			for _, wl := range wls {
				want[wl.Name+"|"+wl.Reference+"|"+name+"|"+f.Package.Name+"|"+f.Package.Version+"|"+f.Package.Type] = true
			}
		}
	}
	got := map[string]bool{}
	for after := new(store.RunCursor); after != nil; {
		page, err := w.s.RunsPage(context.Background(), store.RunsQuery{ID: id, Namespaces: []string{namespace}}, *after, 1+w.r.IntN(3))
		w.must(err)
		if page.Total != len(want) {
			w.t.Fatalf("seed %d step %d: %s: %d runs in %s, want %d: %v", seed, step, id, page.Total, namespace, len(want), want)
		}
		for _, r := range page.Runs {
			for name := range w.images {
				if modelKey(name) == r.Key {
					got[r.Name+"|"+r.Reference+"|"+name+"|"+r.Finding.Package.Name+"|"+r.Finding.Package.Version+"|"+r.Finding.Package.Type] = true
				}
			}
			if r.Key.Digest == "" {
				w.t.Fatal("no digest")
			}
		}
		after = page.Next
	}
	for k := range got {
		if !want[k] {
			w.t.Fatalf("seed %d step %d: %s runs %s, want not", seed, step, k, id)
		}
	}
}
