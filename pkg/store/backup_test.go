package store

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/pressly/goose/v3"

	"github.com/scanner-operator/scanner-operator/pkg/store/dialect"
)

// writeMark writes a mark into a store, by which a test identifies the store.
func writeMark(t testing.TB, s *Store, text string) {
	t.Helper()
	got[sql.Result](t)(s.writer.ExecContext(t.Context(), `INSERT INTO receivers (scanner, name, state) VALUES ('scanner', 'receiver', ?)
		ON CONFLICT (scanner, name) DO UPDATE SET state = excluded.state`, []byte(text)))
}

func readMark(t testing.TB, s *Store) string {
	t.Helper()
	return string(got[[]byte](t)(s.ReceiverState(t.Context(), "scanner", "receiver")))
}

func backupOf(t testing.TB, s *Store) []byte {
	t.Helper()
	var out bytes.Buffer
	_, err := s.Backup(t.Context(), "test", &out)
	must(t, err)
	return out.Bytes()
}

// editHeader changes the header line of a backup.
func editHeader(backup []byte, before, after string) []byte {
	return bytes.Replace(backup, []byte(before), []byte(after), 1)
}

// files returns the names in a store's directory, without the store's name as their prefix.
func files(t testing.TB, path string) (names []string) {
	t.Helper()
	for _, entry := range got[[]fs.DirEntry](t)(os.ReadDir(filepath.Dir(path))) {
		if name := strings.TrimPrefix(entry.Name(), filepath.Base(path)); name != restoringSuffix { // the lock file stays
			names = append(names, name)
		}
	}
	return names
}

// TestRestore checks that a staged backup becomes the store at the next start and not before. The restored store has another ID
// than the one that was backed up, and the previous store is kept until the next restore.
func TestRestore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	first := openStore(t, path)
	writeMark(t, first.Store, "backed up")
	backup := backupOf(t, first.Store)
	writeMark(t, first.Store, "since then")

	for round, before := range []string{"since then", "backed up"} {
		info, err := StageRestore(t.Context(), bytes.NewReader(backup), path)
		must(t, err)
		if info.Store != first.ID() || !info.CreatedAt.Equal(first.clock.Now()) || info.Operator != "test" {
			t.Errorf("the backup says %+v, want store %s, at %s, made by test", info, first.ID(), first.clock.Now())
		}
		if round == 0 {
			if text := readMark(t, first.Store); text != "since then" {
				t.Errorf("the store that is open says %q before it was closed", text)
			}
			must(t, first.Close())
		}
		restored := openStore(t, path)
		if text := readMark(t, restored.Store); text != "backed up" || !restored.Replaced() {
			t.Errorf("round %d: the store at the next start says %q, replaced %t; want what was backed up", round, text, restored.Replaced())
		}
		if restored.ID() == first.ID() || !restored.RestoredFrom().Equal(info.CreatedAt) {
			t.Errorf("it has the id %s and is restored from %s; want another id and %s", restored.ID(), restored.RestoredFrom(), info.CreatedAt)
		}
		must(t, restored.Close())
		previous := openStore(t, path+PreviousSuffix)
		if text := readMark(t, previous.Store); text != before {
			t.Errorf("round %d: the store put aside says %q, want %q", round, text, before)
		}
		must(t, previous.Close())
		must(t, os.Remove(path+PreviousSuffix+".lock"))
	}
	again := openStore(t, path)
	if again.Replaced() || again.RestoredFrom().IsZero() {
		t.Errorf("opened again: replaced %t, restored from %s; want only the latter", again.Replaced(), again.RestoredFrom())
	}
	if mode := got[os.FileInfo](t)(os.Stat(path)).Mode().Perm(); mode != 0o600 {
		t.Errorf("the store has mode %o", mode)
	}
}

// TestConcurrentBackup checks that a backup is a consistent snapshot while another process writes.
func TestConcurrentBackup(t *testing.T) {
	f := newStore(t)
	write := func(n int) error {
		return f.write(t.Context(), "write both", func(ctx context.Context, tx *session) error {
			// The two rows are far apart in the file, with pages between them that are allocated and freed.
			for _, name := range []string{"first", "second"} {
				if _, err := tx.ExecContext(ctx, `INSERT INTO meta VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value`, name, fmt.Sprint(n)); err != nil {
					return err
				}
				if _, err := tx.ExecContext(ctx, `INSERT INTO meta VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value`,
					fmt.Sprintf("%s-%d", name, n%50), strings.Repeat("x", 1000*(n%40))); err != nil {
					return err
				}
			}
			return nil
		})
	}
	must(t, write(0))
	ctx, stop := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	var failed error
	writes := 0
	writing.Go(func() {
		for ; ctx.Err() == nil && failed == nil; writes++ {
			failed = write(writes)
		}
	})
	for i := range 5 {
		// The backup is read by a second store, as by another process.
		reader, err := OpenSQLiteReadOnly(f.path)
		must(t, err)
		backup := backupOf(t, reader)
		must(t, reader.Close())
		path := filepath.Join(t.TempDir(), "store.db")
		_, err = StageRestore(t.Context(), bytes.NewReader(backup), path)
		must(t, err)
		restored := openStore(t, path)
		must(t, restored.CheckIntegrity(t.Context()))
		var first, second string
		must(t, restored.reader.QueryRow(`SELECT a.value, b.value FROM meta a, meta b WHERE a.name = 'first' AND b.name = 'second'`).Scan(&first, &second))
		if first != second {
			t.Errorf("backup %d has %s of one and %s of the other, which were written together", i, first, second)
		}
	}
	stop()
	writing.Wait()
	must(t, failed)
	if writes < 5 {
		t.Errorf("only %d writes went through while backups were made", writes)
	}
}

// pages returns the part of a backup's header line with the number of pages plus more.
func pages(backup []byte, more int) string {
	var info BackupInfo
	_ = json.Unmarshal(backup[:bytes.IndexByte(backup, '\n')], &info)
	return fmt.Sprintf(`"pages":%d,`, info.Pages+int64(more))
}

// TestRestoreRefused checks that anything but a complete and intact backup that this version can read is refused with the reason,
// and leaves no files.
func TestRestoreRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	f := openStore(t, path)
	writeMark(t, f.Store, "in use")
	backup := backupOf(t, f.Store)
	middle := bytes.Clone(backup)
	middle[len(middle)/2] ^= 1
	other := newStore(t)
	for name, tt := range map[string]struct {
		data []byte
		want error
		text string
	}{
		"nothing":            {nil, ErrNoBackup, ""},
		"another file":       {[]byte("PK\x03\x04 not a backup"), ErrNoBackup, ""},
		"a long line":        {bytes.Repeat([]byte("{"), 1<<20), ErrNoBackup, ""},
		"a store":            {got[[]byte](t)(os.ReadFile(path)), ErrNoBackup, ""},
		"other JSON":         {[]byte(`{"format":"backup"}` + "\n"), ErrNoBackup, ""},
		"a first line only":  {backup[:bytes.IndexByte(backup, '\n')+1], ErrBackupDamaged, ""},
		"one cut short":      {backup[:len(backup)-1], ErrBackupDamaged, ""},
		"half of one":        {backup[:len(backup)/2], ErrBackupDamaged, ""},
		"one flipped bit":    {middle, ErrBackupDamaged, ""},
		"more after it":      {append(bytes.Clone(backup), "more"...), ErrBackupDamaged, ""},
		"a wrong first line": {editHeader(backup, `"operator":"test"`, `"operator":"best"`), ErrBackupDamaged, "checksum"},
		"another store's":    {editHeader(backup, f.ID(), other.ID()), ErrBackupDamaged, "checksum"},
		"fewer pages":        {editHeader(backup, pages(backup, 0), pages(backup, -1)), ErrBackupDamaged, ""},
		"no pages":           {editHeader(backup, `"pages":`, `"pages":-`), ErrBackupDamaged, ""},
		"huge pages":         {editHeader(backup, `"pageSize":4`, `"pageSize":94`), ErrBackupDamaged, ""},
		"more than fits":     {editHeader(backup, `"pages":`, `"pages":999999`), nil, "no room"},
		"a newer schema":     {editHeader(backup, `"schema":`, `"schema":99`), ErrBackupNewer, "schema 99"},
		"a newer layout":     {editHeader(backup, `"version":1`, `"version":2`), ErrBackupNewer, "format 2"},
	} {
		before := files(t, path)
		_, err := StageRestore(t.Context(), bytes.NewReader(tt.data), path)
		if err == nil || tt.want != nil && !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.text) {
			t.Errorf("%s: the error is %v, want %v that says %q", name, err, tt.want, tt.text)
		}
		if diff := cmp.Diff(before, files(t, path)); diff != "" {
			t.Errorf("%s: files have changed (-before +after):\n%s", name, diff)
		}
	}
	must(t, f.Close())
	if text := readMark(t, openStore(t, path).Store); text != "in use" {
		t.Errorf("the store says %q after all that, want what it said before", text)
	}
}

// TestBackupOfDamagedStore checks that a damaged store is not backed up, so that its backup does not replace a good one.
func TestBackupOfDamagedStore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	f := openStore(t, path)
	must(t, f.Close())
	damage(t, path)
	reader, err := OpenSQLiteReadOnly(path)
	if err == nil {
		_, err = reader.Backup(t.Context(), "test", io.Discard)
		must(t, reader.Close())
	}
	if !errors.Is(err, ErrCorrupt) {
		t.Errorf("backing up a damaged store: %v, want %v", err, ErrCorrupt)
	}
}

// TestRestoreBrokenOff checks that a takeover of a restored store that was interrupted at any point is completed by the next
// start, and that the previous store is kept.
func TestRestoreBrokenOff(t *testing.T) {
	origin := newStore(t)
	writeMark(t, origin.Store, "backed up")
	backup := backupOf(t, origin.Store)
	for name, tt := range map[string]struct {
		happened func(t *testing.T, path string)
		previous string
	}{
		"before it began":               {func(*testing.T, string) {}, "before"},
		"the log is not in the store":   {leaveLog, "in the log"},
		"the store was put aside":       {func(t *testing.T, path string) { must(t, os.Rename(path, path+PreviousSuffix)) }, "before"},
		"there never was a store":       {func(t *testing.T, path string) { must(t, os.Remove(path)) }, ""},
		"a log stayed without a store":  {func(t *testing.T, path string) { leaveLog(t, path); must(t, os.Remove(path)) }, ""},
		"the store before is damaged":   {func(t *testing.T, path string) { damage(t, path) }, "damaged"},
		"another restore is half there": {func(t *testing.T, path string) { must(t, os.WriteFile(path+partialSuffix, []byte("half"), 0o600)) }, "before"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "store.db")
			before := openStore(t, path)
			writeMark(t, before.Store, "before")
			must(t, before.Close())
			_, err := StageRestore(t.Context(), bytes.NewReader(backup), path)
			must(t, err)
			tt.happened(t, path)

			restored := openStore(t, path)
			must(t, restored.CheckIntegrity(t.Context()))
			if text := readMark(t, restored.Store); text != "backed up" {
				t.Errorf("the store says %q, want what was backed up", text)
			}
			for _, suffix := range []string{partialSuffix, stagedSuffix} {
				if _, err := os.Stat(path + suffix); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("%s is left", suffix)
				}
			}
			switch tt.previous {
			case "":
			case "damaged":
				must(t, errorsOf(os.Stat(path+PreviousSuffix)))
			default:
				if text := readMark(t, openStore(t, path+PreviousSuffix).Store); text != tt.previous {
					t.Errorf("the store put aside says %q, want %q", text, tt.previous)
				}
			}
		})
	}
}

func errorsOf(_ os.FileInfo, err error) error { return err }

// leaveLog puts a store at path as a manager leaves it that is killed after it wrote "in the log".
func leaveLog(t *testing.T, path string) {
	t.Helper()
	f := openStore(t, path+"-running")
	must(t, f.Close())
	s, err := newUnopened(path, time.Now)
	must(t, err)
	// This skips the step of OpenSQLite that would take over the staged store.
	s.writer, err = connect(s.writerName())
	must(t, err)
	s.reader = s.writer
	must(t, s.SaveReceiverState(t.Context(), "scanner", "receiver", []byte("in the log")))
	for _, suffix := range []string{"", "-wal"} {
		data, err := os.ReadFile(path + suffix)
		must(t, err)
		must(t, os.WriteFile(path+suffix+".copy", data, 0o600))
	}
	must(t, s.Close())
	for _, suffix := range []string{"", "-wal"} {
		must(t, os.Rename(path+suffix+".copy", path+suffix))
	}
}

// damage overwrites pages in the middle of a store.
func damage(t testing.TB, path string) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	nonsense := bytes.Repeat([]byte("nonsense"), 512)
	for page := int64(1); page < 20; page++ {
		_, err = file.WriteAt(nonsense, page*4096)
		must(t, err)
	}
	must(t, file.Close())
}

// TestConcurrentRestores checks that a second restore is refused while the first is running, that the last one counts, and that it can
// be canceled.
func TestConcurrentRestores(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	f := newStore(t)
	writeMark(t, f.Store, "first")
	first := backupOf(t, f.Store)
	writeMark(t, f.Store, "second")
	second := backupOf(t, f.Store)
	in, out := io.Pipe()
	done := make(chan error, 1)
	go func() { _, err := StageRestore(t.Context(), in, path); done <- err }()
	_, err := out.Write(first[:len(first)/2])
	must(t, err)
	if _, err := StageRestore(t.Context(), bytes.NewReader(second), path); !errors.Is(err, ErrRestoring) {
		t.Errorf("a restore during another: %v, want %v", err, ErrRestoring)
	}
	_, err = out.Write(first[len(first)/2:])
	must(t, err)
	must(t, out.Close())
	must(t, <-done)
	_, err = StageRestore(t.Context(), bytes.NewReader(second), path)
	must(t, err)
	if text := readMark(t, openStore(t, path).Store); text != "second" {
		t.Errorf("the store says %q, want what was restored last", text)
	}
	_, err = StageRestore(t.Context(), bytes.NewReader(first), path)
	must(t, err)
	for _, want := range []bool{true, false} {
		if found := got[bool](t)(CancelRestore(path)); found != want {
			t.Errorf("taking it back found one: %t, want %t", found, want)
		}
	}
}

// TestConcurrentRestoreLock checks that a restore locks only a file that is never renamed. Otherwise a process that opened the lock
// file just before the restore ended would hold the lock of the staged store. A starting manager that removes partial files and a
// second restore both need that lock.
func TestConcurrentRestoreLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	f := newStore(t)
	writeMark(t, f.Store, "first")
	in, out := io.Pipe()
	done := make(chan error, 1)
	go func() { _, err := StageRestore(t.Context(), in, path); done <- err }()
	backup := backupOf(t, f.Store)
	_, err := out.Write(backup[:len(backup)/2])
	must(t, err)
	var locked []string // files that the restore holds locks of while it runs
	for _, file := range got[[]os.DirEntry](t)(os.ReadDir(filepath.Dir(path))) {
		another := got[*os.File](t)(os.OpenFile(filepath.Join(filepath.Dir(path), file.Name()), os.O_RDWR, 0))
		if errors.Is(syscall.Flock(int(another.Fd()), syscall.LOCK_EX|syscall.LOCK_NB), syscall.EWOULDBLOCK) {
			locked = append(locked, file.Name())
		}
		must(t, another.Close())
	}
	_, err = out.Write(backup[len(backup)/2:])
	must(t, err)
	must(t, out.Close())
	must(t, <-done)
	if want := []string{"store.db" + restoringSuffix}; !slices.Equal(locked, want) {
		t.Errorf("locked were %q, want %q, which is never renamed", locked, want)
	}
}

// TestCancelHalfTaken checks that a restore cannot be canceled once the previous store has been put aside: the next start would
// create an empty store.
func TestCancelHalfTaken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	before := openStore(t, path)
	writeMark(t, before.Store, "first")
	backup := backupOf(t, before.Store)
	must(t, before.Close())
	_, err := StageRestore(t.Context(), bytes.NewReader(backup), path)
	must(t, err)
	must(t, os.Rename(path, path+PreviousSuffix))
	if _, err := CancelRestore(path); !errors.Is(err, ErrTakeoverStarted) {
		t.Errorf("taking it back: %v, want %v", err, ErrTakeoverStarted)
	}
	if text := readMark(t, openStore(t, path).Store); text != "first" {
		t.Errorf("the store says %q, want what was restored", text)
	}
}

// TestRestoreOfOlderStore checks that the backup of an older version is migrated when it is taken over.
func TestRestoreOfOlderStore(t *testing.T) {
	older, err := newUnopened(filepath.Join(t.TempDir(), "older.db"), time.Now)
	must(t, err)
	older.writer, err = connect(older.writerName())
	must(t, err)
	older.reader = older.writer
	provider := got[*goose.Provider](t)(migrationsOf(older.writer, dialect.SQLite))
	const schema = 3
	_, err = provider.UpTo(t.Context(), schema)
	must(t, err)
	id := randomID()
	_, err = older.writer.ExecContext(t.Context(), `INSERT INTO meta VALUES ('id', ?)`, id)
	must(t, err)
	older.identity.Store(&identity{id: id})
	writeMark(t, older, "of an older version")
	backup := backupOf(t, older)
	must(t, older.Close())

	path := filepath.Join(t.TempDir(), "store.db")
	info, err := StageRestore(t.Context(), bytes.NewReader(backup), path)
	must(t, err)
	restored := openStore(t, path)
	if text := readMark(t, restored.Store); text != "of an older version" || info.Schema != schema {
		t.Errorf("restored from schema %d it says %q; want schema %d and what the older version wrote", info.Schema, text, schema)
	}
	_, err = checkSchema(t.Context(), restored.reader)
	must(t, err)
}
