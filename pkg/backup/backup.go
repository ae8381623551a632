// Package backup writes backups of a store to files, and deletes old ones.
package backup

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Names of the files that Path names. They sort by time.
const (
	prefix = "scanner-operator-"
	// incompletePrefix precedes the name of a backup that is being written.
	incompletePrefix = "."
	suffix           = ".backup"
	timeFormat       = "20060102T150405Z"
)

// incompleteFileAge is the age from which an incomplete file counts as abandoned.
const incompleteFileAge = 24 * time.Hour

// Path returns the path of a backup in a directory that is named by its time.
func Path(directory string, at time.Time) string {
	return filepath.Join(directory, prefix+at.UTC().Format(timeFormat)+suffix)
}

// WriteFile writes a file that appears when it is complete, and that only its owner can read.
func WriteFile(path string, write func(io.Writer) error) error {
	file, err := os.CreateTemp(filepath.Dir(path), incompletePrefix+filepath.Base(path)+".") // with mode 0600
	if err != nil {
		return err
	}
	if err = write(file); err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return nil
}

// DeleteIncomplete deletes the incomplete files of killed backups in a directory that are at least incompleteFileAge old.
func DeleteIncomplete(directory string) error {
	entries, err := os.ReadDir(directory)
	if err != nil {
		return err
	}
	var errs []error
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Name(), incompletePrefix+prefix) || !strings.Contains(entry.Name(), suffix+".") {
			continue
		}
		if status, err := entry.Info(); err == nil && time.Since(status.ModTime()) >= incompleteFileAge {
			errs = append(errs, os.Remove(filepath.Join(directory, entry.Name())))
		}
	}
	return errors.Join(errs...)
}

// DeleteOld deletes all but the newest backups that Path named.
func DeleteOld(directory string, keep int) error {
	entries, err := os.ReadDir(directory)
	if err != nil {
		return err
	}
	names := []string{}
	for _, entry := range entries {
		stamp := strings.TrimSuffix(strings.TrimPrefix(entry.Name(), prefix), suffix)
		if _, err := time.Parse(timeFormat, stamp); err == nil && entry.Name() == prefix+stamp+suffix {
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
