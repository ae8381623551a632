package restapi

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// Bounds of temporary files, in bytes. Together with how many requests have one at a time, they keep all of them below temporaryVolume.
const (
	// maxReportFile bounds a body. Each of maxWriters has one.
	maxReportFile = 32 << 20
	// maxSBOMFile bounds what a catalog Job gets of an uploaded SBOM. Each of maxSaving has one.
	maxSBOMFile = 80 << 20
	// maxDocumentFile bounds a document. Each of maxDownloads has one.
	maxDocumentFile = 64 << 20
	// temporaryVolume is the size of the volume /tmp in the manager's pod. Above it, the kubelet evicts the pod.
	temporaryVolume = 1 << 30
)

// The compiler refuses a negative constant.
const _ = uint64(temporaryVolume - maxWriters*maxReportFile - maxSaving*maxSBOMFile - maxDownloads*maxDocumentFile)

// errTemporaryFull reports that a temporary file would have more bytes than it may.
var errTemporaryFull = errors.New("the temporary file is full")

// newTemporaryFile returns a file without a name, so that it is deleted when the process ends in any way, and a writer to it that fails with
// errTemporaryFull beyond limit bytes.
func newTemporaryFile(use string, limit int) (*os.File, io.Writer, error) {
	file, err := os.CreateTemp("", "scanner-operator-"+use+"-*")
	if err != nil {
		return nil, nil, fmt.Errorf("a temporary file is needed: %w", err)
	}
	if err := os.Remove(file.Name()); err != nil {
		_ = file.Close()
		return nil, nil, err
	}
	return file, &limitedWriter{to: file, left: limit}, nil
}

// limitedWriter writes a number of bytes, and returns errTemporaryFull beyond it.
type limitedWriter struct {
	to   io.Writer
	left int
}

// Write implements io.Writer.
func (w *limitedWriter) Write(p []byte) (int, error) {
	if w.left -= len(p); w.left < 0 {
		return 0, errTemporaryFull
	}
	return w.to.Write(p)
}
