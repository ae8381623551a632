package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/backup"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/workerapi/version"
)

// runBackup writes the whole store to standard output or a file, while the manager uses the store. What people read goes to messages.
func runBackup(ctx context.Context, args []string, out *os.File, messages io.Writer) error {
	flags := newFlags("backup")
	where := addStoreFlags(flags)
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
	location, err := where.location()
	if err != nil {
		return err
	}
	if err := location.checkFile(); err != nil {
		return err
	}
	db, err := location.openReadOnly(ctx)
	if err != nil {
		return err
	}
	if *keep > 0 { // before the backup, which may need their space
		if err := backup.DeleteIncomplete(*directory); err != nil {
			return errors.Join(err, db.Close())
		}
	}
	info, err := writeBackup(ctx, db, *output, *directory, out)
	if err = errors.Join(err, db.Close()); err != nil {
		return err
	}
	fmt.Fprintf(messages, "backed up store %s (schema %d, %d KiB) as of %s\n", info.Store, info.Schema, info.Pages*info.PageSize>>10, info.CreatedAt.Format(time.RFC3339))
	if *keep > 0 {
		return backup.DeleteOld(*directory, *keep)
	}
	return nil
}

func writeBackup(ctx context.Context, db *store.Store, output, directory string, out *os.File) (info store.BackupInfo, err error) {
	write := func(out io.Writer) error {
		info, err = db.Backup(ctx, version.Version, out)
		return err
	}
	switch {
	case directory != "":
		output = backup.Path(directory, time.Now())
	case output == "-" && isTerminal(out):
		return info, errors.New("a backup is no text: send standard output to a file (kubectl exec without --tty), or use --output")
	case output == "-":
		return info, write(out)
	}
	return info, backup.WriteFile(output, write)
}

func isTerminal(file *os.File) bool {
	status, err := file.Stat()
	return err == nil && status.Mode()&os.ModeCharDevice != 0 && status.Mode()&os.ModeDevice != 0
}
