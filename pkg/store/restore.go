package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/pressly/goose/v3"
)

// PreviousSuffix is the suffix of the file that keeps the store from before the last restore, beside the current store.
const PreviousSuffix = ".previous"

// partialSuffix is the suffix of a restored store that is being written and checked. stagedSuffix is that of a restored store
// that the manager takes over at its next start. restoringSuffix is that of the lock file of a restore: the other two files are
// renamed, and a lock file must not be.
const partialSuffix, stagedSuffix, restoringSuffix = ".partial", ".restore", ".restoring"

var (
	// ErrRestoring means that another process is restoring a backup to the same store.
	ErrRestoring = errors.New("another restore into this directory is under way: wait for it")
	// ErrTakeoverStarted means that a restore can no longer be canceled, because there would be no store.
	ErrTakeoverStarted = errors.New("the manager has put the store before aside already: start it, it takes the restored one")
)

// StageRestore reads a backup to its end, checks it, and stages it to replace the store at path the next time that this store is
// opened for writing. Until then the store and its users are not affected. After an error nothing is staged by this call. A
// backup that was staged before is replaced.
func StageRestore(ctx context.Context, in io.Reader, path string) (info BackupInfo, err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return info, err
	}
	lock, err := lockFile(path + restoringSuffix)
	if errors.Is(err, ErrLocked) {
		return info, ErrRestoring
	}
	if err != nil {
		return info, err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	return stageRestore(ctx, in, path)
}

// stageRestore does the work of StageRestore. The caller holds the restore lock.
func stageRestore(ctx context.Context, in io.Reader, path string) (info BackupInfo, err error) {
	partial := path + partialSuffix
	if err := removePartial(partial); err != nil {
		return info, err
	}
	file, err := os.OpenFile(partial, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return info, err
	}
	defer func() {
		// Without an error the file has been renamed.
		if err != nil {
			err = errors.Join(err, removePartial(partial))
		}
		err = errors.Join(err, file.Close())
	}()
	if info, err = readBackup(in, func(info BackupInfo) error { return requireSpace(file, info) }, file); err != nil {
		return info, err
	}
	if err := prepareRestore(ctx, partial, info); err != nil {
		return info, err
	}
	if err := file.Sync(); err != nil {
		return info, err
	}
	if err := os.Rename(partial, path+stagedSuffix); err != nil {
		return info, err
	}
	return info, syncDirectory(path)
}

// CancelRestore removes a staged backup that the manager has not taken over; false if there is none. It returns ErrTakeoverStarted if
// the manager has already moved the previous store.
func CancelRestore(path string) (bool, error) {
	staged := path + stagedSuffix
	if exists(staged) && exists(path+PreviousSuffix) && !exists(path) {
		return false, ErrTakeoverStarted
	}
	err := os.Remove(staged)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// exists reports whether the file exists.
func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// requireSpace returns an error if the restored store would fill the volume of the store that is in use.
func requireSpace(file *os.File, info BackupInfo) error {
	var volume syscall.Statfs_t
	if err := syscall.Statfs(file.Name(), &volume); err != nil {
		return err
	}
	free, wanted := volume.Bavail*uint64(volume.Bsize), uint64(info.size())+minFreeBytes
	if free < wanted {
		return fmt.Errorf("the volume has no room for the restored store beside the one in use: %d MiB are free and %d MiB are needed; enlarge it",
			free>>20, wanted>>20)
	}
	return nil
}

// prepareRestore checks that a file is the store that its backup's header describes, and gives it a new ID. It lacks everything
// that happened after the backup, so readers must not mistake it for the original store.
func prepareRestore(ctx context.Context, path string, info BackupInfo) (err error) {
	name := url.URL{Scheme: "file", OmitHost: true, Path: path, RawQuery: url.Values{"_pragma": {"journal_mode(DELETE)", "synchronous(FULL)"}}.Encode()}
	db, err := connect(name.String())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	db.SetMaxOpenConns(1)
	if err := checkRestored(ctx, db, info); ctx.Err() != nil {
		return ctx.Err()
	} else if errors.Is(err, ErrForeignSchema) {
		return err
	} else if err != nil {
		return fmt.Errorf("%w (%w)", ErrBackupDamaged, err)
	}
	_, err = db.ExecContext(ctx, `INSERT INTO meta (name, value) VALUES ('id', ?), (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value`,
		randomID(), restoredFrom, strconv.FormatInt(info.CreatedAt.UnixMilli(), 10))
	return err
}

// restoredFrom is the key in the meta table of the creation time of the backup that the store was restored from.
const restoredFrom = "restored_from"

func checkRestored(ctx context.Context, db *sql.DB, info BackupInfo) error {
	if err := checkOwner(ctx, db); err != nil {
		return err
	}
	// This check comes first, since the following statements would execute a view or generated column in the place of a table.
	if err := checkSchemaObjects(ctx, db, info.Schema); err != nil {
		return err
	}
	var problem, id string
	if err := db.QueryRowContext(ctx, `PRAGMA quick_check(1)`).Scan(&problem); err != nil {
		return err
	}
	if problem != "ok" {
		return errors.New(problem)
	}
	var schema int64
	if err := db.QueryRowContext(ctx, `SELECT value, (SELECT max(version_id) FROM `+goose.DefaultTablename+`) FROM meta WHERE name = 'id'`).Scan(&id, &schema); err != nil {
		return err
	}
	if id != info.Store || schema != info.Schema {
		return fmt.Errorf("it holds store %s with schema %d, and says store %s with schema %d", id, schema, info.Store, info.Schema)
	}
	return nil
}

// removeInterrupted removes the files of an interrupted restore, unless another process is still restoring.
func removeInterrupted(path string) error {
	partial := path + partialSuffix
	if _, err := os.Stat(partial); errors.Is(err, os.ErrNotExist) { //nolint:gosec // the path is the operator's own flag
		return nil
	}
	lock, err := lockFile(path + restoringSuffix)
	if errors.Is(err, ErrLocked) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(removePartial(partial), lock.Close())
}

func removePartial(path string) error {
	return removeAll(path, path+"-journal", path+"-wal", path+"-shm")
}

// removeAll removes files. A missing file is no error.
func removeAll(paths ...string) error {
	var errs []error
	for _, path := range paths {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) { //nolint:gosec // the path is the operator's own flag
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// syncDirectory syncs the directory of a file, so that renames survive a crash of the machine.
func syncDirectory(path string) error {
	directory, err := os.Open(filepath.Dir(path)) //nolint:gosec // the path is the operator's own flag
	if err != nil {
		return err
	}
	return errors.Join(directory.Sync(), directory.Close())
}
