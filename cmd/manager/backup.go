package main

import (
	"context"
	"errors"
	"flag"
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

// Names of backups that --directory makes: their order is that of their times.
const (
	backupPrefix = "scanner-operator-"
	backupSuffix = ".backup"
	backupTime   = "20060102T150405Z"
)

// backup writes the whole store, beside the manager that uses it, to standard output or a file. Nothing else goes to standard
// output; what it says goes to says.
func backup(ctx context.Context, args []string, out *os.File, says io.Writer) error {
	flags := flag.NewFlagSet("manager backup", flag.ContinueOnError)
	dataDir := flags.String("data-dir", defaultDataDir, "directory of the store")
	output := flags.String("output", "-", "file to write, with mode 0600; - for standard output")
	directory := flags.String("directory", "", "directory to write a file into that is named by its time, instead of --output")
	keep := flags.Int("keep", 0, "with --directory: how many such files to keep, the newest ones; 0 for all")
	if err := flags.Parse(args); err != nil {
		return err
	}
	switch {
	case flags.NArg() > 0:
		return fmt.Errorf("%q is not a flag of manager backup", flags.Arg(0))
	case *directory != "" && *output != "-":
		return errors.New("--output and --directory: only one of them")
	case *keep < 0 || *keep > 0 && *directory == "":
		return errors.New("--keep: a number of files, with --directory")
	}
	db, err := store.OpenSQLiteReadOnly(filepath.Join(*dataDir, storeFile))
	if err != nil {
		return err
	}
	info, err := writeBackup(ctx, db, *output, *directory, out)
	if err = errors.Join(err, db.Close()); err != nil {
		return err
	}
	fmt.Fprintf(says, "backed up store %s (schema %d, %d KiB) as of %s\n", info.Store, info.Schema, info.Pages*info.PageSize>>10, info.CreatedAt.Format(time.RFC3339))
	if *keep > 0 {
		return deleteOldBackups(*directory, *keep)
	}
	return nil
}

func writeBackup(ctx context.Context, db *store.SQLite, output, directory string, out *os.File) (store.BackupInfo, error) {
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

// backupFile writes a file that is there when it is complete, and readable by nobody else.
func backupFile(ctx context.Context, db *store.SQLite, path string) (info store.BackupInfo, err error) {
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".") // with mode 0600
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

// deleteOldBackups keeps the newest files that --directory made.
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

// restore reads a backup from a file or in, checks it, and has the manager take it when it starts the next time.
func restore(ctx context.Context, args []string, in io.Reader, says io.Writer) error {
	flags := flag.NewFlagSet("manager restore", flag.ContinueOnError)
	dataDir := flags.String("data-dir", defaultDataDir, "directory of the store")
	cancel := flags.Bool("cancel", false, "take back a restore that the manager has not taken yet")
	if err := flags.Parse(args); err != nil {
		return err
	}
	path := filepath.Join(*dataDir, storeFile)
	switch {
	case flags.NArg() > 1:
		return fmt.Errorf("%q: only one backup can be restored", flags.Args())
	case *cancel && flags.NArg() > 0:
		return errors.New("--cancel: reads no backup")
	case *cancel:
		return cancelRestore(path, says)
	case flags.NArg() == 1 && flags.Arg(0) != "-":
		file, err := os.Open(flags.Arg(0))
		if err != nil {
			return err
		}
		defer file.Close()
		in = file
	}
	info, err := store.StageRestore(ctx, in, path)
	if err != nil {
		return fmt.Errorf("nothing was changed: %w", err)
	}
	fmt.Fprintf(says, "the backup of store %s as of %s is complete; the manager takes it when it starts the next time: restart it now\n",
		info.Store, info.CreatedAt.Format(time.RFC3339))
	return nil
}

func cancelRestore(path string, says io.Writer) error {
	found, err := store.CancelRestore(path)
	switch {
	case err != nil:
		return err
	case found:
		fmt.Fprintln(says, "the restore was taken back")
	default:
		fmt.Fprintln(says, "there is no restore that the manager has not taken yet")
	}
	return nil
}
