package catalog

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/anchore/syft/syft/format/syftjson/model"
	"github.com/klauspost/compress/zstd"

	"github.com/scanner-operator/scanner-operator/workerapi"
)

// Artifact is a document as it is uploaded: compressed, in a temporary file.
type Artifact struct {
	// Path of the file. Its maker removes it.
	Path string
	// Digest of the file, "sha256:<hex>".
	Digest string
	// Size of the file and of its uncompressed content in bytes.
	Size, ContentSize int64
}

// Write encodes the document into a new file in dir. It refuses a document that the ingest API would
// refuse for its size.
func Write(dir string, document model.Document) (artifact Artifact, err error) {
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
	// The digest is of what is sent, that is of the compressed bytes.
	digest := sha256.New()
	stored := &meter{to: io.MultiWriter(file, digest), limit: workerapi.MaxArtifactBytes}
	// One goroutine: the Job's CPU limit is small, and so are the documents.
	encoder, err := zstd.NewWriter(stored, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return Artifact{}, err
	}
	// Both sizes are bounded: the API limits what it takes, and what it is willing to unpack.
	content := &meter{to: encoder, limit: workerapi.MaxArtifactContentBytes}
	if err := errors.Join(encode(content, document), encoder.Close()); err != nil {
		return Artifact{}, err
	}
	return Artifact{
		Path:        file.Name(),
		Digest:      "sha256:" + hex.EncodeToString(digest.Sum(nil)),
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
		return 0, fmt.Errorf("the image's SBOM is larger than the %d MiB that can be stored", m.limit>>20)
	}
	n, err := m.to.Write(p)
	m.written += int64(n)
	return n, err
}
