// Package getter takes the place of github.com/hashicorp/go-getter, which Grype and Syft link to download their databases and snaps.
//
// The worker has a download of its own (package database), which checks sizes and digests. The original links the clients of Amazon S3 and
// Google Cloud Storage, gRPC and Envoy's API, and runs git and hg: 400 packages, a fifth of the worker's code, that nothing in the worker
// may reach. This package has the declarations that Grype and Syft compile with, and refuses every download.
package getter

import (
	"errors"
	"io"
	"net/http"
	"os"
)

// ErrRefused is the result of every download.
var ErrRefused = errors.New("this program contains no downloader: give it the file")

// Client describes a download.
type Client struct {
	Src, Dst string
	Dir      bool
	Getters  map[string]Getter
	Options  []ClientOption
}

// Get always returns ErrRefused.
func (*Client) Get() error { return ErrRefused }

// ClientOption changes a Client. It is never called.
type ClientOption func(*Client) error

// Getter downloads with one protocol.
type Getter any

// The protocols that Grype and Syft name.
type (
	FileGetter struct{}
	GitGetter  struct{}
	GCSGetter  struct{}
	HgGetter   struct{}
	S3Getter   struct{}
	HttpGetter struct {
		Client *http.Client
		Header http.Header
	}
)

// ProgressTracker observes a download.
type ProgressTracker interface {
	TrackProgress(src string, currentSize, totalSize int64, stream io.ReadCloser) io.ReadCloser
}

// WithProgress accepts an observer. There is nothing to observe.
func WithProgress(ProgressTracker) func(*Client) error {
	return func(*Client) error { return nil }
}

// Decompressor unpacks a downloaded archive.
type Decompressor interface {
	Decompress(dst, src string, dir bool, umask os.FileMode) error
}

// Decompressors has no archive formats.
var Decompressors = map[string]Decompressor{}

// LimitedDecompressors returns a new map without formats; Grype adds its own to it.
func LimitedDecompressors(int, int64) map[string]Decompressor { return map[string]Decompressor{} }

// WithDecompressors accepts formats. There is nothing to unpack.
func WithDecompressors(map[string]Decompressor) ClientOption {
	return func(*Client) error { return nil }
}
