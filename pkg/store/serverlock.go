package store

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

// Migrations on PostgreSQL are locked by a row, which also works through a pooler. The process that holds the lock renews it; the lock of a process that
// was killed expires.
const (
	migrationLease     = 30 * time.Second
	migrationHeartbeat = 5 * time.Second
	// migrationWait is how long a process waits for the lock before it returns ErrLocked, in seconds.
	migrationWait = 10
)

// migrateLocked migrates the database unless another process does that. It then returns ErrLocked, and the caller tries again.
func (s *Store) migrateLocked(ctx context.Context, db *sql.DB, newLocker func(...lock.TableLockerOption) (lock.Locker, error)) error {
	held := false
	locker, err := newLocker(
		lock.WithTableLeaseDuration(migrationLease), lock.WithTableHeartbeatInterval(migrationHeartbeat),
		lock.WithTableLockTimeout(time.Second, migrationWait), lock.WithTableUnlockTimeout(time.Second, migrationWait),
		lock.WithTableRetryPolicy(func(err error) bool {
			held = serverFault(err) == nil
			return held
		}))
	if err != nil {
		return err
	}
	err = migrateWith(ctx, db, s.dialect, goose.WithLocker(watchedLocker{locker, &held}))
	if err != nil && held {
		return fmt.Errorf("%w, which migrates it: %w", ErrLocked, err)
	}
	return err
}

// watchedLocker resets held when the lock was taken after all.
type watchedLocker struct {
	lock.Locker
	held *bool
}

// Lock implements lock.Locker.
func (l watchedLocker) Lock(ctx context.Context, db *sql.DB) error {
	err := l.Locker.Lock(ctx, db)
	if err == nil {
		*l.held = false
	}
	return err
}
