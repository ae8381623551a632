package input

import (
	"fmt"
	"io"
	"os"

	"github.com/klauspost/compress/zstd"

	"github.com/scanner-operator/scanner-operator/workerapi"
)

// MaxBytes bounds an uncompressed match input, so that one image cannot harm the other images of a worker.
const MaxBytes = workerapi.MaxMatchInputContentBytes

// File is an SBOM in a file.
type File struct{ path string }

// Receive unpacks a zstd-compressed SBOM into a temporary file in dir. An SBOM of more than MaxBytes is an error.
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
	// One byte more than allowed distinguishes an SBOM that is too large from one that just fits.
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

// Open returns an SBOM in an existing file, which the caller removes.
func Open(path string) *File { return &File{path: path} }

// Path returns the path of the file.
func (f *File) Path() string { return f.path }

// Remove removes the file. It does nothing for a nil File.
func (f *File) Remove() {
	if f != nil {
		os.Remove(f.path)
	}
}
