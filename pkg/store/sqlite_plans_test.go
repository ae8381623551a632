package store

import (
	"database/sql"
	"strings"
	"testing"
)

func TestPendingChangesUseIndexes(t *testing.T) {
	f := newStore(t)
	args := []any{
		sql.Named("reports", "[1,2]"), sql.Named("all_reports", "[1,2,3]"), sql.Named("any_announced", true), sql.Named("severity", 4), sql.Named("fixable", 0), sql.Named("unknown", 1),
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
	f.requireIndexes(t, selectSilent, ofScanner, "SEARCH e USING COVERING INDEX sqlite_autoindex_external_reports_1 (namespace=? AND digest=?")
	f.requireIndexes(t, selectKnownTo, args, "SEARCH a USING PRIMARY KEY (receiver_id=? AND repository=?)", "findings_by_vulnerability (vulnerability_id=? AND report_id=?)")
	f.requireIndexes(t, countScanner, args, "COVERING INDEX findings_present")
	f.requireIndexes(t, listSuppressed, args, "COVERING INDEX findings_present")
	f.requireIndexes(t, selectMessages, []any{sql.Named("scanner", "s"), sql.Named("receiver", "r"), sql.Named("channels", "r/"), sql.Named("before", 0), sql.Named("limit", 1)}, "messages_by_receiver")
}

func TestTheQueueIsSearchedByIndex(t *testing.T) {
	f := newStore(t)
	queue := got[matchQueue](t)(openQueue(t.Context(), f.reading(), grype, f.clock.Now()))
	args := queue.args(sql.Named("namespace", "shop"), sql.Named("version", "v1"), sql.Named("suspected", false))
	f.requireIndexes(t, countQueue, args, "matchable_by_data", "matchable_by_retry", "matchable_by_failure")
	f.requireIndexes(t, hasQueue, args, "matchable_by_", "leases_by_engine")
	if plan := f.queryPlan(t, isolatedDue, args...); strings.Contains(plan, "SCAN m") {
		t.Errorf("the statement goes through the queue:\n%s", plan)
	}
	for _, side := range queueSides {
		f.requireIndexes(t, nextOf(side), args, "matchable_by_namespace")
		f.requireNoSort(t, nextOf(side), args)
	}
}

// requireNoSort fails the test if a statement sorts its rows.
func (f fixture) requireNoSort(t *testing.T, statement string, args []any) {
	t.Helper()
	if plan := f.queryPlan(t, statement, args...); strings.Contains(plan, "TEMP B-TREE") {
		t.Errorf("the statement sorts:\n%s", plan)
	}
}

func TestReportsAreSearchedByIndex(t *testing.T) {
	f := newStore(t)
	f.requireIndexes(t, `SELECT r.id `+fromReport, reportArgs(subject("app")))
	f.requireIndexes(t, selectFinding+fromPresent, []any{1}, "findings_present")
	f.requireIndexes(t, selectFinding+fromPresent+butFor+worst+`LIMIT 5`, []any{1, "[]"}, "findings_present")
	f.requireIndexes(t, countReport, []any{1, "[]"}, "COVERING INDEX findings_present")
	announced := []any{sql.Named("report", 1), sql.Named("announced", "[2]"), sql.Named("suppressed", "[]")}
	f.requireIndexes(t, selectOnlyAnnounced, announced, "findings_by_vulnerability (vulnerability_id=? AND report_id=?)")
	f.requireIndexes(t, selectOnlySuppressed, announced, "findings_by_vulnerability (vulnerability_id=? AND report_id=?)")
}

// queryPlan returns the query plan of a statement.
func (f fixture) queryPlan(t testing.TB, statement string, args ...any) string {
	t.Helper()
	rows, err := f.reading().QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+statement, args...)
	must(t, err)
	defer rows.Close()
	var plan []string
	for rows.Next() {
		var id, parent, unused int
		var detail string
		must(t, rows.Scan(&id, &parent, &unused, &detail))
		plan = append(plan, detail)
	}
	must(t, rows.Err())
	return strings.Join(plan, "\n")
}

// requireIndexes fails the test if a statement scans a whole table, or does not use an index that it should.
func (f fixture) requireIndexes(t testing.TB, statement string, args []any, indexes ...string) {
	t.Helper()
	plan := f.queryPlan(t, statement, args...)
	for line := range strings.Lines(plan) {
		// Scans of parameters in JSON, subqueries and single rows are allowed.
		table, isScan := strings.CutPrefix(strings.TrimSpace(line), "SCAN ")
		if isScan && !strings.Contains(plan, "CO-ROUTINE "+table+"\n") && !strings.Contains(plan, "MATERIALIZE "+table+"\n") && !strings.Contains(line, "VIRTUAL TABLE") &&
			!strings.HasPrefix(line, "SCAN wanted") && !strings.HasPrefix(line, "SCAN (subquery") &&
			!strings.HasPrefix(line, "SCAN used") && !strings.HasPrefix(line, "SCAN runs") && !strings.HasPrefix(line, "SCAN CONSTANT") {
			t.Errorf("the statement goes through a whole table: %s\n%s", line, plan)
		}
	}
	for _, index := range indexes {
		if !strings.Contains(plan, index) {
			t.Errorf("the statement does not use %s:\n%s", index, plan)
		}
	}
}

func TestCandidatesAreSearchedByIndex(t *testing.T) {
	f := newStore(t)
	args := []any{sql.Named("ids", "[]"), sql.Named("packages", "[]"), sql.Named("reports", "[]"), sql.Named("every", false)}
	f.requireIndexes(t, presentCandidates, args, "findings_by_vulnerability", "findings_present", "COVERING INDEX findings_present")
	f.requireIndexes(t, goneCandidates, args)
}

// TestSingleStatementsUseIndexes checks the statements of the methods whose results the contract checks.
func TestSingleStatementsUseIndexes(t *testing.T) {
	f := newStore(t)
	f.requireIndexes(t, selectScannerImagesOfNS, []any{"shop"}, "scanner_images_by_namespace")
	f.requireIndexes(t, selectHasReport, append([]any{grype}, resolveManifestArgs(key("app"), Cluster)...), "manifest_id=?")
	f.requireIndexes(t, selectHeld, []any{"s1", clair}, "(scanner=?)", "scanner_images_by_manifest (manifest_id=? AND engine=?)")
	f.requireIndexes(t, selectUnused, []any{clair, "", "", 5}, "SEARCH e USING PRIMARY KEY (engine=? AND platform_digest>?)", "scanner_images_by_manifest (manifest_id=? AND engine=?)")
	f.requireIndexes(t, `SELECT coalesce(sum(`+storedIn+`), 0) FROM manifests m WHERE m.namespace = @namespace`,
		[]any{sql.Named("namespace", "shop")}, "manifests_by_namespace")
	f.requireIndexes(t, `SELECT `+storedStatements, []any{"external:a/", "external:a0"}, "COVERING INDEX vulnerabilities_by_engine (engine>? AND engine<?)")
	f.requireIndexes(t, selectFixed, []any{1, 2}, "findings_gone")
	f.requireIndexes(t, selectFixedRecords, []any{1}, "announcements_fixed (fixed_at<?)")
	f.requireIndexes(t, selectReported, []any{"scanner", grype}, "scanner=?")
	if plan := f.queryPlan(t, selectUnusedRepositories, "[1]", 1, 1); strings.Contains(plan, "SCAN a\n") {
		t.Errorf("the announcements are read one by one:\n%s", plan)
	}
}

// TestViewsUseIndexes checks that no query scans a whole table.
func TestViewsUseIndexes(t *testing.T) {
	f := newStore(t)
	f.requireIndexes(t, selectLocation, []any{"sbom", "cyclonedx", "spdx", "s", "d", "p", "n"})
	f.requireIndexes(t, selectPassing, append(calledArgs("x"),
		sql.Named("report", 1), sql.Named("every", true), sql.Named("severities", "[]"), sql.Named("fixable", -1), sql.Named("exploited", -1),
		sql.Named("package", ""), sql.Named("text", ""), sql.Named("part", ""), sql.Named("since", 0)), "findings_present")
	f.requireIndexes(t, selectByID, []any{"[[1,0]]"})
	f.requireIndexes(t, countRuns, append(calledArgs("x"), sql.Named("every", true), sql.Named("namespaces", "[]")), "findings_by_vulnerability")
}

// TestWorkloadsUseIndexes checks that one workload, and what runs in some namespaces, is read by index.
func TestWorkloadsUseIndexes(t *testing.T) {
	f := newStore(t)
	workload := []any{sql.Named("workloads", `[["shop","Deployment","web"]]`), sql.Named("scanner", "")}
	f.requireIndexes(t, selectImagesOfWorkloads, workload, "workloads_by_name (name=? AND namespace=? AND kind=?)")
	f.requireIndexes(t, selectReportsOfWorkloads, workload, "workloads_by_name (name=? AND namespace=? AND kind=?)", "sqlite_autoindex_external_reports")
	f.requireIndexes(t, selectWorkloadVersions, []any{
		sql.Named("scanner", "s"), sql.Named("namespace", ""), sql.Named("kind", ""), sql.Named("name", ""), sql.Named("artifact", ArtifactCycloneDX),
	})
	f.requireIndexes(t, selectWorkloadSBOMs, []any{
		sql.Named("scanner", "s"), sql.Named("namespace", "shop"), sql.Named("kind", "Deployment"), sql.Named("name", "web"), sql.Named("artifact", ArtifactCycloneDX),
	}, "workloads_by_name (name=? AND namespace=? AND kind=?)")
	f.requireUse(t, selectListedIn, []any{
		sql.Named("every", false), sql.Named("namespaces", "[]"), sql.Named("text", ""), sql.Named("urgency", 0), sql.Named("namespace", ""), sql.Named("kind", ""),
		sql.Named("name", ""), sql.Named("limit", 1),
	}, "scanner_images_by_namespace (namespace=?)", "(manifest_id=? AND engine=?)")
	f.requireIndexes(t, selectRunBy, []any{sql.Named("every", true), sql.Named("namespaces", "[]"), sql.Named("kind", ""), sql.Named("name", "web")},
		"workloads_by_name (name=?)")
	namespace := []any{sql.Named("namespace", "shop")}
	f.requireIndexes(t, selectLeftIn, namespace, "scanner_images_by_namespace (namespace=?)")
	f.requireIndexes(t, selectGapsIn, namespace, "scanner_images_by_namespace (namespace=?)")
	f.requireIndexes(t, selectEnginesIn, namespace, "scanner_images_by_namespace (namespace=?)")
	f.requireIndexes(t, selectChanged, []any{sql.Named("reports", "[]"), sql.Named("replaced", "[]"), sql.Named("since", 1), sql.Named("limit", 1)}, "(report_id=?)")
	f.requireIndexes(t, selectNamedIn, []any{sql.Named("ids", "[]"), sql.Named("reports", "[]")}, "findings_by_vulnerability (vulnerability_id=? AND report_id=?)")
	f.requireIndexes(t, selectRunningIn, []any{sql.Named("namespaces", "[]")}, "scanner_images_by_namespace (namespace=?)", "scanner_images_by_digest (digest=?")
}

// TestHistoryUsesIndexes checks that days are read and deleted by index.
func TestHistoryUsesIndexes(t *testing.T) {
	f := newStore(t)
	f.requireUse(t, selectHistory, []any{sql.Named("summarized", "[]"), sql.Named("after", 1), sql.Named("today", 2)}, "SEARCH c USING PRIMARY KEY (namespace=? AND day>? AND day<?)")
	f.requireUse(t, selectDay, []any{1}, "daily_counts_by_day (day=?)")
	f.requireUse(t, deleteDay, []any{1}, "daily_counts_by_day (day=?)")
}

// TestChangesUseIndexes checks that what the watcher of live updates asks repeatedly reads only what has changed.
func TestChangesUseIndexes(t *testing.T) {
	f := newStore(t)
	f.requireUse(t, selectChangedNamespaces, []any{sql.Named("after", 1), sql.Named("until", 2)},
		"SEARCH r USING INDEX reports_by_revision (store_revision>? AND store_revision<?)", "scanner_images_by_manifest (manifest_id=? AND engine=?)",
		"SEARCH e USING INTEGER PRIMARY KEY")
}

// TestVulnerabilitiesUseIndexes checks that the list of vulnerabilities, and the counts that it is made from, are read by index.
func TestVulnerabilitiesUseIndexes(t *testing.T) {
	f := newStore(t)
	passing := []any{
		sql.Named("summarized", "[]"), sql.Named("every", true), sql.Named("severities", "[]"), sql.Named("fixable", -1), sql.Named("exploited", -1),
		sql.Named("epss", 0), sql.Named("since", 0), sql.Named("text", ""), sql.Named("part", ""),
	}
	f.requireUse(t, countPassing, passing, "SEARCH c USING PRIMARY KEY (namespace=?)", "SEARCH v USING INTEGER PRIMARY KEY")
	f.requireUse(t, countNamespaces, []any{sql.Named("ids", "[]")}, "namespace_vulnerabilities_by_vulnerability (vulnerability_id=?")
	changes := []any{sql.Named("manifests", "[]"), sql.Named("namespace", "shop")}
	f.requireIndexes(t, selectStarted, changes, "scanner_images_by_manifest (manifest_id=?)", "SEARCH u USING PRIMARY KEY (manifest_id=? AND engine=? AND namespace=?)")
	f.requireIndexes(t, selectStopped, changes, "SEARCH u USING PRIMARY KEY (manifest_id=?)", "scanner_images_by_manifest (manifest_id=? AND engine=?)")
	f.requireIndexes(t, countReported, []any{sql.Named("manifest", 1), sql.Named("engine", grype), sql.Named("rows", "[]")}, "(manifest_id=? AND engine=?)")
	f.requireIndexes(t, selectExternalOfImages, []any{sql.Named("images", "[]")}, "(namespace=? AND digest=?)", "scanner_images_by_digest (digest=?")
	f.requireUse(t, countRunning, []any{sql.Named("reports", "[]"), sql.Named("rows", "[]")}, "findings_present (report_id=?")
}

// requireUse fails the test if a plan does not have some lines, or reads a table without an index.
func (f fixture) requireUse(t testing.TB, statement string, args []any, lines ...string) {
	t.Helper()
	plan := f.queryPlan(t, statement, args...)
	for _, line := range lines {
		if !strings.Contains(plan, line) {
			t.Errorf("the plan lacks %s:\n%s", line, plan)
		}
	}
	for _, table := range []string{"SCAN c\n", "SCAN f\n", "SCAN r\n", "SCAN si\n"} {
		if strings.Contains(plan+"\n", table) {
			t.Errorf("the statement goes through a whole table:\n%s", plan)
		}
	}
}
