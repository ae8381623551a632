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

// Install downloads the listing's build, verifies it once and makes it visible. If the build is already installed,
// Install returns it unchanged. After an error, no file of the build is left.
func (s *Store) Install(ctx context.Context, source *Source, listing Listing) (Version, error) {
	held, err := waitLock(ctx, filepath.Join(s.dir, lockName), s.clock)
	if err != nil {
		return Version{}, err
	}
	defer held.unlock()

	// The name depends only on the build and its checksum: two listings of one build lead to one directory.
	v := Version{Database: listing.Database, dir: filepath.Join(s.dir, versionName(listing.Database))}
	// Another worker may have installed it while this one waited.
	if installed, err := readVersion(v.dir); err == nil {
		return installed, nil
	}
	// A crash may have left files of an earlier attempt.
	if err := os.RemoveAll(v.dir); err != nil {
		return Version{}, err
	}
	if err := s.install(ctx, source, listing, &v); err != nil {
		return Version{}, errors.Join(withVolumeAdvice(err), os.RemoveAll(v.dir))
	}
	return v, nil
}

// withVolumeAdvice adds the remedy to an error about a full volume. SQLite has an error text of its own for that.
func withVolumeAdvice(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || strings.Contains(err.Error(), "database or disk is full") {
		return fmt.Errorf("the database volume is full: raise grype.database.volume.size in the operator's configuration, or free space on it: %w", err)
	}
	return err
}

// install downloads, unpacks, indexes and verifies a build in v's directory, and writes the marker last.
func (s *Store) install(ctx context.Context, source *Source, listing Listing, v *Version) error {
	if err := os.MkdirAll(v.schemaDir(), 0o755); err != nil {
		return err
	}
	start := s.clock.Now()
	archive := filepath.Join(v.dir, "archive")
	s.log.Info("downloading the database", "built", listing.Built, "from", redactedURL(listing.Archive))
	if err := source.download(ctx, listing, archive, s.log); err != nil {
		return err
	}
	downloaded := s.clock.Now()
	if err := unpack(archive, archiveFormat(listing.Archive.Path), v.file()); err != nil {
		return err
	}
	// The indexes may need the space of the archive.
	if err := os.Remove(archive); err != nil {
		return err
	}
	// Archives contain no indexes. The indexes must be created before the file is opened elsewhere.
	if err := v6.Hydrater()(v.schemaDir()); err != nil {
		return fmt.Errorf("indexing the database: %w", err)
	}
	indexed := s.clock.Now()
	// This is the only time that the whole file is read. Later, it is opened without verification.
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

// activate writes the marker after all files of the build have been written to the disk.
func (v *Version) activate() error {
	// Grype creates the indexes without syncing the file.
	size, err := syncFile(v.file())
	if err != nil {
		return err
	}
	v.Size = size
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	// The rename below is atomic: a marker never appears under its name with partial content.
	if err := os.WriteFile(v.marker()+".new", raw, 0o644); err != nil {
		return err
	}
	// Directories hold the file names: without syncing them, a power cut may lose the name of a synced file.
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

// syncFile syncs a file or directory to the disk and returns its size.
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
