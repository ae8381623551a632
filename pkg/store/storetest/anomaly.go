package storetest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// numbered returns findings with the numbers from first to n-1.
func numbered(first, n int) (findings []finding.Finding) {
	for i := first; i < n; i++ {
		findings = append(findings, vulnerable(fmt.Sprintf("CVE-2026-%04d", i), "a"))
	}
	return findings
}

// scoped returns a report in one credential scope.
func scoped(r store.Report, scope store.Scope, data string) store.Report {
	r.Scope, r.DataVersion = scope, data
	return r
}

// testWhoseUploadsShowAnAnomaly checks that what a namespace uploads is evidence for its own Scanners, and one vote for all
// others.
func (on suite) testWhoseUploadsShowAnAnomaly(t *testing.T) {
	type lost struct{ before, gone int }
	for name, tt := range map[string]struct {
		byScope map[store.Scope]lost
		want    *store.DataAnomaly
	}{
		"another namespace loses everything":           {map[store.Scope]lost{"mallory": {1000, 1000}}, nil},
		"and the Scanner's own loses a little":         {map[store.Scope]lost{"mallory": {1000, 1000}, "shop": {100, 10}}, nil},
		"and the cluster's images lose a little":       {map[store.Scope]lost{"mallory": {1000, 1000}, store.Cluster: {100, 10}}, nil},
		"and one of two others loses something":        {map[store.Scope]lost{"mallory": {1000, 1000}, "shop": {100, 0}, "blog": {3, 1}}, nil},
		"another hides the loss by what it has":        {map[store.Scope]lost{"mallory": {1000, 0}, "shop": {100, 60}}, &store.DataAnomaly{Missing: 60, Total: 100}},
		"the Scanner's own":                            {map[store.Scope]lost{"shop": {51, 51}}, &store.DataAnomaly{Missing: 51, Total: 51}},
		"the cluster's":                                {map[store.Scope]lost{store.Cluster: {51, 51}}, &store.DataAnomaly{Missing: 51, Total: 51}},
		"the cluster's and the Scanner's own together": {map[store.Scope]lost{store.Cluster: {100, 30}, "shop": {100, 30}}, &store.DataAnomaly{Missing: 60, Total: 200}},
		"most namespaces, a few findings each": {
			map[store.Scope]lost{"shop": {40, 30}, "blog": {40, 30}, "wiki": {40, 30}, "mail": {40, 0}}, &store.DataAnomaly{Namespaces: 3, TotalNamespaces: 4},
		},
		"half of the namespaces":                  {map[store.Scope]lost{"shop": {40, 30}, "blog": {40, 30}, "wiki": {40, 0}, "mail": {40, 0}}, nil},
		"a majority by one vote":                  {map[store.Scope]lost{"mallory": {40, 40}, "shop": {40, 30}, "blog": {40, 30}, "wiki": {40, 0}, "mail": {40, 0}}, nil},
		"most namespaces, little without the one": {map[store.Scope]lost{"mallory": {1000, 1000}, "shop": {10, 5}, "blog": {10, 5}, "wiki": {10, 5}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			f := on.newStore(t)
			u := used("scanner", "app", workload("web", "r"))
			u.Scope = "shop"
			must(t, f.SetUsage(t.Context(), u))
			for scope, l := range tt.byScope {
				got[store.Difference](t)(f.SaveReport(t.Context(), scoped(report("app", numbered(0, l.before)...), scope, "v1"), ""))
				got[store.Difference](t)(f.SaveReport(t.Context(), scoped(report("app", numbered(l.gone, l.before)...), scope, "v2"), ""))
			}
			if tt.want != nil {
				tt.want.DataVersion, tt.want.Since = "v2", f.clock.Now()
			}
			equal(t, "anomaly", got[*store.DataAnomaly](t)(f.DataAnomaly(t.Context(), "scanner", grype)), tt.want)
		})
	}
}

// testAnomalyOfImagesThatGo checks that an image of the cluster whose findings disappear shows an anomaly while the image exists.
// An image that is swept together with its findings shows none.
func (on suite) testAnomalyOfImagesThatGo(t *testing.T) {
	f := on.newStore(t)
	f.use(t, "scanner", "web", workload("web", "r"))
	saves := func(name, data string, findings []finding.Finding) {
		t.Helper()
		got[store.Difference](t)(f.SaveReport(t.Context(), scoped(report(name, findings...), store.Cluster, data), ""))
	}
	missing := func() int {
		t.Helper()
		if anomaly := got[*store.DataAnomaly](t)(f.DataAnomaly(t.Context(), "scanner", grype)); anomaly != nil {
			return anomaly.Missing
		}
		return 0
	}
	goes := func(name string) {
		t.Helper()
		must(t, f.ReleaseImage(t.Context(), store.ScannerImage{Scanner: "other", Namespace: "shop", Key: key(name)}, false))
		f.clock.pass(time.Minute)
		got[int](t)(f.Sweep(t.Context(), f.clock.Now()))
	}
	saves("web", "v1", numbered(0, 100))
	f.use(t, "other", "flood", workload("flood", "r"))
	saves("flood", "v1", numbered(0, 1000))
	goes("flood")
	equal(t, "missing with the image", missing(), 0)
	f.use(t, "other", "flood", workload("flood", "r"))
	saves("flood", "v1", numbered(0, 1000))
	saves("flood", "v2", nil)
	equal(t, "missing in the image", missing(), 1000)
	goes("flood")
	equal(t, "missing when the image has gone", missing(), 0)
}

// testAnomalyOfAnyCounts compares DataAnomaly with the definition of an anomaly, for any counts of five namespaces and the cluster.
func (on suite) testAnomalyOfAnyCounts(t *testing.T) {
	f := on.newStore(t)
	u := used("scanner", "app", workload("web", "r"))
	u.Scope = "shop"
	must(t, f.SetUsage(t.Context(), u))
	scopes := []store.Scope{store.Cluster, "shop", "blog", "wiki", "mail", "news"}
	versions := []string{"v1", "v2", "v3"}
	rapid.Check(t, func(t *rapid.T) {
		f.exec(t, `DELETE FROM present_counts`)
		f.exec(t, `DELETE FROM loss_counts`)
		present, missing := map[store.Scope]int{}, map[string]map[store.Scope]int{}
		counts := rapid.IntRange(0, rapid.SampledFrom([]int{10, 30, 80}).Draw(t, "at most"))
		ownIsQuiet := rapid.Bool().Draw(t, "the Scanner's scopes lose nothing")
		for _, scope := range scopes {
			present[scope] = counts.Draw(t, "present")
			f.exec(t, `INSERT INTO present_counts (engine, scope, present) VALUES (?, ?, ?)`, grype, scope, present[scope])
			for _, version := range versions {
				for day, counted := range []bool{true, true, false} {
					n := counts.Draw(t, "missing")
					if n == 0 || ownIsQuiet && (scope == store.Cluster || scope == "shop") {
						continue
					}
					since := f.clock.Now().Add(-time.Hour)
					if !counted {
						since = f.clock.Now().Add(-quarantine)
					} else if missing[version] == nil {
						missing[version] = map[store.Scope]int{scope: n}
					} else {
						missing[version][scope] += n
					}
					f.exec(t, `INSERT INTO loss_counts (engine, scope, data_version, day, missing, since) VALUES (?, ?, ?, ?, ?, ?)`,
						grype, scope, version, day, n, since.UnixMilli())
				}
			}
		}
		anomaly, err := f.DataAnomaly(context.Background(), "scanner", grype)
		if err != nil {
			t.Fatal(err)
		}
		want := ownAnomaly([]store.Scope{store.Cluster, "shop"}, present, missing)
		if want == nil {
			want = widespreadAnomaly(scopes[1:], present, missing)
		}
		if want != nil {
			want.Since = f.clock.Now().Add(-time.Hour)
		}
		compare(t, "anomaly", anomaly, want)
	})
}

func exceeds(missing, present int) bool { return 5*missing > present+missing }

func ownAnomaly(own []store.Scope, present map[store.Scope]int, missing map[string]map[store.Scope]int) (worst *store.DataAnomaly) {
	for _, version := range slices.Sorted(maps.Keys(missing)) {
		a := store.DataAnomaly{DataVersion: version}
		for _, scope := range own {
			a.Missing += missing[version][scope]
			a.Total += present[scope] + missing[version][scope]
		}
		if a.Missing > store.AnomalyCount && exceeds(a.Missing, a.Total-a.Missing) && (worst == nil || a.Missing > worst.Missing) {
			worst = &a
		}
	}
	return worst
}

func widespreadAnomaly(namespaces []store.Scope, present map[store.Scope]int, missing map[string]map[store.Scope]int) (worst *store.DataAnomaly) {
	total, most := 0, 0
	for _, scope := range namespaces {
		lost := slices.ContainsFunc(slices.Collect(maps.Values(missing)), func(by map[store.Scope]int) bool { return by[scope] > 0 })
		if present[scope] > 0 || lost {
			total++
		}
	}
	for _, version := range slices.Sorted(maps.Keys(missing)) {
		votes, sum, largest := 0, 0, 0
		for _, scope := range namespaces {
			if n := missing[version][scope]; exceeds(n, present[scope]) {
				votes, sum, largest = votes+1, sum+n, max(largest, n)
			}
		}
		if 2*(votes-1) > total-1 && sum-largest > store.AnomalyCount && sum > most {
			worst, most = &store.DataAnomaly{DataVersion: version, Namespaces: votes, TotalNamespaces: total}, sum
		}
	}
	return worst
}

// recount counts findings in the tables of findings, or reads the tables of counts.
func recount(t rapid.TB, f fixture, tables bool) (counts []string) {
	statements := []string{
		`SELECT r.engine || ' ' || m.scope || ' has ' || sum(r.present) FROM reports r JOIN manifests m ON m.id = r.manifest_id
			GROUP BY r.engine, m.scope HAVING sum(r.present) > 0 ORDER BY 1`,
		`SELECT r.engine || ' ' || m.scope || ' lost with ' || f.gone_data_version || ' on ' || whole(f.gone_at, 86400000) || ': ' || count(*)
			FROM findings f JOIN reports r ON r.id = f.report_id JOIN manifests m ON m.id = r.manifest_id
			WHERE f.gone_at IS NOT NULL GROUP BY r.engine, m.scope, f.gone_data_version, whole(f.gone_at, 86400000) ORDER BY 1`,
	}
	if tables {
		statements = []string{
			`SELECT engine || ' ' || scope || ' has ' || present FROM present_counts WHERE present <> 0 ORDER BY 1`,
			`SELECT engine || ' ' || scope || ' lost with ' || data_version || ' on ' || day || ': ' || missing FROM loss_counts ORDER BY 1`,
		}
	}
	for _, statement := range statements {
		counts = append(counts, linesOf(t, f, statement)...)
	}
	return counts
}

// linesOf returns the rows of a statement with a single column.
func linesOf(t rapid.TB, f fixture, statement string) []string {
	t.Helper()
	rows, err := f.database.Session(f.Store).QueryContext(context.Background(), statement)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var lines []string
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, line)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return lines
}

// testCountsOfLostFindingsAreKept checks that whatever is reported and swept, the counts equal those of all findings.
func (on suite) testCountsOfLostFindingsAreKept(t *testing.T) {
	on.eachCheck(t, func(t *rapid.T, s fixture) {
		ctx := context.Background()
		version := 0
		t.Repeat(map[string]func(*rapid.T){
			"report": func(t *rapid.T) {
				r := scoped(report(modelImages.Draw(t, "image"), drawFindings(t)...), rapid.SampledFrom([]store.Scope{store.Cluster, "shop", "blog"}).Draw(t, "scope"), fmt.Sprint("v", version))
				if _, err := s.SaveReport(ctx, r, ""); err != nil {
					t.Fatal(err)
				}
			},
			"newer data": func(*rapid.T) { version++ },
			"refused": func(t *rapid.T) {
				if _, err := s.SaveReport(ctx, report(modelImages.Draw(t, "image"), drawFindings(t)...), "no lease"); err == nil {
					t.Fatal("a report without its lease is taken")
				}
			},
			"a day": func(*rapid.T) { s.clock.pass(8 * time.Hour) },
			"sweep": func(t *rapid.T) {
				if _, err := s.Sweep(ctx, s.clock.Now().Add(-time.Hour)); err != nil {
					t.Fatal(err)
				}
			},
			"restart": func(t *rapid.T) {
				s.restart(t)
			},
			"": func(t *rapid.T) {
				compare(t, "counts", recount(t, s, true), recount(t, s, false))
			},
		})
	})
}
