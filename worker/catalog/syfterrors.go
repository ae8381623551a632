package catalog

import (
	"fmt"
	"strings"
	"sync"
	"syscall"

	"github.com/anchore/go-logger"
	"github.com/anchore/go-logger/adapter/discard"
	"github.com/anchore/syft/syft"
)

// machineErrnos are the errors by which the machine, rather than the content of a file, prevents reading it.
var machineErrnos = []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.EIO, syscall.EMFILE, syscall.ENFILE, syscall.EROFS}

// machineErrnoIn returns the error of machineErrnos that a text contains; 0 if there is none. Syft keeps only the texts of errors.
func machineErrnoIn(text string) syscall.Errno {
	for _, errno := range machineErrnos {
		if strings.Contains(text, errno.Error()) {
			return errno
		}
	}
	return 0
}

// syftLogCapture is a logger for Syft that keeps errors of this machine. Syft reports an archive in an archive that it could not
// unpack only in its debug log.
type syftLogCapture struct {
	logger.Logger
	mu  sync.Mutex
	err error
}

// captureSyftLog makes Syft log to s until stop is called. Syft has one logger for the whole process.
func captureSyftLog() (s *syftLogCapture, stop func()) {
	s = &syftLogCapture{Logger: discard.New()}
	syft.SetLogger(s)
	return s, func() { syft.SetLogger(discard.New()) }
}

// WithFields implements logger.FieldLogger.
func (s *syftLogCapture) WithFields(fields ...any) logger.MessageLogger {
	for _, field := range fields {
		err, isError := field.(error)
		if !isError {
			continue
		}
		if errno := machineErrnoIn(err.Error()); errno != 0 {
			s.mu.Lock()
			s.err = fmt.Errorf("an archive in the image was not read: %w", errno)
			s.mu.Unlock()
		}
	}
	return s
}

// machineError returns the last error of this machine that was logged; nil if there was none.
func (s *syftLogCapture) machineError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}
