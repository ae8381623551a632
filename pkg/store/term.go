package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrNotLeading means that another replica of the manager leads, so this one must not write what only the leader writes.
var ErrNotLeading = errors.New("another replica of the manager leads")

// term is whether this process leads the others that have the store open, and since which epoch. The Lease decides who leads. A process that was
// suspended, or that cannot reach the API server, may not know yet that its Lease has ended, so the database itself fences it off: each of its
// transactions checks the epoch in the row that it locks. It is safe for concurrent use.
type term struct {
	mu sync.RWMutex
	// alone means that no other process can have the store open for writing. The transactions check no epoch then.
	alone bool
	// epoch is that of the term in which the process leads; 0 while it does not lead.
	epoch int64
}

// get returns the epoch that a transaction checks; 0 for none.
func (t *term) get(ctx context.Context) (epoch int64, err error) {
	if ctx.Value(anyReplica{}) != nil {
		return 0, nil
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	if !t.alone && t.epoch == 0 {
		return 0, ErrNotLeading
	}
	return t.epoch, nil
}

func (t *term) set(epoch int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.alone, t.epoch = false, epoch
}

// anyReplica is the key of ForAnyReplica.
type anyReplica struct{}

// ForAnyReplica returns a context for writes that every replica may make, whether it leads or not: each is complete by itself, and whoever
// makes it has checked what it depends on in the same transaction.
func ForAnyReplica(ctx context.Context) context.Context {
	return context.WithValue(ctx, anyReplica{}, true)
}

// fenced is the key of the epoch of a transaction that the connection to a PostgreSQL server checks when it begins.
type fenced struct{}

// Follow says that other processes may have the store open for writing, and that this one does not lead them. From now on, methods that write
// return ErrNotLeading, unless their context is one of ForAnyReplica.
func (s *Store) Follow() { s.term.set(0) }

// Lead begins a term of this process, and returns its epoch, which is higher than that of any term before. From now on, no transaction of an
// earlier term is committed: its methods return ErrNotLeading. The epoch is at least the time in milliseconds, so it is also higher than those
// that a store has forgotten because it was put back to an earlier state.
func (s *Store) Lead(ctx context.Context) (epoch int64, err error) {
	var before time.Time
	err = s.write(ForAnyReplica(ctx), "begin to lead", func(ctx context.Context, tx *session) error {
		if _, err := tx.ExecContext(ctx, raiseEpoch, sql.Named("now", s.now().UnixMilli())); err != nil {
			return err
		}
		if err := tx.QueryRowContext(ctx, `SELECT epoch FROM store_revision`).Scan(&epoch); err != nil {
			return err
		}
		before, err = readMetaTime(ctx, tx, lastPresent)
		return err
	})
	if err != nil {
		return 0, err
	}
	s.presence.begin(before)
	s.term.set(epoch)
	return epoch, nil
}

// Epoch returns the epoch of this process's term; 0 if it does not lead, or never had to.
func (s *Store) Epoch() int64 {
	s.term.mu.RLock()
	defer s.term.mu.RUnlock()
	return s.term.epoch
}

// IsFenced reports whether another term has begun since that of this process, which may not know it yet. It is false for a process that never led.
func (s *Store) IsFenced(ctx context.Context) (fenced bool, err error) {
	epoch := s.Epoch()
	if epoch == 0 {
		return false, nil
	}
	err = s.queryRow(ctx, "look up the epoch", `SELECT epoch > ? FROM store_revision`, epoch).Scan(&fenced)
	return fenced, err
}

const raiseEpoch = `UPDATE store_revision SET epoch = CASE WHEN epoch < @now THEN @now ELSE epoch + 1 END`

// raiseInTerm is raiseRevision for a term. It changes no row if another term has begun.
const raiseInTerm = raiseRevision + ` WHERE epoch = ?`

// raise raises the revision in a transaction, unless another term than that of the epoch has begun.
func (s *Store) raise(ctx context.Context, tx *session, epoch int64) error {
	if epoch == 0 {
		_, err := tx.ExecContext(ctx, raiseRevision)
		return err
	}
	result, err := tx.ExecContext(ctx, raiseInTerm, epoch)
	if err != nil {
		return err
	}
	rows, err := result.RowsAffected()
	if err == nil && rows == 0 {
		return fmt.Errorf("%w since epoch %d ended", ErrNotLeading, epoch)
	}
	return err
}
