package catalog

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/anchore/syft/syft/format/syftjson/model"
	"github.com/klauspost/compress/zstd"

	"github.com/scanner-operator/scanner-operator/registry/failure"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// Artifact is a document in the form that is uploaded: compressed, in a temporary file.
type Artifact struct {
	// Path of the file. The caller of Write removes it.
	Path string
	// Size of the file and of its uncompressed content in bytes.
	Size, ContentSize int64
}

// Write encodes the document into a new file in dir. It returns an error for a document that the ingest API would
// reject for its size: contentLimit is the maximum size in bytes before compression.
func Write(dir string, document model.Document, contentLimit int64) (Artifact, error) {
	return write(dir, contentLimit, func(to io.Writer) error { return encode(to, &document) })
}

// write writes what document writes, as Write does.
func write(dir string, contentLimit int64, document func(to io.Writer) error) (artifact Artifact, err error) {
	file, err := os.CreateTemp(dir, "artifact-*.json.zst")
	if err != nil {
		return Artifact{}, withReason(workerapi.ReasonCatalogFailed, err)
	}
	defer func() {
		// A full disk may be reported only on close.
		if err = errors.Join(err, file.Close()); err != nil {
			err = withReason(workerapi.ReasonCatalogFailed, err)
			os.Remove(file.Name())
		}
	}()
	stored := &meter{to: file, limit: workerapi.MaxCatalogBytes}
	// One goroutine is enough: the Job's CPU limit is small, and so are the documents.
	encoder, err := zstd.NewWriter(stored, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return Artifact{}, err
	}
	// Both sizes are bounded, since the API limits the upload and its uncompressed content.
	content := &meter{to: encoder, limit: contentLimit}
	if err := errors.Join(document(content), encoder.Close()); err != nil {
		return Artifact{}, err
	}
	return Artifact{
		Path:        file.Name(),
		Size:        stored.written,
		ContentSize: content.written,
	}, nil
}

// encode writes compact JSON without HTML escapes, since package URLs are full of the escaped characters.
func encode(to io.Writer, document any) error {
	encoder := json.NewEncoder(to)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(document)
}

// meter passes bytes on and counts them. It returns an error beyond its limit.
type meter struct {
	to             io.Writer
	written, limit int64
}

// Write implements io.Writer. It rejects a write that exceeds the limit as a whole, so that no truncated content
// is taken for a document.
func (m *meter) Write(p []byte) (int, error) {
	if m.written+int64(len(p)) > m.limit {
		return 0, failure.New(workerapi.ReasonImageTooLarge,
			fmt.Errorf("the image's SBOM, or what is matched of it, is larger than the limit of %d MiB; exclude the image", m.limit>>20))
	}
	n, err := m.to.Write(p)
	m.written += int64(n)
	return n, err
}
