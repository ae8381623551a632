package database

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/scanner-operator/scanner-operator/worker/clock"
)

// lock is an advisory lock on a file (flock(2)). It works between processes on the same volume and ends
// with the process, so that a crash leaves nothing locked.
type lock struct{ file *os.File }

var errLocked = errors.New("locked by another worker")

// tryLock locks the file or returns errLocked at once. It creates only the store's own lock file: locking
// must not create a missing marker.
func tryLock(path string, shared bool) (*lock, error) {
	mode := os.O_RDONLY
	if filepath.Base(path) == lockName {
		mode |= os.O_CREATE
	}
	file, err := os.OpenFile(path, mode, 0o644)
	if err != nil {
		return nil, err
	}
	// Processes that have a version open hold a shared lock. Removing the version requires an exclusive one.
	how := syscall.LOCK_EX
	if shared {
		how = syscall.LOCK_SH
	}
	if err := syscall.Flock(int(file.Fd()), how|syscall.LOCK_NB); err != nil {
		file.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errLocked
		}
		return nil, fmt.Errorf("locking %s: %w", path, err)
	}
	return &lock{file: file}, nil
}

// waitLock locks the file exclusively. It waits for other workers until the context ends.
func waitLock(ctx context.Context, path string, clock clock.Clock) (*lock, error) {
	for {
		held, err := tryLock(path, false)
		if !errors.Is(err, errLocked) {
			return held, err
		}
		// Polling, since waiting in the kernel would not end with the context.
		if err := clock.Sleep(ctx, 2*time.Second); err != nil {
			return nil, err
		}
	}
}

// unlock releases the lock.
func (l *lock) unlock() { l.file.Close() }
