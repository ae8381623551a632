package catalog

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/anchore/syft/syft/file"
	"github.com/anchore/syft/syft/sbom"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/scanner-operator/scanner-operator/registry"
	"github.com/scanner-operator/scanner-operator/registry/failure"
	"github.com/scanner-operator/scanner-operator/registry/registrytest"
	"github.com/scanner-operator/scanner-operator/worker/internal/fixture"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

func wantFailure(t *testing.T, err error, reason, message string) {
	t.Helper()
	var known *failure.Error
	if !errors.As(err, &known) || known.Reason != reason || !strings.Contains(err.Error(), message) {
		t.Errorf("got %v, want %s with %q", err, reason, message)
	}
}

// TestFullDisk checks that a full disk is a failure at any point, before the scratch space is used up. Syft omits what
// it cannot unpack, and the image would be shown without those packages.
func TestFullDisk(t *testing.T) {
	for name, files := range map[string]registrytest.Files{
		"while layers are unpacked":   {"file": strings.Repeat("x", 80<<20)},
		"while archives are unpacked": {"app.jar": fixture.Bomb(t, 40<<20, "a.jar", "b.jar", "c.jar")},
	} {
		t.Run(name, func(t *testing.T) {
			fixture.OnSmallDisk(t, "64m", func(dir string) {
				server := registrytest.NewRegistry(t, nil)
				reference := server.Push(t, "app:1", registrytest.Image(t, files))
				log := slog.New(slog.DiscardHandler)
				puller := registry.Puller{Registries: []workerapi.Registry{{Host: server.Host, PlainHTTP: true}}, Log: log, Now: time.Now}
				img, err := puller.Pull(t.Context(), []string{reference}, v1.Platform{OS: "linux", Architecture: "amd64"})
				if err != nil {
					t.Fatal(err)
				}
				t.Setenv("TMPDIR", dir)
				_, err = Limits{Scratch: 1 << 30}.SBOM(t.Context(), img, log)
				wantFailure(t, err, workerapi.ReasonScratchFull, "the node's disk is full")
				if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
					t.Errorf("%d entries (%v) are left on the disk, want none", len(entries), err)
				}
			})
		})
	}
}

// TestScratchCheck checks the bounds of the temporary directory while Syft unpacks archives into it.
func TestScratchCheck(t *testing.T) {
	for name, tt := range map[string]struct {
		files, directories int
		size, limit        int64
		reason, message    string
	}{
		"nothing":               {0, 0, 0, 1000, "", ""},
		"as much as is allowed": {10, 10, 100, 1000, "", ""},
		"more than is allowed":  {11, 0, 100, 1000, workerapi.ReasonImageTooLarge, "raise grype.catalog.scratchSize"},
		"much without a bound":  {11, 0, 100, 0, "", ""},
		"archives in archives":  {0, maxFiles, 0, 1000, workerapi.ReasonImageTooLarge, "archives in archives: more than 10000 files"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for i := range tt.files {
				if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("file-%d", i)), make([]byte, tt.size), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			for i := range tt.directories {
				if err := os.Mkdir(filepath.Join(dir, fmt.Sprintf("dir-%d", i)), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			err := scratch{dir: dir, limit: tt.limit}.check()
			if tt.reason == "" {
				if err != nil {
					t.Errorf("got %v, want nothing to be wrong", err)
				}
				return
			}
			wantFailure(t, err, tt.reason, tt.message)
		})
	}
}

// TestUnreadFiles checks that a file that Syft could not read because of the machine is a failure. A file with broken content is not.
func TestUnreadFiles(t *testing.T) {
	unknown := func(problem string) *sbom.SBOM {
		return &sbom.SBOM{Artifacts: sbom.Artifacts{Unknowns: map[file.Coordinates][]string{{RealPath: "/app.jar"}: {"java: " + problem}}}}
	}
	if err := unreadFileError(unknown("zip: not a valid zip file")); err != nil {
		t.Errorf("a broken archive: got %v, want no failure: it is the image's own", err)
	}
	for _, errno := range []syscall.Errno{syscall.ENOSPC, syscall.EMFILE, syscall.EIO} {
		err := unreadFileError(unknown("unable to copy archive: write /tmp/x: " + errno.Error()))
		if !errors.Is(err, errno) || !strings.Contains(err.Error(), "/app.jar") {
			t.Errorf("got %v, want an error about /app.jar that is %v", err, errno)
		}
	}
	wantFailure(t, withReason(workerapi.ReasonCatalogFailed, unreadFileError(unknown(syscall.ENOSPC.Error()))), workerapi.ReasonScratchFull, "the node's disk is full")
}
