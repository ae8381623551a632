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
	"time"

	"modernc.org/sqlite"

	"github.com/scanner-operator/scanner-operator/pkg/store/dialect"
)

// Errors of opening a store, and of calls that the opened store does not support.
var (
	// ErrLocked means that another process has the store open for writing.
	ErrLocked = errors.New("the store is in use by another manager")
	// ErrClosed means that the store was closed before or during the call.
	ErrClosed = errors.New("the store is closed")
	// ErrReadOnly means that the store was opened by OpenSQLiteReadOnly.
	ErrReadOnly = errors.New("the store is open for reading only")
)

const (
	// busyTimeout is how long SQLite itself waits for a lock, such as that of a checkpoint.
	busyTimeout = 10 * time.Second
	// readers bounds the connections for reading, and with them their memory. The REST API has up to four queries and two exports at once.
	readers = 8
	// cacheKiB is the size of each connection's page cache.
	cacheKiB = 16 << 10
	// journalBytes is the size that the write-ahead log is truncated to after a large transaction.
	journalBytes = 64 << 20
)

// OpenSQLite opens the store at path for this process alone, and creates it with mode 0600 if there is none. It migrates the
// store to the current schema. now returns the time for everything that the store dates itself.
//
// It returns ErrLocked if another process has the store open for writing. If the file is damaged, is not a store, or was written
// by a newer version, the error names the file and what to do.
func OpenSQLite(ctx context.Context, path string, now func() time.Time) (*Store, error) {
	s, err := newUnopened(path, now)
	if err != nil {
		return nil, err
	}
	if err := s.openForWriting(ctx); err != nil {
		return nil, errors.Join(s.wrapError(ctx, "open", err), s.Close())
	}
	return s, nil
}

// OpenSQLiteReadOnly opens an existing store beside the process that writes it, and sees everything that this process has
// committed. It takes no lock and changes nothing. Methods that write return ErrReadOnly.
func OpenSQLiteReadOnly(path string) (*Store, error) {
	s, err := newUnopened(path, time.Now)
	if err != nil {
		return nil, err
	}
	ctx := context.Background()
	if _, err := os.Stat(s.path); err != nil {
		return nil, fmt.Errorf("store %s: there is none yet, the manager makes it when it starts: %w", s.path, err)
	}
	err = s.openForReading(ctx)
	if err != nil && s.reader != nil && s.isImmutable() {
		err = errors.Join(s.reader.Close(), s.openForReading(ctx, "immutable=1"))
	}
	if err != nil {
		return nil, errors.Join(s.wrapError(ctx, "open for reading", err), s.Close())
	}
	return s, nil
}

// OpenSQLiteExclusive opens an existing store for reading, as OpenSQLiteReadOnly does, and keeps others from opening it for writing until it
// is closed. It returns ErrLocked if another process has the store open for writing.
func OpenSQLiteExclusive(path string) (*Store, error) {
	s, err := OpenSQLiteReadOnly(path)
	if err != nil {
		return nil, err
	}
	if s.lock, err = lockFile(s.path + ".lock"); err != nil {
		return nil, errors.Join(s.wrapError(context.Background(), "open", err), s.Close())
	}
	return s, nil
}

// isImmutable reports whether no process can write the file and the file is complete without a log. SQLite then needs no files beside
// it.
func (s *Store) isImmutable() bool {
	log, err := os.Stat(s.path + "-wal") //nolint:gosec // the path is the operator's own flag
	complete := errors.Is(err, os.ErrNotExist) || err == nil && log.Size() == 0
	return complete && errors.Is(fileBacking{s}.volumeFault(), ErrVolumeReadOnly)
}

func newUnopened(path string, now func() time.Time) (*Store, error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("store %q: %w", path, err)
	}
	s := newClosed(absolute, dialect.SQLite, now)
	s.backing = fileBacking{s}
	return s, nil
}

// newClosed returns a store without connections. path names the store in errors.
func newClosed(path string, d *dialect.Dialect, now func() time.Time) *Store {
	s := &Store{
		stepRows: stepRows,
		path:     path, dialect: d, now: now, metrics: newMetrics(),
		term:       term{alone: true},
		presence:   presence{seen: map[int64]bool{}},
		unchanged:  unchangedCache{rounds: map[receiverName]uint64{}, unchanged: recent[bool]{limit: maxUnchanged}},
		counts:     recent[Totals]{limit: maxCachedTotals},
		statements: recent[[]storedStatement]{limit: maxCachedStatementBytes},
		fairness:   fairState{served: map[string]string{}, isolatedSince: map[string]time.Time{}},
	}
	s.identity.Store(&identity{})
	s.closing, s.end = context.WithCancelCause(context.Background())
	return s
}

func (s *Store) openForWriting(ctx context.Context) (err error) {
	if err := os.MkdirAll(filepath.Dir(s.path), 0o700); err != nil { //nolint:gosec // the path is the operator's own flag
		return fmt.Errorf("make the directory: %w", err)
	}
	if s.lock, err = lockFile(s.path + ".lock"); err != nil {
		return err
	}
	if s.replaced, err = takeOverRestored(ctx, s.path); err != nil {
		return err
	}
	if err := removeInterrupted(s.path); err != nil {
		return err
	}
	if err := moveOrphanedLog(s.path); err != nil {
		return err
	}
	// SQLite creates its other files with the mode of this one.
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
	fileBacking{s}.measure()
	if err := s.openForReading(ctx); err != nil {
		return err
	}
	before, err := readMetaTime(ctx, s.reading(), lastPresent)
	s.presence.begin(before)
	return err
}

// moveOrphanedLog renames a write-ahead log whose store was moved away without it. Otherwise SQLite would apply the log to the
// new store.
func moveOrphanedLog(path string) error {
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) { //nolint:gosec // the path is the operator's own flag
		return nil
	}
	err := os.Rename(path+"-wal", path+"-wal.left") //nolint:gosec // the path is the operator's own flag
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("put the log of an earlier store aside: %w", err)
	}
	return nil
}

func (s *Store) openForReading(ctx context.Context, options ...string) (err error) {
	if s.reader, err = connect(strings.Join(append([]string{s.readerName()}, options...), "&")); err != nil {
		return err
	}
	s.reader.SetMaxOpenConns(readers)
	s.reader.SetMaxIdleConns(readers)
	if err := checkOwner(ctx, s.reader); err != nil {
		return err
	}
	return s.readIdentity(ctx)
}

// connect opens a database whose schema may not call functions with side effects: a store or a backup comes from a volume that
// others may be able to write.
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

// writerName returns the data source name for writing. Every transaction takes the write lock at its beginning, since one that
// reads first and writes later could not wait for the lock. With synchronous NORMAL, the last commits may be lost when the
// machine fails, but the file is never damaged. What is lost is done again.
func (s *Store) writerName() string {
	return s.dataSource(url.Values{
		"_txlock": {"immediate"},
		"_pragma": {
			"journal_mode(WAL)", "synchronous(NORMAL)", "foreign_keys(1)",
			fmt.Sprintf("journal_size_limit(%d)", journalBytes),
		},
	})
}

func (s *Store) readerName() string {
	return s.dataSource(url.Values{"mode": {"ro"}, "_pragma": {"query_only(1)"}})
}

// dataSource returns the data source name with the options of every connection. Temporary tables stay in memory, since the
// manager's image has no directory for them.
func (s *Store) dataSource(options url.Values) string {
	options["_pragma"] = append(options["_pragma"],
		fmt.Sprintf("busy_timeout(%d)", busyTimeout.Milliseconds()),
		fmt.Sprintf("cache_size(-%d)", cacheKiB),
		"temp_store(MEMORY)",
	)
	name := url.URL{Scheme: "file", OmitHost: true, Path: s.path, RawQuery: options.Encode()}
	return name.String()
}
