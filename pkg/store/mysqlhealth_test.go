package store

import (
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/store/storetest/proxy"
	"github.com/scanner-operator/scanner-operator/pkg/store/storetest/server"
)

// newMariaDBFixture opens the store of a user with a password, who reaches the server through a proxy.
func newMariaDBFixture(t *testing.T, options server.Options, changes ...func(*Server)) serverFixture {
	t.Helper()
	maria := server.StartMariaDB(t, options)
	between := proxy.Start(t, maria.Port)
	maria.Exec(t, `CREATE DATABASE findings CHARACTER SET utf8mb4`, `CREATE USER 'app'@'127.0.0.1' IDENTIFIED BY '`+canary+`'`,
		`GRANT ALL ON findings.* TO 'app'@'127.0.0.1'`)
	dsn := fmt.Sprintf("mysql://app:%s@127.0.0.1:%d/findings?tls=false", canary, between.Port)
	with := serverOf(dsn)
	with.MaxConnections = 3
	for _, change := range changes {
		change(&with)
	}
	c := newClock()
	s := got[*Store](t)(OpenMySQL(t.Context(), with, c.Now))
	t.Cleanup(func() { must(t, s.Close()) })
	return serverFixture{fixture{Store: s, clock: c}, &application{file: filepath.Join(t.TempDir(), "dsn"), options: dsn}, maria, between}
}

func (f serverFixture) reopen(t *testing.T) error {
	t.Helper()
	s, err := OpenMySQL(t.Context(), serverOf(f.options), f.clock.Now)
	if err == nil {
		must(t, s.Close())
	}
	return err
}

// TestMariaDBFaults: the same faults as with PostgreSQL, one after the other on one server. Each ends by itself.
func TestMariaDBFaults(t *testing.T) {
	f := newMariaDBFixture(t, server.Options{Settings: map[string]string{"max-connections": "10"}})
	must(t, f.save(t, "before"))

	for _, end := range []func(*server.Server, testing.TB){(*server.Server).Stop, (*server.Server).Kill} {
		end(f.postgres, t)
		f.requireFault(t, "a write to a stopped server", f.save(t, "meanwhile"), ErrUnavailable)
		f.requireFault(t, "a check of a stopped server", f.CheckHealth(t.Context()), ErrUnavailable)
		f.requireFault(t, "a start without a server", f.reopen(t), ErrUnavailable)
		f.postgres.Start(t)
		requireRecovery(t, f.Store)
		f.requireWorks(t)
	}

	f.postgres.Exec(t, `SET GLOBAL read_only = 1`)
	f.requireFault(t, "a write to a standby", f.save(t, "meanwhile"), ErrServerReadOnly)
	if open := f.writer.Stats().OpenConnections; open != 0 {
		t.Errorf("%d connections for writing to the standby are open, want 0", open)
	}
	f.postgres.Exec(t, `SET GLOBAL read_only = 0`)
	requireRecovery(t, f.Store)
	f.requireWorks(t)

	f.postgres.Exec(t, `REVOKE UPDATE ON findings.* FROM 'app'@'127.0.0.1'`)
	f.proxy.CutAll() // a session keeps the privileges that it had
	f.requireFault(t, "a write without the privilege", f.save(t, "meanwhile"), ErrServerPermission)
	f.postgres.Exec(t, `GRANT UPDATE ON findings.* TO 'app'@'127.0.0.1'`, `ALTER USER 'app'@'127.0.0.1' IDENTIFIED BY 'another'`)
	f.proxy.CutAll()
	f.requireFault(t, "a write with the old password", f.save(t, "meanwhile"), ErrServerPermission)
	f.requireFault(t, "a start with the old password", f.reopen(t), ErrServerPermission)
	f.postgres.Exec(t, `ALTER USER 'app'@'127.0.0.1' IDENTIFIED BY '`+canary+`'`)
	requireRecovery(t, f.Store)

	f.proxy.CutAll()
	others := got[*sql.DB](t)(sql.Open("mysql", fmt.Sprintf("app:%s@tcp(127.0.0.1:%d)/findings", canary, f.postgres.Port)))
	defer others.Close()
	for {
		if _, err := others.Conn(t.Context()); err != nil {
			break
		}
	}
	f.requireFault(t, "a write without a free connection", f.save(t, "meanwhile"), ErrTooManyConnections)
	f.requireFault(t, "a start without a free connection", f.reopen(t), ErrTooManyConnections)
}

// TestMariaDBBinaryLog: a server with a binary log lets the user of the store create triggers only with a setting. The error names the setting,
// and the interrupted migration is repeated once the server has it.
func TestMariaDBBinaryLog(t *testing.T) {
	maria := server.StartMariaDB(t, server.Options{Settings: map[string]string{"log-bin": "binlog"}})
	maria.Exec(t, `CREATE DATABASE findings CHARACTER SET utf8mb4`, `CREATE USER 'app'@'127.0.0.1' IDENTIFIED BY '`+canary+`'`,
		`GRANT ALL PRIVILEGES ON findings.* TO 'app'@'127.0.0.1'`)
	with := serverOf(fmt.Sprintf("mysql://app:%s@127.0.0.1:%d/findings?tls=false", canary, maria.Port))
	c := newClock()
	_, err := OpenMySQL(t.Context(), with, c.Now)
	if !errors.Is(StorageFault(err), ErrServerPermission) || !strings.Contains(err.Error(), "log_bin_trust_function_creators = 1") {
		t.Fatalf("the error is %v, want ErrServerPermission and the setting", err)
	}
	if strings.Contains(err.Error(), "store.dsnFile") {
		t.Errorf("%v: the advice to look at the Secret misleads", err)
	}
	maria.Exec(t, `SET GLOBAL log_bin_trust_function_creators = 1`)
	s := got[*Store](t)(OpenMySQL(t.Context(), with, c.Now))
	defer s.Close()
	must(t, s.SaveCatalog(t.Context(), catalogOf("app", c.Now()), nil))
}

// TestMariaDBConnections: cuts, a lost answer to a commit and a server that hangs, as with PostgreSQL.
func TestMariaDBConnections(t *testing.T) {
	f := newMariaDBFixture(t, server.Options{}, func(s *Server) { s.silence = time.Second })
	for name, text := range map[string]string{
		"at the beginning": "START TRANSACTION", "in the first statement": "UPDATE store_revision", "in the last statement": "UPDATE artifacts SET size",
	} {
		rule, happened := proxy.OnText(text, proxy.Cut)
		f.proxy.SetRule(rule)
		before := got[int64](t)(f.Revision(t.Context()))
		must(t, f.save(t, name))
		requireHappened(t, happened)
		if after := got[int64](t)(f.Revision(t.Context())); after != before+1 {
			t.Errorf("cut %s: %d transactions have happened, want 1", name, after-before)
		}
	}
	must(t, f.Health())

	rule, happened := proxy.OnText("COMMIT", proxy.CutAnswer)
	f.proxy.SetRule(rule)
	before := got[int64](t)(f.Revision(t.Context()))
	f.requireFault(t, "a lost answer to a commit", f.save(t, "app"), ErrUnavailable)
	requireHappened(t, happened)
	if after := got[int64](t)(f.Revision(t.Context())); after != before+1 {
		t.Errorf("%d transactions have happened, want 1", after-before)
	}
	must(t, f.CheckHealth(t.Context()))

	rule, _ = proxy.OnText("UPDATE store_revision", proxy.Hang)
	f.proxy.SetRule(rule)
	began := time.Now()
	if err := f.save(t, "app"); err != nil {
		f.requireFault(t, "a statement that is not answered", err, ErrUnavailable)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("a statement that is not answered has taken %s", took)
	}
	f.proxy.SetRule(nil)
	f.requireWorks(t)
}

// TestMariaDBDeadlock: the server ends a deadlock with another session by rolling back one of them. The store's transaction then runs again.
func TestMariaDBDeadlock(t *testing.T) {
	f := openIn(t, newMariaDBDatabase(t))
	must(t, f.SaveCatalog(t.Context(), catalogOf("app", f.clock.Now()), nil))
	other := got[*sql.Conn](t)(f.reader.Conn(t.Context()))
	defer other.Close()
	execute := func(statement string) { t.Helper(); got[sql.Result](t)(other.ExecContext(t.Context(), statement)) }
	execute(`BEGIN`)
	// The session with more changes is not the one that is rolled back.
	execute(`CREATE TEMPORARY TABLE weight (n int)`)
	execute(`INSERT INTO weight SELECT seq FROM seq_1_to_1000`)
	execute(`UPDATE catalogues SET packages = packages + 1`)
	failed := make(chan error)
	go func() { failed <- f.SaveCatalog(t.Context(), catalogOf("app", f.clock.Now()), nil) }()
	waitUntil(t, "the store waits for the other session", func() bool {
		time.Sleep(200 * time.Millisecond) // the server answers from a cache while it is asked more often than every 100 ms
		var waiting int
		must(t, f.reader.QueryRowContext(t.Context(), `SELECT count(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'`).Scan(&waiting))
		return waiting > 0
	})
	execute(`UPDATE store_revision SET revision = revision + 1`)
	execute(`COMMIT`)
	must(t, <-failed)
	must(t, f.Health())
}

// TestMaxAllowedPacket: a server that takes smaller packets than the store's largest statement is refused when the store is opened, not in the
// middle of a large report.
func TestMaxAllowedPacket(t *testing.T) {
	maria := server.StartMariaDB(t, server.Options{Settings: map[string]string{"max-allowed-packet": "4M"}})
	dsn := maria.NewDatabase(t)
	_, err := OpenMySQL(t.Context(), serverOf(dsn), newClock().Now)
	if err == nil || !strings.Contains(err.Error(), "max_allowed_packet") || !strings.Contains(err.Error(), "16M") {
		t.Errorf("with 4 MiB: %v, want what to set", err)
	}
	maria.Exec(t, `SET GLOBAL max_allowed_packet = 16777216`)
	s := got[*Store](t)(OpenMySQL(t.Context(), serverOf(dsn), newClock().Now))
	defer s.Close()
	if err := saveReport(s, "large", 20_000); err != nil || errors.Is(s.Health(), ErrUnavailable) {
		t.Errorf("a large report: %v", err)
	}
}
