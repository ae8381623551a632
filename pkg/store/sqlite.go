package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"modernc.org/sqlite"
)

// Errors of opening and of a store that is not open for what is asked.
var (
	// ErrLocked says that another process has the store open for writing.
	ErrLocked = errors.New("the store is in use by another manager")
	// ErrClosed says that the store was closed, before or while the call ran.
	ErrClosed = errors.New("the store is closed")
	// ErrReadOnly says that the store was opened by OpenSQLiteReadOnly.
	ErrReadOnly = errors.New("the store is open for reading only")
)

const (
	// busyTimeout is how long SQLite itself waits for a lock, such as that of a checkpoint.
	busyTimeout = 10 * time.Second
	// readers bounds the connections, and so the memory, of those who read at the same time.
	readers = 4
	// cacheKiB is each connection's page cache.
	cacheKiB = 16 << 10
	// journalBytes is what the write-ahead log shrinks to after a large transaction.
	journalBytes = 64 << 20
)

// SQLite is a Store in one file. One process writes it, through one connection, so writers wait for each other
// and never fail for being at the same time; readers see the last committed state and wait for nobody.
type SQLite struct {
	path   string
	id     string
	now    func() time.Time
	writer *sql.DB // nil if opened for reading only
	reader *sql.DB
	lock   *os.File // nil if opened for reading only
	// file is what is open, as it was when it was opened; nil if opened for reading only.
	file os.FileInfo
	// restoredFrom is the time of the backup that it was restored from, zero if it was not; replaced says that this happened now.
	restoredFrom time.Time
	replaced     bool

	health   health
	presence presence
	counts   countMemory
	quiet    quietMemory
	turns    turnMemory
	losses   lossMemory
	metrics  metrics
	// recordBudget is that of LimitRecords.
	recordBudget int64

	// gate guards the step from open to closed; closing ends with it, inFlight counts running calls.
	gate     sync.Mutex
	closed   bool
	closing  context.Context
	end      context.CancelCauseFunc
	inFlight sync.WaitGroup
}

var _ Store = (*SQLite)(nil)

// OpenSQLite opens the store at path for this process alone, and makes it, with mode 0600, if there is none.
// Its tables are brought to this version's state. now gives the time of everything that the store dates itself.
//
// The error is ErrLocked if another process has it; it names the file and what to do if the file is damaged, is
// no store, or was written by a newer version.
func OpenSQLite(ctx context.Context, path string, now func() time.Time) (*SQLite, error) {
	s, err := newSQLite(path, now)
	if err != nil {
		return nil, err
	}
	if err := s.openForWriting(ctx); err != nil {
		return nil, errors.Join(s.explain(ctx, "open", err), s.Close())
	}
	return s, nil
}

// OpenSQLiteReadOnly opens a store beside the process that writes it, and sees all that this one has committed.
// It takes no lock and changes nothing; methods that write return ErrReadOnly. There must be a store.
func OpenSQLiteReadOnly(path string) (*SQLite, error) {
	s, err := newSQLite(path, time.Now)
	if err != nil {
		return nil, err
	}
	ctx := context.Background()
	if _, err := os.Stat(s.path); err != nil { //nolint:gosec // whoever runs the manager names the path
		return nil, fmt.Errorf("store %s: there is none yet, the manager makes it when it starts: %w", s.path, err)
	}
	err = s.openForReading(ctx)
	if err != nil && s.reader != nil && s.frozen() {
		err = errors.Join(s.reader.Close(), s.openForReading(ctx, "immutable=1"))
	}
	if err != nil {
		return nil, errors.Join(s.explain(ctx, "open for reading", err), s.Close())
	}
	return s, nil
}

// frozen says that nobody can write the file, which is complete without a log: SQLite needs no files beside it then.
func (s *SQLite) frozen() bool {
	log, err := os.Stat(s.path + "-wal") //nolint:gosec // the path is the operator's own flag
	complete := errors.Is(err, os.ErrNotExist) || err == nil && log.Size() == 0
	return complete && errors.Is(s.volumeTrouble(), ErrVolumeReadOnly)
}

func newSQLite(path string, now func() time.Time) (*SQLite, error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("store %q: %w", path, err)
	}
	s := &SQLite{path: absolute, now: now, metrics: newMetrics()}
	s.closing, s.end = context.WithCancelCause(context.Background())
	return s, nil
}

func (s *SQLite) openForWriting(ctx context.Context) (err error) {
	if err := os.MkdirAll(filepath.Dir(s.path), 0o700); err != nil { //nolint:gosec // the path is the operator's own flag
		return fmt.Errorf("make the directory: %w", err)
	}
	if s.lock, err = lockFile(s.path + ".lock"); err != nil {
		return err
	}
	if s.replaced, err = takeRestored(ctx, s.path); err != nil {
		return err
	}
	if err := discardPartial(s.path); err != nil {
		return err
	}
	if err := putAsideLeftLog(s.path); err != nil {
		return err
	}
	// SQLite gives its other files the mode of this one.
	file, err := os.OpenFile(s.path, os.O_CREATE|os.O_RDWR, 0o600) //nolint:gosec // the path is the operator's own flag
	if err != nil {
		return fmt.Errorf("make the file: %w", err)
	}
	s.file, err = file.Stat()
	if err := errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("make the file: %w", err)
	}
	if s.writer, err = connect(s.writerName()); err != nil {
		return err
	}
	s.writer.SetMaxOpenConns(1)
	began := time.Now()
	if err := migrate(ctx, s.writer); err != nil {
		return err
	}
	s.metrics.migration.Set(time.Since(began).Seconds())
	s.measure()
	if err := s.openForReading(ctx); err != nil {
		return err
	}
	return s.readPresence(ctx)
}

// putAsideLeftLog renames a write-ahead log whose store was moved away without it: SQLite would bring it into the
// new store.
func putAsideLeftLog(path string) error {
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) { //nolint:gosec // the path is the operator's own flag
		return nil
	}
	err := os.Rename(path+"-wal", path+"-wal.left") //nolint:gosec // the path is the operator's own flag
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("put the log of an earlier store aside: %w", err)
	}
	return nil
}

func (s *SQLite) openForReading(ctx context.Context, options ...string) (err error) {
	if s.reader, err = connect(strings.Join(append([]string{s.readerName()}, options...), "&")); err != nil {
		return err
	}
	s.reader.SetMaxOpenConns(readers)
	s.reader.SetMaxIdleConns(readers)
	schema, err := checkSchema(ctx, s.reader)
	if err != nil {
		return err
	}
	s.metrics.schema.Set(float64(schema))
	if err := s.reader.QueryRowContext(ctx, `SELECT value FROM meta WHERE name = 'id'`).Scan(&s.id); err != nil {
		return err
	}
	return s.readRestored(ctx)
}

// connect opens a database, whose schema may not call functions with side effects: a store, and a backup of one, comes from a volume
// on which others may write.
func connect(name string) (*sql.DB, error) {
	separator := "?"
	if strings.Contains(name, "?") {
		separator = "&"
	}
	name += separator + "_pragma=trusted_schema(0)"
	connector, err := sqlite.NewConnector(name)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

// writerName begins every transaction as a writing one: a transaction that reads first and writes later could
// not wait for its turn. Synchronous NORMAL may lose the last commits when the machine fails, and never
// damages the file; what is lost is done again.
func (s *SQLite) writerName() string {
	return s.dataSource(url.Values{
		"_txlock": {"immediate"},
		"_pragma": {
			"journal_mode(WAL)", "synchronous(NORMAL)", "foreign_keys(1)",
			fmt.Sprintf("journal_size_limit(%d)", journalBytes),
		},
	})
}

func (s *SQLite) readerName() string {
	return s.dataSource(url.Values{"mode": {"ro"}, "_pragma": {"query_only(1)"}})
}

// dataSource names the file with what holds for every connection. Temporary tables stay in memory, since the
// manager's image has no folder for them.
func (s *SQLite) dataSource(options url.Values) string {
	options["_pragma"] = append(options["_pragma"],
		fmt.Sprintf("busy_timeout(%d)", busyTimeout.Milliseconds()),
		fmt.Sprintf("cache_size(-%d)", cacheKiB),
		"temp_store(MEMORY)",
	)
	name := url.URL{Scheme: "file", OmitHost: true, Path: s.path, RawQuery: options.Encode()}
	return name.String()
}

// ID is 32 hexadecimal digits, made with the file.
func (s *SQLite) ID() string { return s.id }

// Close cancels what runs, waits for it to end and releases the lock. Further calls return nil.
func (s *SQLite) Close() error {
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
	// The writer last: it is the one that can bring the write-ahead log into the file.
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
