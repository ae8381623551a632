package server

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"sync"
	"testing"
)

// templateDatabase is copied for each test.
type templateDatabase struct {
	sync.Once
	name string
	err  error
}

// connect opens the administrator's connections.
func (s *Server) connect() (err error) {
	s.admin, err = sql.Open(s.kind.driver, s.dsn)
	return err
}

// DSN returns the data source name with which the administrator, who has no password on a server of this process, opens a database: a URL
// for PostgreSQL, go-sql-driver's form for MariaDB. TLS is off.
func (s *Server) DSN(t testing.TB, database string) string {
	t.Helper()
	dsn, err := s.kind.inDatabase(s.dsn, database)
	if err != nil {
		t.Fatal(err)
	}
	return dsn
}

// Exec executes statements as the administrator, outside of the tests' databases.
func (s *Server) Exec(t testing.TB, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		if err := s.exec(statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

// exec does not end with the test's context: the databases are dropped after it.
func (s *Server) exec(statement string) error {
	_, err := s.admin.ExecContext(context.Background(), statement)
	return err
}

// NewDatabase creates an empty database, which is dropped at the end of the test, and returns its DSN.
func (s *Server) NewDatabase(t testing.TB) (dsn string) {
	t.Helper()
	return s.newDatabase(t, "")
}

// CopyDatabase creates a database as prepare leaves an empty one, and returns its DSN. The database is dropped at the end of the test. A
// PostgreSQL server copies the database that its first call has prepared: all calls must have the same effect, and prepare must leave no
// connection open.
func (s *Server) CopyDatabase(t testing.TB, prepare func(dsn string) error) (dsn string) {
	t.Helper()
	if !s.kind.copies {
		dsn = s.newDatabase(t, "")
		if err := prepare(dsn); err != nil {
			t.Fatal(err)
		}
		return dsn
	}
	s.template.Do(func() { s.template.err = s.makeTemplate(prepare) })
	if s.template.err != nil {
		t.Fatal(s.template.err)
	}
	return s.newDatabase(t, " TEMPLATE "+s.template.name)
}

func (s *Server) makeTemplate(prepare func(dsn string) error) error {
	s.template.name = s.newName()
	if err := s.exec(`CREATE DATABASE ` + s.template.name); err != nil {
		return err
	}
	dsn, err := s.kind.inDatabase(s.dsn, s.template.name)
	if err != nil {
		return err
	}
	return prepare(dsn)
}

func (s *Server) newDatabase(t testing.TB, options string) (dsn string) {
	t.Helper()
	name := s.newName()
	s.Exec(t, `CREATE DATABASE `+name+options)
	t.Cleanup(func() {
		if s.process == nil && s.Port != 0 {
			return // the test has stopped its own server
		}
		s.Exec(t, fmt.Sprintf(s.kind.drop, name))
	})
	return s.DSN(t, name)
}

// newName returns the name of a new database. It has the process's number, since other processes may use the same server.
func (s *Server) newName() string {
	return fmt.Sprintf("store_test_%d_%d", os.Getpid(), s.databases.Add(1))
}
