package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/go-logr/logr"

	"github.com/scanner-operator/scanner-operator/pkg/backup"
	"github.com/scanner-operator/scanner-operator/pkg/config"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/workerapi/version"
)

// databases are the types of stores by their names in a location.
var databases = map[string]config.StoreType{"sqlite": config.SQLite, "postgresql": config.PostgreSQL, "mysql": config.MySQL}

// configured is the location of the store that the operator's configuration names.
const configured = "config"

// locationHelp describes a location in the help and in errors. It ends before input or output.
const locationHelp = "config for the store of the operator's configuration; sqlite:FILE; postgresql:FILE or mysql:FILE, a file with the data source name; " +
	"dump:FILE, or - for standard "

// location is where the content of a store is, or is to be: a store, or a dump.
type location struct {
	// text is what the user wrote.
	text string
	// dump is the path of a dump, which may be - for standard input or output; empty for a store.
	dump  string
	store storeLocation
}

// parseLocation parses the value of a flag. Its errors do not repeat the value, which may be a data source name with a password.
func parseLocation(flag, text, stream, caFile string, configuredStore func() (storeLocation, error)) (l location, err error) {
	l.text = text
	kind, path, _ := strings.Cut(text, ":")
	database, isDatabase := databases[kind]
	switch {
	case text == "-":
		l.dump = text
	case text == configured:
		if l.store, err = configuredStore(); err != nil {
			return l, fmt.Errorf("%s: %w", flag, err)
		}
	case strings.HasPrefix(path, "//"):
		return l, fmt.Errorf("%s: a data source name may hold a password, which other processes can read here: write it into a file, such as that of a "+
			"mounted Secret, and give postgresql:FILE or mysql:FILE", flag)
	case kind == "dump" && path != "":
		l.dump = path
	case kind == "sqlite" && path != "":
		l.store = storeLocation{file: path, settings: config.Store{Type: database}}
	case isDatabase && path != "":
		l.store.settings = config.Store{Type: database, DSNFile: path, MaxConnections: 2, TLS: config.StoreTLS{CAFile: caFile}}
	default:
		return l, fmt.Errorf("%s: want %s%s", flag, locationHelp, stream)
	}
	return l, nil
}

// migrateStore copies the whole content of a store into another database or into a dump, or the content of a dump into a database.
func migrateStore(ctx context.Context, args []string, in io.Reader, out *os.File, messages io.Writer) error {
	flags := newFlags("migrate-store")
	where := addStoreFlags(flags)
	fromFlag := flags.String("from", configured, "where the content is: "+locationHelp+"input")
	toFlag := flags.String("to", "", "where the content goes, which must be a new store or file: "+locationHelp+"output")
	caFile := flags.String("ca-file", "", "with postgresql:FILE or mysql:FILE: PEM certificates of the authorities that may sign the server's certificate")
	replace := flags.Bool("replace", false, "with a store in a file as the target: rename a file that is there to FILE"+store.PreviousSuffix)
	if err := flags.Parse(args); err != nil {
		return err
	}
	from, err := parseLocation("--from", *fromFlag, "input", *caFile, where.location)
	if err != nil {
		return err
	}
	to, err := parseLocation("--to", *toFlag, "output", *caFile, where.location)
	switch {
	case err != nil:
		return err
	case flags.NArg() > 0:
		// The argument may be a data source name, with its password.
		return errors.New("there is an argument that is not a flag: every argument begins with --")
	case from.dump != "" && to.dump != "":
		return errors.New("--from and --to: one of them must be a store")
	case from == to:
		return errors.New("--from and --to are the same")
	case *replace && (to.dump != "" || !to.store.isFile()):
		return errors.New("--replace: only for a store in a file")
	case to.dump == "-" && isTerminal(out):
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
	case m.from.dump != "":
		info, err = m.loadDump(ctx)
		next = "let the manager use it"
	case m.to.dump != "":
		info, err = m.dump(ctx)
		next = "the store is as it was, and the file has everything that was in it: protect it like the store"
	default:
		info, err = m.move(ctx)
		next = "the store that it was read from is as it was; let the manager use the new one"
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(m.messages, "copied store %s (schema %d, %d rows in %d tables) from %s to %s; %s\n", info.Store, info.Schema, m.rows, m.tables, m.from.text, m.to.text, next)
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
	source, err := m.from.store.openReadOnly(ctx)
	if err != nil {
		return info, err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	if err := source.CheckIntegrity(ctx); err != nil {
		return info, err
	}
	write := func(out io.Writer) error {
		info, err = source.Dump(ctx, version.Version, out, m.count)
		return err
	}
	if m.to.dump == "-" {
		return info, write(m.out)
	}
	return info, backup.WriteFile(m.to.dump, write)
}

// loadDump loads a dump into a new store.
func (m *storeMigration) loadDump(ctx context.Context) (info store.DumpInfo, err error) {
	if m.from.dump == "-" {
		return m.load(ctx, m.in)
	}
	file, err := os.Open(m.from.dump)
	if err != nil {
		return info, err
	}
	defer file.Close()
	return m.load(ctx, file)
}

// move loads what a store has into a new one. No manager may use the store: what it writes meanwhile would be lost.
func (m *storeMigration) move(ctx context.Context) (info store.DumpInfo, err error) {
	source, err := m.openSource(ctx)
	if errors.Is(err, store.ErrLocked) {
		return info, fmt.Errorf("scale the manager to 0 first: %w", err)
	}
	if err != nil {
		return info, err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	if err := source.CheckIntegrity(ctx); err != nil {
		return info, err
	}
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

// openSource opens the store that is moved. It returns ErrLocked if a manager uses a store in a file.
func (m *storeMigration) openSource(ctx context.Context) (*store.Store, error) {
	if m.from.store.isFile() {
		return store.OpenSQLiteExclusive(m.from.store.path())
	}
	return m.from.store.openReadOnly(ctx)
}

// load loads a dump into a new store.
func (m *storeMigration) load(ctx context.Context, in io.Reader) (info store.DumpInfo, err error) {
	if to := m.to.store; to.isFile() {
		info, err = store.LoadSQLite(ctx, in, to.path(), m.replace, m.count)
		if errors.Is(err, store.ErrNotEmpty) {
			err = fmt.Errorf("%w: use another path, or --replace, which keeps that store as %s%s", err, to.path(), store.PreviousSuffix)
		}
		return info, err
	}
	target, err := m.to.store.open(ctx, logr.Discard())
	if err != nil {
		return info, err
	}
	info, err = target.Load(ctx, in, m.count)
	return info, errors.Join(err, target.Close())
}
