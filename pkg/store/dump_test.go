package store

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// hostileTexts are texts that a database or its driver could change.
var hostileTexts = []string{
	"it's \"quoted\" \\ and `so` on", "line\u2028separator", "😀 \U0010FFFF", "trailing blanks  ", "Name", "name", "NAME", "straße", "STRASSE", "İ", "i",
	"tab\there\r\n", "%s $1 ? @id :x", "\\u0000 \\x00", "e\u0301", "é", "<&>", "\x01\x7f", strings.Repeat("long ", 400),
}

// newFilled returns an SQLite store with rows in every table.
func newFilled(t testing.TB) fixture {
	t.Helper()
	f := openWith(t, filepath.Join(t.TempDir(), "filled.db"), newSQLite)
	ctx := t.Context()
	var findings []finding.Finding
	for i, text := range hostileTexts {
		findings = append(findings, vulnerable(fmt.Sprintf("CVE-2026-%04d", i), text, fixed, func(f *finding.Finding) {
			f.Description, f.Aliases, f.EPSS, f.CVSS = text, []string{fmt.Sprintf("GHSA-%d", i), "alias-" + text[:1]}, rand.Float64(), float64(i)
			f.Paths = []string{"/usr/lib/" + text, "not \xff UTF-8"}
		}))
	}
	f.data(t, "v1")
	f.saveCatalogs(t, "app", "killer", "failing", "empty")
	f.saveCatalogs(t, "base")
	content := make([]byte, chunkBytes+1000)
	_, _ = rand.NewChaCha8([32]byte{}).Read(content)
	must(t, f.SaveCatalog(ctx, catalogOf("app", f.clock.Now()), map[Artifact]io.Reader{ArtifactSBOM: bytes.NewReader(content), ArtifactMatchInput: strings.NewReader("input")}))
	use := used("scanner", "app", workload("web", "r"), workload("Web", "r"), workload("web ", "R"))
	for _, text := range hostileTexts {
		use.Workloads = append(use.Workloads, workload(text, text))
		use.Ended = append(use.Ended, EndedWorkload{Workload: nightly(text, text+"ended"), At: f.clock.Now()})
	}
	must(t, f.SetUsage(ctx, use))
	for _, name := range []string{"killer", "failing"} {
		f.use(t, "scanner", name, workload(name, "r"))
	}
	f.use(t, "scanner", "base", workload("gone", "unused repository"))
	f.report(t, "app", findings...)
	f.report(t, "base", vulnerable("CVE-2026-0001", "zlib"))
	f.clock.pass(time.Hour)
	f.data(t, "v2")
	got[Difference](t)(f.SaveReport(ctx, scoped(report("app", findings[1:]...), Cluster, "v2"), ""))

	must(t, f.SaveJob(ctx, catalogJob(f, "catalog-1", "")))
	must(t, f.SaveJob(ctx, catalogJob(f, "catalog-2", "uid")))
	must(t, f.RecordMemoryExceeded(ctx, key("app"), "shop", 1<<40))
	must(t, f.SaveManifest(ctx, Manifest{Engine: otherClair, PlatformDigest: digest("app"), AddedByOperator: true}))
	uid := randomID()
	must(t, f.SaveJob(ctx, Job{Name: "match", UID: uid, Purpose: JobMatch}))
	leases := got[[]Lease](t)(f.LeaseMatches(ctx, grype, uid, 1, f.clock.Now(), f.clock.Now().Add(time.Minute)))
	must(t, f.DeleteJob(ctx, "", "match")) // the end of a worker without a result
	leases = got[[]Lease](t)(f.LeaseMatches(ctx, grype, "job", 1, f.clock.Now(), f.clock.Now().Add(time.Minute)))
	must(t, f.FailMatch(ctx, leases[0].ID, "job", MatchFailure{Reason: "DecodeFailed", Message: hostileTexts[0], FailedAt: f.clock.Now(), RetryAt: f.clock.Now().Add(time.Hour)}))
	f.lease(t, "another job")

	var announced []AnnouncementKey
	for _, text := range hostileTexts {
		announced = append(announced, AnnouncementKey{"r", "CVE-2026-0001", text}, AnnouncementKey{text, "CVE-2026-0002", "zlib"})
	}
	for _, receiver := range []string{"slack", "Slack", "slack "} {
		got[int64](t)(f.BeginDelivery(ctx, "scanner", receiver, []byte("state of "+receiver)))
		must(t, f.RecordAnnouncement(ctx, "scanner", receiver, Announcement{
			MessageID: receiver + "-1", At: f.clock.Now(), LogEntry: &Message{Kind: "Changes", Title: hostileTexts[2], Body: content[:1000]}, State: []byte(`{"state": true}`),
			Findings: announcedFindings(announced...), Repositories: []string{"r", "unused repository"}, Thread: &Thread{"#shop", "1.1"},
		}))
	}
	must(t, f.SaveReceiverState(ctx, "scanner", "Slack", nil))
	must(t, f.ReleaseImage(ctx, ScannerImage{"scanner", "shop", key("base")}, false))
	must(t, f.CheckHealth(ctx)) // saves when the store was open last
	f.clock.pass(time.Minute)
	got[int](t)(f.Sweep(ctx, f.clock.Now().Add(-24*time.Hour)))
	return f
}

func dumpOf(t testing.TB, s *Store) string {
	t.Helper()
	var out bytes.Buffer
	got[DumpInfo](t)(s.Dump(t.Context(), "1.2.3", &out, nil))
	return out.String()
}

// rowsIn returns the number of rows of each table in a dump.
func rowsIn(t testing.TB, dump string) map[string]int64 {
	t.Helper()
	rows := map[string]int64{}
	r := newDumpReader(strings.NewReader(dump))
	got[DumpInfo](t)(r.header())
	must(t, r.next())
	for range got[[]table](t)(schemaTables(t.Context())) {
		var of dumpTable
		must(t, r.decode(&of))
		rows[of.Table] = -1
		for isRow := true; isRow; isRow = r.line[0] == '[' {
			rows[of.Table]++
			must(t, r.next())
		}
	}
	return rows
}

// requireSame fails the test at the first line in which two dumps differ.
func requireSame(t *testing.T, what, dump, want string) {
	t.Helper()
	lines, wanted := strings.Split(dump, "\n"), strings.Split(want, "\n")
	for i := range min(len(lines), len(wanted)) {
		if lines[i] != wanted[i] {
			t.Fatalf("%s: line %d is %.2000s\nwant %.2000s", what, i+1, lines[i], wanted[i])
		}
	}
	equal(t, what+": lines", len(lines), len(wanted))
}

// databases are the openers of new stores of each kind.
func databases() map[string]func(t testing.TB) fixture {
	return map[string]func(t testing.TB) fixture{
		"SQLite": func(t testing.TB) fixture { return openWith(t, filepath.Join(t.TempDir(), "store.db"), newSQLite) },
		"PostgreSQL": func(t testing.TB) fixture {
			dsn := os.Getenv("STORE_TEST_POSTGRESQL")
			if dsn == "" {
				t.Skip("STORE_TEST_POSTGRESQL has no DSN of a server")
			}
			return newPostgreSQL(t, dsn)
		},
	}
}

// TestDumpMovesEverything checks that a store that was loaded from the dump of an SQLite store has the same dump in each database, as has an
// SQLite store that is loaded from there.
func TestDumpMovesEverything(t *testing.T) {
	from := newFilled(t)
	dump := dumpOf(t, from.Store)
	for table, rows := range rowsIn(t, dump) {
		if rows == 0 {
			t.Errorf("the store has no row in table %s", table)
		}
	}
	for _, text := range []string{`line\u2028separator`, `😀 `, `trailing blanks  "`, `it's \"quoted\"`, strings.Repeat("long ", 400)} {
		if !strings.Contains(dump, text) {
			t.Errorf("the dump has no text with %.100s", text)
		}
	}
	for name, open := range databases() {
		t.Run(name, func(t *testing.T) {
			to := open(t)
			got[DumpInfo](t)(to.Load(t.Context(), strings.NewReader(dump), nil))
			requireSame(t, "dump of the loaded store", dumpOf(t, to.Store), dump)
			path := filepath.Join(t.TempDir(), "back", "store.db")
			got[DumpInfo](t)(LoadSQLite(t.Context(), strings.NewReader(dumpOf(t, to.Store)), path, false, nil))
			back := openStore(t, path)
			requireSame(t, "dump of the store that was moved back", dumpOf(t, back.Store), dump)
			must(t, back.CheckIntegrity(t.Context()))
			equal(t, "files", files(t, path), []string{"", "-shm", "-wal", ".lock"})
			must(t, to.RecordAnnouncement(t.Context(), "scanner", "new", Announcement{MessageID: "new", At: to.clock.Now(), LogEntry: &Message{Body: []byte{0}}}))
			for _, table := range []string{"receivers", "messages"} {
				if before, after := lastID(t, from.Store, table), lastID(t, to.Store, table); after <= before {
					t.Errorf("the largest ID in %s is %d, want one after %d", table, after, before)
				}
			}
		})
	}
}

func lastID(t *testing.T, s *Store, table string) (id int64) {
	t.Helper()
	must(t, s.queryRow(t.Context(), "look up the last ID", `SELECT max(id) FROM `+table).Scan(&id))
	return id
}

// TestTablesOfDump checks that all databases have the same tables and columns, and what is known of them.
func TestTablesOfDump(t *testing.T) {
	tables := got[[]table](t)(schemaTables(t.Context()))
	var want, triggered []string
	for _, tbl := range tables {
		for _, c := range tbl.columns {
			want = append(want, fmt.Sprint(tbl.name, ".", c.name, " ", c.kind, " ", c.required || c.name == "id"))
		}
		if tbl.triggered {
			triggered = append(triggered, tbl.name)
		}
		if len(tbl.key) == 0 {
			t.Errorf("table %s has no key", tbl.name)
		}
	}
	equal(t, "tables that triggers write", triggered, []string{"matchable", "receiver_records"})
	equal(t, "the key of chunks, which has no primary key", tables[slices.IndexFunc(tables, func(t table) bool { return t.name == "chunks" })].key,
		[]string{"artifact_id", "number"})
	slices.Sort(want)
	t.Run("PostgreSQL", func(t *testing.T) {
		columns := got[[]string](t)(queryRows(t.Context(), databases()["PostgreSQL"](t).Store, "list columns", `
			SELECT c.table_name || '.' || c.column_name || ' ' ||
				CASE c.data_type WHEN 'double precision' THEN 'double' WHEN 'bytea' THEN 'bytes' ELSE c.data_type END || ' ' || (c.is_nullable = 'NO' AND (c.table_name, c.column_name) <> ('receiver_records', 'receiver_id'))
			FROM information_schema.columns c JOIN information_schema.tables t ON t.table_schema = c.table_schema AND t.table_name = c.table_name
			WHERE c.table_schema = 'public' AND t.table_type = 'BASE TABLE' AND c.table_name NOT LIKE 'goose%'`, nil, scanValue[string]))
		slices.Sort(columns)
		equal(t, "columns", columns, want)
	})
}

// TestDumpedNumbers checks that numbers are the same after a move, to the last digit.
func TestDumpedNumbers(t *testing.T) {
	from := openWith(t, filepath.Join(t.TempDir(), "from.db"), newSQLite)
	rows := make([][]any, 2000)
	for i := range rows {
		rows[i] = []any{rand.Int64() - rand.Int64(), fmt.Sprint(i), math.Float64frombits(rand.Uint64() &^ (1 << 62)), rand.Float64()}
	}
	must(t, from.write(t.Context(), "insert", func(ctx context.Context, tx *session) error {
		for _, row := range rows {
			if _, err := tx.ExecContext(ctx, `INSERT INTO vulnerabilities (id, canonical_id, engine, description, url, cvss, epss, known_exploited) VALUES (?, ?, '', '', '', ?, ?, 0)`, row...); err != nil {
				return err
			}
		}
		return nil
	}))
	dump := dumpOf(t, from.Store)
	for name, open := range databases() {
		t.Run(name, func(t *testing.T) {
			to := open(t)
			got[DumpInfo](t)(to.Load(t.Context(), strings.NewReader(dump), nil))
			requireSame(t, "dump of the loaded store", dumpOf(t, to.Store), dump)
		})
	}
}
