package database_test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anchore/grype/grype/distro"
	"github.com/anchore/grype/grype/search"
	"github.com/anchore/grype/grype/vulnerability"
	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"github.com/scanner-operator/scanner-operator/worker/clock"
	"github.com/scanner-operator/scanner-operator/worker/database"
	"github.com/scanner-operator/scanner-operator/worker/internal/fixture"
	"github.com/scanner-operator/scanner-operator/worker/internal/testdb"
	"github.com/scanner-operator/scanner-operator/worker/version"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

var later = fixture.Built.Add(24 * time.Hour)

// bench is a store with a publisher.
type bench struct {
	dir       string
	clock     *clock.Fake
	publisher *fixture.Publisher
	source    *database.Source
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{dir: t.TempDir(), clock: clock.NewFake(later), publisher: fixture.Publish(t, fixture.Database(t, fixture.Built))}
	var err error
	if b.source, err = database.NewSource(b.publisher.URL, http.DefaultTransport); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bench) store(t *testing.T) *database.Store {
	t.Helper()
	store, err := database.OpenStore(b.dir, b.clock, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func (b *bench) updater(t *testing.T) *database.Updater {
	t.Helper()
	u, err := database.NewUpdater(b.store(t), b.source, b.clock, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { u.Close() })
	return u
}

// built returns the build times of the installed versions, newest first.
func built(t *testing.T, store *database.Store) []time.Time {
	t.Helper()
	versions, err := store.Versions()
	if err != nil {
		t.Fatal(err)
	}
	var times []time.Time
	for _, v := range versions {
		times = append(times, v.Built)
	}
	return times
}

// hasVulnerability reports whether an open database has a vulnerability in a package of Debian 12.
func hasVulnerability(t *testing.T, db *database.DB, source, id string) bool {
	t.Helper()
	found, err := db.Provider().FindVulnerabilities(
		search.ByPackageName(source), search.ByDistro(*distro.New(distro.Debian, "12", "bookworm")))
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(found, func(v vulnerability.Vulnerability) bool { return v.ID == id })
}

func TestNewSource(t *testing.T) {
	for address, want := range map[string]string{
		"https://example.org/databases":          "https://example.org/databases/v6/latest.json",
		"https://example.org/databases/":         "https://example.org/databases/v6/latest.json",
		"https://example.org/own.json":           "https://example.org/own.json",
		"https://secret:secret@example.org":      "https://example.org/v6/latest.json",
		"https://secret@example.org/x.json":      "https://example.org/x.json",
		"https://example.org/x.json?t=secret":    "https://example.org/x.json",
		"https://example.org/x.json#secret":      "https://example.org/x.json",
		"file:///databases":                      "file:///databases/v6/latest.json",
		"ftp://example.org":                      "",
		"example.org":                            "",
		"https://user:secret@example.org:port/x": "",
		"ftp://secret@example.org/x?t=secret":    "",
		"user:secret@example.org":                "",
	} {
		source, err := database.NewSource(address, nil)
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error contains a secret: %v", address, err)
		}
		got := ""
		if err == nil {
			got = source.String()
		}
		if got != want {
			t.Errorf("listing of %s: got %q (%v), want %q", address, got, err, want)
		}
	}
}

// TestNoSecretsInErrors checks that neither the log nor the status of a failed refresh contains the credentials or the query of the URL.
func TestNoSecretsInErrors(t *testing.T) {
	for what, handler := range map[string]http.HandlerFunc{
		"not found":  http.NotFound,
		"no listing": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") },
		"no answer":  func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"endless":    func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, r.URL.String(), http.StatusFound) },
		"to no URL": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "http://user:secret@example.org:port/?t=secret")
			w.WriteHeader(http.StatusFound)
		},
		"to another URL": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "ftp://user:secret@"+r.Host+"/?t=secret", http.StatusFound)
		},
	} {
		t.Run(what, func(t *testing.T) {
			server := httptest.NewServer(handler)
			t.Cleanup(server.Close)
			source, err := database.NewSource("http://secret:secret@"+server.Listener.Addr().String()+"/x.json?t=secret#secret", nil)
			if err != nil {
				t.Fatal(err)
			}
			b := newBench(t)
			var lines strings.Builder
			u, err := database.NewUpdater(b.store(t), source, b.clock, slog.New(slog.NewTextHandler(&lines, nil)))
			if err != nil {
				t.Fatal(err)
			}
			status := u.Refresh(t.Context())
			if text := lines.String() + status.Error; status.Error == "" || strings.Contains(text, "secret") || !strings.Contains(text, "/x.json") {
				t.Errorf("status and log %q, want an error with the path and without a secret", text)
			}
		})
	}
}

func TestInstallAndOpen(t *testing.T) {
	b := newBench(t)
	u := b.updater(t)
	if u.DB() != nil {
		t.Fatal("a database is open before one was installed")
	}
	status := u.Refresh(t.Context())
	listing, err := b.source.Latest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := workerapi.DatabaseStatus{Tool: version.Grype(), Installed: &listing.Database}
	if diff := cmp.Diff(want, status); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	if !hasVulnerability(t, u.DB(), "glibc", "CVE-2023-4911") || u.DB().Failures() != 0 {
		t.Errorf("want a database that knows CVE-2023-4911 and never failed, it failed %d times", u.DB().Failures())
	}
	// The next worker on the same volume opens the database without a download.
	b.publisher.Replace(&testdb.Result{Dist: t.TempDir()})
	if again := b.updater(t); again.DB() == nil || !again.DB().Built.Equal(fixture.Built) {
		t.Error("the installed database is not open in the next worker")
	}
}

// TestInstallFromPrivateMirror checks a mirror whose certificate is signed by a private CA.
func TestInstallFromPrivateMirror(t *testing.T) {
	b := newBench(t)
	mirror := httptest.NewTLSServer(http.FileServer(http.Dir(b.publisher.Dir())))
	mirror.Config.ErrorLog = log.New(io.Discard, "", 0)
	t.Cleanup(mirror.Close)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: mirror.Certificate().Raw})
	for authorities, installed := range map[string]bool{"": false, string(authority): true} {
		transport, err := database.NewTransport(authorities)
		if err != nil {
			t.Fatal(err)
		}
		if b.source, err = database.NewSource(mirror.URL, transport); err != nil {
			t.Fatal(err)
		}
		b.dir = t.TempDir()
		status := b.updater(t).Refresh(t.Context())
		if got := status.Installed != nil; got != installed {
			t.Errorf("with the mirror's authority known to be %v: a database was installed: %v (%s)", installed, got, status.Error)
		}
	}
	if _, err := database.NewTransport("no certificate"); err == nil {
		t.Error("text without a certificate is taken for authorities")
	}
}

// TestRedirectsLoseNoProtection checks that a redirect may lead to another server, but not from HTTPS to HTTP, or to a file.
func TestRedirectsLoseNoProtection(t *testing.T) {
	b := newBench(t)
	plain := httptest.NewServer(http.FileServer(http.Dir(b.publisher.Dir())))
	t.Cleanup(plain.Close)
	secure := httptest.NewTLSServer(http.FileServer(http.Dir(b.publisher.Dir())))
	t.Cleanup(secure.Close)
	authority := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw}))
	for what, c := range map[string]struct {
		tls  bool
		to   string
		want string
	}{
		"from http to http":   {false, plain.URL, ""},
		"from http to https":  {false, secure.URL, ""},
		"from https to https": {true, secure.URL, ""},
		"from https to http":  {true, plain.URL, "not followed from https"},
		"from http to a file": {false, "file://" + b.publisher.Dir(), "not followed from http"},
	} {
		t.Run(what, func(t *testing.T) {
			start := httptest.NewServer
			if c.tls {
				start = httptest.NewTLSServer
			}
			server := start(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, c.to+r.URL.Path, http.StatusFound)
			}))
			t.Cleanup(server.Close)
			transport, err := database.NewTransport(authority)
			if err != nil {
				t.Fatal(err)
			}
			source, err := database.NewSource(server.URL, transport)
			if err != nil {
				t.Fatal(err)
			}
			_, err = source.Latest(t.Context())
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
	t.Run("without an end", func(t *testing.T) {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/again.json", http.StatusFound) }))
		t.Cleanup(server.Close)
		source, err := database.NewSource(server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := source.Latest(t.Context()); err == nil || !strings.Contains(err.Error(), "more than 10 times") {
			t.Errorf("got %v, want an end of the redirects", err)
		}
	})
}

func TestInstallFromVolume(t *testing.T) {
	b := newBench(t)
	transport, err := database.NewTransport("")
	if err != nil {
		t.Fatal(err)
	}
	source, err := database.NewSource("file://"+b.publisher.Dir(), transport)
	if err != nil {
		t.Fatal(err)
	}
	b.source = source
	if status := b.updater(t).Refresh(t.Context()); status.Error != "" || status.Installed == nil {
		t.Errorf("status %+v, want an installed database", status)
	}
}

// TestNewerBuildSideBySide checks that an old and a new build are open at the same time, each with its own content.
func TestNewerBuildSideBySide(t *testing.T) {
	b := newBench(t)
	first, second := b.updater(t), b.updater(t)
	first.Refresh(t.Context())
	b.publisher.Replace(fixture.Database(t, later, fixture.NextAdvisoriesDir()))
	second.Refresh(t.Context())

	if !first.DB().Built.Equal(fixture.Built) || hasVulnerability(t, first.DB(), "openssl", "CVE-2099-10001") {
		t.Error("the worker with the old build sees the new one's content")
	}
	if !second.DB().Built.Equal(later) || !hasVulnerability(t, second.DB(), "openssl", "CVE-2099-10001") || !hasVulnerability(t, second.DB(), "glibc", "CVE-2023-4911") {
		t.Error("the worker with the new build does not see its content")
	}
	if status := first.Refresh(t.Context()); !status.Installed.Built.Equal(later) || !hasVulnerability(t, first.DB(), "openssl", "CVE-2099-10001") {
		t.Errorf("status %+v, want the first worker to move to the new build", status)
	}
}

func TestOlderBuildIsNoUpdate(t *testing.T) {
	b := newBench(t)
	u := b.updater(t)
	u.Refresh(t.Context())
	b.publisher.Replace(fixture.Database(t, fixture.Built.Add(-time.Hour)))
	if status := u.Refresh(t.Context()); !status.Installed.Built.Equal(fixture.Built) || status.Error != "" {
		t.Errorf("status %+v, want the installed build and no error", status)
	}
}

// publish writes a listing for an archive with the given files.
func publish(t *testing.T, at time.Time, files map[string][]byte) *testdb.Result {
	t.Helper()
	var archive bytes.Buffer
	encoder, err := zstd.NewWriter(&archive)
	if err != nil {
		t.Fatal(err)
	}
	writer := tar.NewWriter(encoder)
	for name, content := range files {
		if err := writer.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Size: int64(len(content)), Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
		if _, err := writer.Write(content); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(writer.Close(), encoder.Close()); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(archive.Bytes())
	return list(t, at, "v6.1.4", "db.tar.zst", "sha256:"+hex.EncodeToString(sum[:]), archive.Bytes())
}

func list(t *testing.T, at time.Time, schema, name, checksum string, archive []byte) *testdb.Result {
	t.Helper()
	dist := t.TempDir()
	if err := os.Mkdir(filepath.Join(dist, "v6"), 0o755); err != nil {
		t.Fatal(err)
	}
	listing, err := json.Marshal(map[string]string{"status": "active", "schemaVersion": schema, "built": at.Format(time.RFC3339), "path": name, "checksum": checksum})
	if err != nil {
		t.Fatal(err)
	}
	for file, content := range map[string][]byte{"latest.json": listing, name: archive} {
		if file == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(dist, "v6", filepath.Base(file)), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return &testdb.Result{Dist: dist}
}

// rawDatabase returns the database file of a published archive, after the SQL statement change, if any.
func rawDatabase(t *testing.T, at time.Time, change string) []byte {
	t.Helper()
	file := filepath.Join(fixture.Database(t, at).Cache, "6", "vulnerability.db")
	if change != "" {
		db, err := sql.Open("sqlite", file)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := db.Exec(change); err != nil {
			t.Fatal(err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// TestBrokenBuildsAreRefused checks that a broken newer build is refused, that the last good one stays, and that no file of the broken
// one is left.
func TestBrokenBuildsAreRefused(t *testing.T) {
	const file = "vulnerability.db"
	good := rawDatabase(t, later, "")
	torn := slices.Clone(good)
	copy(torn[len(torn)/2:], make([]byte, len(torn)/4))
	for what, c := range map[string]struct {
		published *testdb.Result
		want      string // in the error
	}{
		"another checksum":              {list(t, later, "v6.1.4", "db.tar.zst", "sha256:"+strings.Repeat("0", 64), []byte("archive")), "checksum"},
		"an archive that is not there":  {list(t, later, "v6.1.4", "", "sha256:"+strings.Repeat("0", 64), nil), "this worker reads"},
		"no database in the archive":    {publish(t, later, map[string][]byte{"other.db": good, "../vulnerability.db": good}), "has no vulnerability.db"},
		"not a database":                {publish(t, later, map[string][]byte{file: []byte(strings.Repeat("nonsense", 1000))}), "not a database"},
		"half a database":               {publish(t, later, map[string][]byte{file: good[:len(good)/2]}), "malformed"},
		"a database with torn pages":    {publish(t, later, map[string][]byte{file: torn}), "database"},
		"another build than is listed":  {publish(t, later, map[string][]byte{file: rawDatabase(t, fixture.Built, "")}), "the listing has"},
		"a database of another schema":  {publish(t, later, map[string][]byte{file: rawDatabase(t, later, "UPDATE db_metadata SET model = 7")}), "v6 database"},
		"a database without advisories": {publish(t, later, map[string][]byte{file: rawDatabase(t, later, "PRAGMA foreign_keys=OFF; DELETE FROM vulnerability_handles")}), "no vulnerability"},
		"a listing of another schema":   {list(t, later, "v7.0.0", "db.tar.zst", "sha256:"+strings.Repeat("0", 64), nil), "this worker reads v6"},
		"a listing without a checksum":  {list(t, later, "v6.1.4", "db.tar.zst", "", nil), "no sha256 checksum"},
		"an unknown kind of archive":    {list(t, later, "v6.1.4", "db.zip", "sha256:"+strings.Repeat("0", 64), nil), "tar.zst"},
	} {
		t.Run(what, func(t *testing.T) {
			b := newBench(t)
			u := b.updater(t)
			u.Refresh(t.Context())
			b.publisher.Replace(c.published)
			status := u.Refresh(t.Context())
			if !strings.Contains(status.Error, c.want) || status.Installed == nil || !status.Installed.Built.Equal(fixture.Built) {
				t.Errorf("status %+v, want the last good build and an error with %q", status, c.want)
			}
			if !hasVulnerability(t, u.DB(), "glibc", "CVE-2023-4911") {
				t.Error("the last good build does not answer any more")
			}
			if diff := cmp.Diff([]time.Time{fixture.Built}, built(t, b.store(t))); diff != "" {
				t.Errorf("installed builds (-want +got):\n%s", diff)
			}
			entries, err := os.ReadDir(b.dir)
			if err != nil {
				t.Fatal(err)
			}
			if len(entries) != 2 { // the lock and the good version
				t.Errorf("%d entries in the store, want nothing left of the broken build", len(entries))
			}
		})
	}
}

// TestTruncatedDownload checks that a truncated archive is refused for its checksum.
func TestTruncatedDownload(t *testing.T) {
	b := newBench(t)
	next := fixture.Database(t, later)
	archives, err := filepath.Glob(filepath.Join(next.Dist, "v6", "*.tar.zst"))
	if err != nil || len(archives) != 1 {
		t.Fatalf("archives %q, %v", archives, err)
	}
	if err := os.Truncate(archives[0], 1000); err != nil {
		t.Fatal(err)
	}
	u := b.updater(t)
	u.Refresh(t.Context())
	b.publisher.Replace(next)
	status := u.Refresh(t.Context())
	if !strings.Contains(status.Error, "checksum") || status.Refused == nil || !status.Refused.Built.Equal(later) {
		t.Errorf("status %+v, want the build of %s refused for its checksum", status, later)
	}
}

// counting counts requests for archives.
type counting struct{ archives int }

func (c *counting) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.URL.Path, ".tar.zst") {
		c.archives++
	}
	return http.DefaultTransport.RoundTrip(r)
}

// TestRefusedBuildIsRetriedLater checks that a broken build is retried only after a while, unless another one is listed.
func TestRefusedBuildIsRetriedLater(t *testing.T) {
	b := newBench(t)
	var downloads counting
	var err error
	if b.source, err = database.NewSource(b.publisher.URL, &downloads); err != nil {
		t.Fatal(err)
	}
	b.publisher.Replace(publish(t, later, map[string][]byte{"vulnerability.db": []byte("nonsense")}))
	u := b.updater(t)
	for range 3 {
		if status := u.Refresh(t.Context()); status.Refused == nil || status.Error == "" {
			t.Errorf("status %+v, want a refused build and the reason", status)
		}
	}
	if downloads.archives != 1 {
		t.Errorf("the broken archive was downloaded %d times at once, want 1", downloads.archives)
	}
	b.clock.Advance(6 * time.Minute)
	u.Refresh(t.Context())
	if downloads.archives != 2 {
		t.Errorf("the broken archive was downloaded %d times after a while, want 2", downloads.archives)
	}
	b.publisher.Replace(fixture.Database(t, later.Add(time.Hour)))
	if status := u.Refresh(t.Context()); status.Error != "" || status.Refused != nil || status.Installed == nil {
		t.Errorf("status %+v, want the next build installed at once", status)
	}
}

func TestUnreachableListing(t *testing.T) {
	b := newBench(t)
	u := b.updater(t)
	u.Refresh(t.Context())
	b.publisher.Replace(&testdb.Result{Dist: t.TempDir()})
	status := u.Refresh(t.Context())
	if !strings.Contains(status.Error, "404") || status.Installed == nil || status.Refused != nil {
		t.Errorf("status %+v, want the installed build and that the listing cannot be read", status)
	}
}

// TestHalfInstalledVersionsAreRemoved checks that files of a crash are removed. Only a complete version has a marker, and its database
// file has the size in the marker.
func TestHalfInstalledVersionsAreRemoved(t *testing.T) {
	b := newBench(t)
	u := b.updater(t)
	u.Refresh(t.Context())
	half := filepath.Join(b.dir, "20261231T000000Z-0123456789ab", "6")
	if err := os.MkdirAll(half, 0o755); err != nil {
		t.Fatal(err)
	}
	foreign := filepath.Join(b.dir, "lost+found")
	if err := os.Mkdir(foreign, 0o755); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]time.Time{fixture.Built}, built(t, b.store(t))); diff != "" {
		t.Errorf("installed (-want +got):\n%s", diff)
	}
	if _, err := os.Stat(half); !errors.Is(err, os.ErrNotExist) {
		t.Error("the half-installed version is still there")
	}
	if _, err := os.Stat(foreign); err != nil {
		t.Error("a directory that is not the store's was removed")
	}
	files, err := filepath.Glob(filepath.Join(b.dir, "*", "6", "vulnerability.db"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%q, %v", files, err)
	}
	if err := os.Truncate(files[0], 1000); err != nil {
		t.Fatal(err)
	}
	if times := built(t, b.store(t)); len(times) > 0 {
		t.Errorf("a truncated database still counts as installed: %v", times)
	}
}

func TestPruneKeepsTheNewestAndTheOpen(t *testing.T) {
	b := newBench(t)
	old := b.updater(t)
	old.Refresh(t.Context())
	u := b.updater(t)
	var times []time.Time
	for hours := range 4 {
		at := later.Add(time.Duration(hours) * time.Hour)
		times = append(times, at)
		b.publisher.Replace(fixture.Database(t, at))
		u.Refresh(t.Context())
	}
	if diff := cmp.Diff([]time.Time{times[3], times[2], fixture.Built}, built(t, b.store(t))); diff != "" {
		t.Errorf("installed: want the newest two and the one that another worker has open (-want +got):\n%s", diff)
	}
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	if err := b.store(t).Prune(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]time.Time{times[3], times[2]}, built(t, b.store(t))); diff != "" {
		t.Errorf("installed after it was closed (-want +got):\n%s", diff)
	}
}

// TestDamagedDatabaseFallsBack checks that a database that is damaged after its installation is detected, and replaced by the
// previous one.
func TestDamagedDatabaseFallsBack(t *testing.T) {
	b := newBench(t)
	u := b.updater(t)
	u.Refresh(t.Context())
	b.publisher.Replace(fixture.Database(t, later))
	u.Refresh(t.Context())
	if u.Recheck(t.Context()) {
		t.Fatal("a sound database is called damaged")
	}
	files, err := filepath.Glob(filepath.Join(b.dir, later.Format("20060102")+"*", "6", "vulnerability.db"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%q, %v", files, err)
	}
	file, err := os.OpenFile(files[0], os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteAt(make([]byte, 64<<10), 8<<10); err != nil {
		t.Fatal(err)
	}
	file.Close()
	if !u.Recheck(t.Context()) {
		t.Error("the damage was not found")
	}
	if u.DB() == nil || !u.DB().Built.Equal(fixture.Built) || !hasVulnerability(t, u.DB(), "glibc", "CVE-2023-4911") {
		t.Error("want the build before to be open")
	}
	if status := u.Refresh(t.Context()); status.Error != "" || !status.Installed.Built.Equal(later) {
		t.Errorf("status %+v, want the newest build installed again", status)
	}
}
