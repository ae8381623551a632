package storetest

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

func (on suite) testAReportComesBackAsItWas(t *testing.T) {
	f := on.newStore(t)
	full := finding.Finding{
		ID: "CVE-2026-0001", Aliases: []string{"GHSA-aaaa-bbbb-cccc"}, Severity: finding.Critical,
		Package: finding.Package{Name: "lodash", Version: "4.17.20", Type: "npm", PURL: "pkg:npm/lodash@4.17.20"},
		// A path may contain any bytes but NUL.
		Paths: []string{"/app/package-lock.json", "/app/\xff\n\"'/x"}, FixState: finding.FixStateFixed, FixVersions: []string{"4.17.21"},
		FixAvailable: f.clock.Now().Add(-time.Hour), Description: "Prototype pollution “here”.", URL: "https://example.com/1",
		CVSS: 9.8, EPSS: 0.123456789, KnownExploited: true,
		Advisories: []finding.Advisory{{ID: "GHSA-aaaa-bbbb-cccc", Source: "github:npm", Severity: "Critical", FixState: "fixed", FixVersions: []string{"4.17.21"}}},
	}
	least := finding.Finding{ID: "CVE-2026-0002", Package: finding.Package{Name: "x"}}
	r := report("app", least, full)
	r.MatchedAt, r.NotCovered = f.clock.Now().Add(-time.Minute), []string{"debian 12", ".NET (NuGet)"}
	got[store.Difference](t)(f.SaveReport(t.Context(), r, ""))
	equal(t, "findings, worst first", got[[]finding.Finding](t)(f.Findings(t.Context(), r.Subject)), []finding.Finding{full, least})
	equal(t, "summary", got[store.Summary](t)(f.Summary(t.Context(), r.Subject, store.ImageExceptions{})), store.Summary{
		Subject: r.Subject, DataVersion: "v1", MatchedAt: r.MatchedAt, NotCovered: r.NotCovered,
		Counts: finding.Counts{Critical: 1, Unknown: 1, Fixable: 1, KnownExploited: 1},
		Top:    []finding.Finding{full, least},
	})
	r.NotCovered = nil
	got[store.Difference](t)(f.SaveReport(t.Context(), r, ""))
	equal(t, "not covered by the report after it", got[store.Summary](t)(f.Summary(t.Context(), r.Subject, store.ImageExceptions{})).NotCovered, []string(nil))
}

func (on suite) testThereIsNoReportBeforeOneIsSaved(t *testing.T) {
	f := on.newStore(t)
	f.saveCatalogs(t, "app")
	if _, err := f.Findings(t.Context(), subject("app")); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("findings: got %v, want ErrNotFound", err)
	}
	if _, err := f.Summary(t.Context(), subject("app"), store.ImageExceptions{}); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("summary: got %v, want ErrNotFound", err)
	}
	// A report without findings is a report.
	equal(t, "difference", f.report(t, "app"), store.Difference{First: true})
	equal(t, "findings", got[[]finding.Finding](t)(f.Findings(t.Context(), subject("app"))), []finding.Finding{})
	for _, other := range []store.Subject{{PlatformDigest: digest("app"), Engine: "fake"}, {PlatformDigest: digest("app"), Engine: grype, Scope: "shop"}} {
		if _, err := f.Findings(t.Context(), other); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("another subject's findings %+v: got %v, want ErrNotFound", other, err)
		}
	}
}

func (on suite) testDifference(t *testing.T) {
	one, two, three := vulnerable("CVE-2026-0001", "a"), vulnerable("CVE-2026-0002", "b"), vulnerable("CVE-2026-0003", "c")
	f := on.newStore(t)
	for _, step := range []struct {
		what     string
		findings []finding.Finding
		want     store.Difference
	}{
		{"the first report", []finding.Finding{one, two}, store.Difference{New: 2, First: true}},
		{"the same again", []finding.Finding{one, two}, store.Difference{Still: 2}},
		{"one goes, one comes", []finding.Finding{two, three}, store.Difference{New: 1, Still: 1, Gone: 1}},
		{"one comes back", []finding.Finding{one, two, three}, store.Difference{New: 1, Still: 2}},
		{"another version is another finding", []finding.Finding{one, two, vulnerable("CVE-2026-0003", "c", version("2"))}, store.Difference{New: 1, Still: 2, Gone: 1}},
		{"a changed severity is the same finding", []finding.Finding{one, vulnerable("CVE-2026-0002", "b", severity(finding.Low))}, store.Difference{Still: 2, Gone: 1}},
		{"what is given twice counts once", []finding.Finding{one, one}, store.Difference{Still: 1, Gone: 1}},
		{"all goes", nil, store.Difference{Gone: 1}},
	} {
		f.clock.pass(time.Hour)
		equal(t, step.what, f.report(t, "app", step.findings...), step.want)
	}
}

func (on suite) testChangesReachTheFinding(t *testing.T) {
	f := on.newStore(t)
	before := vulnerable("CVE-2026-0001", "a")
	f.report(t, "app", before)
	after := vulnerable("CVE-2026-0001", "a", fixed, severity(finding.Low))
	after.Aliases = []string{"DSA-1"}
	f.report(t, "app", after)
	equal(t, "findings", got[[]finding.Finding](t)(f.Findings(t.Context(), subject("app"))), []finding.Finding{after})
}

// life is the lifetime of a finding in the store.
type life struct{ FirstSeen, LastSeen, GoneAt time.Time }

func (f fixture) life(t *testing.T, pkg string) life {
	t.Helper()
	var first, last, gone sql.NullInt64
	f.queryRow(t, `SELECT first_seen, last_seen, gone_at FROM findings WHERE package = ?`, []any{pkg}, &first, &last, &gone)
	return life{timeOf(first), timeOf(last), timeOf(gone)}
}

func (on suite) testAFindingKeepsItsHistory(t *testing.T) {
	f := on.newStore(t)
	a := vulnerable("CVE-2026-0001", "a")
	came := f.clock.Now()
	f.report(t, "app", a)
	f.clock.pass(time.Hour)
	lastSeen := f.clock.Now()
	f.report(t, "app", a)
	equal(t, "while it is there", f.life(t, "a"), life{FirstSeen: came})
	f.clock.pass(time.Hour)
	gone := f.clock.Now()
	f.report(t, "app")
	equal(t, "when it is gone", f.life(t, "a"), life{came, lastSeen, gone})
	f.clock.pass(time.Hour)
	f.report(t, "app")
	equal(t, "as long as it is gone", f.life(t, "a"), life{came, lastSeen, gone})
	f.report(t, "app", a)
	equal(t, "when it is back", f.life(t, "a"), life{FirstSeen: came})
}

// testVulnerabilitiesAreShared checks that what a report says about a vulnerability applies to all images, but only for the same
// engine.
func (on suite) testVulnerabilitiesAreShared(t *testing.T) {
	f := on.newStore(t)
	f.report(t, "old image", vulnerable("CVE-2026-0001", "a"))
	other := report("other engine", vulnerable("CVE-2026-0001", "a"))
	other.Engine = "fake"
	got[store.Difference](t)(f.SaveReport(t.Context(), other, ""))
	for _, isExploited := range []bool{true, false} {
		newer := vulnerable("CVE-2026-0001", "b")
		newer.KnownExploited, newer.EPSS, newer.Description = isExploited, 0.5, "text"
		f.report(t, "new image", newer)
		want := vulnerable("CVE-2026-0001", "a")
		want.KnownExploited, want.EPSS, want.Description = isExploited, 0.5, "text"
		equal(t, "the image matched before", got[[]finding.Finding](t)(f.Findings(t.Context(), subject("old image"))), []finding.Finding{want})
		equal(t, "the other engine's", got[[]finding.Finding](t)(f.Findings(t.Context(), other.Subject)), other.Findings)
	}
}

func (on suite) testSummaryHasTheWorstFive(t *testing.T) {
	f := on.newStore(t)
	findings := []finding.Finding{vulnerable("CVE-2026-0000", "exploited", severity(finding.Low), exploited)}
	for i := range 20 {
		v := vulnerable(fmt.Sprintf("CVE-2026-%04d", i+1), "p", severity(finding.Severity(i%6)))
		v.EPSS = float64(i) / 100
		findings = append(findings, v)
	}
	// These differ only in their paths. No list of paths sorts as its text does.
	for _, paths := range [][]string{{"/b"}, {"/a", "/z"}, {"/a"}, {"/a!"}} {
		v := vulnerable("CVE-2026-9999", "q", severity(finding.Critical))
		v.Paths, v.Package.Type, v.EPSS = paths, "npm", 0.9
		findings = append(findings, v)
	}
	findings = finding.Merge(findings)
	f.report(t, "app", findings...)
	summary := got[store.Summary](t)(f.Summary(t.Context(), subject("app"), store.ImageExceptions{}))
	equal(t, "the worst", summary.Top, findings[:5])
	equal(t, "number of findings", summary.Counts.Total(), len(findings))
}

func (on suite) testReportsNeedASubject(t *testing.T) {
	f := on.newStore(t)
	for _, r := range []store.Report{{Subject: store.Subject{Engine: grype}}, {Subject: store.Subject{PlatformDigest: digest("app")}}} {
		if _, err := f.SaveReport(t.Context(), r, ""); err == nil || !strings.Contains(err.Error(), "empty") {
			t.Errorf("saving %+v: got %v, want an error that says what is empty", r, err)
		}
	}
}
