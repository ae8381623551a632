package ingest

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
	"github.com/prometheus/client_golang/prometheus"

	"github.com/scanner-operator/scanner-operator/workerapi"
)

// spoolRetry is the Retry-After of a full spool: most uploads are stored within seconds.
const spoolRetry = 10 * time.Second

// maxRefused is how many refused uploads of one Job are read. A worker that retries sends the same content, so further uploads are refused
// before they are read.
const maxRefused = 3

// spool keeps uploads on disk while they are received, checked and stored: one file for each request, deleted at its end. It is safe for
// concurrent use.
type spool struct {
	dir string
	// limit is the maximum of bytes of all uploads, and share that of the uploads for one namespace.
	limit, share int64

	mu    sync.Mutex
	total int64                // bytes of all uploads, including those being received
	used  map[string]int64     // bytes by namespace
	gauge *prometheus.GaugeVec // exposes used
	// receiving has the function that aborts a Job's current upload. refused counts a Job's refused uploads. Both are by Job UID.
	receiving map[string]func()
	refused   map[string]int
}

func newSpool(dir string, limit, share int64, gauge *prometheus.GaugeVec) *spool {
	return &spool{
		dir: dir, limit: limit, share: share, used: map[string]int64{}, gauge: gauge, receiving: map[string]func(){}, refused: map[string]int{},
	}
}

// reset empties the directory of files from an earlier process. It keeps the directory, because a volume may be mounted there.
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

// errBusy refuses a concurrent upload of the same Job: its worker sends one after the other.
var errBusy = refuseTemporarily(http.StatusTooManyRequests, time.Second, "another upload of this Job is not finished")

// begin starts the upload of a Job, which may have one at a time. After a nil error the caller must call finish. If the Job ends first, the
// spool calls end, at most once and before finish.
func (s *spool) begin(jobUID string, end func()) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.receiving[jobUID] != nil {
		return errBusy
	}
	if s.refused[jobUID] >= maxRefused {
		return refuse(http.StatusForbidden, "%d uploads of this Job were refused, no further one is read", maxRefused)
	}
	s.receiving[jobUID] = end
	return nil
}

// finish ends the upload of a Job. isRefused means that the upload was refused for good.
func (s *spool) finish(jobUID string, isRefused bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.receiving, jobUID)
	if isRefused {
		s.refused[jobUID]++
	}
}

// jobs returns the UIDs of the Jobs with a current or refused upload.
func (s *spool) jobs() map[string]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	uids := map[string]bool{}
	for uid := range s.receiving {
		uids[uid] = true
	}
	for uid := range s.refused {
		uids[uid] = true
	}
	return uids
}

// abort aborts the upload of an ended Job and forgets the Job.
func (s *spool) abort(jobUID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.refused, jobUID)
	if end := s.receiving[jobUID]; end != nil {
		end()
	}
}

// add counts bytes for a namespace, which may be negative. A namespace without uploads has no time series. The caller holds mu.
func (s *spool) add(namespace string, bytes int64) {
	s.total += bytes
	s.used[namespace] += bytes
	if s.used[namespace] == 0 {
		delete(s.used, namespace)
		s.gauge.DeleteLabelValues(namespace)
		return
	}
	s.gauge.WithLabelValues(namespace).Set(float64(s.used[namespace]))
}

// upload is a completely received body in a temporary file.
type upload struct {
	*os.File
	space *reservation
}

// remove deletes the file and releases its space in the spool.
func (u *upload) remove() {
	_ = u.Close()
	_ = os.Remove(u.Name()) //nolint:gosec // the spool itself made the name
	u.space.release()
}

// receive writes a body to a file, which counts for a namespace until it is removed. It fails, and leaves no file, unless the body is
// complete and has the announced digest.
func (s *spool) receive(namespace string, body io.Reader, announced string) (*upload, error) {
	file, err := os.CreateTemp(s.dir, "upload-*")
	if err != nil {
		return nil, err
	}
	received := &upload{File: file, space: &reservation{spool: s, namespace: namespace}}
	if err := received.fill(body, announced); err != nil {
		received.remove()
		return nil, err
	}
	return received, nil
}

func (u *upload) fill(body io.Reader, announced string) error {
	sum := sha256.New()
	if _, err := io.Copy(io.MultiWriter(u.space, u.File, sum), body); err != nil {
		return err
	}
	if digest := digestOf(sum); digest != announced {
		return refuse(http.StatusBadRequest, "the body has the digest %s, but %s was announced: it was damaged on the way", digest, announced)
	}
	return nil
}

// reservation reserves space in the spool. It is the first of the writers, so that space is reserved before bytes are written to the file.
type reservation struct {
	spool     *spool
	namespace string
	bytes     int64
}

// Errors of a full spool: for all namespaces, and for one namespace. No other error uses their status. A worker that gets it until its
// deadline can therefore report a full spool, rather than an unreachable operator.
var (
	errSpoolFull = refuseTemporarily(http.StatusInsufficientStorage, spoolRetry,
		"too many uploads at once: allow fewer Jobs at a time (grype.catalog.maxJobs in the operator's configuration), or raise ingest.spoolSize there")
	errSpoolShare = refuseTemporarily(http.StatusInsufficientStorage, spoolRetry, "too many uploads for this namespace at once: "+
		"allow it fewer Jobs at a time (grype.catalog.maxJobsPerNamespace in the operator's configuration), or raise ingest.spoolSizePerNamespace there")
)

// Write implements io.Writer: it reserves the space for p.
func (r *reservation) Write(p []byte) (int, error) {
	r.spool.mu.Lock()
	defer r.spool.mu.Unlock()
	n := int64(len(p))
	switch {
	case r.spool.used[r.namespace]+n > r.spool.share:
		return 0, errSpoolShare
	case r.spool.total+n > r.spool.limit:
		return 0, errSpoolFull
	}
	r.spool.add(r.namespace, n)
	r.bytes += n
	return len(p), nil
}

func (r *reservation) release() {
	r.spool.mu.Lock()
	defer r.spool.mu.Unlock()
	r.spool.add(r.namespace, -r.bytes)
}

func digestOf(sum hash.Hash) string { return "sha256:" + hex.EncodeToString(sum.Sum(nil)) }

// verifyZstd reads an SBOM to its end, to detect damage and decompression bombs before the SBOM is used.
func verifyZstd(compressed io.Reader, limit int64) error {
	content, err := decompress(compressed, limit)
	if err != nil {
		return err
	}
	defer content.Close()
	if _, err := io.Copy(io.Discard, content); err != nil {
		if isTooLarge(err) {
			return err
		}
		return refuse(http.StatusBadRequest, "the SBOM is not whole zstd: %v", err)
	}
	return nil
}

// decompress returns a reader that fails with *http.MaxBytesError beyond limit bytes.
func decompress(r io.Reader, limit int64) (io.ReadCloser, error) {
	decoder, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(workerapi.MaxWindowBytes))
	if err != nil {
		return nil, fmt.Errorf("zstd: %w", err)
	}
	return http.MaxBytesReader(nil, decoder.IOReadCloser(), limit), nil
}

// isTooLarge reports whether a body is too large, as sent or after decompression.
func isTooLarge(err error) bool {
	var tooLarge *http.MaxBytesError
	return errors.As(err, &tooLarge)
}
