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
	// Open opens the store, OpenBeside a second time beside an open one.
	Open, OpenBeside func(ctx context.Context, now func() time.Time) (*Store, error)
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
		OpenBeside: func(_ context.Context, now func() time.Time) (*Store, error) {
			s, err := OpenSQLiteReadOnly(path)
			if err == nil {
				s.now = now
			}
			return s, err
		},
	}
}

func newPostgreSQLDatabase(t testing.TB) TestDatabase {
	t.Helper()
	return inServer(server.PostgreSQL(t).CopyDatabase(t, func(dsn string) error { return prepare(inServer(dsn, OpenPostgreSQL)) }), OpenPostgreSQL)
}

func newMariaDBDatabase(t testing.TB) TestDatabase {
	t.Helper()
	return inServer(server.MariaDB(t).CopyDatabase(t, func(dsn string) error { return prepare(inServer(dsn+"?tls=false", OpenMySQL)) })+"?tls=false", OpenMySQL)
}

// inServer returns the database of a DSN.
func inServer(dsn string, openServer func(context.Context, Server, func() time.Time) (*Store, error)) TestDatabase {
	open := func(ctx context.Context, now func() time.Time) (*Store, error) {
		return openServer(ctx, Server{DSN: func() (string, error) { return dsn, nil }, MaxConnections: 4}, now)
	}
	return TestDatabase{Open: open, OpenBeside: open}
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
