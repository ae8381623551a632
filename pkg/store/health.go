package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/scanner-operator/scanner-operator/pkg/store/dialect"
)

// Faults of the file and its volume. Their messages say what the user can do. The first three end by themselves once that is
// done; the last two only when the process is restarted.
var (
	// ErrVolumeFull means that there is too little free space.
	ErrVolumeFull = errors.New("the volume that holds this file is full; enlarge it or free space on it, then work goes on by itself")
	// ErrVolumeReadOnly means that nothing can be written.
	ErrVolumeReadOnly = errors.New("the file or its folder cannot be written; check the volume's permissions (fsGroup) and the node's log, " +
		"since a volume that fails is made read-only")
	// ErrVolumeFailed means that the volume returns I/O errors.
	ErrVolumeFailed = errors.New("the volume that holds this file fails; check it and the node's log")
	// ErrCorrupt means that the file is damaged or not a store. The operator never replaces it by itself.
	ErrCorrupt = errors.New("the file is damaged or no store; move it away with its -wal and -shm files, or give the manager an empty volume: " +
		"the manager then starts with a new store and rebuilds everything from the cluster")
	// ErrMovedAway means that the file at the store's path is not the file that is open.
	ErrMovedAway = errors.New("the file was moved away or replaced while the manager had it open; the manager must start again")
)

const (
	// minFreeBytes is the free space below which a volume counts as full, in bytes: enough for a large image's catalog and its write-ahead
	// log.
	minFreeBytes = 32 << 20
	// minLogFreeBytes is the part of minFreeBytes for the log. Only the volume can provide it, not free pages in the file.
	minLogFreeBytes = minFreeBytes / 2
)

// StorageFault returns the fault of the file, its volume or the database server that caused an error; nil if there is none.
func StorageFault(err error) error {
	for _, fault := range []error{ErrVolumeFull, ErrVolumeReadOnly, ErrVolumeFailed, ErrCorrupt, ErrMovedAway, ErrUnavailable} {
		if errors.Is(err, fault) {
			return fault
		}
	}
	return nil
}

// health is the last known condition of the file and its volume.
type health struct {
	mu sync.Mutex
	// fault is the current fault; nil for none.
	fault error
	// free is how many bytes of the file were unused at the last check, such as pages that a sweep has freed.
	free uint64
	// faultMet means that a call has met the fault since the last check.
	faultMet bool
}

// Health returns nil, or an error for which StorageFault returns the current fault of the file, its volume or the database server. Faults are detected by
// any call and by CheckHealth. Health does no I/O and does not block.
func (s *Store) Health() error {
	s.health.mu.Lock()
	defer s.health.mu.Unlock()
	if s.health.fault == nil {
		return nil
	}
	return fmt.Errorf("store %s: %w", s.path, s.health.fault)
}

// isFile reports whether the store is a file of this machine, not a database on a server.
func (s *Store) isFile() bool { return s.dialect == dialect.SQLite }

// CheckHealth checks the file and its volume, or the database server, and returns Health, or another error if the check itself failed. A fault ends when a
// check finds none and no call has met it since the check before.
func (s *Store) CheckHealth(ctx context.Context) error {
	var fault error
	if s.isFile() {
		s.measure()
		if err := s.countFreePages(ctx); err != nil && StorageFault(err) == nil {
			return err
		}
		fault = s.checkFile()
	}
	if fault == nil {
		// Only a write proves that the volume or the database can be written. diagnose records a fault that it meets.
		err := s.write(ctx, "check that it can be written", s.markPresent)
		if err != nil && StorageFault(err) == nil {
			return err
		}
	}
	s.health.mu.Lock()
	s.health.applyCheck(fault)
	s.health.mu.Unlock()
	return s.Health()
}

// applyCheck applies the result of a check. A fault that a call met since the last check stays until the next one: there may be space
// for one byte and not for a report.
func (h *health) applyCheck(found error) {
	stays := errors.Is(h.fault, ErrCorrupt) || errors.Is(h.fault, ErrMovedAway)
	switch {
	case errors.Is(found, ErrMovedAway), found != nil && !stays:
		h.fault = found
	case !stays && !h.faultMet:
		h.fault = nil
	}
	h.faultMet = false
}

// CheckIntegrity reads the whole file. An error for which StorageFault returns ErrCorrupt means that the file is damaged. A database server
// checks its files itself.
func (s *Store) CheckIntegrity(ctx context.Context) error {
	if !s.isFile() {
		return nil
	}
	return s.read(ctx, "check the whole file", func(ctx context.Context, q query) error {
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

// countFreePages records how much of the file is unused. SQLite never returns that space to the volume, and fills it before the
// file grows.
func (s *Store) countFreePages(ctx context.Context) error {
	var free int64
	err := s.queryRow(ctx, "count free pages", `SELECT freelist_count * page_size FROM pragma_freelist_count, pragma_page_size`).Scan(&free)
	if err != nil {
		return err
	}
	s.metrics.free.Set(float64(free))
	s.health.mu.Lock()
	defer s.health.mu.Unlock()
	s.health.free = uint64(free)
	return nil
}

// isFull reports whether there is too little space for the next writes. Content can use free space of the volume or the file. The
// log can use only free space of the volume and its own file, which is overwritten.
func (s *Store) isFull(available uint64) bool {
	s.health.mu.Lock()
	free := s.health.free
	s.health.mu.Unlock()
	forLog := available
	if log, err := os.Stat(s.path + "-wal"); err == nil { //nolint:gosec // the path is the operator's own flag
		forLog += uint64(log.Size())
	}
	return available+free < minFreeBytes || forLog < minLogFreeBytes
}

// checkFile returns the fault of the file or its volume that the operating system reports, nil if there is none.
func (s *Store) checkFile() error {
	now, err := os.Stat(s.path) //nolint:gosec // the path is the operator's own flag
	if errors.Is(err, os.ErrNotExist) || err == nil && s.file != nil && !os.SameFile(s.file, now) {
		return ErrMovedAway
	}
	return s.volumeFault()
}

// volumeFault returns the volume's fault, such as being full or read-only; nil if there is none or it cannot be determined.
func (s *Store) volumeFault() error {
	var volume syscall.Statfs_t
	if err := syscall.Statfs(s.path, &volume); err != nil {
		return classifyFault(err)
	}
	const readOnly = 1 // ST_RDONLY of statfs(2)
	switch {
	case volume.Flags&readOnly != 0:
		return ErrVolumeReadOnly
	case s.isFull(volume.Bavail * uint64(volume.Bsize)):
		return ErrVolumeFull
	}
	if s.lock == nil {
		return nil
	}
	// If the kernel has remounted a failing file system read-only, only a write may show it.
	_, err := s.lock.WriteAt(holderText(), 0)
	return classifyFault(err)
}

// diagnose returns and records the fault behind an error of SQLite (https://www.sqlite.org/rescode.html), of the operating system or of a
// database server. It returns nil if none of them caused the error.
func (s *Store) diagnose(err error) error {
	fault := StorageFault(err)
	switch {
	case fault != nil:
	case s.isFile():
		fault = classifyFault(err)
	case isConnectionLost(err):
		fault = ErrUnavailable
	}
	if errors.Is(fault, ErrVolumeFailed) || errors.Is(fault, ErrVolumeReadOnly) {
		// SQLite reports many causes as "I/O error"; the volume may have the specific one.
		if why := s.volumeFault(); why != nil {
			fault = why
		}
	}
	if fault == nil || s.writer == nil {
		return fault
	}
	s.health.mu.Lock()
	defer s.health.mu.Unlock()
	if !errors.Is(s.health.fault, ErrCorrupt) && !errors.Is(s.health.fault, ErrMovedAway) {
		s.health.fault = fault
	}
	s.health.faultMet = true
	return fault
}

func classifyFault(err error) error {
	switch {
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
