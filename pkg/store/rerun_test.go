package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/pressly/goose/v3"
	"modernc.org/sqlite"
)

// errRerun is the error of a commit that was rolled back instead.
var errRerun = errors.New("the transaction was rolled back for a test")

// RerunDatabase returns a SQLite database that rolls back the first run of each writing transaction, as a server does because of a conflict. The
// store then runs it again. Its schema is one that a newer version has added to.
func RerunDatabase(t testing.TB) TestDatabase {
	d := newSQLiteDatabase(t)
	open := d.Open
	d.Open = func(ctx context.Context, now func() time.Time) (*Store, error) {
		s, err := open(ctx, now)
		if err != nil {
			return nil, err
		}
		if err := addToSchema(ctx, s); err != nil {
			return nil, errors.Join(err, s.Close())
		}
		inner, err := sqlite.NewConnector(s.writerName() + "&_pragma=trusted_schema(0)")
		if err := errors.Join(err, s.writer.Close()); err != nil {
			return nil, errors.Join(err, s.Close())
		}
		s.writer = sql.OpenDB(rerunConnector{inner})
		s.writer.SetMaxOpenConns(1)
		s.backing = rerunBacking{s.backing}
		return s, nil
	}
	return d
}

// newerSchema is the number of the schema of addToSchema.
const newerSchema = 99_999

// addToSchema makes the schema one of a newer version that only adds to it, unless it is that already.
func addToSchema(ctx context.Context, s *Store) error {
	if current, err := checkSchema(ctx, s.writer); err != nil || current == newerSchema {
		return err
	}
	tx := &session{conn: s.writer, dialect: s.dialect}
	for _, statement := range []string{
		`CREATE TABLE added (id BIGINT NOT NULL PRIMARY KEY)`,
		`ALTER TABLE findings ADD COLUMN added BIGINT NOT NULL DEFAULT 0`,
		`ALTER TABLE scanner_images ADD COLUMN added BIGINT`,
		`INSERT INTO ` + goose.DefaultTablename + ` (version_id, is_applied) VALUES (` + strconv.Itoa(newerSchema) + `, '1')`,
	} {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

type rerunBacking struct{ backing }

func (b rerunBacking) isConflict(err error) bool {
	return errors.Is(err, errRerun) || b.backing.isConflict(err)
}

type rerunConnector struct{ driver.Connector }

func (c rerunConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &rerunConn{
		Conn: conn, ConnBeginTx: conn.(driver.ConnBeginTx), ConnPrepareContext: conn.(driver.ConnPrepareContext),
		ExecerContext: conn.(driver.ExecerContext), QueryerContext: conn.(driver.QueryerContext),
		ran: make(map[context.Context]bool),
	}, nil
}

type rerunConn struct {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	// ran are the contexts of the transactions that were rolled back: each call of the store has one.
	ran map[context.Context]bool
}

func (c *rerunConn) BeginTx(ctx context.Context, options driver.TxOptions) (driver.Tx, error) {
	tx, err := c.ConnBeginTx.BeginTx(ctx, options)
	if err != nil || c.ran[ctx] {
		delete(c.ran, ctx)
		return tx, err
	}
	c.ran[ctx] = true
	return rolledBackTx{tx}, nil
}

// rolledBackTx is a transaction whose commit rolls back.
type rolledBackTx struct{ driver.Tx }

// Commit implements driver.Tx.
func (t rolledBackTx) Commit() error { return errors.Join(errRerun, t.Rollback()) }
