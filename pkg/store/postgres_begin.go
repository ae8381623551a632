package store

import (
	"context"
	"database/sql/driver"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

// raisingConnector makes connections whose transactions begin with raiseRevision.
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
	tx, err := c.Conn.Conn().BeginTx(ctx, pgx.TxOptions{BeginQuery: "BEGIN; " + raiseRevision})
	if err != nil {
		return nil, err
	}
	return raisedTx{ctx, tx}, nil
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
