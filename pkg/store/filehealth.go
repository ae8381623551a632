package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

const (
	// minFreeBytes is the free space below which a volume counts as full, in bytes: enough for a large image's catalog and its write-ahead
	// log.
	minFreeBytes = 32 << 20
	// minLogFreeBytes is the part of minFreeBytes for the log. Only the volume can provide it, not free pages in the file.
	minLogFreeBytes = minFreeBytes / 2
)

// fileBacking is the backing of a store in a SQLite file.
type fileBacking struct{ *Store }

// check implements backing.
func (f fileBacking) check(ctx context.Context) (fault, err error) {
	f.measure()
	if err := f.countFreePages(ctx); err != nil && StorageFault(err) == nil {
		return nil, err
	}
	return f.fault(), nil
}

// checkIntegrity implements backing.
func (f fileBacking) checkIntegrity(ctx context.Context) error {
	return f.read(ctx, "check the whole file", func(ctx context.Context, q query) error {
		var problem string
		if err := q.QueryRowContext(ctx, `PRAGMA quick_check(1)`).Scan(&problem); err != nil {
			return err
		}
		if problem != "ok" {
			return fmt.Errorf("%w (%s)", ErrCorrupt, problem)
		}
		return nil
	})
}

// collectors implements backing.
func (f fileBacking) collectors() []prometheus.Collector {
	return []prometheus.Collector{f.metrics.room, f.metrics.free}
}

// isConflict implements backing. The only writer of the file has no conflicts.
func (f fileBacking) isConflict(error) bool { return false }

// isLost implements backing.
func (f fileBacking) isLost(error) bool { return false }

// met implements backing.
func (fileBacking) met(error) {}

// measure sets the metrics of the files' sizes and the volume's free space. A value that cannot be read stays as it was.
func (f fileBacking) measure() {
	size := int64(0)
	for name, path := range map[string]string{"database": f.path, "log": f.path + "-wal"} {
		if info, err := os.Stat(path); err == nil {
			f.metrics.size.WithLabelValues(name).Set(float64(info.Size()))
			size += info.Size()
		}
	}
	f.health.setSize(size)
	var volume syscall.Statfs_t
	if syscall.Statfs(f.path, &volume) == nil {
		f.metrics.room.Set(float64(volume.Bavail) * float64(volume.Bsize))
	}
}

// countFreePages records how much of the file is unused. SQLite never returns that space to the volume, and fills it before the
// file grows.
func (f fileBacking) countFreePages(ctx context.Context) error {
	var free int64
	err := f.queryRow(ctx, "count free pages", `SELECT freelist_count * page_size FROM pragma_freelist_count, pragma_page_size`).Scan(&free)
	if err != nil {
		return err
	}
	f.metrics.free.Set(float64(free))
	f.health.mu.Lock()
	defer f.health.mu.Unlock()
	f.health.free = uint64(free)
	return nil
}

// isFull reports whether there is too little space for the next writes. Content can use free space of the volume or the file. The
// log can use only free space of the volume and its own file, which is overwritten.
func (f fileBacking) isFull(available uint64) bool {
	f.health.mu.Lock()
	free := f.health.free
	f.health.mu.Unlock()
	forLog := available
	if log, err := os.Stat(f.path + "-wal"); err == nil {
		forLog += uint64(log.Size())
	}
	return available+free < minFreeBytes || forLog < minLogFreeBytes
}

// fault returns the fault of the file or its volume that the operating system reports, nil if there is none.
func (f fileBacking) fault() error {
	now, err := os.Stat(f.path)
	if errors.Is(err, os.ErrNotExist) || err == nil && f.file != nil && !os.SameFile(f.file, now) {
		return ErrMovedAway
	}
	return f.volumeFault()
}

// volumeFault returns the volume's fault, such as being full or read-only; nil if there is none or it cannot be determined.
func (f fileBacking) volumeFault() error {
	var volume syscall.Statfs_t
	if err := syscall.Statfs(f.path, &volume); err != nil {
		return fileFault(err)
	}
	const readOnly = 1 // ST_RDONLY of statfs(2)
	switch {
	case volume.Flags&readOnly != 0:
		return ErrVolumeReadOnly
	case f.isFull(volume.Bavail * uint64(volume.Bsize)):
		return ErrVolumeFull
	}
	if f.lock == nil {
		return nil
	}
	// If the kernel has remounted a failing file system read-only, only a write may show it.
	_, err := f.lock.WriteAt(holderText(), 0)
	return fileFault(err)
}

// classify implements backing. SQLite reports many causes as "I/O error"; the volume may have the specific one.
func (f fileBacking) classify(err error) error {
	fault := fileFault(err)
	if errors.Is(fault, ErrVolumeFailed) || errors.Is(fault, ErrVolumeReadOnly) {
		if why := f.volumeFault(); why != nil {
			return why
		}
	}
	return fault
}

// fileFault returns the fault behind an error of SQLite (https://www.sqlite.org/rescode.html) or of the operating system.
func fileFault(err error) error {
	switch {
	case StorageFault(err) != nil:
		return StorageFault(err)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return ErrVolumeFull
	case errors.Is(err, syscall.EROFS), errors.Is(err, os.ErrPermission):
		return ErrVolumeReadOnly
	case errors.Is(err, syscall.EIO):
		return ErrVolumeFailed
	}
	var failed *sqlite.Error
	if !errors.As(err, &failed) {
		return nil
	}
	// The low byte is the primary result code, the rest its detail.
	switch failed.Code() & 0xff {
	case sqlite3.SQLITE_FULL:
		return ErrVolumeFull
	case sqlite3.SQLITE_IOERR:
		return ErrVolumeFailed
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return ErrCorrupt
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM:
		return ErrVolumeReadOnly
	}
	return nil
}
