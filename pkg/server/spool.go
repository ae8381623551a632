package server

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// errContentTooLarge says that a body is too large once decompressed.
var errContentTooLarge = errors.New("too large after decompression")

// maxWindow bounds the memory of a zstd decoder whatever a body's header claims. Encoders use 8 MiB by default.
const maxWindow = 64 << 20

// spoolRetry is when to come back to a full spool: most uploads are in the store within seconds.
const spoolRetry = 10 * time.Second

// spool keeps uploads on disk until they are complete. All methods may be called at the same time.
type spool struct {
	dir   string
	limit int64 // bytes

	mu      sync.Mutex
	used    int64 // bytes, those that are being received included
	uploads map[uploadKey]upload
	busy    map[string]bool // by Job UID
}

type uploadKey struct {
	jobUID   string
	artifact store.Artifact
}

// upload is a file that was received whole and looked into.
type upload struct {
	digest string
	size   int64
}

func newSpool(dir string, limit int64) *spool {
	return &spool{dir: dir, limit: limit, uploads: map[uploadKey]upload{}, busy: map[string]bool{}}
}

// reset empties the directory: what a former process left belongs to nobody. The directory itself stays, because
// a volume may be mounted on it.
func (s *spool) reset() error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	left, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	for _, entry := range left {
		if err := os.RemoveAll(filepath.Join(s.dir, entry.Name())); err != nil {
			return err
		}
	}
	return nil
}

// enter says whether the Job has no other request at work; if so, leave must follow.
func (s *spool) enter(jobUID string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy[jobUID] {
		return false
	}
	s.busy[jobUID] = true
	return true
}

func (s *spool) leave(jobUID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.busy, jobUID)
}

// path of an upload. Names are made of Job UIDs and artifact names, never of what a caller says. Files in receipt
// are beside it: a rename does not leave the file system.
func (s *spool) path(jobUID string, artifact store.Artifact) string {
	return filepath.Join(s.dir, filepath.Base(jobUID)+"."+string(artifact))
}

// receive writes a body to a file. It is there under its name only if all of it came, has the digest that was
// announced, and is whole zstd of at most contentLimit bytes.
func (s *spool) receive(key uploadKey, body io.Reader, announced string, contentLimit int64) (err error) {
	file, err := os.CreateTemp(s.dir, "receiving-*")
	if err != nil {
		return err
	}
	space := &reservation{spool: s}
	defer func() {
		if err != nil {
			_ = file.Close() // closed already unless receiving failed
			err = errors.Join(err, os.Remove(file.Name()))
			space.release()
		}
	}()
	sum := sha256.New()
	if _, err := io.Copy(io.MultiWriter(space, file, sum), body); err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	digest := digestOf(sum)
	if digest != announced {
		return refuse(http.StatusBadRequest, "the body has the digest %s, but %s was announced: it was damaged on the way", digest, announced)
	}
	if err := verifyZstd(file.Name(), contentLimit); err != nil {
		return err
	}
	return s.keep(key, upload{digest: digest, size: space.bytes}, file.Name())
}

// keep gives a received file its name, in the place of an earlier one.
func (s *spool) keep(key uploadKey, received upload, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := os.Rename(name, s.path(key.jobUID, key.artifact)); err != nil {
		return err
	}
	s.used -= s.uploads[key].size
	s.uploads[key] = received
	return nil
}

// digest of a Job's upload as sent; empty if there is none.
func (s *spool) digest(jobUID string, artifact store.Artifact) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.uploads[uploadKey{jobUID, artifact}].digest
}

// jobs that have uploads.
func (s *spool) jobs() map[string]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	uids := map[string]bool{}
	for key := range s.uploads {
		uids[key.jobUID] = true
	}
	return uids
}

// discard removes what a Job uploaded.
func (s *spool) discard(jobUID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, held := range s.uploads {
		if key.jobUID != jobUID {
			continue
		}
		_ = os.Remove(s.path(key.jobUID, key.artifact))
		s.used -= held.size
		delete(s.uploads, key)
	}
}

// reservation takes room in the spool for what is about to be written; it stands before the file among writers.
type reservation struct {
	spool *spool
	bytes int64
}

// Write implements io.Writer.
func (r *reservation) Write(p []byte) (int, error) {
	r.spool.mu.Lock()
	defer r.spool.mu.Unlock()
	if r.spool.used+int64(len(p)) > r.spool.limit {
		return 0, putOff(http.StatusServiceUnavailable, spoolRetry, "too many uploads at once")
	}
	r.spool.used += int64(len(p))
	r.bytes += int64(len(p))
	return len(p), nil
}

func (r *reservation) release() {
	r.spool.mu.Lock()
	defer r.spool.mu.Unlock()
	r.spool.used -= r.bytes
}

func digestOf(sum hash.Hash) string { return "sha256:" + hex.EncodeToString(sum.Sum(nil)) }

// verifyZstd reads a file to its end, to notice damage and bombs before anybody relies on it.
func verifyZstd(path string, limit int64) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	content, err := decompress(file, limit)
	if err != nil {
		return err
	}
	defer content.Close()
	if _, err := io.Copy(io.Discard, content); err != nil {
		if errors.Is(err, errContentTooLarge) {
			return err
		}
		return refuse(http.StatusBadRequest, "the body is not whole zstd: %v", err)
	}
	return nil
}

// decompress returns a reader that fails with errContentTooLarge beyond limit bytes.
func decompress(r io.Reader, limit int64) (io.ReadCloser, error) {
	decoder, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		return nil, fmt.Errorf("zstd: %w", err)
	}
	return struct {
		io.Reader
		io.Closer
	}{&boundedReader{r: decoder, left: limit}, decoder.IOReadCloser()}, nil
}

type boundedReader struct {
	r    io.Reader
	left int64
}

func (b *boundedReader) Read(p []byte) (int, error) {
	if b.left < 0 {
		return 0, errContentTooLarge
	}
	// One byte more than allowed may be read, to tell "full" from "too much".
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.r.Read(p)
	b.left -= int64(n)
	if b.left < 0 {
		return n, errContentTooLarge
	}
	return n, err
}
