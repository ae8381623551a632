package server

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
)

// templateDatabase is what was prepared first. It stays as it is.
type templateDatabase struct {
	sync.Once
	name string
	// rows are the statements that insert its rows into an empty PostgreSQL database, and set the sequences.
	rows []string
	err  error
}

// freeDatabases are databases that no test uses now.
type freeDatabases struct {
	mutex sync.Mutex
	names []string
}

// take returns a database, or none.
func (f *freeDatabases) take() (name string) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if last := len(f.names) - 1; last >= 0 {
		name, f.names = f.names[last], f.names[:last]
	}
	return name
}

func (f *freeDatabases) put(name string) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.names = append(f.names, name)
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
	name := s.newName()
	s.Exec(t, `CREATE DATABASE `+name)
	t.Cleanup(func() {
		if s.process == nil && s.Port != 0 {
			return // the test has stopped its own server
		}
		s.Exec(t, fmt.Sprintf(s.kind.drop, name))
	})
	return s.DSN(t, name)
}

// CopyDatabase returns the DSN of a database as prepare leaves an empty one. Each call of prepare must have the same effect, and leave no
// connection open. The database goes to another test when this one has ended, with the first rows, since servers are slow at creating and
// dropping tables: a test must not change the tables themselves. Whatever a server knows of the number of rows may be that of another test.
func (s *Server) CopyDatabase(t testing.TB, prepare func(dsn string) error) (dsn string) {
	t.Helper()
	s.template.Do(func() {
		if s.template.name, s.template.err = s.prepared(prepare); s.template.err == nil && s.kind.copies {
			s.template.rows, s.template.err = s.templateRows()
		}
	})
	if s.template.err != nil {
		t.Fatal(s.template.err)
	}
	name, err := s.free.take(), error(nil)
	switch {
	case name != "":
	case s.kind.copies:
		name = s.newName()
		err = s.exec(`CREATE DATABASE ` + name + ` TEMPLATE ` + s.template.name)
	default:
		name, err = s.prepared(prepare)
	}
	if err != nil {
		t.Fatal(err)
	}
	reset := s.resetMariaDB
	if s.kind.copies {
		reset = s.resetPostgreSQL
	}
	t.Cleanup(func() {
		if err := reset(name); err != nil {
			t.Errorf("empty the database %s: %v", name, err)
			return
		}
		s.free.put(name)
	})
	return s.DSN(t, name)
}

// prepared creates a database and prepares it.
func (s *Server) prepared(prepare func(dsn string) error) (name string, err error) {
	name = s.newName()
	if err := s.exec(`CREATE DATABASE ` + name); err != nil {
		return "", err
	}
	dsn, err := s.kind.inDatabase(s.dsn, name)
	if err != nil {
		return "", err
	}
	return name, prepare(dsn)
}

// within runs work on a connection to a PostgreSQL database.
func (s *Server) within(name string, work func(context.Context, *sql.Conn) error) error {
	dsn, err := s.kind.inDatabase(s.dsn, name)
	if err != nil {
		return err
	}
	db, err := sql.Open(s.kind.driver, dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	conn, err := db.Conn(context.Background())
	if err != nil {
		return err
	}
	return errors.Join(work(context.Background(), conn), conn.Close())
}

// postgreSQLTables selects the names of the store's tables.
const postgreSQLTables = `SELECT tablename FROM pg_tables WHERE schemaname = 'public'`

func (s *Server) templateRows() (statements []string, err error) {
	err = s.within(s.template.name, func(ctx context.Context, conn *sql.Conn) error {
		tables, err := column(ctx, conn, postgreSQLTables)
		if err != nil {
			return err
		}
		filled, err := filledTables(ctx, conn, "public", tables)
		if err != nil {
			return err
		}
		for _, table := range filled {
			insert, err := column(ctx, conn, fmt.Sprintf(
				`SELECT format('INSERT INTO %[1]s SELECT * FROM json_populate_recordset(NULL::%[1]s, %%L)', json_agg(t)) FROM %[1]s t`, table))
			if err != nil {
				return err
			}
			statements = append(statements, insert...)
		}
		sequences, err := column(ctx, conn, `SELECT format('SELECT setval(%L, %s, %L)', sequencename, coalesce(last_value, start_value), last_value IS NOT NULL)
			FROM pg_sequences WHERE schemaname = 'public'`)
		statements = append(statements, sequences...)
		return err
	})
	return statements, err
}

// postgreSQLSize selects the bytes of the rows that the tables have or had.
const postgreSQLSize = `SELECT coalesce(sum(pg_relation_size(oid)), 0)::bigint FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace`

// largeDatabase is from how many bytes on a database is truncated, so that its files get small again.
const largeDatabase = 1 << 20

// resetPostgreSQL gives all tables of a database the rows of the template. It does not vacuum: PostgreSQL would know then that the tables were
// empty, and not plan as in a new store.
func (s *Server) resetPostgreSQL(name string) error {
	return s.within(name, func(ctx context.Context, conn *sql.Conn) error {
		tables, err := column(ctx, conn, postgreSQLTables)
		if err != nil {
			return err
		}
		filled, err := filledTables(ctx, conn, "public", tables)
		if err != nil {
			return err
		}
		// As a replica, the server runs no triggers and checks no foreign keys.
		statements := []string{`SET lock_timeout = '30s'`, `SET session_replication_role = replica`, `BEGIN`}
		var size int64
		if err := conn.QueryRowContext(ctx, postgreSQLSize).Scan(&size); err != nil {
			return err
		}
		if size > largeDatabase {
			statements = append(statements, `TRUNCATE `+strings.Join(tables, ", "))
			filled = nil
		}
		for _, table := range filled {
			statements = append(statements, `DELETE FROM `+table)
		}
		return execEach(ctx, conn, append(append(statements, s.template.rows...), `COMMIT`))
	})
}

// resetMariaDB gives all tables of a database the rows of the template.
func (s *Server) resetMariaDB(name string) (err error) {
	ctx := context.Background()
	conn, err := s.admin.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	tables, err := column(ctx, conn, `SELECT table_name FROM information_schema.tables WHERE table_type = 'BASE TABLE' AND table_schema = ?`, s.template.name)
	if err != nil {
		return err
	}
	// Triggers may fill a table that is empty already.
	for range 5 {
		filled, err := filledTables(ctx, conn, name, tables)
		if err != nil {
			return err
		}
		if len(filled) == 0 {
			break
		}
		if err := inBatch(ctx, conn, filled, "DELETE FROM "+name+".%[1]s"); err != nil {
			return err
		}
	}
	counted, err := column(ctx, conn, `SELECT table_name FROM information_schema.columns WHERE extra LIKE '%auto_increment%' AND table_schema = ?`, s.template.name)
	if err != nil {
		return err
	}
	if err := inBatch(ctx, conn, counted, "ALTER TABLE "+name+".%[1]s AUTO_INCREMENT = 1"); err != nil {
		return err
	}
	filled, err := filledTables(ctx, conn, s.template.name, tables)
	if err != nil {
		return err
	}
	return inBatch(ctx, conn, filled, "INSERT INTO "+name+".%[1]s SELECT * FROM "+s.template.name+".%[1]s")
}

// inBatch executes a statement for each table, in one transaction without the checks of foreign keys.
func inBatch(ctx context.Context, conn *sql.Conn, tables []string, statement string) error {
	statements := []string{`SET foreign_key_checks = 0`, `START TRANSACTION`}
	for _, table := range tables {
		statements = append(statements, fmt.Sprintf(statement, table))
	}
	return execEach(ctx, conn, append(statements, `COMMIT`, `SET foreign_key_checks = 1`))
}

func execEach(ctx context.Context, conn *sql.Conn, statements []string) error {
	for _, statement := range statements {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

// filledTables returns the tables that have rows.
func filledTables(ctx context.Context, conn *sql.Conn, name string, tables []string) ([]string, error) {
	var each []string
	for _, table := range tables {
		each = append(each, fmt.Sprintf("SELECT '%[2]s' FROM (SELECT 1) one WHERE EXISTS (SELECT 1 FROM %[1]s.%[2]s)", name, table))
	}
	return column(ctx, conn, strings.Join(each, " UNION ALL "))
}

func column(ctx context.Context, conn *sql.Conn, statement string, args ...any) (values []string, err error) {
	rows, err := conn.QueryContext(ctx, statement, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var value string
		if err := rows.Scan(&value); err != nil {
			return nil, err
		}
		values = append(values, value)
	}
	return values, rows.Err()
}

// newName returns the name of a new database. It has the process's number, since other processes may use the same server.
func (s *Server) newName() string {
	return fmt.Sprintf("store_test_%d_%d", os.Getpid(), s.databases.Add(1))
}
