package catalog

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"syscall"
	"time"

	"github.com/anchore/syft/syft/sbom"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/scanner-operator/scanner-operator/registry/failure"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// Remedies for too little space.
const (
	adviceScratch = "raise grype.catalog.scratchSize in the operator's configuration, or exclude the image"
	adviceDisk    = "the node's disk is full: free space on it, or let catalog Jobs run on nodes with more space"
)

// tooLarge returns the failure of an image that needs more than the scratch space. what names the part of the image that does.
func tooLarge(limit int64, what string) error {
	return failure.New(workerapi.ReasonImageTooLarge,
		fmt.Errorf("the image is too large: %s more than the %d MiB of scratch space; %s", what, limit>>20, adviceScratch))
}

// budget is the common limit of all layers in bytes.
type budget struct{ limit, used int64 }

// boundedLayer is a layer that counts its uncompressed bytes against a budget.
type boundedLayer struct {
	v1.Layer
	budget *budget
}

// Uncompressed implements v1.Layer.
func (l *boundedLayer) Uncompressed() (io.ReadCloser, error) {
	content, err := l.Layer.Uncompressed()
	if err != nil {
		return nil, err
	}
	return &boundedReader{ReadCloser: content, budget: l.budget}, nil
}

type boundedReader struct {
	io.ReadCloser
	budget *budget
}

// Read implements io.Reader.
func (r *boundedReader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	r.budget.used += int64(n)
	if r.budget.limit > 0 && r.budget.used > r.budget.limit {
		return 0, tooLarge(r.budget.limit, "its unpacked layers have")
	}
	return n, err
}

// scratch watches the temporary directory while Syft unpacks archives into it. Syft has no bound for that, and does not report
// a full disk.
type scratch struct {
	dir string
	// limit is the maximum size of the content of dir in bytes; 0 for none.
	limit int64
}

const (
	// checkInterval is the interval between two checks of the scratch space.
	checkInterval = 50 * time.Millisecond
	// minFreeBytes is the space that must stay free on the disk, in bytes. Syft writes less than that between two checks.
	minFreeBytes = 32 << 20
	// maxFiles bounds the files and directories that are unpacked at a time. Each level of nested archives adds a few. An
	// archive that contains itself ends at this bound instead of exhausting the stack.
	maxFiles = 10_000
)

// watch returns a context that is cancelled when the space runs out, with the failure as its cause. stop ends the checks and waits
// for their end.
func (s scratch) watch(ctx context.Context) (watched context.Context, stop func()) {
	watched, cancel := context.WithCancelCause(ctx)
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(checkInterval)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
			}
			if err := s.check(); err != nil {
				cancel(err)
				return
			}
		}
	}()
	return watched, func() { close(done); <-ended; cancel(nil) }
}

// check checks the scratch space once, and returns a failure if it is exhausted.
func (s scratch) check() error {
	var disk syscall.Statfs_t
	if err := syscall.Statfs(s.dir, &disk); err == nil && int64(disk.Bavail)*disk.Bsize < minFreeBytes {
		return failure.New(workerapi.ReasonScratchFull, fmt.Errorf("less than %d MiB are left while the image's archives are unpacked; %s", minFreeBytes>>20, adviceDisk))
	}
	var used int64
	files := 0
	err := filepath.WalkDir(s.dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // Syft removes files all the time
		}
		if files++; files > maxFiles {
			return failure.New(workerapi.ReasonImageTooLarge,
				fmt.Errorf("the image's archives hold archives in archives: more than %d files are unpacked at a time; exclude the image", maxFiles))
		}
		if info, err := entry.Info(); err == nil && info.Mode().IsRegular() {
			used += info.Size() / linkCount(info)
		}
		return nil
	})
	if err == nil && s.limit > 0 && used > s.limit {
		return tooLarge(s.limit, "its layers and the archives in them, unpacked, have")
	}
	return err
}

// linkCount returns the number of names of a file. Layers that occur several times share one file, whose space counts once.
func linkCount(info fs.FileInfo) int64 {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Nlink > 1 {
		return int64(stat.Nlink) //nolint:unconvert // its type depends on the architecture
	}
	return 1
}

// unreadFileError returns an error if Syft could not read a file because of this machine rather than the file's content. Packages
// would be missing then.
func unreadFileError(s *sbom.SBOM) error {
	for file, problems := range s.Artifacts.Unknowns {
		for _, problem := range problems {
			if errno := machineErrnoIn(problem); errno != 0 {
				return fmt.Errorf("%s was not read: %s: %w", file.RealPath, problem, errno)
			}
		}
	}
	return nil
}
