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

// Artifact is a document as it is uploaded: compressed, in a temporary file.
type Artifact struct {
	// Path of the file. Its maker removes it.
	Path string
	// Size of the file and of its uncompressed content in bytes.
	Size, ContentSize int64
}

// Write encodes the document into a new file in dir. It refuses a document that the ingest API would
// refuse for its size: contentLimit is the most bytes that it may have before compression.
func Write(dir string, document model.Document, contentLimit int64) (artifact Artifact, err error) {
	file, err := os.CreateTemp(dir, "artifact-*.json.zst")
	if err != nil {
		return Artifact{}, withReason(workerapi.ReasonCatalogFailed, err)
	}
	defer func() {
		// A disk that is full may say so only now.
		if err = errors.Join(err, file.Close()); err != nil {
			err = withReason(workerapi.ReasonCatalogFailed, err)
			os.Remove(file.Name())
		}
	}()
	stored := &meter{to: file, limit: workerapi.MaxCatalogBytes}
	// One goroutine: the Job's CPU limit is small, and so are the documents.
	encoder, err := zstd.NewWriter(stored, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return Artifact{}, err
	}
	// Both sizes are bounded: the API limits what it takes, and what it is willing to unpack.
	content := &meter{to: encoder, limit: contentLimit}
	if err := errors.Join(encode(content, document), encoder.Close()); err != nil {
		return Artifact{}, err
	}
	return Artifact{
		Path:        file.Name(),
		Size:        stored.written,
		ContentSize: content.written,
	}, nil
}

// encode writes compact JSON. Letters that HTML would mind stay as they are: package URLs are full of them.
func encode(to io.Writer, document model.Document) error {
	encoder := json.NewEncoder(to)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(&document)
}

// meter counts what passes, and stops at a limit.
type meter struct {
	to             io.Writer
	written, limit int64
}

// Write implements io.Writer. It refuses a whole write rather than passing a part of it on, so that
// nothing truncated is ever taken for a document.
func (m *meter) Write(p []byte) (int, error) {
	if m.written+int64(len(p)) > m.limit {
		return 0, failure.New(workerapi.ReasonImageTooLarge,
			fmt.Errorf("the image's SBOM, or what is matched of it, is larger than the %d MiB that are taken; exclude the image", m.limit>>20))
	}
	n, err := m.to.Write(p)
	m.written += int64(n)
	return n, err
}
