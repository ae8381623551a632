package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/scanner-operator/scanner-operator/pkg/store/dialect"
)

// Server is how to reach a store on a database server.
type Server struct {
	// DSN returns the data source name with its password. It is called for each connection, so that a rotated password is used without
	// a restart.
	DSN func() (string, error)
	// MaxConnections bounds the connections to the server: one of them writes, the others read. At least 2.
	MaxConnections int
}

// minPostgreSQL is the oldest supported version, as server_version_num has it.
const minPostgreSQL = 14_00_00

// OpenPostgreSQL opens the store on a PostgreSQL server, and migrates it to the current schema. now returns the time for everything that
// the store dates itself. Errors never contain the password.
func OpenPostgreSQL(ctx context.Context, server Server, now func() time.Time) (*Store, error) {
	config, err := server.postgreSQL()
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	s := newClosed(addressOf(config), dialect.PostgreSQL, now)
	connect := func(connections int) *sql.DB {
		db := stdlib.OpenDB(*config, stdlib.OptionBeforeConnect(func(_ context.Context, c *pgx.ConnConfig) error {
			fresh, err := server.postgreSQL()
			if err == nil {
				*c = *fresh
			}
			return err
		}))
		db.SetMaxOpenConns(connections)
		db.SetMaxIdleConns(connections)
		return db
	}
	s.writer, s.reader = connect(1), connect(max(1, server.MaxConnections-1))
	// The lock of migrations needs a connection of its own.
	migrating := connect(2)
	defer migrating.Close()
	if err := s.openServer(ctx, migrating); err != nil {
		return nil, errors.Join(s.wrapError(ctx, "open", err), s.Close())
	}
	return s, nil
}

// postgreSQL parses the DSN. Statements are sent without a name: a pooler may give each transaction another connection.
func (s Server) postgreSQL() (*pgx.ConnConfig, error) {
	dsn, err := s.DSN()
	if err != nil {
		return nil, err
	}
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, errors.New("the DSN is not one of PostgreSQL: want postgresql://user:password@host:port/database or key=value pairs")
	}
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	return config, nil
}

// addressOf returns the address of a database without user and password.
func addressOf(config *pgx.ConnConfig) string {
	return "postgresql://" + net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port))) + "/" + config.Database
}

func (s *Store) openServer(ctx context.Context, migrating *sql.DB) error {
	var version int
	if err := s.writer.QueryRowContext(ctx, `SELECT current_setting('server_version_num')::int`).Scan(&version); err != nil {
		return err
	}
	if version < minPostgreSQL {
		return fmt.Errorf("the server is PostgreSQL %d: want %d or newer", version/10000, minPostgreSQL/10000)
	}
	locker, err := lock.NewPostgresTableLocker()
	if err != nil {
		return err
	}
	began := time.Now()
	if err := migrateWith(ctx, migrating, s.dialect, goose.WithLocker(locker)); err != nil {
		return err
	}
	s.metrics.migration.Set(time.Since(began).Seconds())
	if _, err := s.writer.ExecContext(ctx, `INSERT INTO meta (name, value) VALUES ('id', $1) ON CONFLICT DO NOTHING`, randomID()); err != nil {
		return err
	}
	if err := s.reader.QueryRowContext(ctx, `SELECT value FROM meta WHERE name = 'id'`).Scan(&s.id); err != nil {
		return err
	}
	if s.restoredFrom, err = readMetaTime(ctx, s.reading(), restoredFrom); err != nil {
		return err
	}
	s.presence.before, err = readMetaTime(ctx, s.reading(), lastPresent)
	return err
}
