package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/workerapi/version"
)

// Names of the backups that --directory creates. They sort by time.
const (
	backupPrefix = "scanner-operator-"
	// incompletePrefix precedes the name of a backup that is being written.
	incompletePrefix = "."
	backupSuffix     = ".backup"
	backupTime       = "20060102T150405Z"
)

// incompleteFileAge is the age from which an incomplete file counts as abandoned.
const incompleteFileAge = 24 * time.Hour

// backup writes the whole store to standard output or a file, while the manager uses the store. Nothing else goes to standard output:
// messages go to says.
func backup(ctx context.Context, args []string, out *os.File, messages io.Writer) error {
	flags := newFlags("backup")
	dataDir := flags.String("data-dir", defaultDataDir, "directory of the store")
	output := flags.String("output", "-", "file to write, with mode 0600; - for standard output")
	directory := flags.String("directory", "", "directory to write a file into that is named by its time, instead of --output")
	keep := flags.Int("keep", 0, "with --directory: how many such files to keep, the newest ones; 0 for all")
	if err := flags.Parse(args); err != nil {
		return err
	}
	switch {
	case flags.NArg() > 0:
		return fmt.Errorf("%q is not a flag", flags.Arg(0))
	case *directory != "" && *output != "-":
		return errors.New("--output and --directory: only one of them")
	case *keep < 0 || *keep > 0 && *directory == "":
		return errors.New("--keep: a number of files, with --directory")
	}
	db, err := store.OpenSQLiteReadOnly(filepath.Join(*dataDir, storeFile))
	if err != nil {
		return err
	}
	if *keep > 0 { // before the backup, which may need their space
		if err := deleteIncompleteFiles(*directory); err != nil {
			return errors.Join(err, db.Close())
		}
	}
	info, err := writeBackup(ctx, db, *output, *directory, out)
	if err = errors.Join(err, db.Close()); err != nil {
		return err
	}
	fmt.Fprintf(messages, "backed up store %s (schema %d, %d KiB) as of %s\n", info.Store, info.Schema, info.Pages*info.PageSize>>10, info.CreatedAt.Format(time.RFC3339))
	if *keep > 0 {
		return deleteOldBackups(*directory, *keep)
	}
	return nil
}

func writeBackup(ctx context.Context, db *store.Store, output, directory string, out *os.File) (store.BackupInfo, error) {
	switch {
	case directory != "":
		output = filepath.Join(directory, backupPrefix+time.Now().UTC().Format(backupTime)+backupSuffix)
	case output == "-":
		if status, err := out.Stat(); err == nil && status.Mode()&os.ModeCharDevice != 0 && status.Mode()&os.ModeDevice != 0 {
			return store.BackupInfo{}, errors.New("a backup is no text: send standard output to a file (kubectl exec without --tty), or use --output")
		}
		return db.Backup(ctx, version.Version, out)
	}
	return backupFile(ctx, db, output)
}

// backupFile writes a file that appears when it is complete, and that only its owner can read.
func backupFile(ctx context.Context, db *store.Store, path string) (info store.BackupInfo, err error) {
	file, err := os.CreateTemp(filepath.Dir(path), incompletePrefix+filepath.Base(path)+".") // with mode 0600
	if err != nil {
		return info, err
	}
	if info, err = db.Backup(ctx, version.Version, file); err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		return info, errors.Join(err, os.Remove(file.Name()))
	}
	return info, nil
}

// deleteIncompleteFiles deletes the incomplete files of killed backups with --directory that are at least incompleteFileAge old.
func deleteIncompleteFiles(directory string) error {
	entries, err := os.ReadDir(directory)
	if err != nil {
		return err
	}
	var errs []error
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Name(), incompletePrefix+backupPrefix) || !strings.Contains(entry.Name(), backupSuffix+".") {
			continue
		}
		if status, err := entry.Info(); err == nil && time.Since(status.ModTime()) >= incompleteFileAge {
			errs = append(errs, os.Remove(filepath.Join(directory, entry.Name())))
		}
	}
	return errors.Join(errs...)
}

// deleteOldBackups deletes all but the newest backups that --directory created.
func deleteOldBackups(directory string, keep int) error {
	entries, err := os.ReadDir(directory)
	if err != nil {
		return err
	}
	names := []string{}
	for _, entry := range entries {
		stamp := strings.TrimSuffix(strings.TrimPrefix(entry.Name(), backupPrefix), backupSuffix)
		if _, err := time.Parse(backupTime, stamp); err == nil && entry.Name() == backupPrefix+stamp+backupSuffix {
			names = append(names, entry.Name())
		}
	}
	slices.Sort(names)
	var errs []error
	for _, name := range names[:max(0, len(names)-keep)] {
		errs = append(errs, os.Remove(filepath.Join(directory, name)))
	}
	return errors.Join(errs...)
}
