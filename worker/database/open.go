package database

import (
	"context"
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
// all matches are built, since those look up related vulnerabilities.
type DB struct {
	// Version that is open.
	Version
	provider vulnerability.Provider
	held     *lock
	closing  sync.Once

	// failures counts queries that failed. Grype itself only logs them, or not even that.
	failures atomic.Int64
	last     atomic.Pointer[error]

	// idle are the Lookups that no match uses.
	mu   sync.Mutex
	idle []*Lookups
}

// Open opens an installed version directly: it was verified when it was installed.
func Open(v Version) (*DB, error) {
	// From here on no worker removes the version.
	held, err := tryLock(v.marker(), true)
	if err != nil {
		return nil, fmt.Errorf("opening the database: %w", err)
	}
	reader, err := v6.NewReader(v6.Config{DBDirPath: v.schemaDir()})
	if err != nil {
		held.unlock()
		return nil, fmt.Errorf("opening the database: %w", err)
	}
	// Grype notes the day of its probabilities at the first look-up, without a lock: look-ups at the same time
	// would race. That a database has none, or cannot be read, shows later.
	_, _ = reader.GetEpss("")
	db := &DB{Version: v, held: held}
	if err := db.watch(reader); err != nil {
		held.unlock()
		return nil, errors.Join(err, reader.Close())
	}
	db.provider = &strictProvider{Provider: v6.NewVulnerabilityProvider(reader), db: db}
	// Grype reads the names of architectures here, and goes on with a list of its own if it cannot.
	if err := db.LastFailure(); err != nil {
		return nil, errors.Join(fmt.Errorf("opening the database: %w", err), db.Close())
	}
	return db, nil
}

// watch has every failing query counted, those included whose errors Grype drops (exploit probabilities,
// known exploits, weaknesses).
func (db *DB) watch(reader v6.Reader) error {
	low, ok := reader.(interface{ GetDB() *gorm.DB })
	if !ok {
		return errors.New("this version of Grype gives no access to its database connection")
	}
	observe := func(tx *gorm.DB) {
		// "Not found" is an answer, not a failure.
		if tx.Error != nil && !errors.Is(tx.Error, gorm.ErrRecordNotFound) {
			db.fail(tx.Error)
		}
	}
	// Beside the callbacks of the library itself, which run for every statement of this connection.
	callbacks := low.GetDB().Callback()
	return errors.Join(
		callbacks.Query().After("gorm:after_query").Register("strict:query", observe),
		callbacks.Row().After("gorm:row").Register("strict:row", observe),
		callbacks.Raw().After("gorm:raw").Register("strict:raw", observe),
	)
}

// fail counts a failure and keeps it for whoever asks what happened.
func (db *DB) fail(err error) {
	db.last.Store(&err)
	db.failures.Add(1)
}

// Provider gives Grype's view of the database.
func (db *DB) Provider() vulnerability.Provider { return db.provider }

// Borrow gives a view that remembers what earlier matches looked up. It is the caller's alone until it calls done.
func (db *DB) Borrow() (lookups *Lookups, done func()) {
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

// Failures returns how many queries have failed since the database was opened. A match during which the
// number grew is not complete.
func (db *DB) Failures() int64 { return db.failures.Load() }

// LastFailure returns the error of the last failed query, nil if there was none.
func (db *DB) LastFailure() error {
	if err := db.last.Load(); err != nil {
		return *err
	}
	return nil
}

// Damaged reads the whole file and says what is wrong with it; nil if nothing is.
func (db *DB) Damaged(ctx context.Context) error { return check(ctx, db.file()) }

// Close closes the database. No match may be running. Closing twice is allowed.
func (db *DB) Close() (err error) {
	db.closing.Do(func() {
		err = db.provider.Close()
		db.held.unlock()
	})
	return err
}

// strictProvider notices the one failure that is not a failing query: content that is not readable.
// Other errors of a search (a version that nobody can compare) are the package's, and Grype goes on
// without it: so does this worker, to find the same.
type strictProvider struct {
	vulnerability.Provider
	db *DB
}

// FindVulnerabilities implements vulnerability.Provider.
func (p *strictProvider) FindVulnerabilities(criteria ...vulnerability.Criteria) ([]vulnerability.Vulnerability, error) {
	found, err := p.Provider.FindVulnerabilities(criteria...)
	// The text of grype v0.121, grype/db/v6/blob_store.go.
	if err != nil && strings.Contains(err.Error(), "blob value") {
		p.db.fail(err)
	}
	return found, err
}
