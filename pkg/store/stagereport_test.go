package store

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// countOf returns the first column of a statement's only row.
func (f fixture) countOf(t *testing.T, statement string, args ...any) (n int) {
	t.Helper()
	must(t, f.queryRow(t.Context(), "count", statement, args...).Scan(&n))
	return n
}

// requireNothingStaged fails if a report is left that nobody sees.
func (f fixture) requireNothingStaged(t *testing.T) {
	t.Helper()
	equal(t, "staged manifests", f.countOf(t, `SELECT count(*) FROM manifests WHERE platform_digest LIKE 'staged:%'`), 0)
	equal(t, "findings of other reports", f.countOf(t, `SELECT count(*) FROM findings WHERE report_id NOT IN (SELECT id FROM reports WHERE engine = ?)`, grype), 0)
}

// TestLargeReportsInSteps: no transaction writes more than a step, and a report is visible as a whole with the last one.
func TestLargeReportsInSteps(t *testing.T) {
	f := newStore(t)
	f.saveCatalogs(t, "a")
	f.use(t, "scanner", "a", workload("app", "registry.example.com/app"))
	const n = 4 * stepRows
	fixedNow := manyFindings(n, 0)
	for i := range fixedNow {
		fixed(&fixedNow[i])
	}
	had := 0
	for _, change := range []struct {
		name     string
		findings []finding.Finding
		want     Difference
	}{
		{"the first report", manyFindings(n, 0), Difference{New: n, First: true}},
		{"nothing changes", manyFindings(n, 0), Difference{Still: n}},
		{"few change", manyFindings(n, stepRows/10), Difference{New: stepRows / 10, Still: n - stepRows/10, Gone: stepRows / 10}},
		{"all change", fixedNow, Difference{New: stepRows / 10, Still: n - stepRows/10, Gone: stepRows / 10}},
		{"all are gone", nil, Difference{Gone: n}},
		{"all are back", manyFindings(n, 0), Difference{New: n}},
	} {
		var largest []string
		var transaction []string
		f.observe = func(statement string) {
			if statement == raiseRevision {
				transaction = nil
				found, err := f.Findings(t.Context(), subject("a"))
				if len(found) != had && len(found) != len(change.findings) && err == nil {
					t.Errorf("%s: %d findings are visible, want %d or %d", change.name, len(found), had, len(change.findings))
				}
			}
			isWrite := !strings.HasPrefix(strings.TrimSpace(statement), "SELECT") && strings.Contains(statement, "@rows")
			if (isWrite || strings.Contains(statement, "(SELECT value FROM ids(@ids)")) && statement != countReported {
				if transaction = append(transaction, strings.Join(strings.Fields(statement), " ")); len(transaction) > len(largest) {
					largest = transaction
				}
			}
		}
		difference := f.report(t, "a", change.findings...)
		f.observe = nil
		equal(t, change.name, difference, change.want)
		if most := stepRows/maxRows + 4; len(largest) > most {
			t.Errorf("%s: a transaction has %d statements with up to %d rows each, want %d or fewer:\n%s", change.name, len(largest), maxRows, most, strings.Join(largest, "\n"))
		}
		had = len(change.findings)
		equal(t, change.name+": findings", len(got[[]finding.Finding](t)(f.Findings(t.Context(), subject("a")))), had)
		f.requireNothingStaged(t)
	}
}

// TestStagedReportIsLeft: what a process leaves that ends while it saves a report is not visible, and a sweep deletes it.
func TestStagedReportIsLeft(t *testing.T) {
	eachDatabase(t, func(t *testing.T, f fixture) {
		f.stepRows = 20
		f.saveCatalogs(t, "a")
		f.use(t, "scanner", "a", workload("app", "registry.example.com/app"))
		f.report(t, "a", manyFindings(100, 0)...)
		rows := got[[]*findingRow](t)(rowsOf(manyFindings(100, 50)))
		of := staging{action: "stage", report: report("a"), rows: rows}
		for _, end := range []string{"a report", "a sweep"} {
			staged := got[*stagedReport](t)(f.stageReport(t.Context(), of))
			equal(t, "staged findings", f.countOf(t, `SELECT count(*) FROM findings WHERE report_id = ?`, staged.report), 150)
			equal(t, "findings", len(got[[]finding.Finding](t)(f.Findings(t.Context(), subject("a")))), 100)
			equal(t, "totals", got[Totals](t)(f.ScannerTotals(t.Context(), "scanner", exception.Set{})).Counts.Total(), 100)
			if end == "a report" {
				f.report(t, "a", manyFindings(100, 0)[:99]...)
				f.report(t, "a", manyFindings(100, 0)...)
				err := f.write(t.Context(), "publish", func(ctx context.Context, tx *session) error {
					_, _, err := replaceReport(ctx, tx, of.report, rows, "", newLossChange(of.report, f.now()), nil, staged)
					return err
				})
				if err == nil || !strings.Contains(err.Error(), errStale.Error()) {
					t.Errorf("error %v of a report that was compared with an earlier one, want %v", err, errStale)
				}
			}
		}
		f.clock.pass(stagedFor + time.Minute)
		got[int](t)(f.Sweep(t.Context(), f.clock.Now().Add(-24*time.Hour)))
		f.requireNothingStaged(t)
		equal(t, "findings", len(got[[]finding.Finding](t)(f.Findings(t.Context(), subject("a")))), 100)
	})
}

// TestLargeReportsOfOneImageAtOnce: one of them is there in the end, as a whole, and all counts are its.
func TestLargeReportsOfOneImageAtOnce(t *testing.T) {
	eachDatabase(t, func(t *testing.T, f fixture) {
		f.stepRows = 20
		f.saveCatalogs(t, "a")
		f.use(t, "scanner", "a", workload("app", "registry.example.com/app"))
		var wait sync.WaitGroup
		for i := range 4 {
			wait.Go(func() {
				if _, err := f.SaveReport(t.Context(), report("a", manyFindings(100+i, 60*i)...), ""); err != nil {
					t.Errorf("report %d: %v", i, err)
				}
			})
		}
		wait.Wait()
		f.requireNothingStaged(t)
		found := got[[]finding.Finding](t)(f.Findings(t.Context(), subject("a")))
		last := len(found) - 100
		if last < 0 || last > 3 {
			t.Fatalf("%d findings", len(found))
		}
		want := map[string]bool{}
		for _, one := range manyFindings(len(found), 60*last) {
			want[one.ID] = true
		}
		for _, one := range found {
			if !want[one.ID] {
				t.Errorf("%s is not of report %d", one.ID, last)
			}
		}
		for what, statement := range map[string]string{
			"present":         `SELECT present FROM present_counts WHERE engine = '` + grype + `'`,
			"vulnerabilities": `SELECT count(*) FROM namespace_vulnerabilities WHERE images > 0 AND namespace = 'shop'`,
			"of the report":   `SELECT present FROM reports`,
		} {
			equal(t, fmt.Sprintf("%s, of report %d", what, last), f.countOf(t, statement), len(found))
		}
	})
}
