package store

import (
	"database/sql"
	"slices"
	"strings"
	"testing"

	"github.com/scanner-operator/scanner-operator/pkg/store/storetest/server"
)

// TestPlansWithoutStatistics checks that PostgreSQL looks up rows by index while it knows nothing of the tables, as in a new store.
func TestPlansWithoutStatistics(t *testing.T) {
	f := openIn(t, inPostgreSQL(server.PostgreSQL(t).NewDatabase(t)))
	f.saveCatalogs(t, "app")
	f.use(t, "scanner", "app", workload("app", "r"))
	f.report(t, "app", manyFindings(2000, 0)...)
	runs := append(calledArgs("CVE-2026-00001"), sql.Named("every", true), sql.Named("namespaces", "[]"),
		sql.Named("namespace", ""), sql.Named("kind", ""), sql.Named("name", ""), sql.Named("container", ""), sql.Named("reference", ""),
		sql.Named("digest", ""), sql.Named("platform", ""), sql.Named("key", ""), sql.Named("limit", 100))
	changes := []any{
		sql.Named("reports", "[1]"), sql.Named("severity", 4), sql.Named("fixable", 0), sql.Named("unknown", 1), sql.Named("suppressed", "[]"),
		sql.Named("receiver", 1), sql.Named("repository", "r"), sql.Named("keys", `[["CVE-2026-00001", "package-0"]]`), sql.Named("every", false),
		sql.Named("all_reports", "[1]"), sql.Named("any_announced", true), sql.Named("after_id", ""), sql.Named("after_package", ""),
	}
	f.requireLookUps(t, countRuns, runs, "(vulnerability_id = v_1.id", "(id = f.report_id", "(report_id = r_2.id")
	f.requireLookUps(t, selectRuns, runs, "vulnerability_id = v_1.id", "id = f_5.vulnerability_id")
	f.requireLookUps(t, listKeys, changes, "vulnerability_id = v.id", "canonical_id = v.canonical_id")
	f.requireLookUps(t, listCandidates, changes, "report_id = ", "canonical_id = v.canonical_id")
	f.requireLookUps(t, selectAbsent+afterRecord, changes, "vulnerability_id = v.id")
	f.requireLookUps(t, selectKnownTo, changes, "vulnerability_id = v.id")
	f.requireLookUps(t, selectUnused, []any{grype, "", "", 5}, "platform_digest = e.platform_digest", "(manifest_id = m.id")
}

// requireLookUps fails the test if PostgreSQL reads the table of the findings, or does not look up rows by these conditions.
func (f fixture) requireLookUps(t *testing.T, statement string, args []any, conditions ...string) {
	t.Helper()
	plan := strings.Join(got[[]string](t)(collect(t.Context(), f.reading(), "EXPLAIN "+statement, args, scanValue[string])), "\n")
	if strings.Contains(plan, "Seq Scan on findings") {
		t.Errorf("the statement goes through the whole table:\n%s", plan)
	}
	for _, condition := range conditions {
		if !slices.ContainsFunc(strings.Split(plan, "\n"), func(line string) bool {
			return strings.Contains(line, "Index Cond:") && strings.Contains(line, condition)
		}) {
			t.Errorf("the statement does not look up rows by %s:\n%s", condition, plan)
		}
	}
}
