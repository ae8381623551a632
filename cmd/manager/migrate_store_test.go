package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/pkg/store/storetest/server"
)

// newStoreFile returns the path of a store with a few rows.
func newStoreFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), storeFile)
	s, err := store.OpenSQLite(t.Context(), path, time.Now)
	must(t, err)
	addRow(t, s, "one")
	must(t, s.Close())
	return path
}

func addRow(t *testing.T, s *store.Store, digest string) {
	t.Helper()
	must(t, s.RecordMemoryExceeded(t.Context(), image.Key{Digest: digest}, "shop", 1))
}

// dumpOfFile returns the dump that migrate-store writes of an SQLite file.
func dumpOfFile(t *testing.T, path string) string {
	t.Helper()
	dump := filepath.Join(t.TempDir(), "dump")
	must(t, runMigrateStore(t, nil, "sqlite:"+path, "dump:"+dump))
	status, err := os.Stat(dump)
	must(t, err)
	if status.Mode() != 0o600 {
		t.Errorf("the dump has mode %v, want 0600", status.Mode())
	}
	text, err := os.ReadFile(dump)
	must(t, err)
	return string(text)
}

func runMigrateStore(t *testing.T, messages io.Writer, from, to string, more ...string) error {
	t.Helper()
	if messages == nil {
		messages = io.Discard
	}
	return migrateStore(t.Context(), append([]string{"--from", from, "--to", to}, more...), strings.NewReader(""), os.Stdout, messages)
}

// newDatabase returns the path of a file with the DSN of an empty database.
func newDatabase(t *testing.T) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "dsn")
	must(t, os.WriteFile(path, []byte(server.PostgreSQL(t).NewDatabase(t)+"\n"), 0o600))
	return path
}

// TestMigrateStore checks that a store is the same after it was moved, also by way of a dump, and that the messages say what was moved.
func TestMigrateStore(t *testing.T) {
	path := newStoreFile(t)
	want := dumpOfFile(t, path)
	other := func(t *testing.T) string { return filepath.Join(t.TempDir(), "other.db") }
	for name, tt := range map[string][]func(*testing.T) string{
		"a file":               {func(t *testing.T) string { return "sqlite:" + other(t) }},
		"a server":             {func(t *testing.T) string { return "postgresql:" + newDatabase(t) }},
		"a dump":               {func(t *testing.T) string { return "dump:" + other(t) }},
		"a server and a dump":  {func(t *testing.T) string { return "postgresql:" + newDatabase(t) }, func(t *testing.T) string { return "dump:" + other(t) }},
		"a file and a server":  {func(t *testing.T) string { return "sqlite:" + other(t) }, func(t *testing.T) string { return "postgresql:" + newDatabase(t) }},
		"a dump and a server":  {func(t *testing.T) string { return "dump:" + other(t) }, func(t *testing.T) string { return "postgresql:" + newDatabase(t) }},
		"one server and other": {func(t *testing.T) string { return "postgresql:" + newDatabase(t) }, func(t *testing.T) string { return "postgresql:" + newDatabase(t) }},
	} {
		t.Run(name, func(t *testing.T) {
			from := "sqlite:" + path
			for _, next := range append(tt, func(t *testing.T) string { return "sqlite:" + other(t) }) {
				var messages strings.Builder
				to := next(t)
				must(t, runMigrateStore(t, &messages, from, to))
				for _, part := range []string{"memory_exceeded               1 rows\n", "from " + from + " to " + to} {
					if !strings.Contains(messages.String(), part) {
						t.Errorf("the messages are %q, want them with %q", messages.String(), part)
					}
				}
				from = to
			}
			if moved := dumpOfFile(t, strings.TrimPrefix(from, "sqlite:")); moved != want {
				t.Errorf("the dump of the moved store is %s\nwant %s", moved, want)
			}
		})
	}
}

// TestMigrateStoreByPipe checks standard output and standard input, and that the manager's own store is read by default.
func TestMigrateStoreByPipe(t *testing.T) {
	path, other := newStoreFile(t), filepath.Join(t.TempDir(), "other.db")
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	must(t, err)
	must(t, migrateStore(t.Context(), []string{"--data-dir=" + filepath.Dir(path), "--to=-"}, nil, out, io.Discard))
	must(t, out.Close())
	in, err := os.Open(out.Name())
	must(t, err)
	defer in.Close()
	must(t, migrateStore(t.Context(), []string{"--from=-", "--to=sqlite:" + other}, in, os.Stdout, io.Discard))
	if moved, want := dumpOfFile(t, other), dumpOfFile(t, path); moved != want {
		t.Errorf("the dump of the moved store is %s\nwant %s", moved, want)
	}
}

// TestMigrateStoreBesideAManager checks that a store in use can be dumped, but not moved or replaced.
func TestMigrateStoreBesideAManager(t *testing.T) {
	path, free := newStoreFile(t), newStoreFile(t)
	manager, err := store.OpenSQLite(t.Context(), path, time.Now)
	must(t, err)
	defer manager.Close()
	if dump := dumpOfFile(t, path); !strings.Contains(dump, `["one"`) {
		t.Errorf("the dump is %s", dump)
	}
	err = runMigrateStore(t, nil, "sqlite:"+path, "sqlite:"+filepath.Join(t.TempDir(), "other.db"))
	if !errors.Is(err, store.ErrLocked) || !strings.HasPrefix(err.Error(), "scale the manager to 0 first: ") {
		t.Errorf("moving the store: %v, want that the manager is to be scaled to 0", err)
	}
	if err := runMigrateStore(t, nil, "sqlite:"+free, "sqlite:"+path, "--replace"); !errors.Is(err, store.ErrLocked) {
		t.Errorf("replacing the store: %v, want ErrLocked", err)
	}
}

// TestDumpOfWrittenStore checks that a move fails if something writes the store while it is read. A server has no lock that would keep a
// manager away.
func TestDumpOfWrittenStore(t *testing.T) {
	s, err := store.OpenSQLite(t.Context(), newStoreFile(t), time.Now)
	must(t, err)
	defer s.Close()
	var quiet bytes.Buffer
	must(t, dumpUnchanged(t.Context(), s, &quiet))
	written := false
	err = dumpUnchanged(t.Context(), s, writerFunc(func(text []byte) (int, error) {
		if !written {
			written = true
			addRow(t, s, "two")
		}
		return len(text), nil
	}))
	if err == nil || !strings.Contains(err.Error(), "scale the manager to 0 first") {
		t.Errorf("the error is %v, want that the manager is to be scaled to 0", err)
	}
}

type writerFunc func([]byte) (int, error)

func (w writerFunc) Write(text []byte) (int, error) { return w(text) }

// TestMigrateStoreReplaces checks that a store is only replaced on demand, and kept beside the new one.
func TestMigrateStoreReplaces(t *testing.T) {
	path, there := newStoreFile(t), newStoreFile(t)
	before := dumpOfFile(t, there)
	err := runMigrateStore(t, nil, "sqlite:"+path, "sqlite:"+there)
	if !errors.Is(err, store.ErrNotEmpty) {
		t.Errorf("the error is %v, want ErrNotEmpty", err)
	}
	if now := dumpOfFile(t, there); now != before {
		t.Error("the store that was there has changed")
	}
	must(t, runMigrateStore(t, nil, "sqlite:"+path, "sqlite:"+there, "--replace"))
	if dumpOfFile(t, there) != dumpOfFile(t, path) || dumpOfFile(t, there+store.PreviousSuffix) != before {
		t.Error("the store was not replaced, or the one before is another one")
	}
}

// TestMigrateStoreFlags checks the errors of wrong flags. They never have the value, which may have a password.
func TestMigrateStoreFlags(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{"", "--to: want config"},
		{"--from=", "--from: want config"},
		{"--from=sqlite:a", "--to: want config"},
		{"--config=missing --to=-", "missing"},
		{"--from=sqlite: --to=dump:canary", "--from: want"},
		{"--from=oracle:canary --to=-", "--from: want"},
		{"--from=canary --to=-", "--from: want"},
		{"--from=sqlite:a --to=postgresql://user:canary@host/database", "--to: a data source name may hold a password"},
		{"--from=postgres://user:canary@host/database --to=-", "--from: a data source name may hold a password"},
		{"--from=-  --to=dump:a", "one of them must be a store"},
		{"--from=sqlite:a --to=sqlite:a", "are the same"},
		{"--from=sqlite:a --to=dump:b --replace", "only for a store in a file"},
		{"--from=sqlite:a --to=dump:b c", "an argument that is not a flag"},
		{"--from=sqlite:missing/store.db --to=dump:b", "there is none yet"},
		{"--from=dump:missing --to=sqlite:b", "no such file"},
		{"--from=sqlite:a --to=postgresql:missing", "there is none yet"},
		{"--from=sqlite:a --to=postgresql:b --replace", "only for a store in a file"},
		{"--to=config", "are the same"},
		{"--from=postgresql:missing --to=-", "no such file"},
	} {
		err := migrateStore(t.Context(), strings.Fields(tt.args), nil, os.Stdout, io.Discard)
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: the error is %v, want one with %q", tt.args, err, tt.want)
		}
	}
	if _, err := os.Stat("b"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that should not be written: %v", err)
	}
}
