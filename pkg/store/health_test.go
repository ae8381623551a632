package store

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// volumeTasks run in a child process in its own mount namespace, on a real file system.
var volumeTasks = map[string]func(dir string) error{
	"full": runFullVolume, "swept": runSweptVolume, "read-only": runReadOnlyVolume, "failing": runFailingVolume,
}

// onVolume runs a task in a directory that no other process sees.
func onVolume(t *testing.T, task string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root may mount")
	}
	command := childCommand(t, task, t.TempDir())
	command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	output, err := command.CombinedOutput()
	if strings.Contains(string(output), errNoMount.Error()) {
		t.Skipf("this machine cannot mount: %s", output)
	}
	if err != nil {
		t.Errorf("%s", output)
	}
}

var errNoMount = errors.New("cannot mount")

func mountOrSkip(source, target, kind, options string) error {
	// Private: other mount namespaces do not see these mounts.
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("%w: %w", errNoMount, err)
	}
	if err := syscall.Mount(source, target, kind, 0, options); err != nil {
		return fmt.Errorf("%w: %w", errNoMount, err)
	}
	return nil
}

func TestStoreVolumeFull(t *testing.T)     { onVolume(t, "full") }
func TestStoreVolumeSwept(t *testing.T)    { onVolume(t, "swept") }
func TestStoreVolumeReadOnly(t *testing.T) { onVolume(t, "read-only") }
func TestStoreVolumeFailing(t *testing.T)  { onVolume(t, "failing") }

// TestRoomForWhatIsWrittenNext checks that free pages of the file count as space for content, and the log's present size as space
// for the log. A log that has not grown needs space on the volume.
func TestRoomForWhatIsWrittenNext(t *testing.T) {
	for what, c := range map[string]struct {
		available, free uint64
		log             int64 // its bytes; none if 0
		want            bool
	}{
		"room on the volume":                      {available: minFreeBytes, want: false},
		"a byte less":                             {available: minFreeBytes - 1, want: true},
		"free pages instead":                      {available: minLogFreeBytes, free: minFreeBytes - minLogFreeBytes, want: false},
		"too few free pages":                      {available: minLogFreeBytes, free: minFreeBytes - minLogFreeBytes - 1, want: true},
		"free pages, and no room for the log":     {available: minLogFreeBytes - 1, free: minFreeBytes, want: true},
		"free pages, and a log that has grown":    {available: 0, free: minFreeBytes, log: minLogFreeBytes, want: false},
		"free pages, and a log that is too small": {available: 0, free: minFreeBytes, log: minLogFreeBytes - 1, want: true},
		"no free pages, and a log that has grown": {available: minFreeBytes - 1, log: minFreeBytes, want: true},
	} {
		s := &Store{path: filepath.Join(t.TempDir(), "store.db")}
		s.health.free = c.free
		if c.log > 0 {
			if err := errors.Join(os.WriteFile(s.path+"-wal", nil, 0o600), os.Truncate(s.path+"-wal", c.log)); err != nil {
				t.Fatal(err)
			}
		}
		if got := (fileBacking{s}).isFull(c.available); got != c.want {
			t.Errorf("%s: the volume counts as full: %t, want %t", what, got, c.want)
		}
	}
}

// runFullVolume fills a volume while the store is open, and while it is closed.
func runFullVolume(dir string) error {
	if err := mountOrSkip("tmpfs", dir, "tmpfs", "size=48m"); err != nil {
		return err
	}
	ctx, path := context.Background(), filepath.Join(dir, "store.db")
	s, err := OpenSQLite(ctx, path, time.Now)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := errors.Join(saveReport(s, "small", 1), s.CheckHealth(ctx)); err != nil {
		return fmt.Errorf("with room: %w", err)
	}
	if err := fill(dir); err != nil {
		return err
	}
	// The fault is detected before anything is lost, even while small writes still fit into the log.
	if err := s.CheckHealth(ctx); !errors.Is(err, ErrVolumeFull) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "enlarge it") {
		return fmt.Errorf("looked at when full: got %w, want ErrVolumeFull, the file and what to do", err)
	}
	if err := saveReport(s, "large", 20_000); !errors.Is(err, ErrVolumeFull) {
		return fmt.Errorf("a report on the full volume: got %w, want ErrVolumeFull", err)
	}
	if err := canRead(path, "small", 1); err != nil {
		return fmt.Errorf("what was saved before, beside the full store: %w", err)
	}
	if err := os.Remove(filepath.Join(dir, "filler")); err != nil {
		return err
	}
	// After the first check the fault stays, since a call has just met it.
	_ = s.CheckHealth(ctx)
	if err := errors.Join(s.CheckHealth(ctx), saveReport(s, "large", 20_000)); err != nil {
		return fmt.Errorf("with room again: %w", err)
	}
	if err := errors.Join(s.Close(), fill(dir)); err != nil {
		return err
	}
	if _, err := OpenSQLite(ctx, path, time.Now); !errors.Is(err, ErrVolumeFull) {
		return fmt.Errorf("started on a full volume: got %w, want ErrVolumeFull", err)
	}
	return nil
}

// runSweptVolume checks that a store that has filled its volume works again after a sweep, although the file is not smaller.
func runSweptVolume(dir string) error {
	if err := mountOrSkip("tmpfs", dir, "tmpfs", "size=160m"); err != nil {
		return err
	}
	ctx, path := context.Background(), filepath.Join(dir, "store.db")
	now := time.Now()
	s, err := OpenSQLite(ctx, path, func() time.Time { return now })
	if err != nil {
		return err
	}
	defer s.Close()
	content := make([]byte, 40<<20)
	_, _ = rand.Read(content)
	artifacts := map[Artifact]io.Reader{ArtifactSBOM: bytes.NewReader(content)}
	if err := s.SaveCatalog(ctx, catalogOf("large", now), artifacts); err != nil {
		return err
	}
	// The rest is left for the log, as by a store that stops at its bound.
	if err := errors.Join(fill(dir), shrink(filepath.Join(dir, "filler"), minLogFreeBytes+1<<20)); err != nil {
		return err
	}
	if err := s.CheckHealth(ctx); !errors.Is(err, ErrVolumeFull) {
		return fmt.Errorf("looked at when full: got %w, want ErrVolumeFull", err)
	}
	now = now.Add(48 * time.Hour)
	if swept, err := s.Sweep(ctx, now.Add(-time.Hour)); err != nil || swept != 1 {
		return fmt.Errorf("swept %d images, error %w; want one", swept, err)
	}
	if err := s.CheckHealth(ctx); err != nil {
		return fmt.Errorf("looked at after the sweep: %w", err)
	}
	if err := saveReport(s, "next", 5000); err != nil {
		return fmt.Errorf("a report after the sweep: %w", err)
	}
	// Without space for the log nothing can be written, whatever is free in the file.
	if err := errors.Join(s.Close(), fill(dir)); err != nil {
		return err
	}
	if s, err = OpenSQLite(ctx, path, time.Now); err == nil {
		defer s.Close()
		err = s.CheckHealth(ctx)
	}
	if !errors.Is(err, ErrVolumeFull) {
		return fmt.Errorf("looked at without room for the log: got %w, want ErrVolumeFull", err)
	}
	return nil
}

// shrink truncates a file by a number of bytes.
func shrink(path string, by int64) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	return os.Truncate(path, info.Size()-by)
}

// runReadOnlyVolume checks that on a volume that is read-only at the start, the store can still be read.
func runReadOnlyVolume(dir string) error {
	if err := mountOrSkip("tmpfs", dir, "tmpfs", "size=64m"); err != nil {
		return err
	}
	ctx, path := context.Background(), filepath.Join(dir, "store.db")
	s, err := OpenSQLite(ctx, path, time.Now)
	if err != nil {
		return err
	}
	if err := errors.Join(saveReport(s, "app", 1), s.Close()); err != nil {
		return err
	}
	if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		return err
	}
	_, err = OpenSQLite(ctx, path, time.Now)
	if !errors.Is(err, ErrVolumeReadOnly) || !strings.Contains(err.Error(), "fsGroup") || !strings.Contains(err.Error(), path) {
		return fmt.Errorf("started on a read-only volume: got %w, want ErrVolumeReadOnly, the file and what to check", err)
	}
	return canRead(path, "app", 1)
}

// runFailingVolume makes the kernel remount a file system read-only under the open store, as it does when a disk fails.
func runFailingVolume(dir string) error {
	disk := filepath.Join(dir, "disk")
	volume := filepath.Join(dir, "volume")
	if err := errors.Join(os.WriteFile(disk, nil, 0o600), os.Truncate(disk, 96<<20), os.Mkdir(volume, 0o700)); err != nil {
		return err
	}
	for _, command := range [][]string{
		{"mount", "--make-rprivate", "/"}, {"mkfs.ext4", "-q", "-F", disk}, {"mount", "-o", "loop,errors=remount-ro", disk, volume},
	} {
		if output, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s: %w %s", errNoMount, command[0], err, output)
		}
	}
	ctx, path := context.Background(), filepath.Join(volume, "store.db")
	s, err := OpenSQLite(ctx, path, time.Now)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := errors.Join(saveReport(s, "app", 1), s.CheckHealth(ctx)); err != nil {
		return fmt.Errorf("before: %w", err)
	}
	// "abort" is ext4's own option for simulating this.
	if output, err := exec.Command("mount", "-o", "remount,abort", volume).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %w %s", errNoMount, err, output)
	}
	if err := saveReport(s, "late", 1); !errors.Is(err, ErrVolumeReadOnly) {
		return fmt.Errorf("a report after the disk failed: got %w, want ErrVolumeReadOnly", err)
	}
	if err := s.CheckHealth(ctx); !errors.Is(err, ErrVolumeReadOnly) {
		return fmt.Errorf("looked at: got %w, want ErrVolumeReadOnly", err)
	}
	return canRead(path, "app", 1)
}

// fill leaves no byte free.
func fill(dir string) error {
	file, err := os.Create(filepath.Join(dir, "filler"))
	if err != nil {
		return err
	}
	defer file.Close()
	block := make([]byte, 64<<10)
	for size := len(block); size > 0; {
		if _, err = file.Write(block[:size]); err != nil {
			size /= 2
		}
	}
	if !errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("the volume does not become full: %w", err)
	}
	return nil
}

func saveReport(s *Store, name string, findings int) error {
	ctx := context.Background()
	err := s.SaveCatalog(ctx, catalogOf(name, time.Now()), nil)
	if err == nil {
		_, err = s.SaveReport(ctx, report(name, manyFindings(findings, 0)...), "")
	}
	return err
}

// canRead reads findings as "manager findings" does.
func canRead(path, name string, want int) error {
	beside, err := OpenSQLiteReadOnly(path)
	if err != nil {
		return err
	}
	defer beside.Close()
	findings, err := beside.Findings(context.Background(), subject(name))
	if err == nil && len(findings) != want {
		err = fmt.Errorf("%d findings, want %d", len(findings), want)
	}
	return err
}

// damaged returns a closed store with a report, whose file was overwritten from a quarter of its size on.
func damaged(t *testing.T) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "store.db")
	f := openStore(t, path)
	f.report(t, "app", manyFindings(5000, 0)...)
	must(t, f.Close())
	file := got[*os.File](t)(os.OpenFile(path, os.O_RDWR, 0))
	size := got[os.FileInfo](t)(file.Stat()).Size()
	got[int](t)(file.WriteAt([]byte(strings.Repeat("garbage ", int(size/2/8))), size/4))
	must(t, file.Close())
	return path
}

// TestStoreCorruptInside checks that damage inside a file that can be opened is found by CheckIntegrity, is reported until the
// process ends, and that the file is never replaced.
func TestStoreCorruptInside(t *testing.T) {
	path := damaged(t)
	before := got[[]byte](t)(os.ReadFile(path))
	f := openStore(t, path)
	err := f.CheckIntegrity(t.Context())
	if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "move it away") || !strings.Contains(err.Error(), path) {
		t.Errorf("looked through: got %v, want ErrCorrupt, the file and what to do", err)
	}
	for range 3 {
		_ = f.CheckHealth(t.Context())
	}
	if !errors.Is(f.Health(), ErrCorrupt) {
		t.Errorf("later: got %v, want ErrCorrupt for as long as the process lives", f.Health())
	}
	must(t, f.Close())
	if after := got[[]byte](t)(os.ReadFile(path)); len(after) < len(before) {
		t.Errorf("the damaged file has %d bytes, had %d: something was thrown away", len(after), len(before))
	}
}

// TestStoreCorruptMet checks that a call that reads the damage returns ErrCorrupt, and that the store's health reports it from
// then on.
func TestStoreCorruptMet(t *testing.T) {
	f := openStore(t, damaged(t))
	if _, err := f.Findings(t.Context(), subject("app")); !errors.Is(err, ErrCorrupt) {
		t.Errorf("reading the damaged part: got %v, want ErrCorrupt", err)
	}
	if !errors.Is(f.Health(), ErrCorrupt) {
		t.Errorf("the store's health is %v, want ErrCorrupt", f.Health())
	}
}

// TestStoreCorruptTruncated checks the same for a file that is truncated.
func TestStoreCorruptTruncated(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	f := openStore(t, path)
	f.report(t, "app", manyFindings(5000, 0)...)
	must(t, f.Close())
	f = openStore(t, path)
	must(t, os.Truncate(path, 64<<10))
	if err := f.CheckIntegrity(t.Context()); !errors.Is(err, ErrCorrupt) {
		t.Errorf("looked through: got %v, want ErrCorrupt", err)
	}
	if !errors.Is(f.Health(), ErrCorrupt) {
		t.Errorf("the store's health is %v, want ErrCorrupt", f.Health())
	}
}

// TestStoreMovedAway checks that a file that was moved away while the store was open is reported.
func TestStoreMovedAway(t *testing.T) {
	for name, change := range map[string]func(path string) error{
		"moved":    func(path string) error { return os.Rename(path, path+".old") },
		"replaced": func(path string) error { return errors.Join(os.Remove(path), os.WriteFile(path, nil, 0o600)) },
	} {
		path := filepath.Join(t.TempDir(), "store.db")
		f := openStore(t, path)
		must(t, f.CheckHealth(t.Context()))
		must(t, change(path))
		if err := f.CheckHealth(t.Context()); !errors.Is(err, ErrMovedAway) {
			t.Errorf("%s: got %v, want ErrMovedAway", name, err)
		}
	}
}

// TestStoreReplacedByAnEmptyOne checks that the write-ahead log of the old file is not applied to the new one.
func TestStoreReplacedByAnEmptyOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	f := openStore(t, path)
	f.report(t, "app", vulnerable("CVE-2026-0001", "openssl"))
	log := got[[]byte](t)(os.ReadFile(path + "-wal"))
	must(t, f.Close())
	must(t, os.Remove(path))
	must(t, os.WriteFile(path+"-wal", log, 0o600))
	again := openStore(t, path)
	if again.ID() == f.ID() {
		t.Errorf("the new store has the old one's id %s", f.ID())
	}
	if _, err := again.Summary(t.Context(), subject("app"), ImageExceptions{}); !errors.Is(err, ErrNotFound) {
		t.Errorf("the new store knows of the old one's report: %v, want ErrNotFound", err)
	}
	equal(t, "the old log, put aside", len(got[[]byte](t)(os.ReadFile(path+"-wal.left"))), len(log))
}

// TestHealthOfAReader checks that a process that reads beside the manager gets the fault and what to do.
func TestHealthOfAReader(t *testing.T) {
	path := damaged(t)
	beside := got[*Store](t)(OpenSQLiteReadOnly(path))
	defer beside.Close()
	if _, err := beside.Findings(t.Context(), subject("app")); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "move it away") {
		t.Errorf("findings of a damaged store: got %v, want ErrCorrupt and what to do", err)
	}
}
