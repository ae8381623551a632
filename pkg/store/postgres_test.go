package store

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver
)

// template is a migrated database without an ID, from which each test's database is copied.
var template struct {
	sync.Once
	admin *sql.DB
	err   error
	count atomic.Int64
}

// newPostgreSQL opens a store in a new database of a server. dsn is a URL of a user who may create databases.
func newPostgreSQL(t testing.TB, dsn string) fixture {
	t.Helper()
	template.Do(func() { template.err = makeTemplate(dsn) })
	must(t, template.err)
	name := fmt.Sprintf("store_test_%d", template.count.Add(1))
	execute := func(statement string) error {
		_, err := template.admin.ExecContext(context.Background(), statement)
		return err
	}
	must(t, execute(`DROP DATABASE IF EXISTS `+name+` WITH (FORCE)`))
	must(t, execute(`CREATE DATABASE `+name+` TEMPLATE store_test_template`))
	t.Cleanup(func() { must(t, execute(`DROP DATABASE `+name+` WITH (FORCE)`)) })
	return openWith(t, inDatabase(dsn, name), openServer)
}

func inDatabase(dsn, name string) string {
	address, _ := url.Parse(dsn)
	address.Path = "/" + name
	return address.String()
}

func openServer(ctx context.Context, dsn string, now func() time.Time) (*Store, error) {
	return OpenPostgreSQL(ctx, Server{DSN: func() (string, error) { return dsn, nil }, MaxConnections: 4}, now)
}

func makeTemplate(dsn string) (err error) {
	if template.admin, err = sql.Open("pgx", dsn); err != nil {
		return err
	}
	for _, statement := range []string{`DROP DATABASE IF EXISTS store_test_template WITH (FORCE)`, `CREATE DATABASE store_test_template`} {
		if _, err := template.admin.Exec(statement); err != nil {
			return err
		}
	}
	s, err := openServer(context.Background(), inDatabase(dsn, "store_test_template"), time.Now)
	if err != nil {
		return err
	}
	if _, err := s.writer.Exec(`DELETE FROM meta`); err != nil {
		return err
	}
	return s.Close()
}
