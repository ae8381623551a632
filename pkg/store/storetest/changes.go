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

// running sets up one image that a workload runs.
func (f fixture) running(t *testing.T, name, repository string, findings ...finding.Finding) {
	t.Helper()
	f.saveCatalogs(t, name)
	f.use(t, "scanner", name, workload("runs "+name, repository))
	f.report(t, name, findings...)
}

func (on suite) testChangeFilter(t *testing.T) {
	unknown := severity(finding.Unknown)
	findings := map[string]finding.Finding{
		"high":                 vulnerable("CVE-2026-0001", "a"),
		"high fixable":         vulnerable("CVE-2026-0002", "a", fixed),
		"low":                  vulnerable("CVE-2026-0003", "a", severity(finding.Low)),
		"low exploited":        vulnerable("CVE-2026-0004", "a", severity(finding.Low), exploited),
		"unknown":              vulnerable("CVE-2026-0005", "a", unknown),
		"unknown fixable":      vulnerable("CVE-2026-0006", "a", unknown, fixed),
		"unknown exploited":    vulnerable("CVE-2026-0007", "a", unknown, exploited),
		"negligible":           vulnerable("CVE-2026-0008", "a", severity(finding.Negligible)),
		"fixed without a name": vulnerable("CVE-2026-0009", "a", func(f *finding.Finding) { f.FixState = finding.FixStateFixed }),
	}
	for name, test := range map[string]struct {
		filter store.ChangeFilter
		want   []string
	}{
		"high": {
			store.ChangeFilter{MinSeverity: finding.High, Unknown: store.UnknownNever},
			[]string{"low exploited", "unknown exploited", "high fixable", "high", "fixed without a name"},
		},
		"known exploited": {
			store.ChangeFilter{MinSeverity: finding.Low, Unknown: store.UnknownAlways, OnlyKnownExploited: true},
			[]string{"low exploited", "unknown exploited"},
		},
		"high and fixable": {
			store.ChangeFilter{MinSeverity: finding.High, Unknown: store.UnknownNever, OnlyFixable: true},
			[]string{"low exploited", "unknown exploited", "high fixable"},
		},
		"critical, unknown if fixable": {
			store.ChangeFilter{MinSeverity: finding.Critical, Unknown: store.UnknownIfFixable},
			[]string{"low exploited", "unknown exploited", "unknown fixable"},
		},
		"critical, unknown by default": {
			store.ChangeFilter{MinSeverity: finding.Critical},
			[]string{"low exploited", "unknown exploited", "unknown fixable"},
		},
		"critical, unknown always": {
			store.ChangeFilter{MinSeverity: finding.Critical, Unknown: store.UnknownAlways},
			[]string{"low exploited", "unknown exploited", "unknown fixable", "unknown"},
		},
		"critical, unknown always, but fixable": {
			store.ChangeFilter{MinSeverity: finding.Critical, Unknown: store.UnknownAlways, OnlyFixable: true},
			[]string{"low exploited", "unknown exploited", "unknown fixable"},
		},
		"low": {
			store.ChangeFilter{MinSeverity: finding.Low, Unknown: store.UnknownNever},
			[]string{"low exploited", "unknown exploited", "high fixable", "high", "fixed without a name", "low"},
		},
		"no least severity does not speak of unknown": {
			store.ChangeFilter{Unknown: store.UnknownNever},
			[]string{"low exploited", "unknown exploited", "high fixable", "high", "fixed without a name", "low", "negligible"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := on.newStore(t)
			var all []finding.Finding
			names := make(map[string]string)
			for name, v := range findings {
				all = append(all, v)
				names[v.ID] = name
			}
			f.running(t, "app", "r", all...)
			changes, total, err := f.PendingChanges(t.Context(), "scanner", "slack", test.filter, 0)
			must(t, err)
			var passed []string
			for _, n := range changes {
				passed = append(passed, names[n.Finding.ID])
			}
			equal(t, "what passes, worst first", passed, test.want)
			equal(t, "total", total, len(test.want))
		})
	}
}

// testChangesAreOncePerRepository checks that rebuilt images, tags and replicas are no changes: repository, vulnerability and
// package count.
func (on suite) testChangesAreOncePerRepository(t *testing.T) {
	f := on.newStore(t)
	first := f.clock.Now()
	f.running(t, "app:1", "r", vulnerable("CVE-2026-0001", "openssl", version("1")))
	f.clock.pass(time.Hour)
	worst := vulnerable("CVE-2026-0001", "openssl", version("2"), severity(finding.Critical))
	f.running(t, "app:2", "r", worst, vulnerable("CVE-2026-0001", "libssl", severity(finding.Low)))
	f.running(t, "clean", "r")
	f.running(t, "other", "other repository", vulnerable("CVE-2026-0001", "openssl", version("3")))
	changes, total, err := f.PendingChanges(t.Context(), "scanner", "slack", store.ChangeFilter{}, 0)
	must(t, err)
	equal(t, "total", total, 3)
	equal(t, "news", changes, []store.FindingChange{
		{
			Change: diff.ChangeNew, SeverityBefore: finding.High, Repository: "other repository", Finding: vulnerable("CVE-2026-0001", "openssl", version("3")), FirstSeen: f.clock.Now(),
			Workloads: []store.Workload{workload("runs other", "other repository")},
		},
		{
			Change: diff.ChangeNew, SeverityBefore: finding.Critical, Repository: "r", Finding: worst, FirstSeen: first,
			Workloads: []store.Workload{workload("runs app:1", "r"), workload("runs app:2", "r")},
		},
		{
			Change: diff.ChangeNew, SeverityBefore: finding.Low, Repository: "r",
			Finding: vulnerable("CVE-2026-0001", "libssl", severity(finding.Low)), FirstSeen: f.clock.Now(),
			Workloads: []store.Workload{workload("runs app:2", "r")},
		},
	})
	of := got[[]store.FindingChange](t)(f.PendingChangesOf(t.Context(), "scanner", "slack", store.ChangeFilter{}, []store.AnnouncementKey{
		announcementKey("r", "CVE-2026-0001", "libssl"), announcementKey("other repository", "CVE-2026-0001", "openssl"), announcementKey("r", "CVE-2026-0002", "libssl"),
	}))
	equal(t, "changes of some findings", of, []store.FindingChange{changes[0], changes[2]})
	equal(t, "counts of the scanner", got[store.Totals](t)(f.ScannerTotals(t.Context(), "scanner", exception.Set{})).Counts, finding.Counts{Critical: 1, High: 1, Low: 1})
	equal(t, "counts of another", got[store.Totals](t)(f.ScannerTotals(t.Context(), "other", exception.Set{})).Counts, finding.Counts{})

	// A worse finding of what was announced is no change for the receiver that knows it.
	announcement := store.Announcement{Findings: announcedFindings(announcementKey("r", "CVE-2026-0001", "openssl"))}
	must(t, f.RecordAnnouncement(t.Context(), "scanner", "slack", announcement))
	f.running(t, "app:3", "r", vulnerable("CVE-2026-0001", "openssl", version("4"), severity(finding.Critical), fixed))
	for receiver, want := range map[string]int{"slack": 2, "mail": 3} {
		_, total, err := f.PendingChanges(t.Context(), "scanner", receiver, store.ChangeFilter{}, 0)
		must(t, err)
		equal(t, "total for "+receiver, total, want)
	}
}

func (on suite) testChangesOfSeveralEngines(t *testing.T) {
	f := on.newStore(t)
	f.running(t, "app:1", "r", vulnerable("CVE-2026-0001", "a", severity(finding.Low)))
	f.saveCatalogs(t, "app:2")
	u := used("scanner", "app:2", workload("api", "r"))
	u.Engine = "fake"
	must(t, f.SetUsage(t.Context(), u))
	other := report("app:2", vulnerable("CVE-2026-0001", "a"))
	other.Engine = "fake"
	got[store.Difference](t)(f.SaveReport(t.Context(), other, ""))
	f.report(t, "app:2", vulnerable("CVE-2026-0009", "a")) // by an engine that no Scanner has the image with
	changes, total, err := f.PendingChanges(t.Context(), "scanner", "slack", store.ChangeFilter{}, 0)
	must(t, err)
	if total != 1 || len(changes) != 1 || changes[0].Finding.Severity != finding.High || len(changes[0].Workloads) != 2 {
		t.Errorf("got %d news %+v, want one, of high severity, of both workloads", total, changes)
	}
	equal(t, "counts", got[store.Totals](t)(f.ScannerTotals(t.Context(), "scanner", exception.Set{})).Counts, finding.Counts{High: 1})
}

func (on suite) testLimitTruncatesOrderedChanges(t *testing.T) {
	f := on.newStore(t)
	for _, repository := range []string{"c", "a", "b"} {
		f.running(t, repository, repository,
			vulnerable("CVE-2026-0002", repository, severity(finding.Low)), vulnerable("CVE-2026-0001", repository), vulnerable("CVE-2026-0003", repository, exploited))
	}
	all, _, err := f.PendingChanges(t.Context(), "scanner", "slack", store.ChangeFilter{}, 0)
	must(t, err)
	for limit := range 11 {
		want := worstChanges(all, limit)
		changes, total, err := f.PendingChanges(t.Context(), "scanner", "slack", store.ChangeFilter{}, limit)
		must(t, err)
		equal(t, fmt.Sprint("news with limit ", limit), changes, want)
		equal(t, fmt.Sprint("total with limit ", limit), total, 9)
	}
}

func (on suite) testCountsFollowEveryChange(t *testing.T) {
	f := on.newStore(t)
	f.running(t, "app", "r", vulnerable("CVE-2026-0001", "a"))
	check := func(what string, want finding.Counts) {
		t.Helper()
		equal(t, what, got[store.Totals](t)(f.ScannerTotals(t.Context(), "scanner", exception.Set{})).Counts, want)
	}
	check("at first", finding.Counts{High: 1})
	f.report(t, "app", vulnerable("CVE-2026-0001", "a", severity(finding.Critical), fixed))
	check("a new report", finding.Counts{Critical: 1, Fixable: 1})
	// The report of another image marks the vulnerability as exploited.
	f.report(t, "elsewhere", vulnerable("CVE-2026-0001", "b", exploited))
	check("exploited", finding.Counts{Critical: 1, Fixable: 1, KnownExploited: 1})
	f.running(t, "app:2", "r", vulnerable("CVE-2026-0002", "a", severity(finding.Low)))
	check("another image", finding.Counts{Critical: 1, Low: 1, Fixable: 1, KnownExploited: 1})
	f.use(t, "scanner", "app")
	check("one is no longer run", finding.Counts{Low: 1})
}
