package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/store/dialect"
)

// TestNoticesOfOlderStores checks that a receiver that was notified of a data anomaly under the notice's former name still knows
// it after an upgrade. Texts stay as they are.
func TestNoticesOfOlderStores(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	const (
		before = `{"notices":{"DataSuspect":{"notice":{"id":"DataSuspect","kind":"DataSuspect","detail":"\"id\":\"DataSuspect\", DataSuspect"}}}}`
		after  = `{"notices":{"DataAnomaly":{"notice":{"id":"DataAnomaly","kind":"DataAnomaly","detail":"\"id\":\"DataSuspect\", DataSuspect"}}}}`
	)
	olderStore(t, path, 16,
		`INSERT INTO meta (name, value) VALUES ('id', 'older')`,
		`INSERT INTO receivers (scanner, name, state) VALUES ('s', 'slack', CAST('`+before+`' AS BLOB)), ('s', 'mail', CAST('{}' AS BLOB)), ('s', 'new', NULL)`,
	)
	f := openStore(t, path)
	for receiver, want := range map[string]string{"slack": after, "mail": "{}", "new": ""} {
		equal(t, "state of "+receiver, string(got[[]byte](t)(f.ReceiverState(t.Context(), "s", receiver))), want)
	}
}

// TestCountsOfOlderStores checks that the migration counts the findings of an older store.
func TestCountsOfOlderStores(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	const finding = `INSERT INTO findings (report_id, key, vulnerability_id, package, version, type, purl, paths, severity, known_exploited, fixable,
		fix_state, fix_versions, aliases, advisories, content, first_seen, gone_at, gone_data_version) VALUES `
	gone := newClock().Now().UnixMilli()
	statements := []string{
		`INSERT INTO manifests (id, platform_digest, scope, last_used) VALUES (1, '` + digest("app") + `', '', 0), (2, '` + digest("app") + `', 'shop', 0)`,
		`INSERT INTO reports (id, revision, manifest_id, engine, data_version, matched_at, distro, present)
			VALUES (1, 1, 1, 'grype', 'v2', 9000, '', 2), (2, 1, 2, 'grype', 'v2', 9000, '', 0)`,
		`INSERT INTO vulnerabilities (id, canonical_id, engine, description, url, cvss, epss, known_exploited) VALUES (1, 'CVE-2026-0001', 'grype', '', '', 0, 0, 1)`,
	}
	for i := range 63 {
		report, at, version := 2, fmt.Sprint(gone), "'v2'"
		switch {
		case i < 2:
			report, at, version = 1, "NULL", "NULL"
		case i < 4:
			version = "''" // from before the version was recorded
		}
		statements = append(statements, finding+fmt.Sprintf(
			`(%d, randomblob(32), 1, 'a', '1', 'deb', '', x'', 4, 1, 0, '', '', '', '', 0, 1000, %s, %s)`, report, at, version))
	}
	olderStore(t, path, 6, statements...)
	f := openStore(t, path)
	u := used("scanner", "app", workload("web", "r"))
	u.Scope = "shop"
	must(t, f.SetUsage(t.Context(), u))
	want := &DataAnomaly{DataVersion: "v2", Missing: 59, Total: 61, Since: f.clock.Now()}
	equal(t, "anomaly", got[*DataAnomaly](t)(f.DataAnomaly(t.Context(), "scanner", grype)), want)
	equal(t, "of a Scanner that has no such image", got[*DataAnomaly](t)(f.DataAnomaly(t.Context(), "another", grype)), (*DataAnomaly)(nil))
	readOnly, err := OpenSQLiteReadOnly(path)
	must(t, err)
	readOnly.now = f.clock.Now
	equal(t, "as a reader sees it", got[*DataAnomaly](t)(readOnly.DataAnomaly(t.Context(), "scanner", grype)), want)
	must(t, readOnly.Close())
}

func (f fixture) artifact(t *testing.T, name string, a Artifact) string {
	t.Helper()
	reader, _, err := f.OpenArtifact(t.Context(), digest(name), Cluster, a)
	must(t, err)
	defer reader.Close()
	return string(got[[]byte](t)(io.ReadAll(reader)))
}

// Two instances of one engine are two engines. Their names contain special characters.
const (
	clair      = "clair https://clair.example.com"
	otherClair = "clair https://clair.example.com:8443/a?b='c'"
)

func (c Catalog) by(engine string) Catalog { c.Engine = engine; return c }

// TestEnginesOfOlderStores checks that a store from before each engine had its own catalogs keeps everything.
func TestEnginesOfOlderStores(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	olderStore(t, path, 4,
		`INSERT INTO meta (name, value) VALUES ('id', 'older')`,
		`INSERT INTO manifests (id, platform_digest, scope, last_used) VALUES (1, '`+digest("app")+`', '', 0), (2, '`+digest("invented")+`', 'shop', 0)`,
		`INSERT INTO images (digest, platform, scope, manifest_id) VALUES ('`+key("app").Digest+`', 'linux/amd64', '', 1)`,
		`INSERT INTO catalogues (manifest_id, distro, packages, tool, catalogued_at) VALUES (1, 'debian 12', 7, 'syft 1.0.0', 1000), (2, '', 2, 'fake', 2000)`,
		`INSERT INTO artifacts (id, manifest_id, name, size) VALUES (1, 1, 'sbom', 4)`,
		`INSERT INTO chunks (artifact_id, number, data) VALUES (1, 0, CAST('sbom' AS BLOB))`,
		`INSERT INTO reports (id, revision, manifest_id, engine, data_version, matched_at, distro) VALUES (1, 1, 1, 'grype', 'v1', 1000, '')`,
		`INSERT INTO scanner_images (scanner, namespace, digest, platform, scope, engine, manifest_id)
			VALUES ('s', 'shop', '`+key("app").Digest+`', 'linux/amd64', '', 'grype', 1)`,
	)
	f := openStore(t, path)
	equal(t, "id", f.ID(), "older")
	equal(t, "Grype's", got[Catalog](t)(f.Catalog(t.Context(), grype, key("app"), Cluster)), catalogOf("app", time.UnixMilli(1000).UTC()))
	invented := image.Key{Digest: digest("invented"), Platform: amd64}
	equal(t, "the fake's", got[Catalog](t)(f.Catalog(t.Context(), "fake", invented, "shop")),
		Catalog{Engine: "fake", Key: invented, Scope: "shop", PlatformDigest: digest("invented"), Packages: 2, Tool: "fake", CatalogedAt: time.UnixMilli(2000).UTC()})
	if c, err := f.Catalog(t.Context(), grype, invented, "shop"); !errors.Is(err, ErrNotFound) {
		t.Errorf("what the fake has listed is Grype's too: %+v, %v", c, err)
	}
	equal(t, "the artifact", f.artifact(t, "app", ArtifactSBOM), "sbom")
	equal(t, "not covered by Grype's report", got[Summary](t)(f.Summary(t.Context(), subject("app"), ImageExceptions{})).NotCovered, []string(nil))
	f.data(t, "v2")
	equal(t, "what is to be matched again", got[int](t)(f.QueueLength(t.Context(), grype)), 1)
	must(t, f.SaveCatalog(t.Context(), catalogOf("app", f.clock.Now()).by(clair), nil))
	must(t, f.SaveManifest(t.Context(), Manifest{Engine: clair, PlatformDigest: digest("app"), AddedByOperator: true}))
	must(t, f.CheckIntegrity(t.Context()))
	var broken int
	must(t, f.reader.QueryRowContext(t.Context(), `SELECT count(*) FROM pragma_foreign_key_check`).Scan(&broken))
	equal(t, "references that lead nowhere", broken, 0)
}

// olderStore creates a store with the schema of an older version.
func olderStore(t *testing.T, path string, version int64, statements ...string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path)
	must(t, err)
	provider, err := migrationsOf(db, dialect.SQLite)
	must(t, err)
	_, err = provider.UpTo(context.Background(), version)
	must(t, err)
	for _, statement := range statements {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	must(t, db.Close())
}

// requireConsistentQueue compares the queue with the view that derives it from the other tables, and its length with a query of these
// tables.
func (f fixture) requireConsistentQueue(t *testing.T, seed uint64) {
	t.Helper()
	const columns = `engine, namespace, manifest_id, made_with, matched_at`
	var differences, due int
	must(t, f.reader.QueryRow(`SELECT
		(SELECT count(*) FROM (SELECT `+columns+` FROM matchable EXCEPT SELECT `+columns+` FROM matchable_images)) +
		(SELECT count(*) FROM (SELECT `+columns+` FROM matchable_images EXCEPT SELECT `+columns+` FROM matchable)),
		(SELECT count(DISTINCT si.manifest_id) FROM scanner_images si
			JOIN catalogues c ON c.manifest_id = si.manifest_id AND c.engine = 'grype'
			LEFT JOIN data_versions d ON d.engine = 'grype'
			LEFT JOIN reports r ON r.manifest_id = si.manifest_id AND r.engine = 'grype'
			WHERE si.engine = 'grype' AND si.suspended = 0 AND (r.id IS NULL OR r.data_version <> d.version)
			AND NOT EXISTS (SELECT 1 FROM match_failures f WHERE f.manifest_id = si.manifest_id AND f.engine = 'grype'
				AND f.data_version = coalesce(d.version, '') AND f.retry_at > ?1 AND f.failed_at <= ?1))`,
		millis{f.clock.Now()}).Scan(&differences, &due))
	if differences != 0 {
		t.Fatalf("seed %d: %d rows of the queue are not what the tables behind it say", seed, differences)
	}
	if n := got[int](t)(f.QueueLength(t.Context(), grype)); n != due {
		t.Fatalf("seed %d: the queue has %d images, want %d", seed, n, due)
	}
}

// TestTheQueueOfOlderStores checks that what was due or had failed before an upgrade is so after it.
func TestTheQueueOfOlderStores(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	olderStore(t, path, 6,
		`INSERT INTO meta (name, value) VALUES ('id', 'older')`,
		`INSERT INTO manifests (id, platform_digest, scope, last_used) VALUES (1, '`+digest("due")+`', '', 0), (2, '`+digest("failed")+`', '', 0), (3, '`+digest("current")+`', '', 0)`,
		`INSERT INTO catalogues (manifest_id, engine, distro, packages, tool, catalogued_at) VALUES (1, 'grype', '', 1, 'syft', 0), (2, 'grype', '', 1, 'syft', 0), (3, 'grype', '', 1, 'syft', 0)`,
		`INSERT INTO data_versions (engine, version, tool) VALUES ('grype', 'v1', '')`,
		`INSERT INTO reports (id, revision, manifest_id, engine, data_version, matched_at, distro) VALUES (1, 1, 3, 'grype', 'v1', 0, '')`,
		`INSERT INTO match_failures (manifest_id, engine, data_version, reason, message, failed_at, retry_at) VALUES (2, 'grype', 'v1', 'X', '', 0, `+fmt.Sprint(newClock().Now().Add(time.Hour).UnixMilli())+`)`,
		`INSERT INTO scanner_images (scanner, namespace, digest, platform, scope, engine, manifest_id)
			VALUES ('s', 'shop', 'a', '', '', 'grype', 1), ('s', 'shop', 'b', '', '', 'grype', 2), ('s', 'shop', 'c', '', '', 'grype', 3), ('t', 'shop', 'a', '', '', 'grype', 1)`,
	)
	f := openStore(t, path)
	f.requireConsistentQueue(t, 0)
	equal(t, "leased", leasedNames(f.lease(t, "job"), "due", "failed", "current"), []string{"due"})
	f.clock.pass(time.Hour)
	equal(t, "the queue when the failure is over", got[int](t)(f.QueueLength(t.Context(), grype)), 2)
}

// TestBudgetsOfOlderStores checks that what was stored before there were budgets counts for the namespace that uses it.
func TestBudgetsOfOlderStores(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	olderStore(t, path, 6,
		`INSERT INTO manifests (id, platform_digest, scope, last_used) VALUES (1, 'sha256:a', '', 0), (2, 'sha256:b', 'bank', 0), (3, 'sha256:c', '', 0)`,
		`INSERT INTO artifacts (manifest_id, name, size) VALUES (1, 'sbom', 100), (2, 'sbom', 200), (3, 'sbom', 300)`,
		`INSERT INTO reports (revision, manifest_id, engine, data_version, matched_at, distro, present) VALUES (1, 2, 'grype', 'v1', 0, '', 2)`,
		`INSERT INTO scanner_images (scanner, namespace, digest, platform, scope, engine, manifest_id) VALUES ('s', 'shop', 'sha256:i', 'linux/amd64', '', 'grype', 1)`)
	f := openStore(t, path)
	equal(t, "stored", got[map[string]int64](t)(f.StoredByNamespace(t.Context())), map[string]int64{"shop": 100, "bank": 200 + 2*findingBytes, "": 300})
}

// trackedFindings returns the present or the gone findings of an image, with their lifetimes.
func (f fixture) trackedFindings(t testing.TB, name string, gone bool) []TrackedFinding {
	t.Helper()
	return got[FindingPage](t)(f.FindingsPage(t.Context(), subject(name), FindingFilter{Gone: gone}, FindingCursor{}, 1000)).Findings
}

// TestLifeOfOlderStores checks that findings of an older store have a lifetime after the migration.
func TestLifeOfOlderStores(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	olderStore(t, path, 5,
		`INSERT INTO manifests (id, platform_digest, scope, last_used) VALUES (1, '`+digest("app")+`', '', 0)`,
		`INSERT INTO reports (id, revision, manifest_id, engine, data_version, matched_at, distro) VALUES (1, 1, 1, 'grype', 'v1', 9000, '')`,
		`INSERT INTO vulnerabilities (id, canonical_id, engine, description, url, cvss, epss, known_exploited)
			VALUES (1, 'CVE-2026-0001', 'grype', '', '', 0, 0, 1), (2, 'CVE-2026-0002', 'grype', '', '', 0, 0, 0), (3, 'CVE-2026-0003', 'grype', '', '', 0, 0, 0)`,
		`INSERT INTO findings (report_id, key, vulnerability_id, package, version, type, purl, paths, severity, known_exploited, fixable,
			fix_state, fix_versions, fix_available, aliases, advisories, content, first_seen, last_seen, gone_at)
			VALUES (1, zeroblob(32), 1, 'a', '1', 'deb', '', x'', 4, 1, 1, 'fixed', '["2"]', NULL, '', '', 0, 1000, NULL, NULL),
			(1, randomblob(32), 2, 'b', '1', 'deb', '', x'', 4, 0, 1, 'fixed', '["2"]', 500, '', '', 0, 1000, NULL, NULL),
			(1, randomblob(32), 3, 'c', '1', 'deb', '', x'', 4, 0, 0, 'not-fixed', '', NULL, '', '', 0, 1000, 2000, 3000)`,
	)
	f := openStore(t, path)
	at := func(millis int64) time.Time { return time.UnixMilli(millis).UTC() }
	var lives []TrackedFinding
	for _, seen := range slices.Concat(f.trackedFindings(t, "app", false), f.trackedFindings(t, "app", true)) {
		seen.Finding = finding.Finding{ID: seen.ID}
		lives = append(lives, seen)
	}
	equal(t, "lives", lives, []TrackedFinding{
		{Finding: finding.Finding{ID: "CVE-2026-0001"}, FirstSeen: at(1000), LastSeen: at(9000), FixSince: at(1000), ExploitedSince: at(1000)},
		{Finding: finding.Finding{ID: "CVE-2026-0002"}, FirstSeen: at(1000), LastSeen: at(9000), FixSince: at(500)},
		{Finding: finding.Finding{ID: "CVE-2026-0003"}, FirstSeen: at(1000), LastSeen: at(2000), FixedAt: at(3000)},
	})
	var present int
	must(t, f.reader.QueryRow(`SELECT present FROM reports`).Scan(&present))
	equal(t, "number of findings", present, 2)
}

// lease leases all images in the queue for a minute.
func (f fixture) lease(t testing.TB, holder string) []Lease {
	t.Helper()
	return got[[]Lease](t)(f.LeaseMatches(t.Context(), grype, holder, 100, f.clock.Now(), f.clock.Now().Add(time.Minute)))
}

// leasedNames returns the names of the leased images.
func leasedNames(leases []Lease, names ...string) []string {
	var lent []string
	for _, lease := range leases {
		i := slices.IndexFunc(names, func(name string) bool { return digest(name) == lease.PlatformDigest })
		if i < 0 {
			lent = append(lent, lease.PlatformDigest)
			continue
		}
		lent = append(lent, names[i])
	}
	return lent
}

const (
	selectRecordSums = `SELECT count(*), coalesce(sum(bytes), 0), coalesce(sum((
		SELECT sum(100 + octet_length(repository) + octet_length(canonical_id) + octet_length(package)) FROM announcements a
		WHERE a.receiver_id = b.receiver_id)), 0) FROM receiver_records b`
	selectRecordCount = `SELECT count(*) FROM announcements`
)

// recorded is how many announcement records there are, whose bytes are counted as they are.
func (f fixture) recorded(t *testing.T) (records int) {
	t.Helper()
	var receivers, counted, actual int64
	must(t, f.reader.QueryRowContext(t.Context(), selectRecordSums).Scan(&receivers, &counted, &actual))
	must(t, f.reader.QueryRowContext(t.Context(), selectRecordCount).Scan(&records))
	if counted != actual {
		t.Errorf("%d records of %d receivers count as %d bytes, want %d", records, receivers, counted, actual)
	}
	return records
}

// TestRecordsOfOlderStoresCount: what was recorded before it was counted counts.
func TestRecordsOfOlderStoresCount(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	olderStore(t, path, 18,
		`INSERT INTO scanner_images (scanner, namespace, digest, platform, scope, engine) VALUES ('s', 'shop', 'sha256:i', 'linux/amd64', '', 'grype')`,
		`INSERT INTO receivers (id, scanner, name, state) VALUES (1, 's', 'slack', CAST('0123456789' AS BLOB)), (2, 's', 'mail', NULL)`,
		`INSERT INTO announcements (receiver_id, repository, canonical_id, package, digest_id, announced_at)
			VALUES (1, 'a', 'CVE-2026-0001', 'openssl', '', 0), (1, 'b', 'CVE-2026-0001', 'openssl', '', 0)`)
	f := openStore(t, path)
	equal(t, "records", f.recorded(t), 2)
	for budget, want := range map[int64]bool{252: true, 253: false} {
		f.LimitRecords(budget)
		equal(t, fmt.Sprintf("no room in %d bytes", budget), got[bool](t)(f.RecordsFull(t.Context(), "s")), want)
	}
	f.requireIndexes(t, selectRecorded, []any{"s"}, "receiver_records_by_namespace")
}

// runs reads the runs of all pages.
func (f fixture) runs(t testing.TB, q RunsQuery, limit int) (all []Run) {
	t.Helper()
	after := RunCursor{}
	for {
		page := got[RunsPage](t)(f.RunsPage(t.Context(), q, after, limit))
		all = append(all, page.Runs...)
		if page.Next == nil {
			if page.Total != len(all) {
				t.Errorf("%d on all pages, %d are counted", len(all), page.Total)
			}
			return all
		}
		if len(page.Runs) != limit {
			t.Fatalf("a page that is not the last has %d, want %d", len(page.Runs), limit)
		}
		after = *page.Next
	}
}

// TestNamesOfOlderStores: a store that was made before has its vulnerabilities found by all names too.
func TestNamesOfOlderStores(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	olderStore(t, path, 2,
		`INSERT INTO manifests (id, platform_digest, scope, last_used) VALUES (1, '`+digest("web")+`', '', 0)`,
		`INSERT INTO images (digest, platform, scope, manifest_id) VALUES ('`+key("web").Digest+`', 'linux/amd64', '', 1)`,
		`INSERT INTO reports (id, revision, manifest_id, engine, data_version, matched_at, distro) VALUES (1, 1, 1, 'grype', 'v1', 0, '')`,
		`INSERT INTO vulnerabilities (id, canonical_id, engine, description, url, cvss, epss, known_exploited)
			VALUES (1, 'CVE-2026-0001', 'grype', '', '', 0, 0, 0), (2, 'CVE-2026-0002', 'grype', '', '', 0, 0, 0)`,
		`INSERT INTO findings (report_id, key, vulnerability_id, package, version, type, purl, paths, severity, known_exploited, fixable,
			fix_state, fix_versions, aliases, advisories, content, first_seen)
			VALUES (1, x'01', 1, 'openssl', '1', 'deb', '', x'', 4, 0, 0, 'not-fixed', '', '["ALAS-1","alas-1"]', '', 0, 0),
			(1, x'02', 2, 'zlib', '1', 'deb', '', x'', 4, 0, 0, 'not-fixed', '', '', '', 0, 0)`,
	)
	f := openStore(t, path)
	f.inNamespace(t, "shop", "s1", "web", "front")
	for _, id := range []string{"CVE-2026-0001", "ALAS-1", "CVE-2026-0002"} {
		if runs := f.runs(t, RunsQuery{ID: id, All: true}, 5); len(runs) != 1 {
			t.Errorf("%s is found %d times, want once", id, len(runs))
		}
	}
}
