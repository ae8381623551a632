package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// runCommand runs a subcommand beside the manager, as with kubectl exec.
func (c *cluster) runCommand(in io.Reader, arguments ...string) (out, messages string, err error) {
	c.t.Helper()
	var stdout, stderr bytes.Buffer
	command := exec.CommandContext(c.t.Context(), os.Args[0], arguments...)
	command.Env = append(os.Environ(), asManager+"=1")
	command.Stdin, command.Stdout, command.Stderr = in, &stdout, &stderr
	err = command.Run()
	return stdout.String(), stderr.String(), err
}

func (c *cluster) storeID() string {
	c.t.Helper()
	var scanner v1alpha1.Scanner
	c.Expect(c.client.Get(c.t.Context(), client.ObjectKey{Namespace: c.shop, Name: "default"}, &scanner)).To(Succeed())
	return scanner.Status.StoreID
}

// TestBackupAndRestoreOfProcess: a backup is made and restored while the manager runs. The manager takes it over at its next start, and
// then finds by itself what has happened since the backup.
func TestBackupAndRestoreOfProcess(t *testing.T) {
	c := newCluster(t)
	dir := t.TempDir()
	first := c.start("first", dir)
	c.createPod("api")
	c.waitScanned(1)
	saved, says, err := c.runCommand(nil, "backup", "--data-dir="+dir)
	c.Expect(err).NotTo(HaveOccurred(), says)
	c.Expect(says).To(HavePrefix("backed up store " + c.storeID()))
	c.createPod("web")
	c.waitScanned(2)
	before := c.storeID()

	_, says, err = c.runCommand(strings.NewReader(saved[:len(saved)-1]), "restore", "--data-dir="+dir)
	c.Expect(err).To(HaveOccurred())
	c.Expect(says).To(And(HavePrefix("scanner-operator restore: nothing was changed: "), ContainSubstring("damaged or not complete")))
	out, says, err := c.runCommand(strings.NewReader(saved), "restore", "--data-dir="+dir)
	c.Expect(err).NotTo(HaveOccurred(), says)
	c.Expect(out).To(ContainSubstring("restart it now"))
	c.Expect(c.storeID()).To(Equal(before), "the manager that runs notices nothing")
	c.Expect(first.liveness()).To(Equal(200))
	c.signal(first, syscall.SIGTERM)
	c.waitEnded(first)

	second := c.start("second", dir)
	c.waitReady(second)
	c.Expect(second.log.String()).To(ContainSubstring("Took the restored store"))
	c.Eventually(c.storeID, waitTimeout, "250ms").ShouldNot(Equal(before))
	c.waitScanned(2)
	reader, err := store.OpenSQLiteReadOnly(filepath.Join(dir, storeFile))
	c.Expect(err).NotTo(HaveOccurred())
	defer reader.Close()
	c.Expect(reader.RestoredFrom()).To(BeTemporally("~", time.Now(), 10*time.Minute))
}

// newDataDir returns a data directory with a store.
func newDataDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	s, err := store.OpenSQLite(t.Context(), filepath.Join(dir, storeFile), time.Now)
	must(t, err)
	must(t, s.Close())
	return dir
}

// TestBackupFiles: a file is private, and appears only when it is complete. Of the files that are named by their time, the newest are kept.
// Other files in the directory stay.
func TestBackupFiles(t *testing.T) {
	dir, backups := newDataDir(t), t.TempDir()
	names := func() (names []string) {
		entries, err := os.ReadDir(backups)
		must(t, err)
		for _, entry := range entries {
			names = append(names, entry.Name())
		}
		return names
	}
	for _, name := range []string{
		"scanner-operator-20250101T000000Z.backup", "scanner-operator-20250102T000000Z.backup", "scanner-operator-mine.backup", "20250101T000000Z",
	} {
		must(t, os.WriteFile(filepath.Join(backups, name), nil, 0o600))
	}
	begun, brokenOff := filepath.Join(backups, ".scanner-operator-20250103T000000Z.backup.1"), filepath.Join(backups, ".scanner-operator-20250102T000000Z.backup.2")
	for _, path := range []string{begun, brokenOff} {
		must(t, os.WriteFile(path, nil, 0o600))
	}
	must(t, os.Chtimes(brokenOff, time.Time{}, time.Now().Add(-24*time.Hour)))
	must(t, runBackup(t.Context(), []string{"--data-dir=" + dir, "--directory=" + backups, "--keep=2"}, os.Stdout, io.Discard))
	if _, err := os.Stat(brokenOff); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what was broken off a day ago: %v, want that it is gone", err)
	}
	must(t, os.Remove(begun)) // kept, since a backup may be writing it
	kept := names()
	if len(kept) != 4 || slices.Contains(kept, "scanner-operator-20250101T000000Z.backup") || !slices.Contains(kept, "scanner-operator-20250102T000000Z.backup") {
		t.Errorf("%q are left, want the newest two backups and both files that are none", kept)
	}
	path := filepath.Join(backups, "one")
	must(t, runBackup(t.Context(), []string{"--data-dir=" + dir, "--output=" + path}, os.Stdout, io.Discard))
	status, err := os.Stat(path)
	must(t, err)
	if status.Mode().Perm() != 0o600 {
		t.Errorf("the backup has mode %o, want 600", status.Mode().Perm())
	}
	must(t, restore(t.Context(), []string{"--data-dir=" + dir, path}, nil, io.Discard))
	var says bytes.Buffer
	for range 2 {
		must(t, restore(t.Context(), []string{"--data-dir=" + dir, "--cancel"}, nil, &says))
	}
	if want := "the restore was taken back\nthere is no restore that the manager has not taken yet\n"; says.String() != want {
		t.Errorf("taking it back twice says %q, want %q", &says, want)
	}
}

// TestBackupInvalid: the error names the mistake.
func TestBackupInvalid(t *testing.T) {
	dir, empty := newDataDir(t), t.TempDir()
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"no store":          {[]string{"--data-dir=" + empty}, "there is none yet"},
		"no such folder":    {[]string{"--data-dir=" + dir, "--output=" + filepath.Join(empty, "none", "file")}, "no such file or directory"},
		"two places":        {[]string{"--output=a", "--directory=b"}, "only one of them"},
		"nothing to keep":   {[]string{"--keep=1"}, "--keep"},
		"not a flag":        {[]string{"file"}, `"file" is not a flag`},
		"less than nothing": {[]string{"--directory=b", "--keep=-1"}, "--keep"},
	} {
		if err := runBackup(t.Context(), tt.args, os.Stdout, io.Discard); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: the error is %v, want one that says %q", name, err, tt.want)
		}
	}
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"two files":           {[]string{"a", "b"}, "only one backup"},
		"no such file":        {[]string{filepath.Join(empty, "none")}, "no such file or directory"},
		"cancelling with one": {[]string{"--cancel", "a"}, "--cancel"},
		"nothing":             {[]string{"--data-dir=" + dir}, "nothing was changed: this is no backup"},
	} {
		if err := restore(t.Context(), tt.args, strings.NewReader(""), io.Discard); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: the error is %v, want one that says %q", name, err, tt.want)
		}
	}
}
