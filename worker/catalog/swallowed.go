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

// ofThisMachine are the errors by which a machine, and not the content of a file, keeps it from being read.
var ofThisMachine = []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.EIO, syscall.EMFILE, syscall.ENFILE, syscall.EROFS}

// errnoIn returns the error of this machine that a text ends with or quotes; 0 if there is none. Syft keeps texts only.
func errnoIn(text string) syscall.Errno {
	for _, errno := range ofThisMachine {
		if strings.Contains(text, errno.Error()) {
			return errno
		}
	}
	return 0
}

// swallowed listens to what Syft logs. An archive in an archive that could not be unpacked is mentioned there, at the
// level of debugging, and nowhere else.
type swallowed struct {
	logger.Logger
	mu  sync.Mutex
	err error
}

// listen has Syft log to what is returned, until stop. Syft has one logger for the whole process.
func listen() (s *swallowed, stop func()) {
	s = &swallowed{Logger: discard.New()}
	syft.SetLogger(s)
	return s, func() { syft.SetLogger(discard.New()) }
}

// WithFields implements logger.FieldLogger.
func (s *swallowed) WithFields(fields ...any) logger.MessageLogger {
	for _, field := range fields {
		err, isError := field.(error)
		if !isError {
			continue
		}
		if errno := errnoIn(err.Error()); errno != 0 {
			s.mu.Lock()
			s.err = fmt.Errorf("an archive in the image was not read: %w", errno)
			s.mu.Unlock()
		}
	}
	return s
}

// trouble is the last error of this machine that was logged; nil if there was none.
func (s *swallowed) trouble() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}
