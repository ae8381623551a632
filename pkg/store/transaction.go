package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// query is the common part of read and write transactions.
type query interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// write runs work in a transaction. The transaction is committed if work returns nil, and rolled back otherwise.
func (s *Store) write(ctx context.Context, action string, work func(context.Context, *sql.Tx) error) error {
	if s.writer == nil {
		return fmt.Errorf("store %s: %s: %w", s.path, action, ErrReadOnly)
	}
	began := time.Now()
	err := s.transact(ctx, s.writer, action, work)
	s.metrics.transacted("write", began, err)
	return err
}

// read runs work on a consistent snapshot of the store.
func (s *Store) read(ctx context.Context, action string, work func(context.Context, query) error) error {
	began := time.Now()
	err := s.transact(ctx, s.reader, action, func(ctx context.Context, tx *sql.Tx) error { return work(ctx, tx) })
	s.metrics.transacted("read", began, err)
	return err
}

func (s *Store) transact(ctx context.Context, db *sql.DB, action string, work func(context.Context, *sql.Tx) error) error {
	ctx, done, err := s.begin(ctx)
	if err != nil {
		return fmt.Errorf("store %s: %s: %w", s.path, action, err)
	}
	defer done()
	tx, err := db.BeginTx(ctx, &sql.TxOptions{ReadOnly: db == s.reader})
	if err != nil {
		return s.wrapError(ctx, action, err)
	}
	// After a commit, Rollback does nothing.
	defer func() { _ = tx.Rollback() }()
	if err := work(ctx, tx); err != nil {
		return s.wrapError(ctx, action, err)
	}
	if err := tx.Commit(); err != nil {
		return s.wrapError(ctx, action, err)
	}
	return nil
}

// begin registers a running call until done is called. The returned context is cancelled when the store closes.
func (s *Store) begin(ctx context.Context) (_ context.Context, done func(), err error) {
	s.gate.Lock()
	defer s.gate.Unlock()
	if s.closed {
		return nil, nil, ErrClosed
	}
	s.inFlight.Add(1)
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.closing, func() { cancel(ErrClosed) })
	return ctx, func() {
		stop()
		cancel(nil)
		s.inFlight.Done()
	}, nil
}

// wrapError wraps an error with the file, the action and, if the cause is a known fault, what the user can do about it.
func (s *Store) wrapError(ctx context.Context, action string, err error) error {
	// SQLite reports an interrupted call in several ways; the reason is always the context's.
	if ctx.Err() != nil {
		return fmt.Errorf("store %s: %s: %w", s.path, action, context.Cause(ctx))
	}
	if trouble := s.diagnose(err); trouble != nil && StorageFault(err) == nil {
		return fmt.Errorf("store %s: %s: %w: %w", s.path, action, trouble, err)
	}
	return fmt.Errorf("store %s: %s: %w", s.path, action, err)
}

// interval is how many statements a bulk operation runs between two checks of its context.
const interval = 1000

// bulk calls each with the numbers from 0 to n-1 until the first error. The context that it passes cannot be cancelled, because
// watching a context costs more than the statement. Instead, bulk checks ctx itself every interval calls.
func bulk(ctx context.Context, n int, each func(ctx context.Context, i int) error) error {
	unwatched := context.WithoutCancel(ctx)
	for i := range n {
		if i%interval == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if err := each(unwatched, i); err != nil {
			return err
		}
	}
	return nil
}

// eachRow reads the rows of a query one after the other, until the first error.
func eachRow(rows *sql.Rows, err error, each func(*sql.Rows) error) error {
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := each(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// collect reads all rows of a query.
func collect[T any](rows *sql.Rows, err error, scan func(*sql.Rows) (T, error)) ([]T, error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []T
	for rows.Next() {
		one, err := scan(rows)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, rows.Err()
}

// orNotFound replaces sql.ErrNoRows by ErrNotFound.
func orNotFound(err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return ErrNotFound
	}
	return err
}
