package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/store/storetest/proxy"
	"github.com/scanner-operator/scanner-operator/pkg/store/storetest/server"
)

// hostileTexts are texts that a database or its driver could change.
var hostileTexts = []string{
	"it's \"quoted\" \\ and `so` on", "line\u2028separator", "😀 \U0010FFFF", "trailing blanks  ", "Name", "name", "NAME", "straße", "STRASSE", "İ", "i",
	"tab\there\r\n", "%s $1 ? @id :x", "\\u0000 \\x00", "e\u0301", "é", "<&>", "\x01\x7f", strings.Repeat("long ", 400),
}

// newFilled returns an SQLite store with rows in every table.
func newFilled(t testing.TB) fixture {
	t.Helper()
	f := newStore(t)
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
	must(t, f.SaveCatalog(ctx, catalogOf("app", f.clock.Now()), map[Artifact]io.Reader{
		ArtifactSBOM: bytes.NewReader(content), ArtifactMatchInput: strings.NewReader("input"),
	}))
	use := used("scanner", "app", workload("web", "r"), workload("Web", "r"), workload("web ", "R"))
	for _, text := range hostileTexts {
		name := text[:min(len(text), 255)]
		use.Workloads = append(use.Workloads, workload(name, name))
		use.Ended = append(use.Ended, EndedWorkload{Workload: nightly(name, "ended "+name), At: f.clock.Now()})
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
	f.reportBy(t, "v2", "app", findings[1:]...)

	for _, uid := range []string{"", "uid"} {
		must(t, f.SaveJob(ctx, Job{Namespace: "operator", Name: "catalog" + uid, UID: uid, Purpose: JobCatalog, Key: key("app"), Scope: "shop", CreatedAt: f.clock.Now()}))
	}
	must(t, f.RecordMemoryExceeded(ctx, key("app"), "shop", 1<<40))
	must(t, f.SaveManifest(ctx, Manifest{Engine: otherClair, PlatformDigest: digest("app"), AddedByOperator: true}))
	uid := randomID()
	must(t, f.SaveJob(ctx, Job{Name: "match", UID: uid, Purpose: JobMatch}))
	lease := func(holder string) []Lease {
		t.Helper()
		return got[[]Lease](t)(f.LeaseMatches(ctx, grype, holder, 1, f.clock.Now(), f.clock.Now().Add(time.Minute)))
	}
	lease(uid)
	must(t, f.DeleteJob(ctx, "", "match")) // the end of a worker without a result
	must(t, f.FailMatch(ctx, lease("job")[0].ID, "job", MatchFailure{
		Reason: "DecodeFailed", Message: hostileTexts[0], FailedAt: f.clock.Now(), RetryAt: f.clock.Now().Add(time.Hour),
	}))
	lease("another job")

	var announced []AnnouncementKey
	for _, text := range hostileTexts {
		announced = append(announced, AnnouncementKey{"r", "CVE-2026-0001", text}, AnnouncementKey{text[:min(len(text), 255)], "CVE-2026-0002", "zlib"})
	}
	for _, receiver := range []string{"slack", "Slack", "slack "} {
		got[int64](t)(f.BeginDelivery(ctx, "scanner", receiver, []byte("state of "+receiver)))
		must(t, f.RecordAnnouncement(ctx, "scanner", receiver, Announcement{
			MessageID: receiver + "-1", At: f.clock.Now(), LogEntry: &Message{Kind: "Changes", Title: hostileTexts[2], Body: content[:1000]}, State: []byte(`{"state": true}`),
			Findings: announcedFindings(announced...), Repositories: []string{"r", "unused repository"}, Thread: &Thread{"#shop", "1.1"},
		}))
	}
	counted := ChangeFilter{Engine: use.Engine}
	summary := got[SummaryCounts](t)(f.CountSummary(ctx, "scanner", "Slack", counted, "", nil))
	must(t, f.RecordAnnouncement(ctx, "scanner", "Slack", Announcement{
		MessageID: "Slack-2", At: f.clock.Now(), Counted: &CountedFindings{Filter: counted, SnapshotID: summary.SnapshotID},
	}))
	must(t, f.SaveReceiverState(ctx, "scanner", "Slack", nil))
	external := ExternalReport{
		ExternalKey: ExternalKey{Namespace: "shop", Digest: key("app").Digest, Source: "ci"}, Time: f.clock.Now(), Version: 1, TextSum: "s", User: "jane",
		Findings: []finding.Finding{vulnerable("CVE-2026-0009", "zlib")}, Text: strings.NewReader("text"),
	}
	got[SavedExternal](t)(f.SaveExternalReport(ctx, external, func(*ExternalState) error { return nil }))
	upload := UploadedSBOM{Namespace: "shop", Digest: key("app").Digest, PlatformDigest: key("app").Digest, Sum: "s", User: hostileTexts[0]}
	got[SavedUpload](t)(f.SaveUploadedSBOM(ctx, upload, strings.NewReader("documents and SBOM"), 0))
	must(t, f.SetAnnouncedSources(ctx, "scanner", []string{"ci"}))
	must(t, f.ReleaseImage(ctx, ScannerImage{"scanner", "shop", key("base")}, false))
	must(t, f.RecordDay(ctx, DailyCounts{}, map[string]DailyCounts{"shop": {1, 2, 3, 4, 5, 6}}))
	must(t, f.Notify(ctx, Notice{Kind: "image", Subject: "a", Content: "b"}))
	must(t, f.SaveJob(ctx, Job{Namespace: "operator", Name: "vex", UID: "vex", Purpose: JobCatalog, Key: key("app"), CreatedAt: f.clock.Now(), VEXPolicy: "policy"}))
	got[bool](t)(f.SaveJobResult(ctx, JobResult{Catalog: catalogOf("app", f.clock.Now()), JobUID: "vex", Digest: "upload", VEX: ImageVEX{
		Policy: "policy", Problem: "not signed", Statements: []exception.Exception{{Name: "doc", Status: "fixed", Vulnerabilities: []string{"CVE-2026-0001"}}},
	}}))
	must(t, f.SaveExportStates(ctx, "scanner", "dojo", map[string][]byte{"": []byte("state")}))
	must(t, f.SaveVulnerabilityIDs(ctx, grype, "v2", "CVE-2026-0001\nCVE-2026-0002\n"))
	must(t, f.SaveSessionCode(ctx, SessionCode{Hash: "a", Owner: "b", Sealed: "c", ExpiresAt: f.clock.Now().AddDate(1, 0, 0)}, 1, 1))
	must(t, f.EndSession(ctx, EndedSession{Hash: "hash", Tenant: "tenant", ExpiresAt: f.clock.Now().Add(time.Hour)}, 1, 1))
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
	eachDatabase(t, func(t *testing.T, to fixture) {
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
		columns := got[[]string](t)(queryRows(t.Context(), openIn(t, newPostgreSQLDatabase(t)).Store, "list columns", `
			SELECT c.table_name || '.' || c.column_name || ' ' ||
				CASE c.data_type WHEN 'double precision' THEN 'double' WHEN 'bytea' THEN 'bytes' ELSE c.data_type END || ' ' ||
				(c.is_nullable = 'NO' AND (c.table_name, c.column_name) <> ('receiver_records', 'receiver_id'))
			FROM information_schema.columns c JOIN information_schema.tables t ON t.table_schema = c.table_schema AND t.table_name = c.table_name
			WHERE c.table_schema = 'public' AND t.table_type = 'BASE TABLE' AND c.table_name NOT LIKE 'goose%'`, nil, scanValue[string]))
		slices.Sort(columns)
		equal(t, "columns", columns, want)
	})
}

// TestDumpedNumbers checks that numbers are the same after a move, to the last digit.
func TestDumpedNumbers(t *testing.T) {
	from := newStore(t)
	rows := make([][]any, 2000)
	for i := range rows {
		rows[i] = []any{rand.Int64() - rand.Int64(), fmt.Sprint(i), math.Float64frombits(rand.Uint64() &^ (1 << 62)), rand.Float64()}
	}
	must(t, from.write(t.Context(), "insert", func(ctx context.Context, tx *session) error {
		for _, row := range rows {
			if _, err := tx.ExecContext(ctx, `
				INSERT INTO vulnerabilities (id, canonical_id, engine, description, url, cvss, epss, known_exploited)
				VALUES (?, ?, '', '', '', ?, ?, 0)`, row...); err != nil {
				return err
			}
		}
		return nil
	}))
	dump := dumpOf(t, from.Store)
	eachDatabase(t, func(t *testing.T, to fixture) {
		got[DumpInfo](t)(to.Load(t.Context(), strings.NewReader(dump), nil))
		requireSame(t, "dump of the loaded store", dumpOf(t, to.Store), dump)
	})
}

// TestDumpIsOneSnapshot checks that a dump has nothing of what is written while it is made.
func TestDumpIsOneSnapshot(t *testing.T) {
	eachDatabase(t, func(t *testing.T, f fixture) {
		f.saveCatalogs(t, "app")
		before, first := dumpOf(t, f.Store), true
		var out bytes.Buffer
		got[DumpInfo](t)(f.Dump(t.Context(), "1.2.3", &out, func(string, int64) {
			if first {
				first = false
				f.saveCatalogs(t, "later")
			}
		}))
		requireSame(t, "the dump", out.String(), before)
		if after := dumpOf(t, f.Store); after == before {
			t.Error("the next dump lacks what was written meanwhile")
		}
	})
}

// TestDumpCleansTexts checks that a text of an older store, which may have NUL or invalid UTF-8, is dumped as databases take it.
func TestDumpCleansTexts(t *testing.T) {
	f := newStore(t)
	_, err := f.writer.ExecContext(t.Context(), `INSERT INTO known_repositories (receiver_id, repository) VALUES (?, CAST(x'61002062ff' AS TEXT))`,
		got[int64](t)(saveReceiver(t, f.Store)))
	must(t, err)
	if dump := dumpOf(t, f.Store); !strings.Contains(dump, `[1,"a b`+"\uFFFD"+`"]`) {
		t.Errorf("the dump is %s", dump)
	}
}

func saveReceiver(t *testing.T, s *Store) (id int64, err error) {
	t.Helper()
	return id, s.write(t.Context(), "add a receiver", func(ctx context.Context, tx *session) error {
		id, err = ensureReceiver(ctx, tx, "scanner", "slack")
		return err
	})
}

// TestLoadRefuses checks that nothing is loaded of what is not a whole dump of this version, and what the error says.
func TestLoadRefuses(t *testing.T) {
	dump := dumpOf(t, newFilled(t).Store)
	lines := strings.SplitAfter(strings.TrimSuffix(dump, "\n"), "\n")
	lines[len(lines)-1] += "\n"
	trailer := lines[len(lines)-1]
	// line returns the dump with another line n, counted from 1, and the checksum that fits.
	line := func(n int, text string) string {
		changed := slices.Clone(lines)
		changed[n-1] = text
		body := strings.Join(changed[:len(changed)-1], "")
		return body + fmt.Sprintf(`{"rows":%d,"sha256":"%x"}`+"\n", strings.Count(body, "\n["), sha256.Sum256([]byte(body)))
	}
	header := func(changed string, to any) string {
		return line(1, regexp.MustCompile(changed+`":[^,}]+`).ReplaceAllString(lines[0], fmt.Sprintf(`%s":%v`, changed, to)))
	}
	// of returns the number of the first row of a table.
	of := func(table string) int {
		return slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(line, `{"table":"`+table+`"`) }) + 2
	}
	schema := latestSchema()
	orphan := strings.Replace(lines[of("workloads")-1], "[1,", "[1000000,", 1)
	unknown := regexp.MustCompile(`^(\[1,1,"[^"]+"),\d+,`).ReplaceAllString(lines[of("findings")-1], "$1,1000000,") // the column after the key
	if line(1, lines[0]) != dump {
		t.Fatal("the test does not know how a dump ends")
	}
	type refusal struct {
		dump string
		want error
		says string
	}
	refusals := map[string]refusal{
		"nothing":                       {"", ErrNoDump, "it does not begin as one"},
		"another program's text":        {"-- PostgreSQL database dump\n" + dump, ErrNoDump, ""},
		"another program's JSON":        {`{"format":"other"}` + "\n", ErrNoDump, ""},
		"a line without an end":         {strings.Repeat("x", maxDumpLine+1), ErrNoDump, ""},
		"a newer schema":                {header("schema", schema+1), ErrDumpVersion, fmt.Sprintf("(1.2.3, schema %d, this one knows %d): load it", schema+1, schema)},
		"an older schema":               {header("schema", schema-1), ErrDumpVersion, "load it with that version, whose store the manager of this version then migrates"},
		"another format":                {header("version", 2), ErrDumpVersion, "(1.2.3, format 2, this one knows 1)"},
		"only the header":               {lines[0], ErrDumpDamaged, "line 2: missing"},
		"the last line missing":         {strings.TrimSuffix(dump, trailer), ErrDumpDamaged, fmt.Sprintf("line %d: missing", len(lines))},
		"the last byte missing":         {dump[:len(dump)-1], ErrDumpDamaged, fmt.Sprintf("line %d: cut off", len(lines))},
		"half of it":                    {dump[:len(dump)/2], ErrDumpDamaged, "cut off"},
		"more after the end":            {dump + trailer, ErrDumpDamaged, fmt.Sprintf("line %d: data after the end", len(lines)+1)},
		"a changed value":               {strings.Replace(dump, `"DecodeFailed"`, `"DecodeFailes"`, 1), ErrDumpDamaged, "rows with the checksum"},
		"a removed row":                 {strings.Replace(dump, lines[of("jobs")-1], "", 1), ErrDumpDamaged, "rows with the checksum"},
		"a removed table":               {line(of("jobs")-1, ""), ErrDumpDamaged, fmt.Sprintf("line %d: not a row of table ", of("jobs")-1)},
		"another column":                {line(of("jobs")-1, strings.Replace(lines[of("jobs")-2], `"uid"`, `"x"`, 1)), ErrDumpDamaged, "want table jobs with the columns namespace, name, uid"},
		"another table":                 {line(of("jobs")-1, `{"table":"sqlite_schema","columns":["sql"]}`+"\n"), ErrDumpDamaged, "want table jobs"},
		"not JSON":                      {line(of("jobs"), "[\n"), ErrDumpDamaged, fmt.Sprintf("line %d: not a row of table jobs", of("jobs"))},
		"a value too few":               {line(of("store_revision"), "[1]\n"), ErrDumpDamaged, "not a row of table store_revision"},
		"a text for a number":           {line(of("store_revision"), `[1,"2",0,28]`+"\n"), ErrDumpDamaged, "column revision of table store_revision is not bigint"},
		"a number too large":            {line(of("store_revision"), `[1,9223372036854775808,0,28]`+"\n"), ErrDumpDamaged, "column revision of table store_revision is not bigint"},
		"a number for a text":           {line(of("meta"), `["id",1]`+"\n"), ErrDumpDamaged, "column value of table meta is not text"},
		"an object for a text":          {line(of("meta"), `["id",{}]`+"\n"), ErrDumpDamaged, "column value of table meta is not text"},
		"NUL in a text":                 {line(of("meta"), `["id","\u0000"]`+"\n"), ErrDumpDamaged, "column value of table meta is not text"},
		"null where one is needed":      {line(of("meta"), `["id",null]`+"\n"), ErrDumpDamaged, "column value of table meta is not text"},
		"bytes that are none":           {line(of("receivers"), `[1,"scanner","slack","*"]`+"\n"), ErrDumpDamaged, "column state of table receivers is not bytes"},
		"a row of no parent":            {line(of("workloads"), orphan), nil, fmt.Sprintf("table workloads, lines %d to ", of("workloads"))},
		"a finding of no vulnerability": {line(of("findings"), unknown), nil, "table findings"},
		"a row twice":                   {line(of("jobs")+1, lines[of("jobs")-1]), nil, fmt.Sprintf("table jobs, lines %d to %d of the dump", of("jobs"), of("jobs")+2)},
	}
	eachDatabase(t, func(t *testing.T, to fixture) {
		empty := dumpOf(t, to.Store)
		for name, tt := range refusals {
			_, err := to.Load(t.Context(), strings.NewReader(tt.dump), nil)
			if err == nil || tt.want != nil && !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%s: the error is %.1000v, want %v with %q", name, err, tt.want, tt.says)
			}
			requireSame(t, "the store after "+name, dumpOf(t, to.Store), empty)
		}
	})
	path := filepath.Join(t.TempDir(), "store.db")
	for name, tt := range refusals {
		if _, err := LoadSQLite(t.Context(), strings.NewReader(tt.dump), path, false, nil); err == nil {
			t.Errorf("%s: no error of loading it into a file", name)
		}
		equal(t, "files after "+name, files(t, path), []string{".lock"})
	}
}

// TestLoadNeedsAnEmptyStore checks that a store with content is not changed, and that a file is only replaced on demand.
func TestLoadNeedsAnEmptyStore(t *testing.T) {
	dump := dumpOf(t, newFilled(t).Store)
	eachDatabase(t, func(t *testing.T, to fixture) {
		to.saveCatalogs(t, "app")
		before := dumpOf(t, to.Store)
		_, err := to.Load(t.Context(), strings.NewReader(dump), nil)
		if !errors.Is(err, ErrNotEmpty) || !strings.Contains(err.Error(), "(table manifests)") && !strings.Contains(err.Error(), "(table catalogues)") {
			t.Errorf("the error is %v, want ErrNotEmpty with a table", err)
		}
		requireSame(t, "the store", dumpOf(t, to.Store), before)
	})

	path := filepath.Join(t.TempDir(), "store.db")
	existing := openStore(t, path)
	existing.saveCatalogs(t, "app")
	before := dumpOf(t, existing.Store)
	load := func(replace bool) error {
		_, err := LoadSQLite(t.Context(), strings.NewReader(dump), path, replace, nil)
		return err
	}
	if err := load(true); !errors.Is(err, ErrLocked) {
		t.Errorf("beside a manager: %v, want ErrLocked", err)
	}
	must(t, existing.Close())
	if err := load(false); !errors.Is(err, ErrNotEmpty) || !strings.Contains(err.Error(), path) {
		t.Errorf("with a store: %v, want ErrNotEmpty with its path", err)
	}
	requireSame(t, "the store that was there", dumpOf(t, openStore(t, path).Store), before)
}

// TestLoadReplacesAFile checks that the store that was there is kept on demand, and that nothing is left over.
func TestLoadReplacesAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	existing := openStore(t, path)
	existing.saveCatalogs(t, "app")
	before := dumpOf(t, existing.Store)
	must(t, existing.Close())
	must(t, os.WriteFile(path+stagedSuffix, []byte("a restore that was not taken"), 0o600))
	dump := dumpOf(t, newFilled(t).Store)
	got[DumpInfo](t)(LoadSQLite(t.Context(), strings.NewReader(dump), path, true, nil))
	equal(t, "files", files(t, path), []string{"", ".lock", PreviousSuffix})
	requireSame(t, "the store", dumpOf(t, openStore(t, path).Store), dump)
	requireSame(t, "the store before", dumpOf(t, openStore(t, path+PreviousSuffix).Store), before)
}

// TestCancelledLoad checks that nothing is left of a load that was cancelled in the middle, and that it can be repeated.
func TestCancelledLoad(t *testing.T) {
	dump := dumpOf(t, newFilled(t).Store)
	eachDatabase(t, func(t *testing.T, to fixture) {
		empty := dumpOf(t, to.Store)
		for _, table := range []string{"data_versions", "manifests", "findings", "receiver_records"} {
			ctx, cancel := context.WithCancelCause(t.Context())
			halt := errors.New("halt")
			_, err := to.Load(ctx, strings.NewReader(dump), func(loaded string, _ int64) {
				if loaded == table {
					cancel(halt)
				}
			})
			if !errors.Is(err, halt) {
				t.Errorf("cancelled after %s: %v, want the reason", table, err)
			}
			requireSame(t, "the store after "+table, dumpOf(t, to.Store), empty)
		}
		got[DumpInfo](t)(to.Load(t.Context(), strings.NewReader(dump), nil))
		requireSame(t, "the store in the end", dumpOf(t, to.Store), dump)
	})
	path := filepath.Join(t.TempDir(), "store.db")
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := LoadSQLite(ctx, strings.NewReader(dump), path, false, func(string, int64) { cancel() }); !errors.Is(err, context.Canceled) {
		t.Errorf("loading a file: %v, want that it was cancelled", err)
	}
	equal(t, "files", files(t, path), []string{".lock"})
}

// TestLoadIsNotRepeated checks that a connection that ends in the middle of a dump is reported as such: what was read of the dump is used up.
// The store stays empty.
func TestLoadIsNotRepeated(t *testing.T) {
	dump := dumpOf(t, newFilled(t).Store)
	f := newServerFixture(t, server.Options{})
	rule, happened := proxy.OnText("INSERT INTO findings", proxy.Cut)
	f.proxy.SetRule(rule)
	_, err := f.Load(t.Context(), strings.NewReader(dump), nil)
	requireHappened(t, happened)
	f.requireFault(t, "a load whose connection ends", err, ErrUnavailable)
	f.proxy.SetRule(nil)
	got[DumpInfo](t)(f.Load(t.Context(), strings.NewReader(dump), nil))
	requireSame(t, "the store", dumpOf(t, f.Store), dump)
}
