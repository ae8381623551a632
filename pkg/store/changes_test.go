package store

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/announce/diff"
	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// running sets up one image that a workload runs.
func (f fixture) running(t *testing.T, name, repository string, findings ...finding.Finding) {
	t.Helper()
	f.saveCatalogs(t, name)
	f.use(t, "scanner", name, workload("runs "+name, repository))
	f.report(t, name, findings...)
}

func TestChangeFilter(t *testing.T) {
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
		filter ChangeFilter
		want   []string
	}{
		"high": {
			ChangeFilter{MinSeverity: finding.High, Unknown: UnknownNever},
			[]string{"low exploited", "unknown exploited", "high fixable", "high", "fixed without a name"},
		},
		"high and fixable": {
			ChangeFilter{MinSeverity: finding.High, Unknown: UnknownNever, OnlyFixable: true},
			[]string{"low exploited", "unknown exploited", "high fixable"},
		},
		"critical, unknown if fixable": {
			ChangeFilter{MinSeverity: finding.Critical, Unknown: UnknownIfFixable},
			[]string{"low exploited", "unknown exploited", "unknown fixable"},
		},
		"critical, unknown by default": {
			ChangeFilter{MinSeverity: finding.Critical},
			[]string{"low exploited", "unknown exploited", "unknown fixable"},
		},
		"critical, unknown always": {
			ChangeFilter{MinSeverity: finding.Critical, Unknown: UnknownAlways},
			[]string{"low exploited", "unknown exploited", "unknown fixable", "unknown"},
		},
		"critical, unknown always, but fixable": {
			ChangeFilter{MinSeverity: finding.Critical, Unknown: UnknownAlways, OnlyFixable: true},
			[]string{"low exploited", "unknown exploited", "unknown fixable"},
		},
		"low": {
			ChangeFilter{MinSeverity: finding.Low, Unknown: UnknownNever},
			[]string{"low exploited", "unknown exploited", "high fixable", "high", "fixed without a name", "low"},
		},
		"no least severity does not speak of unknown": {
			ChangeFilter{Unknown: UnknownNever},
			[]string{"low exploited", "unknown exploited", "high fixable", "high", "fixed without a name", "low", "negligible"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newStore(t)
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

// TestChangesAreOncePerRepository checks that rebuilt images, tags and replicas are no changes: repository, vulnerability and
// package count.
func TestChangesAreOncePerRepository(t *testing.T) {
	f := newStore(t)
	first := f.clock.Now()
	f.running(t, "app:1", "r", vulnerable("CVE-2026-0001", "openssl", version("1")))
	f.clock.pass(time.Hour)
	worst := vulnerable("CVE-2026-0001", "openssl", version("2"), severity(finding.Critical))
	f.running(t, "app:2", "r", worst, vulnerable("CVE-2026-0001", "libssl", severity(finding.Low)))
	f.running(t, "clean", "r")
	f.running(t, "other", "other repository", vulnerable("CVE-2026-0001", "openssl", version("3")))
	changes, total, err := f.PendingChanges(t.Context(), "scanner", "slack", ChangeFilter{}, 0)
	must(t, err)
	equal(t, "total", total, 3)
	equal(t, "news", changes, []FindingChange{
		{
			Change: diff.ChangeNew, SeverityBefore: finding.High, Repository: "other repository", Finding: vulnerable("CVE-2026-0001", "openssl", version("3")), FirstSeen: f.clock.Now(),
			Workloads: []Workload{workload("runs other", "other repository")},
		},
		{
			Change: diff.ChangeNew, SeverityBefore: finding.Critical, Repository: "r", Finding: worst, FirstSeen: first,
			Workloads: []Workload{workload("runs app:1", "r"), workload("runs app:2", "r")},
		},
		{
			Change: diff.ChangeNew, SeverityBefore: finding.Low, Repository: "r",
			Finding: vulnerable("CVE-2026-0001", "libssl", severity(finding.Low)), FirstSeen: f.clock.Now(),
			Workloads: []Workload{workload("runs app:2", "r")},
		},
	})
	equal(t, "counts of the scanner", got[Totals](t)(f.ScannerTotals(t.Context(), "scanner", exception.Set{})).Counts, finding.Counts{Critical: 1, High: 1, Low: 1})
	equal(t, "counts of another", got[Totals](t)(f.ScannerTotals(t.Context(), "other", exception.Set{})).Counts, finding.Counts{})

	// A worse finding of what was announced is no change for the receiver that knows it.
	announcement := Announcement{Findings: announcedFindings(AnnouncementKey{"r", "CVE-2026-0001", "openssl"})}
	must(t, f.RecordAnnouncement(t.Context(), "scanner", "slack", announcement))
	f.running(t, "app:3", "r", vulnerable("CVE-2026-0001", "openssl", version("4"), severity(finding.Critical), fixed))
	for receiver, want := range map[string]int{"slack": 2, "mail": 3} {
		_, total, err := f.PendingChanges(t.Context(), "scanner", receiver, ChangeFilter{}, 0)
		must(t, err)
		equal(t, "total for "+receiver, total, want)
	}
}

func TestChangesOfSeveralEngines(t *testing.T) {
	f := newStore(t)
	f.running(t, "app:1", "r", vulnerable("CVE-2026-0001", "a", severity(finding.Low)))
	f.saveCatalogs(t, "app:2")
	u := used("scanner", "app:2", workload("api", "r"))
	u.Engine = "fake"
	must(t, f.SetUsage(t.Context(), u))
	other := report("app:2", vulnerable("CVE-2026-0001", "a"))
	other.Engine = "fake"
	got[Difference](t)(f.SaveReport(t.Context(), other, ""))
	f.report(t, "app:2", vulnerable("CVE-2026-0009", "a")) // by an engine that no Scanner has the image with
	changes, total, err := f.PendingChanges(t.Context(), "scanner", "slack", ChangeFilter{}, 0)
	must(t, err)
	if total != 1 || len(changes) != 1 || changes[0].Finding.Severity != finding.High || len(changes[0].Workloads) != 2 {
		t.Errorf("got %d news %+v, want one, of high severity, of both workloads", total, changes)
	}
	equal(t, "counts", got[Totals](t)(f.ScannerTotals(t.Context(), "scanner", exception.Set{})).Counts, finding.Counts{High: 1})
}

func TestLimitTruncatesOrderedChanges(t *testing.T) {
	f := newStore(t)
	for _, repository := range []string{"c", "a", "b"} {
		f.running(t, repository, repository,
			vulnerable("CVE-2026-0002", repository, severity(finding.Low)), vulnerable("CVE-2026-0001", repository), vulnerable("CVE-2026-0003", repository, exploited))
	}
	all, _, err := f.PendingChanges(t.Context(), "scanner", "slack", ChangeFilter{}, 0)
	must(t, err)
	for limit := range 11 {
		want := all
		if limit > 0 {
			want = all[:min(limit, len(all))]
		}
		changes, total, err := f.PendingChanges(t.Context(), "scanner", "slack", ChangeFilter{}, limit)
		must(t, err)
		equal(t, fmt.Sprint("news with limit ", limit), changes, want)
		equal(t, fmt.Sprint("total with limit ", limit), total, 9)
	}
}

func TestCountsFollowEveryChange(t *testing.T) {
	f := newStore(t)
	f.running(t, "app", "r", vulnerable("CVE-2026-0001", "a"))
	check := func(what string, want finding.Counts) {
		t.Helper()
		equal(t, what, got[Totals](t)(f.ScannerTotals(t.Context(), "scanner", exception.Set{})).Counts, want)
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

func TestPendingChangesUseIndexes(t *testing.T) {
	f := newStore(t)
	args := []any{
		sql.Named("reports", "[1,2]"), sql.Named("all_reports", "[1,2,3]"), sql.Named("severity", 4), sql.Named("fixable", 0), sql.Named("unknown", 1),
		sql.Named("receiver", 1), sql.Named("repository", "r"), sql.Named("suppressed", "[3]"), sql.Named("keys", "[]"), sql.Named("every", false),
		sql.Named("names", "[]"), sql.Named("packages", "[]"), sql.Named("after_id", ""), sql.Named("after_package", ""), sql.Named("package", "a"), sql.Named("digest", "1"), sql.Named("at", 1), sql.Named("before", 1),
	}
	f.requireIndexes(t, listCandidates, args, "SEARCH f USING COVERING INDEX findings_present (report_id=? AND known_exploited=? AND severity>?)", "SEARCH a USING PRIMARY KEY")
	f.requireIndexes(t, listKeys, args, "findings_by_vulnerability (vulnerability_id=? AND report_id=?)", "SEARCH a USING PRIMARY KEY")
	f.requireIndexes(t, selectRecords, args, "SEARCH a USING PRIMARY KEY (receiver_id=? AND repository=?)")
	f.requireIndexes(t, selectRecordsIn, args, "SEARCH a USING PRIMARY KEY (receiver_id=? AND repository=?)")
	f.requireIndexes(t, selectAbsent+afterRecord, args, "SEARCH a USING PRIMARY KEY (receiver_id=? AND repository=? AND (canonical_id,package)>(?,?))", "findings_by_vulnerability (vulnerability_id=? AND report_id=?)")
	f.requireIndexes(t, selectNamed, args, "findings_by_vulnerability (vulnerability_id=? AND report_id=?)")
	f.requireIndexes(t, selectSuppressed, args, "findings_by_vulnerability (vulnerability_id=? AND report_id=?)")
	f.requireIndexes(t, listWorst, args, "COVERING INDEX findings_present")
	f.requireIndexes(t, selectAbsentKeys, args, "SEARCH announcements USING PRIMARY KEY (receiver_id=? AND repository=? AND (canonical_id,package)>(?,?))",
		"findings_by_vulnerability (vulnerability_id=? AND report_id=?)")
	f.requireIndexes(t, selectKeysAfter+`ORDER BY repository, canonical_id, package`, append(args, sql.Named("after_repository", "")),
		"SEARCH announcements USING PRIMARY KEY (receiver_id=? AND (repository,canonical_id,package)>(?,?,?))")
	ofScanner := []any{sql.Named("scanner", "scanner"), sql.Named("engine", grype), sql.Named("in_use", true)}
	f.requireIndexes(t, selectRunningAndKept, ofScanner, "scanner=?")
	if plan := f.queryPlan(t, selectRunningAndKept, ofScanner...); strings.Contains(plan, "CORRELATED") {
		t.Errorf("the statement evaluates a subquery for each row:\n%s", plan)
	}
	f.requireIndexes(t, countScanner, args, "COVERING INDEX findings_present")
	f.requireIndexes(t, listSuppressed, args, "COVERING INDEX findings_present")
	f.requireIndexes(t, selectMessages, []any{sql.Named("scanner", "s"), sql.Named("receiver", "r"), sql.Named("channels", "r/"), sql.Named("before", 0), sql.Named("limit", 1)}, "messages_by_receiver")
}

// TestPrefilterSelectsEveryChange checks that the SQL prefilter selects exactly the pairs of a finding and a record that are a change.
func TestPrefilterSelectsEveryChange(t *testing.T) {
	f := newStore(t)
	const pairs = `
		WITH severities(s) AS (VALUES (0), (1), (2), (3), (4), (5)), bits(b) AS (VALUES (0), (1)),
		wanted AS (SELECT s AS severity, x.b AS fixable, y.b AS known_exploited FROM severities, bits x, bits y),
		records AS (
			SELECT 1 AS receiver_id, s AS severity, w.b AS fixable, x.b AS known_exploited, nullif(y.b, 0) AS fixed_at, z.b AS excepted
			FROM severities, bits w, bits x, bits y, bits z
			UNION ALL SELECT 1, -1, -1, -1, nullif(y.b, 0), z.b FROM bits y, bits z
			UNION ALL SELECT NULL, NULL, NULL, NULL, NULL, NULL)
		SELECT wanted.severity, wanted.fixable, wanted.known_exploited, a.receiver_id IS NOT NULL, ` + announcedColumns + `, ` + differs + `
		FROM wanted CROSS JOIN records a`
	for _, threshold := range []finding.Severity{finding.Negligible, finding.Medium, finding.High, finding.Critical} {
		compared := 0
		must(t, eachRow(t.Context(), f.reading(), pairs, []any{sql.Named("severity", int64(threshold))}, func(rows *sql.Rows) error {
			var present diff.Present
			var record diff.Announced
			var hasRecord, selected bool
			targets := append([]any{&present.Severity, &present.Fixable, &present.KnownExploited, &hasRecord}, announcedTargets(&record)...)
			if err := rows.Scan(append(targets, &selected)...); err != nil {
				return err
			}
			announced := &record
			if !hasRecord {
				announced = nil
			}
			compared++
			if d := diff.Finding(&present, announced, diff.Policy{Threshold: threshold}); (d.Announce != "") != selected {
				t.Errorf("%+v with the record %+v (%t) is %+v, and selected: %t", present, record, hasRecord, d, selected)
			}
			return nil
		}))
		equal(t, "pairs", compared, 6*4*(6*16+4+1))
	}
}
