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
	"github.com/pressly/goose/v3/lock"

	"github.com/scanner-operator/scanner-operator/pkg/store/dialect"
)

// minPostgreSQL is the oldest supported version, as server_version_num has it.
const minPostgreSQL = 14_00_00

// OpenPostgreSQL opens the store on a PostgreSQL server, and migrates it to the current schema. now returns the time for everything that
// the store dates itself. Errors never contain the password.
func OpenPostgreSQL(ctx context.Context, server Server, now func() time.Time) (*Store, error) {
	config, err := server.postgreSQL()
	if err != nil {
		return nil, fmt.Errorf("store: %w", explained{ErrUnavailable, err})
	}
	s := newServer(addressOf(config), dialect.PostgreSQL, now)
	s.writer, s.reader = openPool(raisingConnector{server.postgreSQLConnector(config)}, 1), server.connectPostgreSQL(config, max(1, server.MaxConnections-1))
	s.beginRaises = true
	// The lock of migrations needs a connection of its own.
	migrating := server.forMigrations().connectPostgreSQL(config, 2)
	defer migrating.Close()
	err = s.openServer(ctx, func(ctx context.Context) error { return s.migratePostgreSQL(ctx, migrating) })
	if err != nil {
		return nil, errors.Join(s.wrapError(ctx, "open", err), s.Close())
	}
	return s, nil
}

// OpenPostgreSQLReadOnly opens an existing store on a PostgreSQL server for reading, beside the process that writes it. It changes nothing.
// Methods that write return ErrReadOnly.
func OpenPostgreSQLReadOnly(ctx context.Context, server Server) (*Store, error) {
	config, err := server.postgreSQL()
	if err != nil {
		return nil, fmt.Errorf("store: %w", explained{ErrUnavailable, err})
	}
	s := newServer(addressOf(config), dialect.PostgreSQL, time.Now)
	s.reader = server.connectPostgreSQL(config, 1)
	if err = s.reader.PingContext(ctx); err == nil {
		err = s.readIdentity(ctx)
	}
	if err != nil {
		return nil, errors.Join(s.wrapError(ctx, "open for reading", err), s.Close())
	}
	return s, nil
}

// addressOf returns the address of a database without user and password.
func addressOf(config *pgx.ConnConfig) string {
	return "postgresql://" + net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port))) + "/" + config.Database
}

// migratePostgreSQL runs the migrations, one process at a time: a row locks them, which a pooler keeps.
func (s *Store) migratePostgreSQL(ctx context.Context, migrating *sql.DB) error {
	var version int
	var encoding string
	err := s.writer.QueryRowContext(ctx, `SELECT current_setting('server_version_num')::int, current_setting('server_encoding')`).Scan(&version, &encoding)
	if err != nil {
		return err
	}
	if err := checkPostgreSQL(version, encoding); err != nil {
		return err
	}
	return s.migrateLocked(ctx, migrating, lock.NewPostgresTableLocker)
}

// checkPostgreSQL refuses servers that are too old, and databases that cannot hold every text. Their locale does not matter.
func checkPostgreSQL(version int, encoding string) error {
	switch {
	case version < minPostgreSQL:
		return fmt.Errorf("%w: it is PostgreSQL %d, want %d or newer", ErrServerTooOld, version/10000, minPostgreSQL/10000)
	case encoding != "UTF8":
		return fmt.Errorf("%w: its encoding is %s", ErrWrongCollation, encoding)
	}
	return nil
}
