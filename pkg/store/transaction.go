package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/limits"
)

// raiseRevision is the first statement of each writing transaction. It locks the only row of its table until the transaction ends, so all
// writers of a database server wait for each other. The writer of SQLite has a lock of the whole file already.
const raiseRevision = `UPDATE store_revision SET revision = revision + 1`

// currentRevision is the revision of a writing transaction in a statement of it.
const currentRevision = `(SELECT revision FROM store_revision)`

// Revision returns the number of the last writing transaction that was committed, and rises with each. Reports, the images of scanners and
// messages have the revision of the transaction that wrote them last; deletions leave no row. A process that alone writes to the store reads it
// again only after it has written.
func (s *Store) Revision(ctx context.Context) (revision int64, err error) {
	ended := s.writes.Load()
	known := s.revision.Load()
	if known != nil && known.writes == ended {
		return known.revision, nil
	}
	err = s.queryRow(ctx, "look up the revision", `SELECT revision FROM store_revision`).Scan(&revision)
	if err == nil && s.lock != nil {
		s.revision.Store(&knownRevision{writes: ended, revision: revision})
	}
	return revision, err
}

// knownRevision is the revision of the store after a number of writing transactions of this process.
type knownRevision struct {
	writes   uint64
	revision int64
}

// write runs work in a transaction. The transaction is committed if work returns nil, and rolled back otherwise. If it fails only because of
// another transaction of the server, or because its connection ended before the commit, work runs again in a new one. So work must set what
// it leaves behind anew each time, and must not use up what it reads. What the process remembers of a transaction is changed after write has
// returned nil. It returns ErrNotLeading if another process leads (Follow, Lead).
func (s *Store) write(ctx context.Context, action string, work func(context.Context, *session) error) error {
	return s.writeWith(ctx, "", action, s.retryConflicts, work)
}

// writeLarge is write for reports and SBOMs of a namespace, empty for the cluster, which may be large. While others wait to write, those of one
// namespace take at most a quarter of the time.
func (s *Store) writeLarge(ctx context.Context, namespace, action string, work func(context.Context, *session) error) error {
	return s.writeWith(ctx, cmp.Or(namespace, theCluster), action, s.retryConflicts, work)
}

// theCluster has the share of the writer's time of reports and SBOMs that are of no namespace.
const theCluster = "the cluster"

// AcquireSlot waits for a slot of a pool, which a tenant takes to save a large report or SBOM of a namespace, empty for the cluster. While those of the
// namespace have to let others write first, none of them waits in a slot. Otherwise it is as limits.Pool.Acquire.
func (s *Store) AcquireSlot(ctx context.Context, from *limits.Pool, tenant, namespace string) (release func(), err error) {
	return s.turns.AcquireSlot(ctx, from, tenant, cmp.Or(namespace, theCluster))
}

// writeOnce is write for work that cannot run again.
func (s *Store) writeOnce(ctx context.Context, action string, work func(context.Context, *session) error) error {
	once := func(_ context.Context, run func(again bool) error) error { return run(false) }
	return s.writeWith(ctx, "", action, once, work)
}

// writeWith shares the time of the writer between those who write. An empty tenant has no share: it writes little.
func (s *Store) writeWith(
	ctx context.Context, tenant, action string, runs func(ctx context.Context, run func(again bool) error) error, work func(context.Context, *session) error,
) error {
	if s.writer == nil {
		return fmt.Errorf("store %s: %s: %w", s.path, action, ErrReadOnly)
	}
	return s.call(ctx, "write", action, func(ctx context.Context) error {
		epoch, err := s.term.get(ctx)
		if err != nil {
			return err
		}
		ctx = context.WithValue(ctx, fenced{}, epoch)
		defer s.writes.Add(1) // also after an error: a commit without an answer may have happened
		return runs(ctx, func(again bool) error {
			release, err := s.turns.Acquire(ctx, tenant)
			if err != nil {
				return err
			}
			defer release()
			return s.transact(ctx, s.writer, nil, func(ctx context.Context, tx *session) error {
				tx.again = again
				if !s.beginRaises {
					if err := s.raise(ctx, tx, epoch); err != nil {
						return err
					}
				}
				return work(ctx, tx)
			})
		})
	})
}

// maxConflicts is how often a transaction is run because of conflicts with others.
const maxConflicts = 5

// retryConflicts runs a transaction again, after a short random time, as long as it fails only because of others, and once if its connection
// ended before the commit: the server has rolled it back then. A commit without an answer may have happened.
func (s *Store) retryConflicts(ctx context.Context, run func(again bool) error) error {
	lost := false
	for attempt := 1; ; attempt++ {
		err := run(attempt > 1)
		switch {
		case err == nil:
			return nil
		case s.backing.isConflict(err) && attempt < maxConflicts:
		case s.backing.isLost(err) && !errors.As(err, new(*commitError)) && !lost:
			lost = true
			s.backing.met(ErrUnavailable)
		default:
			return err
		}
		longest := time.Millisecond << (2 * attempt) // 4 ms to 256 ms
		select {
		case <-ctx.Done():
			return err
		case <-time.After(rand.N(longest)): //nolint:gosec // jitter is no secret
		}
	}
}

// retryLost runs a single statement or the begin of a transaction again if its connection has ended, as all do when a server is restarted.
func (s *Store) retryLost(run func() error) error {
	err := run()
	if err == nil || !s.backing.isLost(err) {
		return err
	}
	s.backing.met(ErrUnavailable)
	return run()
}

// commitError is the error of a commit. Without the server's answer, the transaction may have happened.
type commitError struct{ error }

// Unwrap returns the driver's error.
func (e *commitError) Unwrap() error { return e.error }

// exec writes with one statement.
func (s *Store) exec(ctx context.Context, action, statement string, args ...any) error {
	_, err := s.execCounted(ctx, action, statement, args...)
	return err
}

// execCounted writes with one statement, and returns the number of changed rows.
func (s *Store) execCounted(ctx context.Context, action, statement string, args ...any) (changed int, err error) {
	err = s.write(ctx, action, func(ctx context.Context, tx *session) error {
		result, err := tx.ExecContext(ctx, statement, args...)
		if err != nil {
			return err
		}
		rows, err := result.RowsAffected()
		changed = int(rows)
		return err
	})
	return changed, err
}

// read runs work on a consistent snapshot of the store: that of InSnapshot if ctx is of one. A single statement is a consistent read without it:
// queryRow and queryRows.
func (s *Store) read(ctx context.Context, action string, work func(context.Context, query) error) error {
	return s.call(ctx, "read", action, func(ctx context.Context) error {
		if tx := s.snapshotOf(ctx); tx != nil {
			return work(ctx, tx)
		}
		return s.snapshot(ctx, func(ctx context.Context, tx *session) error { return work(ctx, tx) })
	})
}

// InSnapshot runs work with a context in which every read of the store sees the same snapshot. The calls in work must follow each other. The
// snapshot takes a connection, and what others write meanwhile takes more space than usual, so ctx bounds its time. It returns the error of work,
// or that of the store if there is no snapshot.
func (s *Store) InSnapshot(ctx context.Context, work func(context.Context) error) error {
	const action = "begin a snapshot"
	ctx, done, err := s.begin(ctx)
	if err != nil {
		return fmt.Errorf("store %s: %s: %w", s.path, action, err)
	}
	defer done()
	var failed error
	err = s.snapshot(ctx, func(ctx context.Context, tx *session) error {
		failed = work(context.WithValue(ctx, snapshotKey{s}, tx))
		return nil
	})
	if err != nil {
		return s.wrapError(ctx, action, err)
	}
	return failed
}

// snapshotKey is the key of the transaction that the context of InSnapshot has.
type snapshotKey struct{ of *Store }

// snapshotOf returns the transaction of InSnapshot that a context is of; nil if it is of none.
func (s *Store) snapshotOf(ctx context.Context) *session {
	tx, _ := ctx.Value(snapshotKey{s}).(*session)
	return tx
}

// snapshot runs work in a transaction that reads.
func (s *Store) snapshot(ctx context.Context, work func(context.Context, *session) error) error {
	return s.transact(ctx, s.reader, &sql.TxOptions{ReadOnly: true, Isolation: s.dialect.Snapshot}, work)
}

// single runs a single statement that reads: in the snapshot that ctx is of, and else on a connection of its own.
func (s *Store) single(ctx context.Context, run func(query) error) error {
	if tx := s.snapshotOf(ctx); tx != nil {
		return run(tx)
	}
	return s.retryLost(func() error { return run(s.reading()) })
}

// singleRow is a statement that selects at most one row.
type singleRow struct {
	store             *Store
	ctx               context.Context
	action, statement string
	args              []any
}

// queryRow reads one row with one statement, which Scan runs.
func (s *Store) queryRow(ctx context.Context, action, statement string, args ...any) singleRow {
	return singleRow{s, ctx, action, statement, args}
}

// Scan runs the statement and reads its row. It returns ErrNotFound if there is no row.
func (r singleRow) Scan(into ...any) error {
	return r.store.call(r.ctx, "read", r.action, func(ctx context.Context) error {
		return r.store.single(ctx, func(q query) error {
			return orNotFound(q.QueryRowContext(ctx, r.statement, r.args...).Scan(into...))
		})
	})
}

// queryRows reads all rows of one statement.
func queryRows[T any](ctx context.Context, s *Store, action, statement string, args []any, scan func(*sql.Rows) (T, error)) (all []T, err error) {
	err = s.call(ctx, "read", action, func(ctx context.Context) error {
		return s.single(ctx, func(q query) (err error) {
			all, err = collect(ctx, q, statement, args, scan)
			return err
		})
	})
	return all, err
}

// call runs work unless the store is closed, cancels it when the store closes, and measures it.
func (s *Store) call(ctx context.Context, kind, action string, work func(context.Context) error) (err error) {
	began := time.Now()
	defer func() { s.metrics.transacted(kind, began, err) }()
	ctx, done, err := s.begin(ctx)
	if err != nil {
		return fmt.Errorf("store %s: %s: %w", s.path, action, err)
	}
	defer done()
	if err := work(ctx); err != nil {
		return s.wrapError(ctx, action, err)
	}
	return nil
}

// reading returns the connections for single statements that read.
func (s *Store) reading() *session { return &session{conn: s.reader, dialect: s.dialect} }

func (s *Store) transact(ctx context.Context, db *sql.DB, options *sql.TxOptions, work func(context.Context, *session) error) error {
	var tx *sql.Tx
	err := s.retryLost(func() (err error) {
		tx, err = db.BeginTx(ctx, options)
		return err
	})
	if err != nil {
		return err
	}
	// After a commit, Rollback does nothing.
	defer func() { _ = tx.Rollback() }()
	if err := work(ctx, &session{conn: tx, dialect: s.dialect, observe: s.observe}); err != nil {
		return err
	}
	if options != nil && options.ReadOnly {
		return nil // whatever happens at its end, what was read is consistent
	}
	if err := tx.Commit(); err != nil {
		return &commitError{err}
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

// wrapError wraps an error with the file or the server, the action and, if the cause is a known fault, what the user can do about it.
func (s *Store) wrapError(ctx context.Context, action string, err error) error {
	// An interrupted call is reported in several ways; the reason is always the context's.
	if ctx.Err() != nil && !errors.Is(err, limits.ErrBusy) {
		err = context.Cause(ctx)
	}
	if fault := s.diagnose(err); fault != nil && StorageFault(err) == nil {
		return fmt.Errorf("store %s: %s: %w: %w", s.path, action, fault, err)
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

// eachRow passes on the rows of a statement one after the other, until the first error.
func eachRow(ctx context.Context, q query, statement string, args []any, each func(*sql.Rows) error) error {
	rows, err := q.QueryContext(ctx, statement, args...)
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

// collect reads all rows of a statement.
func collect[T any](ctx context.Context, q query, statement string, args []any, scan func(*sql.Rows) (T, error)) (all []T, err error) {
	err = eachRow(ctx, q, statement, args, func(rows *sql.Rows) error {
		one, err := scan(rows)
		all = append(all, one)
		return err
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// scanValue scans a row with one column.
func scanValue[T any](rows *sql.Rows) (value T, err error) {
	err = rows.Scan(&value)
	return value, err
}

// orNotFound replaces sql.ErrNoRows by ErrNotFound.
func orNotFound(err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return ErrNotFound
	}
	return err
}
