package database

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	v6 "github.com/anchore/grype/grype/db/v6"

	"github.com/scanner-operator/scanner-operator/worker/clock"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// Layout of the store:
//
//	<dir>/.lock                        held while versions are added or removed
//	<dir>/<built>-<checksum>/6/        Grype's own layout of a database directory
//	<dir>/<built>-<checksum>/installed.json   written last: without it the directory is not there
const (
	lockName   = ".lock"
	markerName = "installed.json"
)

// Store is a directory of installed databases. Several workers may share it.
type Store struct {
	dir   string
	clock clock.Clock
	log   *slog.Logger
}

// Version is an installed database.
type Version struct {
	workerapi.Database
	// Size of the database file in bytes.
	Size int64 `json:"size"`
	dir  string
}

// OpenStore opens the directory, which it creates if needed. It removes builds that a crash left partly installed.
func OpenStore(dir string, clock clock.Clock, log *slog.Logger) (*Store, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("the database directory must be writable: %w", err)
	}
	s := &Store{dir: dir, clock: clock, log: log}
	held, err := tryLock(filepath.Join(dir, lockName), false)
	if errors.Is(err, errLocked) {
		// Another worker is installing a build, which looks partly installed until then.
		return s, nil
	}
	if err != nil {
		return nil, fmt.Errorf("the database directory must be writable: %w", err)
	}
	defer held.unlock()
	return s, s.sweep()
}

// sweep removes directories without a valid marker. The caller holds the lock.
func (s *Store) sweep() error {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		path := filepath.Join(s.dir, entry.Name())
		if !entry.IsDir() || !isVersionName(entry.Name()) {
			continue
		}
		// Older builds stay: another worker may have one open, or need it as a fallback.
		if _, err := readVersion(path); err == nil {
			continue
		}
		s.log.Warn("removing a database that is not completely installed", "directory", entry.Name())
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	return nil
}

// builtFormat is the time format of directory names. Such names sort by time.
const builtFormat = "20060102T150405Z"

// isVersionName reports whether a name is that of a build's directory, rather than of another one on the volume, such as lost+found.
func isVersionName(name string) bool {
	built, _, ok := strings.Cut(name, "-")
	_, err := time.Parse(builtFormat, built)
	return ok && err == nil
}

// versionName returns the directory name of a build. The checksum must be valid, as in a validated listing.
func versionName(database workerapi.Database) string {
	return database.Built.UTC().Format(builtFormat) + "-" + strings.TrimPrefix(database.Checksum, "sha256:")[:12]
}

// readVersion reads a marker, and checks that the database file still has the size in it.
func readVersion(dir string) (Version, error) {
	raw, err := os.ReadFile(filepath.Join(dir, markerName))
	if err != nil {
		return Version{}, err
	}
	v := Version{dir: dir}
	if err := json.Unmarshal(raw, &v); err != nil {
		return Version{}, err
	}
	info, err := os.Stat(v.file())
	if err != nil {
		return Version{}, err
	}
	if info.Size() != v.Size {
		return Version{}, fmt.Errorf("%s has %d bytes, it had %d when it was installed", v.file(), info.Size(), v.Size)
	}
	return v, nil
}

// schemaDir returns the directory that Grype calls the database directory.
func (v Version) schemaDir() string { return filepath.Join(v.dir, strconv.Itoa(v6.ModelVersion)) }

// file returns the path of the database file.
func (v Version) file() string { return filepath.Join(v.schemaDir(), v6.VulnerabilityDBFileName) }

// marker returns the path of the marker, which makes the version count as installed. Workers that have the version open lock it.
func (v Version) marker() string { return filepath.Join(v.dir, markerName) }

// Versions returns the installed versions, newest first.
func (s *Store) Versions() ([]Version, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, err
	}
	var versions []Version
	for _, entry := range entries {
		if !entry.IsDir() || !isVersionName(entry.Name()) {
			continue
		}
		// An unreadable version counts as not installed: OpenStore removes it at the next start.
		if v, err := readVersion(filepath.Join(s.dir, entry.Name())); err == nil {
			versions = append(versions, v)
		}
	}
	slices.SortFunc(versions, func(a, b Version) int { return b.Built.Compare(a.Built) })
	return versions, nil
}

// Prune removes all but the newest keep versions, except those that a worker has open.
func (s *Store) Prune(ctx context.Context, keep int) error {
	held, err := waitLock(ctx, filepath.Join(s.dir, lockName), s.clock)
	if err != nil {
		return err
	}
	defer held.unlock()
	versions, err := s.Versions()
	if err != nil {
		return err
	}
	for _, v := range versions[min(keep, len(versions)):] {
		// A version that is open is removed by a later Prune.
		if err := s.remove(v); err != nil && !errors.Is(err, errLocked) {
			return err
		}
	}
	return nil
}

// Discard removes a version that turned out to be damaged. A process that has its file open can still read it.
func (s *Store) Discard(ctx context.Context, v Version) error {
	held, err := waitLock(ctx, filepath.Join(s.dir, lockName), s.clock)
	if err != nil {
		return err
	}
	defer held.unlock()
	s.log.Warn("removing a damaged database", "built", v.Built)
	return removeDir(v)
}

// remove deletes a version, or returns errLocked if a worker has it open. The caller holds the store's lock.
func (s *Store) remove(v Version) error {
	unused, err := tryLock(v.marker(), false)
	if err != nil {
		return err
	}
	defer unused.unlock()
	s.log.Info("removing an old database", "built", v.Built)
	return removeDir(v)
}

// removeDir removes the marker first, so that a crash before the end leaves nothing that looks installed.
func removeDir(v Version) error {
	if err := os.Remove(v.marker()); err != nil {
		return err
	}
	return os.RemoveAll(v.dir)
}
