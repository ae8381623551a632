package store

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// childEnv makes the test binary run as the second process that some tests need.
const childEnv = "STORE_TEST_CHILD"

func TestMain(m *testing.M) {
	if task, path, found := strings.Cut(os.Getenv(childEnv), ":"); found {
		if err := child(task, path); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	// Each check opens a store. To run more: go test ./pkg/store -rapid.checks=1000
	if err := flag.Set("rapid.checks", "25"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// child runs a task on a store. "hold" opens the store, prints "ready" and holds it until standard input ends.
func child(task, path string) error {
	switch task {
	case "hold":
		s, err := OpenSQLite(context.Background(), path, time.Now)
		if err != nil {
			return err
		}
		fmt.Println("ready")
		_, _ = io.Copy(io.Discard, os.Stdin)
		return s.Close()
	case "findings":
		s, err := OpenSQLiteReadOnly(path)
		if err != nil {
			return err
		}
		findings, err := s.Findings(context.Background(), subject("app"))
		for _, f := range findings {
			fmt.Println(f.ID)
		}
		return errors.Join(err, s.Close())
	}
	if play := volumeTasks[task]; play != nil {
		return play(path)
	}
	return fmt.Errorf("unknown task %q", task)
}

func childCommand(t *testing.T, task, path string) *exec.Cmd {
	command := exec.CommandContext(t.Context(), os.Args[0])
	command.Env = append(os.Environ(), childEnv+"="+task+":"+path)
	return command
}

func TestIDIsMadeWithTheFileAndStays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "folder", "with space?and#more%20", "store.db")
	first := openStore(t, path)
	if !regexp.MustCompile(`^[0-9a-f]{32}$`).MatchString(first.ID()) {
		t.Errorf("the store's id is %q, want 32 hexadecimal digits", first.ID())
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("the store is not where it was asked for: %v", err)
	}
	must(t, first.Close())
	if second := openStore(t, path); second.ID() != first.ID() {
		t.Errorf("opened again the store's id is %q, want %q as before", second.ID(), first.ID())
	}
	if other := newStore(t); other.ID() == first.ID() {
		t.Error("two stores have the same id")
	}
}

func TestFilesAreForTheirOwnerOnly(t *testing.T) {
	f := newStore(t)
	f.saveCatalogs(t, "app")
	files := got[[]os.DirEntry](t)(os.ReadDir(filepath.Dir(f.path)))
	// The database, its write-ahead log and index, and the lock.
	if len(files) != 4 {
		t.Errorf("got %d files, want 4", len(files))
	}
	for _, file := range files {
		if mode := got[os.FileInfo](t)(file.Info()).Mode().Perm(); mode != 0o600 {
			t.Errorf("%s has mode %o, want 600", file.Name(), mode)
		}
	}
}

func TestSecondManagerIsRefused(t *testing.T) {
	f := newStore(t)
	_, err := OpenSQLite(t.Context(), f.path, f.clock.Now)
	if !errors.Is(err, ErrLocked) {
		t.Fatalf("got %v, want ErrLocked", err)
	}
	for _, want := range []string{f.path + ".lock", fmt.Sprintf("process %d", os.Getpid()), "Recreate"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error %q does not say %q", err, want)
		}
	}
	must(t, f.Close())
	got[*Store](t)(OpenSQLite(t.Context(), f.path, f.clock.Now)).Close()
}

func TestTheLockHoldsBetweenProcessesAndEndsWithOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	command := childCommand(t, "hold", path)
	stdin := got[io.WriteCloser](t)(command.StdinPipe())
	stdout := got[io.ReadCloser](t)(command.StdoutPipe())
	must(t, command.Start())
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "ready\n" {
		t.Fatalf("the other process said %q (%v), want that it has the store", line, err)
	}
	if _, err := OpenSQLite(t.Context(), path, time.Now); !errors.Is(err, ErrLocked) {
		t.Errorf("while another process has the store: got %v, want ErrLocked", err)
	}
	// A killed process closes nothing.
	must(t, command.Process.Kill())
	_ = command.Wait()
	_ = stdin.Close()
	got[*Store](t)(OpenSQLite(t.Context(), path, time.Now)).Close()
}

func TestFilesThatAreNoStoreAreRefused(t *testing.T) {
	for name, test := range map[string]struct {
		make func(t *testing.T, path string)
		want string
	}{
		"not a database": {
			func(t *testing.T, path string) {
				must(t, os.WriteFile(path, []byte(strings.Repeat("garbage ", 1000)), 0o600))
			},
			"move it away",
		},
		"damaged": {
			func(t *testing.T, path string) {
				must(t, openStore(t, path).Close())
				file := got[*os.File](t)(os.OpenFile(path, os.O_RDWR, 0))
				got[int](t)(file.WriteAt([]byte(strings.Repeat("garbage ", 4096)), 100))
				must(t, file.Close())
			},
			"move it away",
		},
		"another program's": {
			func(t *testing.T, path string) { execute(t, path, `CREATE TABLE notes (text TEXT)`) },
			"another program's database",
		},
		"a newer version's": {
			func(t *testing.T, path string) {
				must(t, openStore(t, path).Close())
				replaceSchema(t, path)
			},
			"newer version",
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "store.db")
			test.make(t, path)
			for range 2 { // the second round shows that the first released the lock
				_, err := OpenSQLite(t.Context(), path, time.Now)
				if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), path) {
					t.Errorf("got error %v, want one that says %q and names the file", err, test.want)
				}
			}
			if _, err := OpenSQLiteReadOnly(path); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("opened for reading: got error %v, want one that says %q", err, test.want)
			}
		})
	}
}

// TestOlderReaderLeavesTheStoreAlone checks the error for a program that was not upgraded with the manager: the store is fine, so
// the error must not advise to move it away.
func TestOlderReaderLeavesTheStoreAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	must(t, openStore(t, path).Close())
	replaceSchema(t, path)
	_, err := OpenSQLiteReadOnly(path)
	if err == nil || !strings.Contains(err.Error(), "use the program of that version") || strings.Contains(err.Error(), "move") {
		t.Errorf("got error %v, want one that says which program to use, and not to move the file away", err)
	}
}

// replaceSchema makes the schema one of a newer version that this one cannot work with.
func replaceSchema(t *testing.T, path string) {
	t.Helper()
	execute(t, path, `INSERT INTO goose_db_version (version_id, is_applied) VALUES (999, 1); UPDATE store_revision SET oldest_schema = 999`)
}

// execute changes a database without the store.
func execute(t *testing.T, path, statement string) {
	t.Helper()
	db := got[*sql.DB](t)(sql.Open("sqlite", path))
	got[sql.Result](t)(db.Exec(statement))
	must(t, db.Close())
}

func TestWhatWasSavedSurvivesACrash(t *testing.T) {
	f := newStore(t)
	f.report(t, "app", vulnerable("CVE-2026-0001", "openssl"))
	// This is what a killed process leaves: the files as they are, with changes that are only in the log.
	left := filepath.Join(t.TempDir(), "store.db")
	for _, suffix := range []string{"", "-wal"} {
		content := got[[]byte](t)(os.ReadFile(f.path + suffix))
		if suffix == "-wal" && len(content) == 0 {
			t.Fatal("the write-ahead log is empty: nothing is tested")
		}
		must(t, os.WriteFile(left+suffix, content, 0o600))
	}
	again := openStore(t, left)
	if again.ID() != f.ID() {
		t.Errorf("after the crash the store's id is %q, want %q", again.ID(), f.ID())
	}
	findings := got[[]finding.Finding](t)(again.Findings(t.Context(), subject("app")))
	equal(t, "findings after the crash", findings, []finding.Finding{vulnerable("CVE-2026-0001", "openssl")})
}

func TestReadingBesideTheWriter(t *testing.T) {
	f := newStore(t)
	beside := got[*Store](t)(OpenSQLiteReadOnly(f.path))
	defer beside.Close()
	f.report(t, "app", vulnerable("CVE-2026-0001", "openssl"))
	if beside.ID() != f.ID() {
		t.Errorf("the reader's store id is %q, want %q", beside.ID(), f.ID())
	}
	findings := got[[]finding.Finding](t)(beside.Findings(t.Context(), subject("app")))
	equal(t, "findings beside the writer", findings, []finding.Finding{vulnerable("CVE-2026-0001", "openssl")})
	if err := beside.SetDataVersion(t.Context(), grype, DataVersion{Version: "v1"}); !errors.Is(err, ErrReadOnly) {
		t.Errorf("writing through the reader: got %v, want ErrReadOnly", err)
	}
	t.Run("from another process", func(t *testing.T) {
		output := got[[]byte](t)(childCommand(t, "findings", f.path).CombinedOutput())
		equal(t, "findings in another process", string(output), "CVE-2026-0001\n")
	})
	t.Run("after the writer has ended", func(t *testing.T) {
		must(t, f.Close())
		output := got[[]byte](t)(childCommand(t, "findings", f.path).CombinedOutput())
		equal(t, "findings in another process", string(output), "CVE-2026-0001\n")
	})
}

func TestReadingNeedsAStore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	if _, err := OpenSQLiteReadOnly(path); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), path) {
		t.Errorf("no file: got %v, want an error that names it", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("opening for reading made a file (%v)", err)
	}
	must(t, os.WriteFile(path, nil, 0o600))
	if _, err := OpenSQLiteReadOnly(path); err == nil || !strings.Contains(err.Error(), "try again") {
		t.Errorf("a file that the manager has only begun: got %v, want an error that says to try again", err)
	}
}

func TestAFullVolumeIsNamed(t *testing.T) {
	f := newStore(t)
	f.report(t, "small", vulnerable("CVE-2026-0001", "openssl"))
	var pages int
	must(t, f.writer.QueryRow(`PRAGMA page_count`).Scan(&pages))
	got[sql.Result](t)(f.writer.Exec(fmt.Sprintf(`PRAGMA max_page_count = %d`, pages+2)))
	_, err := f.SaveReport(t.Context(), report("large", manyFindings(1000, 0)...), "")
	if err == nil || !strings.Contains(err.Error(), "volume that holds this file is full") || !strings.Contains(err.Error(), f.path) {
		t.Fatalf("got %v, want an error that says that the volume of %s is full", err, f.path)
	}
	if _, err := f.Summary(t.Context(), subject("large"), ImageExceptions{}); !errors.Is(err, ErrNotFound) {
		t.Errorf("half a report: got %v, want ErrNotFound", err)
	}
	equal(t, "findings on a full volume", len(got[[]finding.Finding](t)(f.Findings(t.Context(), subject("small")))), 1)
	got[sql.Result](t)(f.writer.Exec(`PRAGMA max_page_count = 1000000`))
	equal(t, "new findings once there is space again", f.report(t, "large", manyFindings(1000, 0)...).New, 1000)
}

func TestTruncatedFileIsAnError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	f := openStore(t, path)
	f.report(t, "app", manyFindings(5000, 0)...)
	must(t, f.Close())
	f = openStore(t, path)
	must(t, os.Truncate(path, 64<<10))
	_, err := f.Findings(t.Context(), subject("app"))
	if err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("reading a file that was cut off: got %v, want an error that names it", err)
	}
	if _, err := f.SaveReport(t.Context(), report("app"), ""); err == nil {
		t.Error("writing a file that was cut off: got no error")
	}
}
