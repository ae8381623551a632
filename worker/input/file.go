package input

import (
	"fmt"
	"io"
	"os"

	"github.com/klauspost/compress/zstd"

	"github.com/scanner-operator/scanner-operator/workerapi"
)

// MaxBytes bounds an uncompressed match input, to protect the other images of a worker from one.
const MaxBytes = workerapi.MaxMatchInputContentBytes

// File is an SBOM in a temporary file, for which Grype's reader wants a path.
type File struct{ path string }

// Receive unpacks a zstd-compressed SBOM into a temporary file in dir.
func Receive(from io.Reader, dir string) (*File, error) {
	decoder, err := zstd.NewReader(from, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(workerapi.MaxWindowBytes))
	if err != nil {
		return nil, err
	}
	defer decoder.Close()
	file, err := os.CreateTemp(dir, "sbom-*.json")
	if err != nil {
		return nil, err
	}
	defer file.Close()
	unpacked := &File{path: file.Name()}
	// One byte more than allowed tells too large from just fitting.
	size, err := io.Copy(file, io.LimitReader(decoder, MaxBytes+1))
	if err == nil && size > MaxBytes {
		err = fmt.Errorf("the SBOM is larger than %d MiB", MaxBytes>>20)
	}
	if err != nil {
		unpacked.Remove()
		return nil, fmt.Errorf("unpacking the SBOM: %w", err)
	}
	return unpacked, nil
}

// Open uses a file that belongs to someone else, who removes it.
func Open(path string) *File { return &File{path: path} }

// Path is where the SBOM is.
func (f *File) Path() string { return f.path }

// Remove removes the temporary file.
func (f *File) Remove() {
	if f != nil {
		os.Remove(f.path)
	}
}
