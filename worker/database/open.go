package database

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	v6 "github.com/anchore/grype/grype/db/v6"
	"github.com/anchore/grype/grype/vulnerability"
	"gorm.io/gorm"
)

// DB is an open database: read-only and safe for concurrent use. It must stay open until the reports of
// all matches are built, since they query related vulnerabilities.
type DB struct {
	// Version is the open version.
	Version
	provider vulnerability.Provider
	systems  v6.OperatingSystemStoreReader
	held     *lock
	closing  sync.Once

	// failures counts failed queries. Grype only logs some of them, and drops the others.
	failures atomic.Int64
	last     atomic.Pointer[error]

	// idle are the Lookups that no match is using.
	mu   sync.Mutex
	idle []*Lookups

	// matches are what matchers found for packages of earlier images.
	matches *matchCache
}

// Open opens an installed version without verifying it, since Install has done that.
func Open(v Version) (*DB, error) {
	// The shared lock keeps all workers from pruning the version.
	held, err := tryLock(v.marker(), true)
	if err != nil {
		return nil, fmt.Errorf("opening the database: %w", err)
	}
	reader, err := v6.NewReader(v6.Config{DBDirPath: v.schemaDir()})
	if err != nil {
		held.unlock()
		return nil, fmt.Errorf("opening the database: %w", err)
	}
	// Grype stores the date of its exploit probabilities at the first lookup, without a lock. Concurrent first
	// lookups would race. A missing or unreadable date shows later.
	_, _ = reader.GetEpss("")
	db := &DB{Version: v, held: held, matches: newMatchCache()}
	if err := db.countFailures(reader); err != nil {
		held.unlock()
		return nil, errors.Join(err, reader.Close())
	}
	db.systems = reader
	db.provider = &strictProvider{Provider: v6.NewVulnerabilityProvider(reader), db: db}
	// Grype reads the names of architectures here, and silently uses a built-in list if that fails.
	if err := db.LastFailure(); err != nil {
		return nil, errors.Join(fmt.Errorf("opening the database: %w", err), db.Close())
	}
	return db, nil
}

// countFailures registers callbacks that count every failed query, including those whose errors Grype drops (exploit probabilities,
// known exploits, weaknesses).
func (db *DB) countFailures(reader v6.Reader) error {
	low, ok := reader.(interface{ GetDB() *gorm.DB })
	if !ok {
		return errors.New("this version of Grype gives no access to its database connection")
	}
	observe := func(tx *gorm.DB) {
		// "Not found" is a result, not a failure.
		if tx.Error != nil && !errors.Is(tx.Error, gorm.ErrRecordNotFound) {
			db.recordFailure(tx.Error)
		}
	}
	// The callbacks run after those of the library, for every statement of this connection.
	callbacks := low.GetDB().Callback()
	return errors.Join(
		callbacks.Query().After("gorm:after_query").Register("strict:query", observe),
		callbacks.Row().After("gorm:row").Register("strict:row", observe),
		callbacks.Raw().After("gorm:raw").Register("strict:raw", observe),
	)
}

// recordFailure counts a failed query and keeps its error for LastFailure.
func (db *DB) recordFailure(err error) {
	db.last.Store(&err)
	db.failures.Add(1)
}

// BorrowLookups returns a view that caches the lookups of earlier matches. Only the caller may use it, until it calls done.
func (db *DB) BorrowLookups() (lookups *Lookups, done func()) {
	db.mu.Lock()
	defer db.mu.Unlock()
	if n := len(db.idle); n > 0 {
		lookups, db.idle = db.idle[n-1], db.idle[:n-1]
	} else {
		lookups = newLookups(db, db.provider)
	}
	return lookups, func() {
		db.mu.Lock()
		defer db.mu.Unlock()
		db.idle = append(db.idle, lookups)
	}
}

// Failures returns the number of failed queries since the database was opened. If the
// number grows during a match, that match is incomplete.
func (db *DB) Failures() int64 { return db.failures.Load() }

// LastFailure returns the error of the last failed query; nil if there was none.
func (db *DB) LastFailure() error {
	if err := db.last.Load(); err != nil {
		return *err
	}
	return nil
}

// Close closes the database. No match may be running. Closing twice is allowed.
func (db *DB) Close() (err error) {
	db.closing.Do(func() {
		err = db.provider.Close()
		db.held.unlock()
	})
	return err
}

// strictProvider counts the one failure that is not a failed query: unreadable content of a blob.
// Other errors of a lookup, such as a version that cannot be compared, are about the package. Grype continues
// without that package, and so does this worker, so that both find the same.
type strictProvider struct {
	vulnerability.Provider
	db *DB
}

// FindVulnerabilities implements vulnerability.Provider.
func (p *strictProvider) FindVulnerabilities(criteria ...vulnerability.Criteria) ([]vulnerability.Vulnerability, error) {
	found, err := p.Provider.FindVulnerabilities(criteria...)
	// The text of grype v0.121, grype/db/v6/blob_store.go.
	if err != nil && strings.Contains(err.Error(), "blob value") {
		p.db.recordFailure(err)
	}
	return found, err
}
