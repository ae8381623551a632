package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// restore checks a backup from a file or from in, and stages it. The manager takes it over at its next start. Messages go to says.
func restore(ctx context.Context, args []string, in io.Reader, messages io.Writer) error {
	flags := newFlags("restore")
	where := addStoreFlags(flags)
	cancel := flags.Bool("cancel", false, "take back a restore that the manager has not taken yet")
	if err := flags.Parse(args); err != nil {
		return err
	}
	location, err := where.location()
	if err != nil {
		return err
	}
	if err := location.checkFile(); err != nil {
		return err
	}
	path := location.path()
	switch {
	case flags.NArg() > 1:
		return fmt.Errorf("%q: only one backup can be restored", flags.Args())
	case *cancel && flags.NArg() > 0:
		return errors.New("--cancel: reads no backup")
	case *cancel:
		return cancelRestore(path, messages)
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
	fmt.Fprintf(messages, "the backup of store %s as of %s is complete; the manager takes it when it starts the next time: restart it now\n",
		info.Store, info.CreatedAt.Format(time.RFC3339))
	return nil
}

func cancelRestore(path string, messages io.Writer) error {
	found, err := store.CancelRestore(path)
	switch {
	case err != nil:
		return err
	case found:
		fmt.Fprintln(messages, "the restore was taken back")
	default:
		fmt.Fprintln(messages, "there is no restore that the manager has not taken yet")
	}
	return nil
}
