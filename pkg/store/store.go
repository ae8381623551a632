// Package store persists catalogs, findings, the use of images by workloads, and what each receiver was notified of.
//
// It promises that a report and its difference from the report before become visible in one transaction. Losing the store costs
// time, but no notification: the store has an ID, by which its readers detect that it is a new one. It holds everything that is
// too large for etcd. A receiver is identified by the Scanner's UID and its name there. The package must not know any engine, the
// Kubernetes client or a message format.
package store

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/limits"
	"github.com/scanner-operator/scanner-operator/pkg/store/dialect"
)

// Errors that callers distinguish.
var (
	// ErrNotFound means that the store has no such record.
	ErrNotFound = errors.New("not found")
	// ErrForeignPod means that the Job is already bound to another pod.
	ErrForeignPod = errors.New("the job belongs to another pod")
	// ErrLeaseEnded means that the lease has ended, or that the holder does not have it.
	ErrLeaseEnded = errors.New("the lease has ended")
	// ErrChanged means that the data has changed since the caller read it. The caller must read it again.
	ErrChanged = errors.New("what is present has changed meanwhile")
)

// Scope is the credential scope in which an SBOM and its reports count: "" is the whole cluster, anything else is one namespace.
// An image that was pulled with a namespace's own credentials counts in that namespace only, since whoever controls the namespace
// could tamper with the Job that cataloged it.
type Scope string

// Cluster is the credential scope of images that the operator cataloged in its own namespace.
const Cluster Scope = ""

// Subject identifies what a report is about: an image's platform manifest, in one credential scope, matched by one engine.
type Subject struct {
	PlatformDigest string
	Scope          Scope
	Engine         string
}

// Store is the only access that the rest of the program has to the database: one SQLite file, or a database on a server. Its methods are
// safe for concurrent use. One process writes through one connection, so concurrent writers wait for each other and never fail because of
// each other. Readers see the last committed state and never wait.
//
// A method that writes to a server and returns ErrUnavailable may have written: the answer to its commit was lost. The caller looks before
// it does the same again, or does what has the same result when done twice.
type Store struct {
	path    string
	now     func() time.Time
	dialect *dialect.Dialect
	backing backing
	writer  *sql.DB // nil if opened for reading only
	// beginRaises means that the begin of a writer's transaction includes raiseRevision.
	beginRaises bool
	// turns shares the time of the writer. On a server too, one transaction at a time writes (raiseRevision).
	turns  limits.TimeShare
	reader *sql.DB
	lock   *os.File // nil if opened for reading beside others
	// writes counts the writing transactions of this process that have ended. revision is nil unless the lock is held.
	writes   atomic.Uint64
	revision atomic.Pointer[knownRevision]
	// file identifies the file that was opened; nil if opened for reading only.
	file os.FileInfo
	// observe gets the text of each statement of a transaction; nil outside of tests.
	observe func(statement string)
	// identity is replaced when the store counts as restored. replaced means that opening the store replaced the previous one.
	identity atomic.Pointer[identity]
	replaced bool
	// schema is the number of the last migration when the store was opened.
	schema int64
	term   term

	health   health
	presence presence
	// counts caches totals by the state of a runningRepository. Entries never become invalid, since a state always identifies the same
	// findings.
	counts    recent[Totals]
	unchanged unchangedCache
	// statements caches decoded statements about images by the hash of their stored form.
	statements recent[[]storedStatement]
	fairness   fairState
	metrics    metrics
	// stepRows is the constant, but in tests: 2 or more.
	stepRows int64
	// recordBudget is that of LimitRecords.
	recordBudget int64

	// gate guards closed and the start of calls. closing is cancelled when the store closes. inFlight counts running calls.
	gate     sync.Mutex
	closed   bool
	closing  context.Context
	end      context.CancelCauseFunc
	inFlight sync.WaitGroup
}

// ID returns the store's ID, which is created with the store and replaced when the store is restored from a backup. A reader that
// remembers another ID must assume that the store lacks what the reader saved before. The ID has 32 hexadecimal digits.
func (s *Store) ID() string { return s.identity.Load().id }

// identity is what readers tell a store from another one by.
type identity struct {
	id string
	// restoredFrom is the time of the backup that the store was restored from, zero if it was not.
	restoredFrom time.Time
}

// Close cancels running calls, waits for them to end and releases the file lock. Further calls return nil.
func (s *Store) Close() error {
	s.gate.Lock()
	closed := s.closed
	s.closed = true
	s.end(ErrClosed)
	s.gate.Unlock()
	if closed {
		return nil
	}
	s.inFlight.Wait()
	var errs []error
	// The writer is closed last, since it can move the write-ahead log into the file.
	for _, db := range []*sql.DB{s.reader, s.writer} {
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
	}
	return errors.Join(errs...)
}
