package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/store/storetest/proxy"
	"github.com/scanner-operator/scanner-operator/pkg/store/storetest/server"
)

// TestServerFaults: an error of a driver has the fault that its code stands for. Others are no faults.
func TestServerFaults(t *testing.T) {
	postgres := func(code string) error { return fmt.Errorf("migrate: %w", &pgconn.PgError{Code: code}) }
	number := func(n uint16) error { return fmt.Errorf("migrate: %w", &mysql.MySQLError{Number: n}) }
	for name, tt := range map[string]struct {
		err      error
		want     error
		conflict bool
	}{
		"connection failure":     {err: postgres("08006"), want: ErrUnavailable},
		"shutdown":               {err: postgres("57P01"), want: ErrUnavailable},
		"crash":                  {err: postgres("57P02"), want: ErrUnavailable},
		"start":                  {err: postgres("57P03"), want: ErrUnavailable},
		"out of memory":          {err: postgres("53200"), want: ErrUnavailable},
		"disk full":              {err: postgres("53100"), want: ErrServerFull},
		"too many connections":   {err: postgres("53300"), want: ErrTooManyConnections},
		"read-only":              {err: postgres("25006"), want: ErrServerReadOnly},
		"not the primary":        {err: fmt.Errorf("%w: %w", ErrUnavailable, pgconn.ErrReadOnlyConnection), want: ErrServerReadOnly},
		"password":               {err: postgres("28P01"), want: ErrServerPermission},
		"user":                   {err: postgres("28000"), want: ErrServerPermission},
		"privilege":              {err: postgres("42501"), want: ErrServerPermission},
		"no database":            {err: postgres("3D000"), want: ErrServerPermission},
		"serialization failure":  {err: postgres("40001"), conflict: true},
		"deadlock":               {err: postgres("40P01"), conflict: true},
		"cancelled by the user":  {err: postgres("57014")},
		"unique violation":       {err: postgres("23505")},
		"no table":               {err: postgres("42P01")},
		"a short code":           {err: postgres("0")},
		"MySQL: gone":            {err: number(2006), want: ErrUnavailable},
		"MySQL: shutdown":        {err: number(1053), want: ErrUnavailable},
		"MySQL: disk full":       {err: number(1021), want: ErrServerFull},
		"MySQL: table full":      {err: number(1114), want: ErrServerFull},
		"MySQL: connections":     {err: number(1040), want: ErrTooManyConnections},
		"MySQL: read-only":       {err: number(1290), want: ErrServerReadOnly},
		"MySQL: read-only mode":  {err: number(1836), want: ErrServerReadOnly},
		"MySQL: password":        {err: number(1045), want: ErrServerPermission},
		"MySQL: privilege":       {err: number(1142), want: ErrServerPermission},
		"MySQL: deadlock":        {err: number(1213), conflict: true},
		"MySQL: lock wait":       {err: number(1205), conflict: true},
		"MySQL: duplicate key":   {err: number(1062)},
		"MySQL: lost connection": {err: mysql.ErrInvalidConn, want: ErrUnavailable},
		"bad connection":         {err: driver.ErrBadConn, want: ErrUnavailable},
		"refused":                {err: &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, want: ErrUnavailable},
		"reset":                  {err: &net.OpError{Op: "read", Err: syscall.ECONNRESET}, want: ErrUnavailable},
		"unknown host":           {err: &net.DNSError{Err: "no such host"}, want: ErrUnavailable},
		"cut":                    {err: fmt.Errorf("receive: %w", io.ErrUnexpectedEOF), want: ErrUnavailable},
		"no row":                 {err: sql.ErrNoRows},
		"cancelled":              {err: context.Canceled},
		"of the store":           {err: ErrLeaseEnded},
	} {
		if got := serverFault(tt.err); !errors.Is(got, tt.want) {
			t.Errorf("%s: the fault is %v, want %v", name, got, tt.want)
		}
		if got := isServerConflict(tt.err); got != tt.conflict {
			t.Errorf("%s: it is a conflict: %v, want %v", name, got, tt.conflict)
		}
	}
	for _, fault := range serverFaults {
		if !IsServerFault(fmt.Errorf("open: %w", fault)) || !errors.Is(StorageFault(fault), fault) {
			t.Errorf("%v: it is not a fault of the server that the operator reports", fault)
		}
	}
	if IsServerFault(ErrCorrupt) || IsServerFault(nil) {
		t.Error("a damaged file is a fault of a server")
	}
}

// serverFixture is a store of a user with a password, who reaches the server through a proxy.
type serverFixture struct {
	fixture
	*application
	postgres *server.Server
	proxy    *proxy.Proxy
}

func newServerFixture(t *testing.T, options server.Options, changes ...func(*Server)) serverFixture {
	t.Helper()
	postgres := server.StartPostgreSQL(t, options)
	between := proxy.Start(t, postgres.Port)
	a := newApplication(t, postgres, "?sslmode=disable")
	a.port = between.Port
	a.write(t)
	with := a.server()
	for _, change := range changes {
		change(&with)
	}
	c := newClock()
	s := got[*Store](t)(OpenPostgreSQL(t.Context(), with, c.Now))
	t.Cleanup(func() { must(t, s.Close()) })
	return serverFixture{fixture{Store: s, clock: c}, a, postgres, between}
}

// requireFault fails the test unless an error has a fault, the store reports it, and nothing has the password.
func (f serverFixture) requireFault(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(StorageFault(err), want) {
		t.Errorf("%s: %v, want the fault %v", what, err, want)
	}
	if !errors.Is(StorageFault(f.Health()), want) {
		t.Errorf("%s: the health is %v, want %v", what, f.Health(), want)
	}
	if metric(t, f.Store, "scanner_operator_store_healthy") != 0 {
		t.Errorf("%s: the metric says that the store is healthy", what)
	}
	for _, text := range []error{err, f.Health()} {
		if text != nil && strings.Contains(text.Error(), canary) {
			t.Errorf("%s: the error has the password: %v", what, text)
		}
	}
}

// metric returns the value of a gauge without labels.
func metric(t *testing.T, s *Store, name string) float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(s)
	for _, family := range got[[]*dto.MetricFamily](t)(registry.Gather()) {
		if family.GetName() == name {
			return family.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

// requireWorks fails the test unless the next check finds no fault, and the store then reads and writes.
func (f serverFixture) requireWorks(t *testing.T, saved ...string) {
	t.Helper()
	must(t, f.CheckHealth(t.Context()))
	for _, name := range saved {
		if found := got[[]Scope](t)(f.CatalogScopes(t.Context(), grype, key(name), "")); len(found) != 1 {
			t.Errorf("the catalog of %s is in %d scopes, want 1", name, len(found))
		}
	}
	must(t, f.save(t, "later"))
}

func (f serverFixture) save(t *testing.T, name string) error {
	t.Helper()
	return f.SaveCatalog(t.Context(), catalogOf(name, f.clock.Now()), map[Artifact]io.Reader{ArtifactSBOM: strings.NewReader("content of " + name)})
}

// TestServerAway: while the server is stopped, everything fails with what to do, and nothing else. It is all there when the server is back.
func TestServerAway(t *testing.T) {
	for name, stop := range map[string]func(*server.Server, testing.TB){"stopped": (*server.Server).Stop, "crashed": (*server.Server).Kill} {
		t.Run(name, func(t *testing.T) {
			f := newServerFixture(t, server.Options{Settings: map[string]string{"synchronous_commit": "on"}})
			must(t, f.save(t, "before"))
			must(t, f.CheckHealth(t.Context()))
			stop(f.postgres, t)
			for range 20 { // one check every 30 seconds
				f.clock.pass(30 * time.Second)
				f.requireFault(t, "a check", f.CheckHealth(t.Context()), ErrUnavailable)
			}
			f.requireFault(t, "a write", f.save(t, "meanwhile"), ErrUnavailable)
			_, err := f.CatalogScopes(t.Context(), grype, key("before"), "")
			f.requireFault(t, "a read", err, ErrUnavailable)
			_, err = OpenPostgreSQL(t.Context(), f.server(), f.clock.Now)
			f.requireFault(t, "a start", err, ErrUnavailable)
			f.postgres.Start(t)
			f.requireWorks(t, "before")
			if scopes := got[[]Scope](t)(f.CatalogScopes(t.Context(), grype, key("meanwhile"), "")); len(scopes) != 0 {
				t.Error("what failed was stored")
			}
		})
	}
}

// TestServerRestarts: after a restart between two calls, the next calls use new connections.
func TestServerRestarts(t *testing.T) {
	f := newServerFixture(t, server.Options{})
	must(t, f.save(t, "before"))
	f.postgres.Stop(t)
	f.postgres.Start(t)
	f.requireWorks(t, "before")
	must(t, f.Health())
}

// TestServerReadOnly: a server that becomes read-only, as the former primary after a failover, is a fault. The store closes its connections
// to it, so that it finds the present primary without a restart.
func TestServerReadOnly(t *testing.T) {
	f := newServerFixture(t, server.Options{})
	must(t, f.save(t, "before"))
	standby := startStandby(t, f.postgres)
	f.postgres.Exec(t, `ALTER SYSTEM SET default_transaction_read_only = on`, `SELECT pg_reload_conf()`)
	waitUntil(t, "the setting has come to the session", func() bool {
		var readOnly string
		must(t, f.writer.QueryRowContext(t.Context(), `SHOW default_transaction_read_only`).Scan(&readOnly))
		return readOnly == "on"
	})
	f.requireFault(t, "a write on a connection that exists", f.save(t, "meanwhile"), ErrServerReadOnly)
	if open := f.writer.Stats().OpenConnections + f.reader.Stats().OpenConnections; open != 0 {
		t.Errorf("%d connections to the former primary are open, want 0", open)
	}
	f.requireFault(t, "a write on a new connection", f.save(t, "meanwhile"), ErrServerReadOnly)
	f.requireFault(t, "a check", f.CheckHealth(t.Context()), ErrServerReadOnly)
	_, err := OpenPostgreSQL(t.Context(), f.server(), f.clock.Now)
	f.requireFault(t, "a start", err, ErrServerReadOnly)

	f.proxy.SetTarget(standby.port)
	f.requireFault(t, "a write to a standby", f.save(t, "meanwhile"), ErrServerReadOnly)
	standby.promote(t)
	requireRecovery(t, f.Store)
	f.requireWorks(t, "before")
}

// TestServerFull: a full disk is a fault, stored findings can be read, and work goes on when there is space.
func TestServerFull(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root may mount")
	}
	// The mount namespace of this thread has the mount, and so has the server that it starts. The thread ends with the test.
	runtime.LockOSThread()
	if err := syscall.Unshare(syscall.CLONE_NEWNS); err != nil {
		t.Skipf("this machine cannot mount: %v", err)
	}
	dir := got[string](t)(os.MkdirTemp("", "store-test-full-"))
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	if err := mountOrSkip("tmpfs", dir, "tmpfs", "size=64m"); err != nil {
		t.Skipf("this machine cannot mount: %v", err)
	}
	t.Cleanup(func() { must(t, syscall.Unmount(dir, syscall.MNT_DETACH)) })
	postgres := server.StartPostgreSQL(t, server.Options{})
	owner := got[os.FileInfo](t)(os.Stat(postgres.Dir)).Sys().(*syscall.Stat_t)
	space := filepath.Join(dir, "space")
	must(t, os.Mkdir(space, 0o700))
	must(t, os.Chown(space, int(owner.Uid), int(owner.Gid)))
	must(t, os.Chmod(dir, 0o755))
	postgres.Exec(t, `CREATE TABLESPACE small LOCATION '`+space+`'`)
	a := newApplication(t, postgres, "?sslmode=disable")
	postgres.Exec(t, `ALTER DATABASE `+a.database+` SET TABLESPACE small`)
	c := newClock()
	s := a.open(t)
	f := serverFixture{fixture{Store: s, clock: c}, a, postgres, nil}
	must(t, f.save(t, "before"))
	must(t, fill(dir))
	var err error
	for i := 0; err == nil && i < 100; i++ {
		err = saveReport(s, fmt.Sprint("large ", i), 5_000)
	}
	f.requireFault(t, "a report", err, ErrServerFull)
	if scopes := got[[]Scope](t)(s.CatalogScopes(t.Context(), grype, key("before"), "")); len(scopes) != 1 {
		t.Errorf("the catalog from before is in %d scopes, want 1", len(scopes))
	}
	must(t, os.Remove(filepath.Join(dir, "filler")))
	requireRecovery(t, s)
	must(t, saveReport(s, "large", 5_000))
}

// TestTooManyConnections: a server without a free connection is a fault, and work goes on when one is free.
func TestTooManyConnections(t *testing.T) {
	f := newServerFixture(t, server.Options{Settings: map[string]string{"max_connections": "10"}})
	must(t, f.save(t, "before"))
	disconnect(t, f.postgres)
	others := got[*sql.DB](t)(sql.Open("pgx", got[string](t)(f.server().DSN())))
	defer others.Close()
	var held []*sql.Conn
	for {
		conn, err := others.Conn(t.Context())
		if err != nil {
			break
		}
		held = append(held, conn)
	}
	_ = f.save(t, "meanwhile") // on a connection that has ended
	f.requireFault(t, "a write", f.save(t, "meanwhile"), ErrTooManyConnections)
	_, err := OpenPostgreSQL(t.Context(), f.server(), f.clock.Now)
	f.requireFault(t, "a start", err, ErrTooManyConnections)
	f.requireFault(t, "a check", f.CheckHealth(t.Context()), ErrTooManyConnections)
	for _, conn := range held {
		must(t, conn.Close())
	}
	must(t, others.Close())
	requireRecovery(t, f.Store)
	f.requireWorks(t, "before")
}

// TestServerPermission: a user who may not change the tables, or create them, is a fault that ends when the user may.
func TestServerPermission(t *testing.T) {
	f := newServerFixture(t, server.Options{})
	must(t, f.save(t, "before"))
	super := got[*sql.DB](t)(sql.Open("pgx", f.postgres.DSN(t, f.database)))
	defer super.Close()
	got[sql.Result](t)(super.ExecContext(t.Context(), `REVOKE UPDATE ON store_revision FROM app`))
	f.requireFault(t, "a write", f.save(t, "meanwhile"), ErrServerPermission)
	f.requireFault(t, "a check", f.CheckHealth(t.Context()), ErrServerPermission)
	got[sql.Result](t)(super.ExecContext(t.Context(), `GRANT UPDATE ON store_revision TO app`))
	requireRecovery(t, f.Store)
	f.requireWorks(t, "before")

	f.postgres.Exec(t, `CREATE DATABASE foreign_one`)
	f.application.database = "foreign_one"
	f.write(t)
	_, err := OpenPostgreSQL(t.Context(), f.server(), f.clock.Now)
	if !errors.Is(StorageFault(err), ErrServerPermission) || strings.Contains(err.Error(), canary) {
		t.Errorf("a database of another user: %v, want ErrServerPermission", err)
	}
}

// TestPostgreSQLChecks: a server that is too old and a database with another encoding are refused.
func TestPostgreSQLChecks(t *testing.T) {
	for name, tt := range map[string]struct {
		version  int
		encoding string
		want     error
	}{
		"the oldest":      {14_00_00, "UTF8", nil},
		"older":           {13_00_22, "UTF8", ErrServerTooOld},
		"another":         {15_00_08, "LATIN1", ErrWrongCollation},
		"without one":     {15_00_08, "SQL_ASCII", ErrWrongCollation},
		"old and another": {9_06_24, "LATIN1", ErrServerTooOld},
	} {
		if err := checkPostgreSQL(tt.version, tt.encoding); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
	}
	postgres := server.PostgreSQL(t)
	postgres.Exec(t, `CREATE DATABASE latin ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0`)
	t.Cleanup(func() { postgres.Exec(t, `DROP DATABASE latin WITH (FORCE)`) })
	_, err := OpenPostgreSQL(t.Context(), serverOf(postgres.DSN(t, "latin")), newClock().Now)
	if !errors.Is(StorageFault(err), ErrWrongCollation) || !strings.Contains(err.Error(), "LATIN1") {
		t.Errorf("a database in LATIN1: %v, want ErrWrongCollation", err)
	}
}

// TestCutConnections: a transaction whose connection is cut before the commit is run again. A cut at the commit is an error, since the store
// cannot know whether it has happened. Nothing is half done.
func TestCutConnections(t *testing.T) {
	f := newServerFixture(t, server.Options{})
	for name, text := range map[string]string{
		"at the beginning": "BEGIN; UPDATE store_revision", "in the first statement": "SELECT id FROM manifests", "in the last statement": "UPDATE artifacts SET size",
	} {
		rule, happened := proxy.OnText(text, proxy.Cut)
		f.proxy.SetRule(rule)
		before := got[int64](t)(f.Revision(t.Context()))
		must(t, f.save(t, name))
		requireHappened(t, happened)
		must(t, f.Health())
		if after := got[int64](t)(f.Revision(t.Context())); after != before+1 {
			t.Errorf("cut %s: %d transactions have happened, want 1", name, after-before)
		}
		reader, _, err := f.OpenArtifact(t.Context(), digest(name), Cluster, ArtifactSBOM)
		must(t, err)
		if text := got[[]byte](t)(io.ReadAll(reader)); string(text) != "content of "+name {
			t.Errorf("cut %s: the artifact is %q", name, text)
		}
	}
	rule, happened := proxy.OnText("commit\x00", proxy.Cut)
	f.proxy.SetRule(rule)
	f.requireFault(t, "cut at the commit", f.save(t, "app"), ErrUnavailable)
	requireHappened(t, happened)
	if scopes := got[[]Scope](t)(f.CatalogScopes(t.Context(), grype, key("app"), "")); len(scopes) != 0 {
		t.Error("cut at the commit: something was stored")
	}
	f.requireWorks(t)
}

// requireHappened fails the test if a rule of a proxy has not met its text by the end of a call.
func requireHappened(t *testing.T, happened <-chan struct{}) {
	t.Helper()
	select {
	case <-happened:
	default:
		t.Fatal("the proxy has not seen the text of its rule")
	}
}

// TestLostAnswerToCommit: the transaction has happened although the call failed. The caller does the same again, and nothing is there twice.
func TestLostAnswerToCommit(t *testing.T) {
	f := newServerFixture(t, server.Options{})
	lose := func(what string, call func() error) {
		t.Helper()
		before := got[int64](t)(f.Revision(t.Context()))
		rule, happened := proxy.OnText("commit\x00", proxy.CutAnswer)
		f.proxy.SetRule(rule)
		f.requireFault(t, what, call(), ErrUnavailable)
		requireHappened(t, happened)
		if after := got[int64](t)(f.Revision(t.Context())); after != before+1 {
			t.Errorf("%s: %d transactions have happened, want 1", what, after-before)
		}
		must(t, call())
		must(t, f.CheckHealth(t.Context()))
	}
	lose("a catalog", func() error { return f.save(t, "app") })
	lose("a report", func() error {
		_, err := f.SaveReport(t.Context(), report("app", vulnerable("CVE-2026-0001", "openssl")), "")
		return err
	})
	lose("an announcement", func() error {
		return f.RecordAnnouncement(t.Context(), "scanner", "slack", Announcement{
			MessageID: "message", Repositories: []string{"app"}, LogEntry: &Message{Title: "1 new finding"},
			Findings: announcedFindings(AnnouncementKey{"app", "CVE-2026-0001", "openssl"}),
		})
	})
	var count int
	for _, table := range []string{"manifests", "catalogues", "artifacts", "reports", "findings", "vulnerabilities", "receivers", "announcements", "messages"} {
		must(t, f.reader.QueryRowContext(t.Context(), `SELECT count(*) FROM `+table).Scan(&count))
		if count != 1 {
			t.Errorf("%d rows in %s, want 1", count, table)
		}
	}
}

// TestServerHangs: a server that accepts everything and answers nothing is unavailable after a bounded time, in a call, at a check, and when
// the store is opened.
func TestServerHangs(t *testing.T) {
	f := newServerFixture(t, server.Options{}, func(s *Server) { s.silence = 500 * time.Millisecond })
	rule, _ := proxy.OnText("UPDATE store_revision", proxy.Hang)
	f.proxy.SetRule(rule)
	f.requireFault(t, "a statement that is not answered", f.save(t, "app"), ErrUnavailable)
	must(t, f.CheckHealth(t.Context()))
	f.proxy.SetRule(func([]byte) proxy.Verdict { return proxy.Hang })
	f.requireFault(t, "a check", f.CheckHealth(t.Context()), ErrUnavailable)
	f.proxy.SetRule(nil)
	f.requireWorks(t)

	listener := got[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	defer listener.Close()
	silent := fmt.Sprintf("postgresql://app:%s@%s/findings?sslmode=disable&connect_timeout=1", canary, listener.Addr())
	_, err := OpenPostgreSQL(t.Context(), serverOf(silent), f.clock.Now)
	if !errors.Is(err, ErrUnavailable) || strings.Contains(err.Error(), canary) {
		t.Errorf("opening on a server that does not answer: %v, want ErrUnavailable", err)
	}
}

// TestLossTimeout: the kernel ends connections to a machine that does not acknowledge what it gets.
func TestLossTimeout(t *testing.T) {
	listener := got[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	defer listener.Close()
	conn := got[net.Conn](t)(Server{}.watched(new(net.Dialer).DialContext)(t.Context(), "tcp", listener.Addr().String()))
	defer conn.Close()
	raw := got[syscall.RawConn](t)(conn.(syscall.Conn).SyscallConn())
	var set int
	must(t, raw.Control(func(fd uintptr) { set, _ = syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, 18) }))
	if set != int(lossTimeout.Milliseconds()) {
		t.Errorf("TCP_USER_TIMEOUT is %d ms, want %s", set, lossTimeout)
	}
}

// TestConflicts: a transaction that the server rolls back because of another one is run again as a whole, a bounded number of times.
func TestConflicts(t *testing.T) {
	postgres := server.PostgreSQL(t)
	for name, tt := range map[string]struct {
		code   string
		times  int // that the transaction is rolled back
		failed bool
	}{
		"serialization failure": {"40001", 1, false},
		"deadlock":              {"40P01", maxConflicts - 1, false},
		"too often":             {"40001", maxConflicts, true},
		"another error":         {"23514", 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := openIn(t, inPostgreSQL(postgres.NewDatabase(t)))
			// Sequences are not rolled back.
			got[sql.Result](t)(f.writer.ExecContext(t.Context(), fmt.Sprintf(`CREATE SEQUENCE runs; CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$
				BEGIN IF nextval('runs') <= %d THEN RAISE EXCEPTION 'for a test' USING ERRCODE = '%s'; END IF; RETURN NEW; END $$;
				CREATE TRIGGER fail AFTER UPDATE ON artifacts FOR EACH ROW EXECUTE FUNCTION fail()`, tt.times, tt.code)))
			before := got[int64](t)(f.Revision(t.Context()))
			err := f.SaveCatalog(t.Context(), catalogOf("app", f.clock.Now()), map[Artifact]io.Reader{ArtifactSBOM: strings.NewReader("content")})
			after := got[int64](t)(f.Revision(t.Context()))
			must(t, f.Health())
			if tt.failed {
				if err == nil || StorageFault(err) != nil || after != before {
					t.Errorf("the error is %v after %d transactions, want an error without a fault, and none", err, after-before)
				}
				return
			}
			must(t, err)
			if after != before+1 {
				t.Errorf("%d transactions have happened, want 1", after-before)
			}
			reader, _, err := f.OpenArtifact(t.Context(), digest("app"), Cluster, ArtifactSBOM)
			must(t, err)
			if text := got[[]byte](t)(io.ReadAll(reader)); string(text) != "content" {
				t.Errorf("the artifact is %q after the transaction ran again", text)
			}
		})
	}
}

// TestDeadlock: the server ends a real deadlock with another session by rolling back the store's transaction, which then runs again.
func TestDeadlock(t *testing.T) {
	f := openIn(t, inPostgreSQL(server.PostgreSQL(t).NewDatabase(t)))
	must(t, f.SaveCatalog(t.Context(), catalogOf("app", f.clock.Now()), nil))
	other := got[*sql.Conn](t)(f.reader.Conn(t.Context()))
	defer other.Close()
	execute := func(statement string) { t.Helper(); got[sql.Result](t)(other.ExecContext(t.Context(), statement)) }
	execute(`SET deadlock_timeout = '1h'`) // the store's session finds the deadlock
	execute(`BEGIN`)
	execute(`UPDATE catalogues SET packages = 1`)
	failed := make(chan error)
	go func() { failed <- f.SaveCatalog(t.Context(), catalogOf("app", f.clock.Now()), nil) }()
	waitUntil(t, "the store waits for the other session", func() bool {
		var waiting bool
		must(t, f.reader.QueryRowContext(t.Context(), `SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`).Scan(&waiting))
		return waiting
	})
	execute(`UPDATE store_revision SET revision = revision`)
	execute(`COMMIT`)
	must(t, <-failed)
	must(t, f.Health())
}

// TestManagersMigrateAtOnce: several processes that open an empty database get the same store.
func TestManagersMigrateAtOnce(t *testing.T) {
	dsn := server.PostgreSQL(t).NewDatabase(t)
	type result struct {
		id  string
		err error
	}
	opened := make(chan result)
	for range 4 {
		go func() {
			s, err := OpenPostgreSQL(t.Context(), serverOf(dsn), newClock().Now)
			if err != nil {
				opened <- result{err: err}
				return
			}
			opened <- result{s.ID(), errors.Join(s.CheckHealth(t.Context()), s.Close())}
		}()
	}
	ids := make(map[string]bool)
	for range 4 {
		one := <-opened
		must(t, one.err)
		ids[one.id] = true
	}
	if len(ids) != 1 {
		t.Errorf("the store has the IDs %v, want one", ids)
	}
}

// TestManagerKilledWhileMigrating: the lock of a process that was killed expires, and the next one migrates. Until then the store is locked.
func TestManagerKilledWhileMigrating(t *testing.T) {
	dsn := server.PostgreSQL(t).NewDatabase(t)
	db := got[*sql.DB](t)(sql.Open("pgx", dsn))
	defer db.Close()
	got[sql.Result](t)(db.ExecContext(t.Context(), `
		CREATE TABLE goose_lock (lock_id bigint PRIMARY KEY, locked boolean NOT NULL DEFAULT false, locked_at timestamptz, locked_by text,
			lease_expires_at timestamptz, updated_at timestamptz);
		INSERT INTO goose_lock VALUES (4097083626, true, now(), 'a killed process', now() + interval '1 hour', now())`))
	_, err := OpenPostgreSQL(t.Context(), serverOf(dsn), newClock().Now)
	if !errors.Is(err, ErrLocked) {
		t.Errorf("while the lock is held: %v, want ErrLocked", err)
	}
	got[sql.Result](t)(db.ExecContext(t.Context(), `UPDATE goose_lock SET lease_expires_at = now() + interval '2 seconds'`))
	s := got[*Store](t)(OpenPostgreSQL(t.Context(), serverOf(dsn), newClock().Now))
	must(t, s.CheckHealth(t.Context()))
	must(t, s.Close())
}

// TestTurkishDatabase: in the locale of a database in which an i is no small I, and letters are not in the order of their bytes, everything is
// found and ordered as in SQLite.
func TestTurkishDatabase(t *testing.T) {
	postgres := server.PostgreSQL(t)
	var provider bool
	admin := got[*sql.DB](t)(sql.Open("pgx", postgres.DSN(t, "postgres")))
	defer admin.Close()
	must(t, admin.QueryRowContext(t.Context(), `SELECT EXISTS (SELECT 1 FROM pg_collation WHERE collname = 'tr-TR-x-icu') AND
		current_setting('server_version_num')::int >= 150000`).Scan(&provider))
	if !provider {
		t.Skip("the server has no ICU locales for databases (PostgreSQL 15 or newer)")
	}
	postgres.Exec(t, `CREATE DATABASE turkish ENCODING 'UTF8' LOCALE_PROVIDER icu ICU_LOCALE 'tr-TR' LOCALE 'C.UTF-8' TEMPLATE template0`)
	t.Cleanup(func() { postgres.Exec(t, `DROP DATABASE turkish WITH (FORCE)`) })
	turkish := inServer(postgres.DSN(t, "turkish"), OpenPostgreSQL, OpenPostgreSQLReadOnly)
	f := openIn(t, turkish)
	var smaller bool
	must(t, f.reader.QueryRowContext(t.Context(), `SELECT lower('I') <> 'i' AND 'a' < 'B'`).Scan(&smaller))
	if !smaller {
		t.Fatal("the database is not in Turkish")
	}
	names := []string{"Zlib", "ilk", "I", "i", "İ", "ı", "B", "a", "CVE-IX", "cve-ix "}
	results := make(map[string][]string)
	for name, f := range map[string]fixture{"SQLite": openIn(t, newSQLiteDatabase(t)), "Turkish": f} {
		var findings []finding.Finding
		for _, id := range names {
			findings = append(findings, finding.Finding{
				ID: id, Severity: finding.High, Package: finding.Package{Name: "pkg " + id, Version: "1", Type: "deb"}, Aliases: []string{"ALIAS-I " + id},
			})
		}
		must(t, f.SaveCatalog(t.Context(), catalogOf("app", f.clock.Now()), nil))
		f.report(t, "app", findings...)
		var workloads []Workload
		for _, repository := range names {
			workloads = append(workloads, workload("name of "+repository, repository))
		}
		f.use(t, "scanner", "app", workloads...)
		add := func(what string, value any) {
			results[name] = append(results[name], fmt.Sprintf("%s: %+v", what, value))
		}
		for _, id := range append(slices.Clone(names), "alias-i i", "ALIAS-I I", "alias-ı i") {
			runs := got[RunsPage](t)(f.RunsPage(t.Context(), RunsQuery{ID: id, All: true}, RunCursor{}, 100))
			add("who runs "+id, runs.Total)
			for _, run := range runs.Runs {
				add("run", run.Name+" "+run.Reference)
			}
			page := got[FindingPage](t)(f.FindingsPage(t.Context(), subject("app"), FindingFilter{Text: id}, FindingCursor{}, 100))
			for _, one := range page.Findings {
				add("with the text "+id, one.ID)
			}
		}
		must(t, f.RecordAnnouncement(t.Context(), "scanner", "slack", Announcement{Repositories: names, Findings: func() (all []AnnouncedFinding) {
			for _, repository := range names {
				all = append(all, announcedFindings(AnnouncementKey{repository, "I", "pkg I"})...)
			}
			return all
		}()}))
		add("known", got[[]string](t)(f.KnownRepositories(t.Context(), "scanner", "slack")))
		add("recorded", got[[]string](t)(f.RecordedRepositories(t.Context(), "scanner", "slack")))
		changes, total, err := f.PendingChanges(t.Context(), "scanner", "slack", ChangeFilter{MinSeverity: finding.Low, Engine: grype}, 1000)
		must(t, err)
		add("not announced", total)
		for _, change := range changes {
			add("change", fmt.Sprint(fmt.Sprint(change.Repository, " ", change.Finding.ID)))
		}
	}
	if len(results["SQLite"]) < 100 {
		t.Errorf("only %d results are compared", len(results["SQLite"]))
	}
	equal(t, "what is found in Turkish", results["Turkish"], results["SQLite"])
}
