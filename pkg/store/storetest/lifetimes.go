package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

func aliases(ids ...string) func(*finding.Finding) {
	return func(f *finding.Finding) { f.Aliases = ids }
}

// reportBy saves a report of an image by a version of the data.
func (f fixture) reportBy(t testing.TB, data, name string, findings ...finding.Finding) store.Difference {
	t.Helper()
	r := report(name, findings...)
	r.DataVersion = data
	return got[store.Difference](t)(f.SaveReport(t.Context(), r, ""))
}

// trackedFindings returns the present or the gone findings of an image, with their lifetimes.
func (f fixture) trackedFindings(t testing.TB, name string, gone bool) []store.TrackedFinding {
	t.Helper()
	return got[store.FindingPage](t)(f.FindingsPage(t.Context(), subject(name), store.FindingFilter{Gone: gone}, store.FindingCursor{}, 1000)).Findings
}

// testFixedByTwoVersions checks that a missing finding is fixed when a second version of the data lacks it too.
func (on suite) testFixedByTwoVersions(t *testing.T) {
	for name, tt := range map[string]struct {
		reports string // per report: the data version, with "+" if the finding is in it
		fixedBy int    // index of the report; -1 for none
	}{
		"present":                            {"v1+ v2+", -1},
		"gone with one version":              {"v1+ v2", -1},
		"and missing with the same again":    {"v1+ v2 v2 v2", -1},
		"missing with two":                   {"v1+ v2 v3", 2},
		"missing with two, then three":       {"v1+ v2 v2 v3 v4", 3},
		"gone without other data":            {"v1+ v1", -1},
		"and missing with other data":        {"v1+ v1 v2", 2},
		"back after one":                     {"v1+ v2 v3+", -1},
		"back after two":                     {"v1+ v2 v3 v4+", -1},
		"back and missing again":             {"v1+ v2 v3+ v4", -1},
		"back and missing with two again":    {"v1+ v2 v3 v4+ v5 v6", 5},
		"missing with a version from before": {"v1+ v2+ v1 v2", 3},
	} {
		t.Run(name, func(t *testing.T) {
			f := on.newStore(t)
			var times []time.Time
			var last time.Time
			isPresent := false
			for _, step := range strings.Fields(tt.reports) {
				f.clock.pass(time.Hour)
				times = append(times, f.clock.Now())
				data, present := strings.CutSuffix(step, "+")
				isPresent = present
				if !present {
					f.reportBy(t, data, "app")
					continue
				}
				last = f.clock.Now()
				f.reportBy(t, data, "app", vulnerable("CVE-2026-0001", "a"))
			}
			want := store.TrackedFinding{Finding: vulnerable("CVE-2026-0001", "a"), FirstSeen: times[0], LastSeen: last}
			if tt.fixedBy >= 0 {
				want.FixedAt = times[tt.fixedBy]
			}
			equal(t, "the finding", f.trackedFindings(t, "app", !isPresent), []store.TrackedFinding{want})
			equal(t, "what is elsewhere", f.trackedFindings(t, "app", isPresent), []store.TrackedFinding{})
		})
	}
}

// testFixedByIndependentData checks that another version of the data is not enough proof where it is known when the data was
// made, and by which source.
func (on suite) testFixedByIndependentData(t *testing.T) {
	at := func(hours int) time.Time { return time.Unix(0, 0).Add(time.Duration(hours) * time.Hour) }
	whole := func(made int) store.Evidence { return store.Evidence{After: at(made), Made: at(made)} }
	one := func(made int) store.Evidence {
		return store.Evidence{After: at(24), BySource: map[string]time.Time{"one": at(made), "other": at(99)}}
	}
	both := func(first, second int) store.Evidence {
		return store.Evidence{After: at(24), BySource: map[string]time.Time{"one": at(first), "two": at(second)}}
	}
	bySource := func(sources ...string) (advisories []finding.Advisory) {
		for _, source := range sources {
			advisories = append(advisories, finding.Advisory{ID: "CVE-2026-0001", Source: source})
		}
		return advisories
	}
	for name, tt := range map[string]struct {
		advisories []finding.Advisory
		misses     []store.Evidence
		fixedBy    int // index of the report that lacks it; -1 for none
	}{
		"the same data by another engine":       {nil, []store.Evidence{whole(1), whole(1), whole(1)}, -1},
		"newer data":                            {nil, []store.Evidence{whole(1), whole(1), whole(2)}, 2},
		"older data":                            {nil, []store.Evidence{whole(2), whole(1)}, -1},
		"data of nobody knows when":             {nil, []store.Evidence{whole(1), {}}, -1},
		"the source, too soon":                  {bySource("one"), []store.Evidence{one(1), one(23), one(24)}, -1},
		"the source, later":                     {bySource("one"), []store.Evidence{one(1), one(24), one(25), one(26)}, 2},
		"another source":                        {bySource("two"), []store.Evidence{one(1), one(25)}, -1},
		"one of two sources":                    {bySource("one", "two"), []store.Evidence{both(1, 1), both(30, 1), both(30, 24)}, -1},
		"both sources":                          {bySource("one", "two"), []store.Evidence{both(1, 1), both(30, 1), both(30, 25)}, 2},
		"a source that is there no more":        {bySource("one", "gone"), []store.Evidence{one(1), one(25)}, -1},
		"without a source":                      {nil, []store.Evidence{one(1), one(25)}, -1},
		"any other version, where that will do": {nil, []store.Evidence{{}, {}}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			f := on.newStore(t)
			version := 0
			save := func(evidence store.Evidence, findings ...finding.Finding) {
				version++
				r := report("app", findings...)
				r.DataVersion, r.Evidence = fmt.Sprint("v", version), evidence
				got[store.Difference](t)(f.SaveReport(t.Context(), r, ""))
			}
			present := vulnerable("CVE-2026-0001", "a", func(f *finding.Finding) { f.Advisories = tt.advisories })
			// An earlier absence that ended must have no effect.
			save(store.Evidence{}, present)
			save(store.Evidence{After: at(9999)})
			save(store.Evidence{}, present)
			fixedBy := -1
			for n, evidence := range tt.misses {
				save(evidence)
				if !f.trackedFindings(t, "app", true)[0].FixedAt.IsZero() && fixedBy < 0 {
					fixedBy = n
				}
			}
			equal(t, "the report that proves it fixed", fixedBy, tt.fixedBy)
		})
	}
}

// testSinceWhenAFixIsKnown checks that the engine's own date counts, or else the time at which the store learned of the fix. A
// withdrawn fix does not count.
func (on suite) testSinceWhenAFixIsKnown(t *testing.T) {
	f := on.newStore(t)
	since := func(what string, want time.Time, v finding.Finding) {
		t.Helper()
		f.clock.pass(time.Hour)
		if want.Equal(now) {
			want = f.clock.Now()
		}
		f.report(t, "app", v)
		equal(t, what, f.trackedFindings(t, "app", false)[0].FixSince, want)
	}
	dated := vulnerable("CVE-2026-0001", "a", fixed)
	dated.FixAvailable = f.clock.Now().Add(-48 * time.Hour)
	since("without a fix", time.Time{}, vulnerable("CVE-2026-0001", "a"))
	since("with a fix", now, vulnerable("CVE-2026-0001", "a", fixed))
	known := f.clock.Now()
	since("with another severity", known, vulnerable("CVE-2026-0001", "a", fixed, severity(finding.Low)))
	since("with a date", dated.FixAvailable, dated)
	since("when it is withdrawn", time.Time{}, vulnerable("CVE-2026-0001", "a"))
	since("when there is one again", now, vulnerable("CVE-2026-0001", "a", fixed))
	f.report(t, "new", vulnerable("CVE-2026-0001", "a", fixed))
	equal(t, "of a new image", f.trackedFindings(t, "new", false)[0].FixSince, f.clock.Now())
}

// now is replaced by the time of the step.
var now = time.Unix(1, 0)

// testSinceWhenItIsExploited checks that the time at which the store learned of it counts, whatever image it was found in.
func (on suite) testSinceWhenItIsExploited(t *testing.T) {
	f := on.newStore(t)
	f.report(t, "old", vulnerable("CVE-2026-0001", "a"))
	f.clock.pass(time.Hour)
	since := f.clock.Now()
	f.report(t, "app", vulnerable("CVE-2026-0001", "a", exploited))
	f.clock.pass(time.Hour)
	f.report(t, "app", vulnerable("CVE-2026-0001", "a", exploited, func(f *finding.Finding) { f.EPSS = 0.5 }))
	for _, name := range []string{"old", "app"} {
		equal(t, "of "+name, f.trackedFindings(t, name, false)[0].ExploitedSince, since)
	}
	f.report(t, "app", vulnerable("CVE-2026-0001", "a"))
	equal(t, "when it is taken back", f.trackedFindings(t, "app", false)[0].ExploitedSince, time.Time{})
}

// testSeveritiesBefore checks that the store keeps the latest ten severities.
func (on suite) testSeveritiesBefore(t *testing.T) {
	f := on.newStore(t)
	var want []store.SeverityBefore
	before := finding.High
	f.report(t, "app", vulnerable("CVE-2026-0001", "a"))
	for i := range 13 {
		f.clock.pass(time.Hour)
		if i == 5 {
			f.report(t, "app")
		}
		now := finding.Severity(i % 2)
		f.report(t, "app", vulnerable("CVE-2026-0001", "a", severity(now)))
		f.report(t, "app", vulnerable("CVE-2026-0001", "a", severity(now), fixed))
		want = append(want, store.SeverityBefore{Severity: before, Until: f.clock.Now()})
		before = now
		tracked := f.trackedFindings(t, "app", false)
		if len(tracked) != 1 {
			t.Fatalf("after change %d: %d findings, want 1", i, len(tracked))
		}
		equal(t, fmt.Sprint("after change ", i), tracked[0].Severities, want[max(0, len(want)-10):])
	}
}

// testAnotherIDIsTheSameFinding checks that a finding under another ID is neither new nor gone if one ID is an alias of the
// other.
func (on suite) testAnotherIDIsTheSameFinding(t *testing.T) {
	const cve, other, ghsa, rhsa = "CVE-2026-0001", "CVE-2026-0002", "GHSA-aaaa-bbbb-cccc", "RHSA-2026:1"
	for name, tt := range map[string]struct {
		before, after []finding.Finding
		want          store.Difference
		kept          string // id/package of the finding that keeps its first-seen time
	}{
		"an alias is learnt":        {listed(vulnerable(ghsa, "a")), listed(vulnerable(cve, "a", aliases(ghsa))), store.Difference{Still: 1}, cve + "/a"},
		"an alias is taken back":    {listed(vulnerable(cve, "a", aliases(ghsa))), listed(vulnerable(ghsa, "a")), store.Difference{Still: 1}, ghsa + "/a"},
		"both know each other":      {listed(vulnerable(ghsa, "a", aliases(cve))), listed(vulnerable(cve, "a", aliases(ghsa))), store.Difference{Still: 1}, cve + "/a"},
		"in small letters":          {listed(vulnerable(cve, "a")), listed(vulnerable(ghsa, "a", aliases("cve-2026-0001"))), store.Difference{Still: 1}, ghsa + "/a"},
		"no alias":                  {listed(vulnerable(ghsa, "a")), listed(vulnerable(cve, "a")), store.Difference{New: 1, Gone: 1}, ""},
		"an alias of both":          {listed(vulnerable(cve, "a", aliases(rhsa))), listed(vulnerable(other, "a", aliases(rhsa))), store.Difference{New: 1, Gone: 1}, ""},
		"in another package":        {listed(vulnerable(ghsa, "a")), listed(vulnerable(cve, "b", aliases(ghsa))), store.Difference{New: 1, Gone: 1}, ""},
		"in another version":        {listed(vulnerable(ghsa, "a")), listed(vulnerable(cve, "a", version("2"), aliases(ghsa))), store.Difference{New: 1, Gone: 1}, ""},
		"while it is still there":   {listed(vulnerable(ghsa, "a")), listed(vulnerable(ghsa, "a"), vulnerable(cve, "a", aliases(ghsa))), store.Difference{New: 1, Still: 1}, ghsa + "/a"},
		"of two, the first":         {listed(vulnerable(rhsa, "a", aliases(cve, other))), listed(vulnerable(other, "a"), vulnerable(cve, "a")), store.Difference{New: 1, Still: 1}, other + "/a"},
		"two are one":               {listed(vulnerable(ghsa, "a"), vulnerable(rhsa, "a")), listed(vulnerable(cve, "a", aliases(ghsa, rhsa))), store.Difference{Still: 1, Gone: 1}, cve + "/a"},
		"one and the other package": {listed(vulnerable(ghsa, "a"), vulnerable(ghsa, "b")), listed(vulnerable(cve, "b", aliases(ghsa)), vulnerable(ghsa, "a")), store.Difference{Still: 2}, cve + "/b " + ghsa + "/a"},
	} {
		t.Run(name, func(t *testing.T) {
			f := on.newStore(t)
			came := f.clock.Now()
			f.report(t, "app", tt.before...)
			f.clock.pass(time.Hour)
			equal(t, "difference", f.reportBy(t, "v2", "app", tt.after...), tt.want)
			var kept []string
			for _, seen := range f.trackedFindings(t, "app", false) {
				if seen.FirstSeen.Equal(came) {
					kept = append(kept, seen.ID+"/"+seen.Package.Name)
				}
			}
			equal(t, "what is as old as before", strings.Join(kept, " "), tt.kept)
			equal(t, "findings", got[[]finding.Finding](t)(f.Findings(t.Context(), subject("app"))), finding.Merge(tt.after))
			equal(t, "difference of the same again", f.reportBy(t, "v3", "app", tt.after...), store.Difference{Still: len(tt.after)})
		})
	}
}

func listed(findings ...finding.Finding) []finding.Finding { return findings }

// testAnotherIDTakesTheWholeLife checks that even a gone finding keeps its lifetime under another ID, and has the state of that
// ID's vulnerability from then on.
func (on suite) testAnotherIDTakesTheWholeLife(t *testing.T) {
	f := on.newStore(t)
	came := f.clock.Now()
	ghsa := vulnerable("GHSA-aaaa-bbbb-cccc", "a")
	f.report(t, "app", ghsa)
	f.clock.pass(time.Hour)
	f.report(t, "other", vulnerable("CVE-2026-0001", "b", exploited))
	f.reportBy(t, "v2", "app")
	f.reportBy(t, "v3", "app")
	equal(t, "what has gone", len(f.trackedFindings(t, "app", true)), 1)
	cve := vulnerable("CVE-2026-0001", "a", aliases(ghsa.ID), severity(finding.Low), exploited)
	equal(t, "difference", f.reportBy(t, "v4", "app", cve), store.Difference{New: 1})
	equal(t, "the finding", f.trackedFindings(t, "app", false), []store.TrackedFinding{{
		Finding: cve, FirstSeen: came, LastSeen: f.clock.Now(), ExploitedSince: f.clock.Now(),
		Severities: []store.SeverityBefore{{Severity: finding.High, Until: f.clock.Now()}},
	}})
	equal(t, "what has gone", len(f.trackedFindings(t, "app", true)), 0)
}

// testDataAnomaly checks when too much disappears with one version of the data, and how long that is an anomaly.
func (on suite) testDataAnomaly(t *testing.T) {
	many := func(from, to int) []finding.Finding {
		var findings []finding.Finding
		for i := from; i < to; i++ {
			findings = append(findings, vulnerable(fmt.Sprintf("CVE-2026-%04d", i), "a"))
		}
		return findings
	}
	type step struct {
		data, image string
		findings    []finding.Finding
	}
	const day = 24 * time.Hour
	first := newClock().Now().Add(time.Hour) // time of the second step
	for name, tt := range map[string]struct {
		steps []step // an hour apart
		later time.Duration
		want  *store.DataAnomaly
	}{
		"nothing":              {nil, 0, nil},
		"all is there":         {[]step{{"v1", "a", many(0, 200)}, {"v2", "a", many(0, 200)}}, 0, nil},
		"all of a few":         {[]step{{"v1", "a", many(0, 50)}, {"v2", "a", nil}}, 0, nil},
		"all of enough":        {[]step{{"v1", "a", many(0, 51)}, {"v2", "a", nil}}, 0, &store.DataAnomaly{DataVersion: "v2", Missing: 51, Total: 51, Since: first}},
		"a fifth":              {[]step{{"v1", "a", many(0, 300)}, {"v2", "a", many(60, 300)}}, 0, nil},
		"more than a fifth":    {[]step{{"v1", "a", many(0, 300)}, {"v2", "a", many(61, 300)}}, 0, &store.DataAnomaly{DataVersion: "v2", Missing: 61, Total: 300, Since: first}},
		"by several images":    {[]step{{"v1", "a", many(0, 100)}, {"v2", "a", many(60, 100)}, {"v2", "b", many(0, 30)}, {"v2", "b", nil}}, 0, &store.DataAnomaly{DataVersion: "v2", Missing: 90, Total: 130, Since: first}},
		"by several versions":  {[]step{{"v1", "a", many(0, 100)}, {"v2", "a", many(40, 100)}, {"v3", "a", many(80, 100)}}, 0, nil},
		"confirmed":            {[]step{{"v1", "a", many(0, 100)}, {"v2", "a", nil}, {"v3", "a", nil}}, 0, &store.DataAnomaly{DataVersion: "v2", Missing: 100, Total: 100, Since: first}},
		"back":                 {[]step{{"v1", "a", many(0, 100)}, {"v2", "a", nil}, {"v3", "a", many(0, 80)}}, 0, nil},
		"half of it back":      {[]step{{"v1", "a", many(0, 200)}, {"v2", "a", nil}, {"v3", "a", many(0, 100)}}, 0, &store.DataAnomaly{DataVersion: "v2", Missing: 100, Total: 200, Since: first}},
		"back with the same":   {[]step{{"v1", "a", many(0, 100)}, {"v2", "a", nil}, {"v2", "a", many(0, 100)}}, 0, nil},
		"by another id":        {[]step{{"v1", "a", many(0, 100)}, {"v2", "a", renumbered(many(0, 100))}}, 0, nil},
		"of another engine":    {[]step{{"v1", "other", many(0, 100)}, {"v2", "other", nil}}, 0, nil},
		"for almost two weeks": {[]step{{"v1", "a", many(0, 100)}, {"v2", "a", nil}}, 14*day - time.Hour - 1, &store.DataAnomaly{DataVersion: "v2", Missing: 100, Total: 100, Since: first}},
		"for two weeks":        {[]step{{"v1", "a", many(0, 100)}, {"v2", "a", nil}}, 14*day - time.Hour, nil},
	} {
		t.Run(name, func(t *testing.T) {
			f := on.newStore(t)
			for _, step := range tt.steps {
				r := report(step.image, step.findings...)
				r.DataVersion = step.data
				if step.image == "other" {
					r.Engine = clair
				}
				got[store.Difference](t)(f.SaveReport(t.Context(), r, ""))
				f.clock.pass(time.Hour)
				// The cached counts of this state must not outlive it.
				got[*store.DataAnomaly](t)(f.DataAnomaly(t.Context(), "scanner", grype))
			}
			f.clock.pass(tt.later)
			equal(t, "anomaly", got[*store.DataAnomaly](t)(f.DataAnomaly(t.Context(), "scanner", grype)), tt.want)
		})
	}
}

// renumbered gives each finding a new ID, with its former ID as an alias.
func renumbered(findings []finding.Finding) []finding.Finding {
	for i := range findings {
		findings[i].Aliases = []string{findings[i].ID}
		findings[i].ID = fmt.Sprint("GHSA-", i)
	}
	return findings
}

// testSweepDeletesFindingsFixedLongAgo checks that only findings that were fixed long ago are deleted, with vulnerabilities that
// only they had.
func (on suite) testSweepDeletesFindingsFixedLongAgo(t *testing.T) {
	const day = 24 * time.Hour
	f := on.newStore(t)
	f.use(t, "scanner", "app", workload("web", "r"))
	stays, long, unconfirmed, lately := vulnerable("CVE-2026-0001", "a"), vulnerable("CVE-2026-0002", "a"), vulnerable("CVE-2026-0003", "b"), vulnerable("CVE-2026-0004", "c")
	f.reportBy(t, "v1", "app", stays, long, lately)
	f.reportBy(t, "v1", "other", unconfirmed)
	f.use(t, "scanner", "other", workload("web", "r"))
	f.reportBy(t, "v2", "app", stays, lately)
	f.reportBy(t, "v2", "other")
	f.reportBy(t, "v3", "app", stays, lately)
	f.clock.pass(day)
	f.reportBy(t, "v4", "app", stays)
	f.reportBy(t, "v5", "app", stays)
	f.clock.pass(179*day + time.Hour)
	equal(t, "images swept", got[int](t)(f.Sweep(t.Context(), time.Time{})), 0)
	var left []string
	for _, seen := range slices.Concat(f.trackedFindings(t, "app", true), f.trackedFindings(t, "other", true)) {
		left = append(left, seen.ID)
	}
	equal(t, "what is remembered", left, []string{lately.ID, unconfirmed.ID})
	equal(t, "vulnerabilities", f.rows(t)["vulnerabilities"], 3)
	equal(t, "what is present", f.trackedFindings(t, "app", false)[0].ID, stays.ID)
}

// modelLives is a simple model of what a store should have of two images' findings.
type modelLives struct {
	fixture
	lives  map[string][]*modelLife      // by image name, in the order in which they were added
	shared map[string]*modelExploited   // by id
	last   map[string]time.Time         // when each image's report was made
	images map[string][]exception.Image // as last drawn
	set    exception.Set
}

type modelLife struct {
	store.TrackedFinding
	goneWith string // version of the data; empty while it is present
}

type modelExploited struct {
	epss      float64
	exploited bool
	since     time.Time
}

// drawRenamed draws findings with several IDs: some of them are the same under another ID.
func drawRenamed(t *rapid.T) []finding.Finding {
	drawn := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) finding.Finding {
		n := rapid.IntRange(1, 3).Draw(t, "number")
		cve, ghsa := fmt.Sprint("CVE-2026-000", n), fmt.Sprint("ghsa-a-", n)
		f := vulnerable(cve, rapid.SampledFrom([]string{"openssl", "zlib"}).Draw(t, "package"),
			severity(finding.Severity(rapid.IntRange(3, 5).Draw(t, "severity"))))
		switch rapid.IntRange(0, 4).Draw(t, "known by") {
		case 0:
			f.Aliases = []string{ghsa}
		case 1:
			f.ID = ghsa
		case 2:
			f.Aliases = []string{"RHSA-1"}
		case 3:
			f.ID, f.Aliases = "RHSA-1", []string{"CVE-2026-0001", "CVE-2026-0002"}
		}
		if rapid.Bool().Draw(t, "fixable") {
			fixed(&f)
		}
		f.KnownExploited = rapid.IntRange(0, 5).Draw(t, "exploited") == 0
		f.EPSS = float64(rapid.IntRange(0, 6).Draw(t, "epss")) / 10
		return f
	}), 0, 6).Draw(t, "findings")
	return finding.Merge(drawn)
}

func (m *modelLives) saveReport(t *rapid.T) {
	name := rapid.SampledFrom([]string{"one", "two"}).Draw(t, "image")
	r := report(name, drawRenamed(t)...)
	r.DataVersion = rapid.SampledFrom([]string{"v1", "v2", "v3"}).Draw(t, "data")
	m.clock.pass(time.Hour)
	_, known := m.last[name]
	want := store.Difference{First: !known}
	byID := make(map[string]*modelExploited)
	for _, f := range r.Findings {
		if byID[f.ID] == nil {
			byID[f.ID] = &modelExploited{}
		}
		byID[f.ID].epss, byID[f.ID].exploited = max(byID[f.ID].epss, f.EPSS), byID[f.ID].exploited || f.KnownExploited
	}
	for id, says := range byID {
		if before := m.shared[id]; says.exploited {
			says.since = m.clock.Now()
			if before != nil && before.exploited {
				says.since = before.since
			}
		}
		m.shared[id] = says
	}
	there := make(map[*modelLife]bool)
	lives := m.match(name, r.Findings)
	for i, f := range r.Findings {
		there[m.live(name, lives[i], f, &want)] = true
	}
	for _, life := range m.lives[name] {
		switch {
		case there[life]:
		case life.goneWith == "":
			life.goneWith, life.LastSeen = r.DataVersion, m.last[name]
			want.Gone++
		case life.FixedAt.IsZero() && life.goneWith != r.DataVersion:
			life.FixedAt = m.clock.Now()
		}
	}
	m.last[name] = m.clock.Now()
	got, err := m.SaveReport(context.Background(), r, "")
	if err != nil || got != want {
		t.Fatalf("the difference of the report on %q is %+v (%v), want %+v", name, got, err, want)
	}
}

// match returns the known finding of each of a report's findings: the one with the same key, or else a linked one that the report
// does not have under its own key.
func (m *modelLives) match(name string, findings []finding.Finding) []*modelLife {
	matched := make([]*modelLife, len(findings))
	taken := make(map[*modelLife]bool)
	for i, f := range findings {
		for _, life := range m.lives[name] {
			if life.Key() == f.Key() {
				matched[i], taken[life] = life, true
			}
		}
	}
	for i, f := range findings {
		if matched[i] != nil {
			continue
		}
		for _, gone := range []bool{false, true} {
			for _, life := range m.lives[name] {
				linked := slices.Contains(f.Aliases, life.ID) || slices.Contains(life.Aliases, f.ID)
				if matched[i] == nil && linked && !taken[life] && life.PackageKey() == f.PackageKey() && (life.goneWith != "") == gone {
					matched[i], taken[life] = life, true
				}
			}
		}
	}
	return matched
}

// live updates a finding's lifetime to what a report has.
func (m *modelLives) live(name string, life *modelLife, f finding.Finding, d *store.Difference) *modelLife {
	at := m.clock.Now()
	if life == nil {
		life = &modelLife{TrackedFinding: store.TrackedFinding{FirstSeen: at, Finding: finding.Finding{Severity: f.Severity}}, goneWith: "never there"}
		m.lives[name] = append(m.lives[name], life)
	}
	if life.goneWith == "" {
		d.Still++
	} else {
		d.New++
	}
	if life.Severity != f.Severity {
		life.Severities = append(life.Severities, store.SeverityBefore{Severity: life.Severity, Until: at})
		life.Severities = life.Severities[max(0, len(life.Severities)-10):]
	}
	switch {
	case !f.Fixable():
		life.FixSince = time.Time{}
	case life.FixSince.IsZero():
		life.FixSince = at
	}
	life.Finding, life.goneWith, life.FixedAt = f, "", time.Time{}
	return life
}

// expected returns the findings that the model has as present or as gone.
func (m *modelLives) expected(name string, gone bool) (all []store.TrackedFinding) {
	for _, life := range m.lives[name] {
		if (life.goneWith != "") != gone {
			continue
		}
		seen := life.TrackedFinding
		shared := m.shared[seen.ID]
		seen.EPSS, seen.KnownExploited, seen.ExploitedSince = shared.epss, shared.exploited, shared.since
		if !gone {
			seen.LastSeen = m.last[name]
		}
		seen.Exception = m.set.SuppressedUnderAllNames(m.images[name], seen.Finding)
		all = append(all, seen)
	}
	slices.SortFunc(all, func(a, b store.TrackedFinding) int { return finding.Worse(a.Finding, b.Finding) })
	return all
}

func (m *modelLives) draw(t *rapid.T) {
	m.set = drawExceptions(t)
	for _, name := range []string{"one", "two"} {
		m.images[name] = drawImages(t, name)
	}
}

func (m *modelLives) check(t *rapid.T) {
	for name := range m.last {
		excepting := store.ImageExceptions{Exceptions: m.set, Images: m.images[name]}
		gone, suppressed := rapid.Bool().Draw(t, "gone"), rapid.SampledFrom([]*bool{nil, ptr.To(true), ptr.To(false)}).Draw(t, "suppressed")
		page := slices.DeleteFunc(m.expected(name, gone), func(seen store.TrackedFinding) bool {
			return suppressed != nil && (seen.Exception != nil) != *suppressed
		})
		compare(t, "findings of "+name, m.all(t, name, store.FindingFilter{Gone: gone, Suppressed: suppressed, Exceptions: excepting}), page)
		want := store.Summary{Subject: subject(name)}
		for _, seen := range m.expected(name, false) {
			if seen.Exception != nil {
				want.Suppressed++
				continue
			}
			want.Counts.Add(seen.Severity, 1)
			want.Counts.Fixable += number(seen.Fixable())
			want.Counts.KnownExploited += number(seen.KnownExploited)
			if len(want.Top) < topFindings {
				want.Top = append(want.Top, seen.Finding)
			}
		}
		got, err := m.Summary(context.Background(), subject(name), excepting)
		if err != nil {
			t.Fatal(err)
		}
		compare(t, "summary of "+name, store.Summary{Subject: got.Subject, Counts: got.Counts, Top: got.Top, Suppressed: got.Suppressed}, want)
	}
}

// all reads all pages, with three findings each.
func (m *modelLives) all(t *rapid.T, name string, filter store.FindingFilter) (all []store.TrackedFinding) {
	for mark := (&store.FindingCursor{}); mark != nil; {
		page, err := m.FindingsPage(context.Background(), subject(name), filter, *mark, 3)
		if err != nil {
			t.Fatal(err)
		}
		all, mark = append(all, page.Findings...), page.Next
	}
	return all
}

// testLivesAgreeWithAPlainModel checks that the store agrees with the model after any sequence of reports and data versions.
func (on suite) testLivesAgreeWithAPlainModel(t *testing.T) {
	on.eachCheck(t, func(rt *rapid.T, f fixture) {
		m := &modelLives{
			fixture: f, lives: make(map[string][]*modelLife), shared: make(map[string]*modelExploited),
			last: make(map[string]time.Time), images: make(map[string][]exception.Image),
		}
		rt.Repeat(map[string]func(*rapid.T){"report": m.saveReport, "except": m.draw, "": m.check})
	})
}

// testCursorsRequireSameExceptions checks that a list does not continue with other exceptions.
func (on suite) testCursorsRequireSameExceptions(t *testing.T) {
	f := on.newStore(t)
	f.report(t, "app", vulnerable("CVE-2026-0001", "a"), vulnerable("CVE-2026-0002", "a"))
	set := func(id string) exception.Set {
		return exception.NewSet([]exception.Exception{{UID: id, Vulnerabilities: []string{id}}}, f.clock.Now())
	}
	images := []exception.Image{imageNamed("api:1", digest("app"))}
	filter := store.FindingFilter{Exceptions: store.ImageExceptions{Exceptions: set("CVE-2026-0001"), Images: images}}
	mark := got[store.FindingPage](t)(f.FindingsPage(t.Context(), subject("app"), filter, store.FindingCursor{}, 1)).Next
	got[store.FindingPage](t)(f.FindingsPage(t.Context(), subject("app"), filter, *mark, 1))
	for what, other := range map[string]store.ImageExceptions{
		"another set": {Exceptions: set("CVE-2026-0002"), Images: images}, "no exceptions": {}, "another name": {Exceptions: set("CVE-2026-0001"), Images: []exception.Image{imageNamed("api:2", digest("app"))}},
	} {
		if _, err := f.FindingsPage(t.Context(), subject("app"), store.FindingFilter{Exceptions: other}, *mark, 1); !errors.Is(err, store.ErrChanged) {
			t.Errorf("with %s the list goes on: %v", what, err)
		}
	}
}

// testRunsAreSuppressed checks that the exceptions of a run's namespace apply, under the run's own name of the image.
func (on suite) testRunsAreSuppressed(t *testing.T) {
	f := on.newStore(t)
	f.saveCatalogs(t, "web")
	f.inNamespace(t, "shop", "s1", "web", "front")
	f.inNamespace(t, "blog", "s2", "web", "front")
	long := strings.Repeat("ä", 2*maxRunText)
	f.report(t, "web", vulnerable("CVE-2026-0001", "openssl", aliases("GHSA-aaaa-bbbb-cccc")), vulnerable("CVE-2026-0001", long))
	asked := 0
	covers := exception.Exception{UID: "1", Vulnerabilities: []string{"ghsa-aaaa-bbbb-cccc"}, Images: []string{"r/web:1"}}
	coversLong := exception.Exception{UID: "2", Packages: []exception.Package{{Name: long}}, Images: []string{"r/web@" + key("web").Digest}}
	runs := f.runs(t, store.RunsQuery{ID: "CVE-2026-0001", All: true, Exceptions: func(namespace string) exception.Set {
		asked++
		if namespace == "blog" {
			return exception.NewSet([]exception.Exception{{UID: "3", Vulnerabilities: covers.Vulnerabilities, Images: []string{"r/web:2"}}}, f.clock.Now())
		}
		return exception.NewSet([]exception.Exception{covers, coversLong}, f.clock.Now())
	}}, 10)
	by := make(map[string]*exception.Exception)
	for _, run := range runs {
		by[run.Namespace+" "+string([]rune(run.Finding.Package.Name)[:1])] = run.Exception
		if len(run.Finding.Aliases) > 0 || len([]rune(run.Finding.Package.Name)) > maxRunText {
			t.Errorf("the finding is not cut: %d aliases, a name of %d characters", len(run.Finding.Aliases), len([]rune(run.Finding.Package.Name)))
		}
	}
	equal(t, "exceptions", by, map[string]*exception.Exception{"shop o": &covers, "shop ä": &coversLong, "blog o": nil, "blog ä": nil})
	equal(t, "how often exceptions were asked for", asked, 2)
}
