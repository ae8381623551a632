package server

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/zstd"
)

// errContentTooLarge says that a body is too large once decompressed.
var errContentTooLarge = errors.New("too large after decompression")

// maxWindow bounds the memory of a zstd decoder whatever a body's header claims. Encoders use 8 MiB by default.
const maxWindow = 64 << 20

// spool keeps uploads on disk until they are complete.
type spool struct{ dir string }

// reset empties the directory: what a former process left belongs to nobody.
func (s spool) reset() error {
	if err := os.RemoveAll(s.dir); err != nil {
		return err
	}
	return os.MkdirAll(s.dir, 0o700)
}

// path of an upload. Names are made of Job UIDs and artifact names, never of what a caller says.
func (s spool) path(jobUID, artifact string) string {
	return filepath.Join(s.dir, filepath.Base(jobUID)+"."+artifact)
}

// receive writes a body to a file and returns its digest as sent. The file is there only if all of it was received.
func (s spool) receive(path string, body io.Reader) (digest string, err error) {
	file, err := os.CreateTemp(s.dir, "receiving-*")
	if err != nil {
		return "", err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(file.Name()))
		}
	}()
	sum := sha256.New()
	_, err = io.Copy(io.MultiWriter(file, sum), body)
	if err = errors.Join(err, file.Close()); err != nil {
		return "", err
	}
	return digestOf(sum), os.Rename(file.Name(), path)
}

// discard removes an upload, whether it is there or not.
func (s spool) discard(paths ...string) {
	for _, path := range paths {
		_ = os.Remove(path)
	}
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
		return refuse(400, "the body is not whole zstd: %v", err)
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
