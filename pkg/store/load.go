package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Load reads a dump to its end into a store without content. The store then has the same content as the dumped one and the same ID, so its
// readers notice nothing of the move. It loads all in one transaction: after an error the store has no content. Its memory is bounded by
// some megabytes and the longest line.
//
// Nothing else may use the store meanwhile. Close it afterwards and open it again.
func (s *Store) Load(ctx context.Context, in io.Reader, progress TableProgress) (info DumpInfo, err error) {
	tables, err := schemaTables(ctx)
	if err != nil {
		return info, err
	}
	r := newDumpReader(in)
	if info, err = r.header(); err != nil {
		return info, err
	}
	return info, s.writeOnce(ctx, "load a dump", func(ctx context.Context, tx *session) error {
		if err := requireEmpty(ctx, tx, tables); err != nil {
			return err
		}
		return (&loader{tx: tx, in: r, tables: tables, progress: progress}).load(ctx)
	})
}

// LoadSQLite reads a dump to its end into a new store at path, as Load does. The file appears when it is complete. If there is a store
// already, LoadSQLite returns ErrNotEmpty; with replace, it renames that one with PreviousSuffix, as a restore does. It returns ErrLocked if
// another process has a store at path open for writing.
func LoadSQLite(ctx context.Context, in io.Reader, path string, replace bool, progress TableProgress) (info DumpInfo, err error) {
	s, err := newUnopened(path, time.Now)
	if err != nil {
		return info, err
	}
	path = s.path
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return info, err
	}
	for _, name := range []string{".lock", restoringSuffix} {
		lock, err := lockFile(path + name)
		if err != nil {
			return info, err
		}
		defer lock.Close()
	}
	if !replace && (exists(path) || exists(path+stagedSuffix)) {
		return info, fmt.Errorf("%w: there is %s already, and a dump can only be loaded into a new one", ErrNotEmpty, path)
	}
	s.path += partialSuffix
	if err := removePartial(s.path); err != nil {
		return info, err
	}
	info, err = s.loadFile(ctx, in, progress)
	if err == nil {
		err = os.Rename(s.path, path+stagedSuffix)
	}
	if err != nil {
		return info, errors.Join(err, removePartial(s.path))
	}
	_, err = takeOverRestored(ctx, path)
	return info, err
}

// loadFile loads a dump into a file that only this process knows. Without a journal the file grows to its own size only. After an error it is
// damaged.
func (s *Store) loadFile(ctx context.Context, in io.Reader, progress TableProgress) (info DumpInfo, err error) {
	file, err := os.OpenFile(s.path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return info, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	name := s.dataSource(url.Values{"_pragma": {"journal_mode(OFF)", "synchronous(OFF)", "foreign_keys(1)"}})
	if s.writer, err = connect(name); err != nil {
		return info, err
	}
	s.writer.SetMaxOpenConns(1)
	if err := migrate(ctx, s.writer); err != nil {
		return info, errors.Join(s.wrapError(ctx, "open", err), s.Close())
	}
	info, err = s.Load(ctx, in, progress)
	if err := errors.Join(err, s.Close()); err != nil {
		return info, err
	}
	return info, file.Sync()
}

// requireEmpty returns ErrNotEmpty if a table has rows that a new store does not have.
func requireEmpty(ctx context.Context, tx *session, tables []table) error {
	for _, t := range tables {
		if t.name == "meta" || t.name == "store_revision" {
			continue
		}
		var one int
		err := tx.QueryRowContext(ctx, `SELECT 1 FROM `+t.name+` LIMIT 1`).Scan(&one)
		if err == nil {
			return fmt.Errorf("%w (table %s): a dump can only be loaded into a new one. Use another path or database, or drop this one and create it again",
				ErrNotEmpty, t.name)
		}
		if !errors.Is(err, sql.ErrNoRows) {
			return err
		}
	}
	return nil
}

// loader loads the tables of a dump.
type loader struct {
	tx       *session
	in       *dumpReader
	tables   []table
	progress TableProgress
}

func (l *loader) load(ctx context.Context) error {
	var total int64
	if err := l.in.expect(); err != nil {
		return err
	}
	for _, t := range l.tables {
		if err := l.in.table(t); err != nil {
			return err
		}
		rows, err := l.loadTable(ctx, t)
		if err != nil {
			return err
		}
		total += rows
		if l.progress != nil {
			l.progress(t.name, rows)
		}
	}
	return l.in.trailer(total)
}

// loadTable loads the rows of a table, and reads the line after them.
func (l *loader) loadTable(ctx context.Context, t table) (count int64, err error) {
	// A new store has an ID and a revision. Triggers may have written the tables that are loaded last.
	if _, err := l.tx.ExecContext(ctx, `DELETE FROM `+t.name); err != nil {
		return 0, err
	}
	statement := insertRecords(t)
	for isRow := true; isRow; {
		first := l.in.number + 1
		var rows [][]any
		if rows, isRow, err = l.readRows(t); err != nil {
			return 0, err
		}
		if err := l.tx.execRows(ctx, statement, rows); err != nil {
			return 0, fmt.Errorf("table %s, lines %d to %d of the dump: %w", t.name, first, first+int64(len(rows))-1, err)
		}
		count += int64(len(rows))
	}
	if after := l.tx.dialect.AfterLoad; after != nil {
		for _, statement := range after(t.name, t.columns[0].name == "id" && t.columns[0].kind == "bigint") {
			if _, err := l.tx.ExecContext(ctx, statement); err != nil {
				return 0, fmt.Errorf("table %s: %w", t.name, err)
			}
		}
	}
	if t.triggered {
		return count, nil
	}
	return count, l.clearTriggered(ctx)
}

// readRows reads rows up to the bounds of one statement; isRow is false if the line after them was read. It is not a row.
func (l *loader) readRows(t table) (rows [][]any, isRow bool, err error) {
	for size := 0; len(rows) < maxRows && size < maxRowsText; size += len(l.in.line) {
		if err := l.in.expect(); err != nil {
			return nil, false, err
		}
		values, isRow, err := l.in.row(t)
		if err != nil || !isRow {
			return rows, false, err
		}
		rows = append(rows, values)
	}
	return rows, true, nil
}

// clearTriggered deletes what triggers have written. The dump has these tables at its end. As long as such a table is empty, triggers that
// update it cost little.
func (l *loader) clearTriggered(ctx context.Context) error {
	for _, t := range l.tables {
		if t.triggered {
			if _, err := l.tx.ExecContext(ctx, `DELETE FROM `+t.name); err != nil {
				return err
			}
		}
	}
	return nil
}

func insertRecords(t table) string {
	var declared, selected []string
	for _, c := range t.columns {
		declared, selected = append(declared, c.name+" "+c.kind), append(selected, "r."+c.name)
	}
	return `INSERT INTO ` + t.name + ` (` + quoted(t.columnNames()) + `) SELECT ` + strings.Join(selected, ", ") +
		` FROM records(@rows, ` + strings.Join(declared, ", ") + `) r`
}
