package store

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
)

// maxHolder bounds how many bytes are read from a lock file.
const maxHolder = 256

// lockFile takes the lock and writes the holder's name into the file. It returns ErrLocked if another process holds the lock. The
// lock ends when the file is closed or the process dies. The file is never removed, since otherwise two processes could lock two
// files of one name.
func lockFile(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600) //nolint:gosec // the path is the operator's own flag
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		defer file.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w: %s is held by %s; run one replica with the strategy Recreate, or wait until the other has ended",
				ErrLocked, path, holder(file))
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return file, writeHolder(file)
}

func writeHolder(file *os.File) error {
	if err := file.Truncate(0); err != nil {
		return err
	}
	_, err := file.WriteAt(holderText(), 0)
	return err
}

// holderText returns the same text throughout a process.
func holderText() []byte {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return fmt.Appendf(nil, "process %d on %s\n", os.Getpid(), host)
}

func holder(file *os.File) string {
	text, err := io.ReadAll(io.LimitReader(file, maxHolder))
	if name := strings.TrimSpace(string(text)); err == nil && name != "" {
		return name
	}
	return "an unnamed process"
}
