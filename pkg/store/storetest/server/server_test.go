package server

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

func each(t *testing.T, test func(t *testing.T, k *kind)) {
	for _, k := range []*kind{&postgreSQL, &mariaDB} {
		t.Run(k.name, func(t *testing.T) { test(t, k) })
	}
}

func query[T any](t *testing.T, k *kind, dsn, statement string) (value T) {
	t.Helper()
	db, err := sql.Open(k.driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.QueryRowContext(t.Context(), statement).Scan(&value); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	return value
}

func execute(k *kind, dsn string, statements ...string) error {
	db, err := sql.Open(k.driver, dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	for _, statement := range statements {
		if _, err := db.ExecContext(context.Background(), statement); err != nil {
			return err
		}
	}
	return nil
}

// TestRestart checks that data outlives an orderly stop and a kill, that the address stays, and that settings change with a start.
func TestRestart(t *testing.T) {
	each(t, func(t *testing.T, k *kind) {
		s := startOwn(t, k, Options{Settings: map[string]string{"max_connections": "20"}})
		setting := map[*kind]string{&postgreSQL: `SHOW max_connections`, &mariaDB: `SELECT @@max_connections`}[k]
		dsn := s.NewDatabase(t)
		durable := map[*kind]string{&postgreSQL: `SET synchronous_commit = on`, &mariaDB: `SET GLOBAL innodb_flush_log_at_trx_commit = 1`}[k]
		if err := execute(k, dsn, durable, `CREATE TABLE numbers (n int)`, `INSERT INTO numbers VALUES (1)`); err != nil {
			t.Fatal(err)
		}
		if n := query[int](t, k, dsn, setting); n != 20 {
			t.Errorf("max_connections is %d, want 20", n)
		}
		for name, end := range map[string]func(testing.TB){"stop": s.Stop, "kill": s.Kill} {
			s.Set(map[string]string{"max_connections": "30"})
			end(t)
			if err := execute(k, dsn, `SELECT 1`); err == nil {
				t.Errorf("the server answers after %s", name)
			}
			s.Start(t)
			if n := query[int](t, k, dsn, `SELECT count(*) FROM numbers`); n != 1 {
				t.Errorf("after %s: %d rows, want 1", name, n)
			}
			if n := query[int](t, k, dsn, setting); n != 30 {
				t.Errorf("after %s: max_connections is %d, want 30", name, n)
			}
		}
		if text := s.lastLog(); len(text) == 0 {
			t.Error("the server has logged nothing")
		}
	})
}

// TestCopies checks that each test has a database of its own with what was prepared, and that the former one's changes are gone.
func TestCopies(t *testing.T) {
	each(t, func(t *testing.T, k *kind) {
		s := get(t, k, shared[k])
		prepare := func(dsn string) error {
			id := map[*kind]string{&postgreSQL: "id serial PRIMARY KEY", &mariaDB: "id int AUTO_INCREMENT PRIMARY KEY"}[k]
			return execute(k, dsn, `CREATE TABLE numbers (n int PRIMARY KEY)`, `CREATE TABLE more (n int REFERENCES numbers (n), `+id+`)`, `INSERT INTO numbers VALUES (7)`)
		}
		requireNew := func(dsn string) {
			t.Helper()
			if n := query[int](t, k, dsn, `SELECT n FROM numbers`); n != 7 {
				t.Errorf("the database has %d, want 7", n)
			}
			if n := query[int](t, k, dsn, `SELECT count(*) FROM more`); n != 0 {
				t.Errorf("the database has %d rows more, want none", n)
			}
		}
		for _, round := range []string{"first", "second"} {
			t.Run(round, func(t *testing.T) {
				one := s.CopyDatabase(t, prepare)
				requireNew(one)
				if err := execute(k, one, `UPDATE numbers SET n = 8`, `INSERT INTO more (n) VALUES (8)`); err != nil {
					t.Fatal(err)
				}
				if id := query[int](t, k, one, `SELECT id FROM more`); id != 1 {
					t.Errorf("the first row has the ID %d, want 1", id)
				}
				requireNew(s.CopyDatabase(t, prepare))
			})
		}
	})
}

// TestDroppedDatabases checks that a new database is dropped with its test.
func TestDroppedDatabases(t *testing.T) {
	each(t, func(t *testing.T, k *kind) {
		var dsn string
		t.Run("use", func(t *testing.T) {
			dsn = get(t, k, shared[k]).NewDatabase(t)
			if err := execute(k, dsn, `CREATE TABLE numbers (n int)`); err != nil {
				t.Error(err)
			}
		})
		if err := execute(k, dsn, `SELECT 1`); err == nil {
			t.Error("the database still exists after its test")
		}
	})
}

// TestUsersNeedPasswords checks that only the administrator is trusted.
func TestUsersNeedPasswords(t *testing.T) {
	s := PostgreSQL(t)
	user := fmt.Sprintf("canary_%d", os.Getpid())
	s.Exec(t, `CREATE USER `+user+` PASSWORD 'right'`)
	t.Cleanup(func() { s.Exec(t, `DROP USER `+user) })
	dsn := strings.Replace(s.DSN(t, "postgres"), "postgres@", user+":%s@", 1)
	if err := execute(&postgreSQL, fmt.Sprintf(dsn, "right"), `SELECT 1`); err != nil {
		t.Error(err)
	}
	if err := execute(&postgreSQL, fmt.Sprintf(dsn, "wrong"), `SELECT 1`); err == nil {
		t.Error("a wrong password is accepted")
	}
}

// TestEndsWithItsProcess checks that a server ends, and that its folder is removed, when the process of the tests is killed.
func TestEndsWithItsProcess(t *testing.T) {
	const child = "STORE_TEST_CHILD"
	if os.Getenv(child) != "" {
		k := map[string]*kind{postgreSQL.name: &postgreSQL, mariaDB.name: &mariaDB}[os.Getenv(child)]
		s := get(t, k, shared[k])
		fmt.Printf("%s %s\n", s.Dir, s.DSN(t, ""))
		<-t.Context().Done()
	}
	each(t, func(t *testing.T, k *kind) {
		if _, err := k.find(k.serve); err != nil {
			get(t, k, func() (*Server, error) { return nil, err })
		}
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestEndsWithItsProcess$")
		cmd.Env = append(os.Environ(), child+"="+k.name)
		output, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var dir, dsn string
		printed := bufio.NewReader(output)
		line, _ := printed.ReadString('\n')
		if _, err := fmt.Sscanln(line, &dir, &dsn); err != nil {
			rest, _ := io.ReadAll(printed)
			t.Fatalf("the process with the server prints %q: %v", line+string(rest), err)
		}
		if err := execute(k, dsn, `SELECT 1`); err != nil {
			t.Error(err)
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // it was killed
		deadline := time.After(30 * time.Second)
		for again := time.NewTicker(10 * time.Millisecond); ; {
			select {
			case <-again.C:
			case <-deadline:
				t.Fatal("the folder of the server still exists")
			}
			if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
				break
			}
		}
		if err := execute(k, dsn, `SELECT 1`); err == nil {
			t.Error("the server still answers")
		}
	})
}

// TestMissing checks what a test reports if a server is not installed.
func TestMissing(t *testing.T) {
	missing := kind{name: "NoSQL", debianPackage: "nosql", create: "no-such-program", serve: "no-such-program"}
	open := func() (*Server, error) { return start(&missing, Options{}) }
	t.Setenv(Require, "")
	t.Run("skipped", func(t *testing.T) {
		defer func() {
			if !t.Skipped() {
				t.Error("the test was not skipped")
			}
		}()
		get(t, &missing, open)
	})
	if _, err := open(); !errors.Is(err, exec.ErrNotFound) || !strings.Contains(err.Error(), "no-such-program") {
		t.Errorf("got %v", err)
	}
}
