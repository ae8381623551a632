package store

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// statementsOf returns the statements of the transactions of some work. On a database server each is a round trip, and all writers wait.
func (f fixture) statementsOf(t *testing.T, work func()) (statements []string) {
	t.Helper()
	f.observe = func(statement string) { statements = append(statements, strings.Join(strings.Fields(statement), " ")) }
	defer func() { f.observe = nil }()
	work()
	return statements
}

func requireAtMost(t *testing.T, what string, statements []string, most int) {
	t.Helper()
	t.Logf("%s: %d statements", what, len(statements))
	if len(statements) == 0 || len(statements) > most {
		t.Errorf("%s takes %d statements, want 1 to %d:\n%s", what, len(statements), most, strings.Join(statements, "\n"))
	}
}

// TestSaveReportStatements checks that the number of statements of a report does not grow with each of its findings.
func TestSaveReportStatements(t *testing.T) {
	const mostOfReport, mostOfThousand = 16, 6
	eachDatabase(t, func(t *testing.T, f fixture) {
		for _, n := range []int{0, 200, 1000, 3000} {
			most := mostOfReport + mostOfThousand*max(0, n/maxRows-1)
			name := fmt.Sprint("image-", n)
			var first []finding.Finding
			for i := range n {
				first = append(first, vulnerable(fmt.Sprintf("CVE-%d-%04d", n, i), "a", aliases(fmt.Sprintf("GHSA-%d-%d", n, i))))
			}
			changed := append([]finding.Finding{}, first[:n-n/10]...)
			for i := range n / 10 {
				changed[i].Severity = finding.Critical
			}
			save := func(data string, findings []finding.Finding, want Difference) []string {
				return f.statementsOf(t, func() {
					r := report(name, findings...)
					r.DataVersion = data
					equal(t, "difference", got[Difference](t)(f.SaveReport(t.Context(), r, "")), want)
				})
			}
			requireAtMost(t, fmt.Sprintf("a first report of %d findings", n), save("v1", first, Difference{New: n, First: true}), most)
			requireAtMost(t, fmt.Sprintf("a report that changes a tenth of %d findings and lacks a tenth", n),
				save("v2", changed, Difference{Still: n - n/10, Gone: n / 10}), most)
			requireAtMost(t, fmt.Sprintf("a report that changes nothing of %d findings", n), save("v2", changed, Difference{Still: n - n/10}), most)
			for i := range n / 10 {
				changed[i].ID, changed[i].KnownExploited = fmt.Sprintf("CVE-new-%d-%04d", n, i), true
			}
			back := append(changed, first[n-n/10:]...) //nolint:gocritic // changed is not used any more
			// What a tenth of the findings had is gone, another is new, a third is back, and vulnerabilities of all images change.
			requireAtMost(t, fmt.Sprintf("a report of %d findings that changes all it can", n),
				save("v3", back, Difference{Still: n - n/10 - n/10, New: n/10 + n/10, Gone: n / 10}), most+8)
		}
	})
}

// TestLeftWorkloadsStatements checks that the number of statements for the use of an image does not grow with each workload that has left it.
func TestLeftWorkloadsStatements(t *testing.T) {
	eachDatabase(t, func(t *testing.T, f fixture) {
		u := used("scanner", "app")
		for i := range maxLeft {
			u.Ended = append(u.Ended, EndedWorkload{nightly(fmt.Sprintf("job-%d", i), "r"), f.clock.Now()})
		}
		save := func() { must(t, f.SetUsage(t.Context(), u)) }
		rows := func() (n int) {
			must(t, f.reading().QueryRowContext(t.Context(), `SELECT count(*) FROM left_workloads`).Scan(&n))
			return n
		}
		requireAtMost(t, "the use by many workloads that have ended", f.statementsOf(t, save), 15)
		equal(t, "workloads that have left the image", rows(), maxLeft)
		u.Ended, u.Workloads = nil, []Workload{nightly("other", "r")}
		for i := range maxLeft {
			u.Ended = append(u.Ended, EndedWorkload{nightly(fmt.Sprintf("job-%d", i+100), "r"), f.clock.Now()})
		}
		u.EndedSince = f.clock.Now().Add(1)
		requireAtMost(t, "the use by another workload", f.statementsOf(t, save), 17)
		equal(t, "workloads that have left the image", rows(), 0)
	})
}

// TestDeletedRecordsStatements checks that announcement records are deleted with one statement for each page of keys.
func TestDeletedRecordsStatements(t *testing.T) {
	const records = 2*maxPageKeys + maxPageKeys/2
	eachDatabase(t, func(t *testing.T, f fixture) {
		var rows [][]any
		for i := range records + 1 {
			rows = append(rows, []any{fmt.Sprintf("repository-%d", i/1000), fmt.Sprintf("CVE-2026-%04d", i), "a", 1, 1, 1, "", nil})
		}
		var receiver int64
		must(t, f.write(t.Context(), "add records", func(ctx context.Context, tx *session) (err error) {
			if receiver, err = ensureReceiver(ctx, tx, "scanner", "team"); err != nil {
				return err
			}
			return tx.execRows(ctx, saveRecords, rows, sql.Named("receiver", receiver), sql.Named("digest", ""), sql.Named("at", 1))
		}))
		statements := f.statementsOf(t, func() {
			must(t, f.write(t.Context(), "delete records", func(ctx context.Context, tx *session) error {
				return deleteRecords(ctx, tx, selectKeysAfter+`AND canonical_id <> @kept`, sql.Named("receiver", receiver), sql.Named("kept", rows[0][1]))
			}))
		})
		requireAtMost(t, "the deletion of three pages", statements, 1+2*3)
		left := got[[]string](t)(collect(t.Context(), f.reading(), `SELECT canonical_id FROM announcements`, nil, scanValue[string]))
		equal(t, "records that are left", left, []string{"CVE-2026-0000"})
	})
}
