package database

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	v6 "github.com/anchore/grype/grype/db/v6"
)

// Install downloads the listing's build, verifies it once and makes it visible. A build that is there
// already is returned as it is. After an error nothing of it is left.
func (s *Store) Install(ctx context.Context, source *Source, listing Listing) (Version, error) {
	held, err := waitLock(ctx, filepath.Join(s.dir, lockName), s.clock)
	if err != nil {
		return Version{}, err
	}
	defer held.unlock()

	// The name follows from the build and its checksum: two listings of one build meet in one directory.
	v := Version{Database: listing.Database, dir: filepath.Join(s.dir, versionName(listing.Database))}
	// Another worker may have installed it while this one waited.
	if installed, err := readVersion(v.dir); err == nil {
		return installed, nil
	}
	// What a crash may have left of an earlier attempt.
	if err := os.RemoveAll(v.dir); err != nil {
		return Version{}, err
	}
	if err := s.install(ctx, source, listing, &v); err != nil {
		return Version{}, errors.Join(advised(err), os.RemoveAll(v.dir))
	}
	return v, nil
}

// advised says what to do about a volume that is full. SQLite has a text of its own for that.
func advised(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || strings.Contains(err.Error(), "database or disk is full") {
		return fmt.Errorf("the database volume is full: raise grype.database.volume.size in the operator's configuration, or make room on it: %w", err)
	}
	return err
}

// install does the steps of an installation in v's directory; writing the marker is the last of them.
func (s *Store) install(ctx context.Context, source *Source, listing Listing, v *Version) error {
	if err := os.MkdirAll(v.schemaDir(), 0o755); err != nil {
		return err
	}
	start := s.clock.Now()
	archive := filepath.Join(v.dir, "archive")
	s.log.Info("downloading the database", "built", listing.Built, "from", plain(listing.Archive))
	if err := source.download(ctx, listing, archive, s.log); err != nil {
		return err
	}
	downloaded := s.clock.Now()
	if err := unpack(archive, archiveFormat(listing.Archive.Path), v.file()); err != nil {
		return err
	}
	// Its space may be needed for the indexes.
	if err := os.Remove(archive); err != nil {
		return err
	}
	// Archives come without indexes. This must happen before anyone opens the file.
	if err := v6.Hydrater()(v.schemaDir()); err != nil {
		return fmt.Errorf("indexing the database: %w", err)
	}
	indexed := s.clock.Now()
	// The only time that the whole file is read: from here on it is opened directly.
	if err := verify(ctx, v.file(), listing); err != nil {
		return err
	}
	if err := v.activate(); err != nil {
		return err
	}
	s.log.Info("database installed", "built", v.Built, "bytes", v.Size,
		"download", downloaded.Sub(start).Round(time.Millisecond),
		"unpackAndIndex", indexed.Sub(downloaded).Round(time.Millisecond),
		"verify", s.clock.Now().Sub(indexed).Round(time.Millisecond))
	return nil
}

// activate writes the marker once everything that it stands for is on the disk.
func (v *Version) activate() error {
	// Grype creates the indexes without waiting for the disk.
	size, err := syncFile(v.file())
	if err != nil {
		return err
	}
	v.Size = size
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	// A marker appears under its name only with all of its content.
	if err := os.WriteFile(v.marker()+".new", raw, 0o644); err != nil {
		return err
	}
	// Directories hold the names: without them a file survives a power cut namelessly.
	for _, path := range []string{v.marker() + ".new", v.schemaDir(), v.dir} {
		if _, err := syncFile(path); err != nil {
			return err
		}
	}
	if err := os.Rename(v.marker()+".new", v.marker()); err != nil {
		return err
	}
	_, err = syncFile(v.dir)
	return err
}

// syncFile has a file or directory written to the disk and returns its size.
func syncFile(path string) (int64, error) {
	file, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), file.Sync()
}
