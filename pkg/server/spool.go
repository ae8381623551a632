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
	"github.com/prometheus/client_golang/prometheus"

	"github.com/scanner-operator/scanner-operator/workerapi"
)

// errContentTooLarge says that a body is too large once decompressed.
var errContentTooLarge = errors.New("too large after decompression")

// spoolRetry is when to come back to a full spool: most uploads are in the store within seconds.
const spoolRetry = 10 * time.Second

// maxRefused is how many uploads of one Job are received and refused. Its worker sends the same again, so that further ones are refused
// before they are read.
const maxRefused = 3

// spool keeps uploads on disk while they are received, checked and stored: one file for each request, which goes with the request. All
// methods may be called at the same time.
type spool struct {
	dir string
	// limit and share are the most bytes that all uploads, and those for one namespace, may have at a time.
	limit, share int64

	mu    sync.Mutex
	total int64                // bytes, those that are being received included
	used  map[string]int64     // of them, by namespace
	gauge *prometheus.GaugeVec // shows used
	// receiving ends the request that a Job has at work, and refused counts the uploads that were, both by Job UID.
	receiving map[string]func()
	refused   map[string]int
}

func newSpool(dir string, limit, share int64, gauge *prometheus.GaugeVec) *spool {
	return &spool{
		dir: dir, limit: limit, share: share, used: map[string]int64{}, gauge: gauge, receiving: map[string]func(){}, refused: map[string]int{},
	}
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

// errBusy answers a second request of a Job: its worker sends one after the other.
var errBusy = putOff(http.StatusTooManyRequests, time.Second, "another upload of this Job is not finished")

// enter lets one request of a Job at a time upload. If it returns nil, leave must follow. end is called, at most once before leave, when
// the Job has ended.
func (s *spool) enter(jobUID string, end func()) error {
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

// leave ends a request. isRefused says that its upload was.
func (s *spool) leave(jobUID string, isRefused bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.receiving, jobUID)
	if isRefused {
		s.refused[jobUID]++
	}
}

// jobs lists those of which the spool knows anything.
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

// end breaks off the upload of a Job that has ended.
func (s *spool) end(jobUID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.refused, jobUID)
	if end := s.receiving[jobUID]; end != nil {
		end()
	}
}

// add counts bytes for a namespace, or gives them back. A namespace without uploads has no time series. s.mu is held.
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

// upload is a body that was received whole, in a temporary file.
type upload struct {
	*os.File
	space *reservation
}

// remove gives back the upload's room.
func (u *upload) remove() {
	_ = u.Close()
	_ = os.Remove(u.Name()) //nolint:gosec // the spool itself made the name
	u.space.release()
}

// receive writes a body to a file of its own, which counts for a namespace until it is removed. It fails, and leaves nothing, unless all of
// the body comes and has the digest that was announced.
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

// reservation takes room in the spool for what is about to be written; it stands before the file among writers.
type reservation struct {
	spool     *spool
	namespace string
	bytes     int64
}

// Errors of a spool without room. The second one is about one namespace only. Their status is that of nothing else, so that a worker which
// finds no room until its deadline reports that, and not an operator that it does not reach.
var (
	errSpoolFull = putOff(http.StatusInsufficientStorage, spoolRetry,
		"too many uploads at once: allow fewer Jobs at a time (grype.catalog.maxJobs in the operator's configuration), or raise ingest.spoolSize there")
	errSpoolShare = putOff(http.StatusInsufficientStorage, spoolRetry, "too many uploads for this namespace at once: "+
		"allow it fewer Jobs at a time (grype.catalog.maxJobsPerNamespace in the operator's configuration), or raise ingest.spoolSizePerNamespace there")
)

// Write implements io.Writer.
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

// verifyZstd reads an SBOM to its end, to notice damage and bombs before anybody relies on it.
func verifyZstd(compressed io.Reader, limit int64) error {
	content, err := decompress(compressed, limit)
	if err != nil {
		return err
	}
	defer content.Close()
	if _, err := io.Copy(io.Discard, content); err != nil {
		if errors.Is(err, errContentTooLarge) {
			return err
		}
		return refuse(http.StatusBadRequest, "the SBOM is not whole zstd: %v", err)
	}
	return nil
}

// decompress returns a reader that fails with errContentTooLarge beyond limit bytes.
func decompress(r io.Reader, limit int64) (io.ReadCloser, error) {
	decoder, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(workerapi.MaxWindowBytes))
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
