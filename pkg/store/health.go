package store

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
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

// faults are the faults that StorageFault returns, the more specific ones first.
var faults = append([]error{ErrVolumeFull, ErrVolumeReadOnly, ErrVolumeFailed, ErrCorrupt, ErrMovedAway}, serverFaults...)

// StorageFault returns the fault of the file, its volume or the database server that caused an error; nil if there is none.
func StorageFault(err error) error {
	for _, fault := range faults {
		if errors.Is(err, fault) {
			return fault
		}
	}
	return nil
}

// backing is what the content of a store is in: a file on a volume, or a database on a server.
type backing interface {
	// check returns the present fault without writing anything, nil if there is none, and measures the size for the metrics. err means that the
	// check itself failed.
	check(ctx context.Context) (fault, err error)
	// checkIntegrity returns ErrCorrupt if the content is damaged.
	checkIntegrity(ctx context.Context) error
	// classify returns the fault that caused an error; nil if none did.
	classify(err error) error
	// met is called with each fault that a call met, after the call's transaction has ended.
	met(fault error)
	// isConflict reports whether a transaction failed only because of another one, and can be run again.
	isConflict(err error) bool
	// isLost reports whether an operation failed because its connection ended or led to the wrong server, so that another one may work.
	isLost(err error) bool
	// collectors returns the metrics that only this backing has.
	collectors() []prometheus.Collector
}

// health is the last known condition of the file and its volume, or of the database server.
type health struct {
	mu sync.Mutex
	// fault is the current fault; nil for none.
	fault error
	// free is how many bytes of the file were unused at the last check, such as pages that a sweep has freed.
	free uint64
	// size is how many bytes the files or the database had at the last check; 0 until then.
	size int64
	// faultMet means that a call has met the fault since the last check.
	faultMet bool
}

// Health returns nil, or an error for which StorageFault returns the current fault of the file, its volume or the database server. Faults
// are detected by any call and by CheckHealth. Health does no I/O and does not block.
func (s *Store) Health() error {
	s.health.mu.Lock()
	defer s.health.mu.Unlock()
	if s.health.fault == nil {
		return nil
	}
	return fmt.Errorf("store %s: %w", s.path, s.health.fault)
}

// CheckHealth checks the file and its volume, or the database server, and returns Health, or another error if the check itself failed. A
// fault ends when a check finds none and no call has met it since the check before. ErrUnavailable ends when a check finds no fault.
func (s *Store) CheckHealth(ctx context.Context) error {
	s.health.beginCheck()
	fault, err := s.backing.check(ctx)
	if err != nil {
		return err
	}
	_, following := s.term.get(ctx)
	if fault == nil && following != nil {
		// A replica that follows leaves the write to the leader, which may have treated the store as restored.
		err := s.call(ctx, "read", "read its identity", s.readIdentity)
		if err != nil && StorageFault(err) == nil {
			return err
		}
	}
	if fault == nil && following == nil {
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

// beginCheck begins a check. A lost connection proves nothing about the next one.
func (h *health) beginCheck() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.faultMet = h.faultMet && !errors.Is(h.fault, ErrUnavailable)
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

// setSize records the size of the files or the database.
func (h *health) setSize(bytes int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.size = bytes
}

// CheckIntegrity reads the whole file. An error for which StorageFault returns ErrCorrupt means that the file is damaged. A database server
// checks its files itself.
func (s *Store) CheckIntegrity(ctx context.Context) error { return s.backing.checkIntegrity(ctx) }

// diagnose returns and records the fault behind an error of SQLite, of the operating system or of a database server. It returns nil if none
// of them caused the error.
func (s *Store) diagnose(err error) error {
	fault := s.backing.classify(err)
	if fault == nil || s.writer == nil {
		return fault
	}
	s.backing.met(fault)
	s.health.mu.Lock()
	defer s.health.mu.Unlock()
	if !errors.Is(s.health.fault, ErrCorrupt) && !errors.Is(s.health.fault, ErrMovedAway) {
		s.health.fault = fault
	}
	s.health.faultMet = true
	return fault
}
