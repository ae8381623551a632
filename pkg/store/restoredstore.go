package store

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"time"
)

// takeOverRestored replaces the store by a staged one, and reports whether there was one. The previous store is kept until the next
// restore. The caller holds the lock. If it is interrupted at any point, the next call continues.
func takeOverRestored(ctx context.Context, path string) (bool, error) {
	staged := path + stagedSuffix
	if _, err := os.Stat(staged); err != nil { //nolint:gosec // the path is the operator's own flag
		if errors.Is(err, os.ErrNotExist) {
			return false, nil
		}
		return false, err
	}
	if err := movePreviousStore(ctx, path); err != nil {
		return false, fmt.Errorf("put aside the store before the restored one: %w", err)
	}
	// SQLite would apply the previous store's files to the restored one.
	if err := moveOrphanedLog(path); err != nil {
		return false, err
	}
	if err := removeAll(path + "-shm"); err != nil {
		return false, err
	}
	if err := os.Rename(staged, path); err != nil { //nolint:gosec // the path is the operator's own flag
		return false, err
	}
	return true, syncDirectory(path)
}

// movePreviousStore renames the current store, as one file if it can be read.
func movePreviousStore(ctx context.Context, path string) error {
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) { //nolint:gosec // the path is the operator's own flag
		return nil
	}
	checkpointLog(ctx, path)
	previous := path + PreviousSuffix
	if err := removeAll(previous, previous+"-wal"); err != nil {
		return err
	}
	if err := os.Rename(path, previous); err != nil { //nolint:gosec // the path is the operator's own flag
		return err
	}
	// A store that could not be read still has its log.
	if err := os.Rename(path+"-wal", previous+"-wal"); err != nil && !errors.Is(err, os.ErrNotExist) { //nolint:gosec // the path is the operator's own flag
		return err
	}
	return syncDirectory(path)
}

// checkpointLog makes SQLite move the write-ahead log into the store. Errors are ignored: the store may be damaged, which may be the
// reason to replace it.
func checkpointLog(ctx context.Context, path string) {
	name := url.URL{Scheme: "file", OmitHost: true, Path: path}
	db, err := connect(name.String())
	if err != nil {
		return
	}
	defer db.Close()
	_, _ = db.ExecContext(ctx, `PRAGMA wal_checkpoint(TRUNCATE)`)
}

// RestoredFrom returns the creation time of the backup that the store was last restored from, zero if it never was. The store lacks
// everything that happened between that time and the restore. A restored store has a new ID.
func (s *Store) RestoredFrom() time.Time { return s.identity.Load().restoredFrom }

// Replaced reports whether opening the store replaced the previous one by a restored backup.
func (s *Store) Replaced() bool { return s.replaced }
