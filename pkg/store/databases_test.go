package store

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/store/storetest/server"
	"github.com/scanner-operator/scanner-operator/pkg/store/storetest/template"
)

// Databases are the databases that a store may be in. New creates an empty one for a test, which is skipped if its server is not installed.
var Databases = []struct {
	Name string
	New  func(t testing.TB) TestDatabase
}{
	{"SQLite", newSQLiteDatabase},
	{"PostgreSQL", newPostgreSQLDatabase},
	{"MariaDB", newMariaDBDatabase},
}

// TestDatabase is the database of one test.
type TestDatabase struct {
	// Open opens the store, and OpenReadOnly a second time beside an open one.
	Open, OpenReadOnly func(ctx context.Context, now func() time.Time) (*Store, error)
}

// eachDatabase runs a test on each database.
func eachDatabase(t *testing.T, test func(t *testing.T, f fixture)) {
	for _, d := range Databases {
		t.Run(d.Name, func(t *testing.T) { test(t, openIn(t, d.New(t))) })
	}
}

func openIn(t testing.TB, d TestDatabase) fixture {
	t.Helper()
	c := newClock()
	s := got[*Store](t)(d.Open(t.Context(), c.Now))
	t.Cleanup(func() { must(t, s.Close()) })
	return fixture{Store: s, clock: c}
}

func newSQLiteDatabase(t testing.TB) TestDatabase {
	path := filepath.Join(t.TempDir(), "store.db")
	return TestDatabase{
		Open: func(ctx context.Context, now func() time.Time) (*Store, error) {
			return template.Open(ctx, path, now, OpenSQLite)
		},
		OpenReadOnly: withClock(func(context.Context) (*Store, error) { return OpenSQLiteReadOnly(path) }),
	}
}

func newPostgreSQLDatabase(t testing.TB) TestDatabase {
	t.Helper()
	return inPostgreSQL(server.PostgreSQL(t).CopyDatabase(t, func(dsn string) error { return prepare(inPostgreSQL(dsn)) }))
}

func newMariaDBDatabase(t testing.TB) TestDatabase {
	t.Helper()
	return inMySQL(server.MariaDB(t).CopyDatabase(t, func(dsn string) error { return prepare(inMySQL(dsn)) }))
}

func inPostgreSQL(dsn string) TestDatabase {
	return inServer(dsn, OpenPostgreSQL, OpenPostgreSQLReadOnly)
}

func inMySQL(dsn string) TestDatabase { return inServer(dsn, OpenMySQL, OpenMySQLReadOnly) }

// inServer returns the database of a DSN.
func inServer(
	dsn string, open func(context.Context, Server, func() time.Time) (*Store, error), openReadOnly func(context.Context, Server) (*Store, error),
) TestDatabase {
	server := Server{DSN: func() (string, error) { return dsn, nil }, MaxConnections: 4}
	return TestDatabase{
		Open:         func(ctx context.Context, now func() time.Time) (*Store, error) { return open(ctx, server, now) },
		OpenReadOnly: withClock(func(ctx context.Context) (*Store, error) { return openReadOnly(ctx, server) }),
	}
}

// withClock makes a store that is read use the clock of its test.
func withClock(open func(context.Context) (*Store, error)) func(context.Context, func() time.Time) (*Store, error) {
	return func(ctx context.Context, now func() time.Time) (*Store, error) {
		s, err := open(ctx)
		if err == nil {
			s.now = now
		}
		return s, err
	}
}

// prepare leaves the schema in a database, without an ID: each copy gets its own.
func prepare(d TestDatabase) error {
	s, err := d.Open(context.Background(), time.Now)
	if err != nil {
		return err
	}
	_, err = s.writer.ExecContext(context.Background(), `DELETE FROM meta`)
	return errors.Join(err, s.Close())
}
