package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/backup"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/workerapi/version"
)

// Kinds of locations of a store's content.
const (
	inSQLite     = "sqlite"
	inPostgreSQL = "postgresql"
	inDump       = "dump"
)

// location is where the content of a store is, or is to be.
type location struct {
	// kind is inSQLite, inPostgreSQL or inDump.
	kind string
	// path is that of the SQLite file, of the file with the data source name, or of the dump, which may be - for standard input or output.
	path string
}

// locationHelp describes a location in the help and in errors.
const locationHelp = "sqlite:FILE; postgresql:FILE, a file with the server's data source name; dump:FILE, or - for standard "

// parseLocation parses the value of a flag. Its errors do not repeat the value, which may be a data source name with a password.
func parseLocation(flag, value, stream string) (location, error) {
	if value == "-" {
		return location{inDump, "-"}, nil
	}
	kind, path, _ := strings.Cut(value, ":")
	switch {
	case strings.HasPrefix(path, "//"):
		return location{}, fmt.Errorf("%s: a data source name may hold a password, which other processes can read here: write it into a file, such as that of a mounted "+
			"Secret, and give %s:FILE", flag, inPostgreSQL)
	case path != "" && (kind == inSQLite || kind == inPostgreSQL || kind == inDump):
		return location{kind, path}, nil
	}
	return location{}, fmt.Errorf("%s: want %s%s", flag, locationHelp, stream)
}

func (l location) String() string {
	if l.path == "-" {
		return "-"
	}
	return l.kind + ":" + l.path
}

// migrateStore copies the whole content of a store into another database or into a dump, or the content of a dump into a database.
func migrateStore(ctx context.Context, args []string, in io.Reader, out *os.File, messages io.Writer) error {
	flags := newFlags("migrate-store")
	fromFlag := flags.String("from", "", "where the content is: "+locationHelp+"input")
	toFlag := flags.String("to", "", "where the content goes, which must be a new store or file: "+locationHelp+"output")
	replace := flags.Bool("replace", false, "with --to sqlite:FILE: rename a store that is there to FILE"+store.PreviousSuffix)
	if err := flags.Parse(args); err != nil {
		return err
	}
	from, err := parseLocation("--from", *fromFlag, "input")
	if err != nil {
		return err
	}
	to, err := parseLocation("--to", *toFlag, "output")
	switch {
	case err != nil:
		return err
	case flags.NArg() > 0:
		return fmt.Errorf("%q is not a flag", flags.Arg(0))
	case from.kind == inDump && to.kind == inDump:
		return errors.New("--from and --to: one of them must be a store")
	case from == to:
		return errors.New("--from and --to are the same")
	case *replace && to.kind != inSQLite:
		return errors.New("--replace: only with --to sqlite:FILE")
	case to.path == "-" && isTerminal(out):
		return errors.New("send standard output to a file (kubectl exec without --tty), or use --to dump:FILE")
	}
	m := storeMigration{from: from, to: to, replace: *replace, in: in, out: out, messages: messages}
	return m.run(ctx)
}

// storeMigration is one run of migrate-store.
type storeMigration struct {
	from, to location
	replace  bool
	in       io.Reader
	out      io.Writer
	messages io.Writer

	tables, rows int64
}

func (m *storeMigration) run(ctx context.Context) (err error) {
	var info store.DumpInfo
	var next string
	switch {
	case m.from.kind == inDump:
		info, err = m.loadDump(ctx)
		next = "let the manager use it"
	case m.to.kind == inDump:
		info, err = m.dump(ctx)
		next = "the store is as it was, and the file has everything that was in it: protect it like the store"
	default:
		info, err = m.move(ctx)
		next = "the store that it was read from is as it was; let the manager use the new one"
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(m.messages, "copied store %s (schema %d, %d rows in %d tables) from %s to %s; %s\n", info.Store, info.Schema, m.rows, m.tables, m.from, m.to, next)
	return nil
}

// count reports a table that was copied.
func (m *storeMigration) count(table string, rows int64) {
	m.tables++
	m.rows += rows
	fmt.Fprintf(m.messages, "%-20s %10d rows\n", table, rows)
}

// dump writes a store into a dump. A manager may use the store.
func (m *storeMigration) dump(ctx context.Context) (info store.DumpInfo, err error) {
	source, err := m.from.open(ctx, true)
	if err != nil {
		return info, err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	write := func(out io.Writer) error {
		info, err = source.Dump(ctx, version.Version, out, m.count)
		return err
	}
	if m.to.path == "-" {
		return info, write(m.out)
	}
	return info, backup.WriteFile(m.to.path, write)
}

// loadDump loads a dump into a new store.
func (m *storeMigration) loadDump(ctx context.Context) (info store.DumpInfo, err error) {
	if m.from.path == "-" {
		return m.load(ctx, m.in)
	}
	file, err := os.Open(m.from.path)
	if err != nil {
		return info, err
	}
	defer file.Close()
	return m.load(ctx, file)
}

// move loads what a store has into a new one. No manager may use the store: what it writes meanwhile would be lost.
func (m *storeMigration) move(ctx context.Context) (info store.DumpInfo, err error) {
	source, err := m.from.open(ctx, false)
	if errors.Is(err, store.ErrLocked) {
		return info, fmt.Errorf("scale the manager to 0 first: %w", err)
	}
	if err != nil {
		return info, err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	reader, writer := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		writer.CloseWithError(dumpUnchanged(ctx, source, writer))
	}()
	info, err = m.load(ctx, reader)
	reader.CloseWithError(err)
	<-done
	return info, err
}

// dumpUnchanged dumps a store that nobody writes.
func dumpUnchanged(ctx context.Context, source *store.Store, out io.Writer) error {
	before, err := source.Revision(ctx)
	if err != nil {
		return err
	}
	if _, err := source.Dump(ctx, version.Version, out, nil); err != nil {
		return err
	}
	after, err := source.Revision(ctx)
	if err == nil && after != before {
		err = errors.New("a manager has written to the store that is read: scale the manager to 0 first")
	}
	return err
}

// load loads a dump into a new store.
func (m *storeMigration) load(ctx context.Context, in io.Reader) (info store.DumpInfo, err error) {
	if m.to.kind == inSQLite {
		info, err = store.LoadSQLite(ctx, in, m.to.path, m.replace, m.count)
		if errors.Is(err, store.ErrNotEmpty) {
			err = fmt.Errorf("%w: use another path, or --replace, which keeps that store as %s%s", err, m.to.path, store.PreviousSuffix)
		}
		return info, err
	}
	target, err := store.OpenPostgreSQL(ctx, serverOf(m.to.path), time.Now)
	if err != nil {
		return info, err
	}
	info, err = target.Load(ctx, in, m.count)
	return info, errors.Join(err, target.Close())
}

// open opens the store for reading. If shared is false, it returns ErrLocked if a manager uses an SQLite file. A damaged file is refused.
func (l location) open(ctx context.Context, shared bool) (source *store.Store, err error) {
	switch {
	case l.kind == inPostgreSQL:
		return store.OpenPostgreSQL(ctx, serverOf(l.path), time.Now)
	case shared:
		source, err = store.OpenSQLiteReadOnly(l.path)
	default:
		source, err = store.OpenSQLiteExclusive(l.path)
	}
	if err != nil {
		return nil, err
	}
	if err := source.CheckIntegrity(ctx); err != nil {
		return nil, errors.Join(err, source.Close())
	}
	return source, nil
}

// serverOf returns the server whose data source name is in a file.
func serverOf(path string) store.Server {
	return store.Server{MaxConnections: 2, DSN: func() (string, error) {
		text, err := os.ReadFile(path) //nolint:gosec // the path is the user's own
		return strings.TrimSpace(string(text)), err
	}}
}
