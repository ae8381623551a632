package storetest

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// Every run draws the same histories, so a test fails only because of a change. "make explore" draws others.
func init() { _ = flag.Set("rapid.seed", "1") }

// model is a simple model of what a store should have, with the store that is compared with it. It has few names and values, so
// that they often coincide.
type model struct {
	fixture

	reports   map[string]map[string]finding.Finding // by image name and finding.Key
	shared    map[string]finding.Finding            // what the latest report has for each vulnerability
	used      map[string][]store.Workload           // by image name
	announced map[store.AnnouncementKey]bool
}

var (
	modelImages       = rapid.SampledFrom([]string{"one", "two", "three", "four"})
	modelRepositories = rapid.SampledFrom([]string{"api", "web", "base"})
)

func drawFindings(t *rapid.T) []finding.Finding {
	drawn := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) finding.Finding {
		f := vulnerable(
			fmt.Sprintf("CVE-2026-000%d", rapid.IntRange(1, 5).Draw(t, "id")),
			rapid.SampledFrom([]string{"openssl", "zlib"}).Draw(t, "package"),
			severity(finding.Severity(rapid.IntRange(0, 5).Draw(t, "severity"))),
			version(fmt.Sprint(rapid.IntRange(1, 2).Draw(t, "version"))),
		)
		if rapid.Bool().Draw(t, "fixable") {
			fixed(&f)
		}
		f.KnownExploited = rapid.IntRange(0, 9).Draw(t, "exploited") == 0
		f.EPSS = float64(rapid.IntRange(0, 3).Draw(t, "epss")) / 10
		return f
	}), 0, 8).Draw(t, "findings")
	return finding.Merge(drawn)
}

func (m *model) saveReport(t *rapid.T) {
	name, findings := modelImages.Draw(t, "image"), drawFindings(t)
	before, known := m.reports[name]
	now := make(map[string]finding.Finding)
	want := store.Difference{First: !known}
	about := make(map[string]finding.Finding)
	for _, f := range findings {
		now[f.Key()] = f
		if _, found := before[f.Key()]; found {
			want.Still++
		} else {
			want.New++
		}
		v := about[f.ID]
		v.EPSS, v.KnownExploited = max(v.EPSS, f.EPSS), v.KnownExploited || f.KnownExploited
		about[f.ID] = v
	}
	for key := range before {
		if _, found := now[key]; !found {
			want.Gone++
		}
	}
	difference, err := m.Store.SaveReport(context.Background(), report(name, findings...), "")
	if err != nil || difference != want {
		t.Fatalf("the difference of the report on %q is %+v (%v), want %+v", name, difference, err, want)
	}
	m.reports[name] = now
	maps.Copy(m.shared, about)
}

func (m *model) setUsed(t *rapid.T) {
	name := modelImages.Draw(t, "image")
	workloads := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) store.Workload {
		return workload(fmt.Sprint("workload ", rapid.IntRange(1, 3).Draw(t, "workload")), modelRepositories.Draw(t, "repository"))
	}), 0, 3).Draw(t, "workloads")
	m.try(t, m.Store.SetUsage(context.Background(), used("scanner", name, workloads...)))
	m.used[name] = workloads
}

func (m *model) release(t *rapid.T) {
	name := modelImages.Draw(t, "image")
	m.try(t, m.Store.ReleaseImage(context.Background(), scannerImage(name), false))
	delete(m.used, name)
}

// announce announces some of the changes to the receiver.
func (m *model) announce(t *rapid.T) {
	changes, _, err := m.Store.PendingChanges(context.Background(), "scanner", "slack", drawFilter(t), rapid.IntRange(1, 5).Draw(t, "limit"))
	m.try(t, err)
	var announcement store.Announcement
	for _, n := range changes {
		key := announcementKey(n.Repository, n.Finding.ID, n.Finding.Package.Name)
		if m.announced[key] {
			t.Fatalf("%+v comes up as news once more", key)
		}
		announcement.Findings = append(announcement.Findings, announcedFindings(key)...)
		m.announced[key] = true
	}
	m.try(t, m.Store.RecordAnnouncement(context.Background(), "scanner", "slack", announcement))
}

// announceAll announces everything to the receiver at once.
func (m *model) announceAll(t *rapid.T) {
	filter := drawFilter(t)
	present, err := m.Store.Present(context.Background(), "scanner", "slack", filter, 2)
	m.try(t, err)
	notAnnounced := 0
	var announcement store.Announcement
	for key := range m.groups(func(f finding.Finding) bool { return passes(f, filter) }) {
		notAnnounced += number(!m.announced[key])
		announcement.Findings = append(announcement.Findings, announcedFindings(key)...)
		m.announced[key] = true
	}
	compare(t, "number of news", present.NotAnnounced, notAnnounced)
	m.try(t, m.Store.RecordAnnouncement(context.Background(), "scanner", "slack", store.Announcement{Snapshot: &store.FilteredSnapshot{Filter: filter, SnapshotID: present.SnapshotID}}))
	m.try(t, m.Store.RecordAnnouncement(context.Background(), "scanner", "slack", announcement))
}

func (m *model) try(t *rapid.T, err error) {
	if err != nil {
		t.Fatal(err)
	}
}

// present returns the findings that the model has for a report.
func (m *model) present(name string) []finding.Finding {
	var findings []finding.Finding
	for _, f := range m.reports[name] {
		f.EPSS, f.KnownExploited = m.shared[f.ID].EPSS, m.shared[f.ID].KnownExploited
		findings = append(findings, f)
	}
	slices.SortFunc(findings, finding.Worse)
	return findings
}

func drawFilter(t *rapid.T) store.ChangeFilter {
	return store.ChangeFilter{
		MinSeverity: finding.Severity(rapid.IntRange(0, 5).Draw(t, "least severity")),
		Unknown:     rapid.SampledFrom([]store.UnknownPolicy{store.UnknownNever, store.UnknownIfFixable, store.UnknownAlways}).Draw(t, "unknown"),
		OnlyFixable: rapid.Bool().Draw(t, "only fixable"),
	}
}

func passes(f finding.Finding, filter store.ChangeFilter) bool {
	switch {
	case f.KnownExploited:
		return true
	case filter.OnlyFixable && !f.Fixable():
		return false
	case f.Severity == finding.Unknown:
		return filter.Unknown == store.UnknownAlways || filter.Unknown == store.UnknownIfFixable && f.Fixable()
	}
	return f.Severity >= filter.MinSeverity
}

// groups returns the findings that the model has and that pass, by announcement key.
func (m *model) groups(pass func(finding.Finding) bool) map[store.AnnouncementKey]store.FindingChange {
	groups := make(map[store.AnnouncementKey]store.FindingChange)
	for name, workloads := range m.used {
		for _, w := range workloads {
			for _, f := range m.present(name) {
				if !pass(f) {
					continue
				}
				key := announcementKey(w.Repository, f.ID, f.Package.Name)
				n, found := groups[key]
				if !found || finding.Worse(f, n.Finding) < 0 {
					n.Repository, n.Finding = w.Repository, f
				}
				if !slices.Contains(n.Workloads, w) {
					n.Workloads = append(n.Workloads, w)
				}
				groups[key] = n
			}
		}
	}
	return groups
}

func (m *model) checkChanges(t *rapid.T) {
	filter, limit := drawFilter(t), rapid.IntRange(0, 6).Draw(t, "limit")
	var want []store.FindingChange
	for key, n := range m.groups(func(f finding.Finding) bool { return passes(f, filter) }) {
		if !m.announced[key] {
			slices.SortFunc(n.Workloads, compareWorkloads)
			want = append(want, n)
		}
	}
	wantTotal := len(want)
	want = worstChanges(want, limit)
	changes, total, err := m.Store.PendingChanges(context.Background(), "scanner", "slack", filter, limit)
	m.try(t, err)
	compare(t, fmt.Sprintf("news by %+v, limit %d", filter, limit), changes, want, cmpopts.IgnoreFields(store.FindingChange{}, "Change", "SeverityBefore", "FirstSeen", "FixSince", "ExploitedSince"))
	compare(t, "total", total, wantTotal)
}

// worstChanges returns the worst of some changes, at most limit unless that is 0, ordered by repository.
func worstChanges(all []store.FindingChange, limit int) []store.FindingChange {
	worst := slices.Clone(all)
	slices.SortFunc(worst, func(a, b store.FindingChange) int {
		if worse := finding.Worse(a.Finding, b.Finding); worse != 0 {
			return worse
		}
		return strings.Compare(a.Repository, b.Repository)
	})
	if limit > 0 {
		worst = worst[:min(limit, len(worst))]
	}
	slices.SortStableFunc(worst, func(a, b store.FindingChange) int { return strings.Compare(a.Repository, b.Repository) })
	return worst
}

func cmpString(a, b string) int {
	if a < b {
		return -1
	}
	return 1
}

func (m *model) checkCounts(t *rapid.T) {
	var want finding.Counts
	keys := make(map[store.AnnouncementKey][3]int)
	for name, workloads := range m.used {
		for _, w := range workloads {
			for _, f := range m.present(name) {
				key := announcementKey(w.Repository, f.ID, f.Package.Name)
				c := keys[key]
				keys[key] = [3]int{max(c[0], int(f.Severity)), max(c[1], number(f.Fixable())), max(c[2], number(f.KnownExploited))}
			}
		}
	}
	for _, c := range keys {
		want.Add(finding.Severity(c[0]), 1)
		want.Fixable += c[1]
		want.KnownExploited += c[2]
	}
	counts, err := m.Store.ScannerTotals(context.Background(), "scanner", exception.Set{})
	m.try(t, err)
	compare(t, "counts of the scanner", counts.Counts, want)
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (m *model) checkReports(t *rapid.T) {
	for name := range m.reports {
		want := m.present(name)
		findings, err := m.Store.Findings(context.Background(), subject(name))
		m.try(t, err)
		compare(t, "findings of "+name, findings, want)
		summary, err := m.Store.Summary(context.Background(), subject(name), store.ImageExceptions{})
		m.try(t, err)
		compare(t, "the worst of "+name, summary.Top, want[:min(len(want), topFindings)])
		var counts finding.Counts
		for _, f := range want {
			counts.Add(f.Severity, 1)
			counts.Fixable += number(f.Fixable())
			counts.KnownExploited += number(f.KnownExploited)
		}
		compare(t, "counts of "+name, summary.Counts, counts)
	}
}

func compare(t *rapid.T, what string, got, want any, options ...cmp.Option) {
	if diff := cmp.Diff(want, got, append(options, cmpopts.EquateEmpty())...); diff != "" {
		t.Fatalf("%s (-want +got):\n%s", what, diff)
	}
}

// testTheStoreAgreesWithAPlainModel checks any sequence of actions: differences of reports are correct, what was announced is
// never a change again, and what was not announced always is.
func (on suite) testTheStoreAgreesWithAPlainModel(t *testing.T) {
	on.eachCheck(t, func(t *rapid.T, f fixture) {
		m := &model{
			fixture: f, reports: make(map[string]map[string]finding.Finding), shared: make(map[string]finding.Finding),
			used: make(map[string][]store.Workload), announced: make(map[store.AnnouncementKey]bool),
		}
		for _, name := range []string{"one", "two", "three", "four"} {
			m.try(t, m.Store.SaveCatalog(context.Background(), catalogOf(name, m.clock.Now()), nil))
		}
		t.Repeat(map[string]func(*rapid.T){
			"report":   m.saveReport,
			"use":      m.setUsed,
			"release":  m.release,
			"announce": m.announce,
			"tell all": m.announceAll,
			"restart":  func(t *rapid.T) { m.restart(t) },
			"":         func(t *rapid.T) { m.checkReports(t); m.checkCounts(t); m.checkChanges(t) },
		})
	})
}
