package store

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
)

// divisionByZero is the SQLSTATE of beginIn in another term (https://www.postgresql.org/docs/current/errcodes-appendix.html).
const divisionByZero = "22012"

// raisingConnector makes connections whose transactions begin with raiseRevision, in the term that their context has.
type raisingConnector struct{ driver.Connector }

// Connect implements driver.Connector.
func (c raisingConnector) Connect(ctx context.Context) (driver.Conn, error) {
	connection, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return raisingConn{connection.(*stdlib.Conn)}, nil
}

// raisingConn sends raiseRevision together with BEGIN. That saves each transaction a round trip.
type raisingConn struct{ *stdlib.Conn }

// BeginTx implements driver.ConnBeginTx, for transactions with the default options. After an error, the pool drops the connection if its
// transaction is open (stdlib.Conn.ResetSession).
func (c raisingConn) BeginTx(ctx context.Context, _ driver.TxOptions) (driver.Tx, error) {
	if c.Conn.Conn().IsClosed() {
		return nil, driver.ErrBadConn // the pool takes another connection
	}
	epoch, _ := ctx.Value(fenced{}).(int64)
	tx, err := c.Conn.Conn().BeginTx(ctx, pgx.TxOptions{BeginQuery: beginIn(epoch)})
	var refused *pgconn.PgError
	if errors.As(err, &refused) && refused.Code == divisionByZero {
		return nil, fmt.Errorf("%w since epoch %d ended", ErrNotLeading, epoch)
	}
	if err != nil {
		return nil, err
	}
	return raisedTx{ctx, tx}, nil
}

// beginIn returns what begins a transaction in the term of an epoch, 0 for any. It fails if another term has begun: nobody reads the number of
// changed rows, so the number that is added to the revision is divided by zero.
func beginIn(epoch int64) string {
	if epoch == 0 {
		return "BEGIN; " + raiseRevision
	}
	return "BEGIN; " + raiseRevision + " / CASE WHEN epoch = " + strconv.FormatInt(epoch, 10) + " THEN 1 ELSE 0 END"
}

// raisedTx is a pgx.Tx as a driver.Tx, whose methods have no context of their own.
type raisedTx struct {
	ctx context.Context
	tx  pgx.Tx
}

// Commit implements driver.Tx.
func (t raisedTx) Commit() error { return t.tx.Commit(t.ctx) }

// Rollback implements driver.Tx.
func (t raisedTx) Rollback() error { return t.tx.Rollback(t.ctx) }
