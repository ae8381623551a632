package store

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// Artifact names one of the files that cataloging an image produces.
type Artifact string

// The artifacts of a catalog.
const (
	ArtifactSBOM       Artifact = "sbom"        // the complete SBOM: syft-json, compressed with zstd
	ArtifactMatchInput Artifact = "match-input" // the part of the SBOM that the matcher needs, compressed with zstd

	// The complete SBOM in other formats, compressed with zstd. A catalog has those that the operator's configuration named when the image
	// was cataloged.
	ArtifactCycloneDX Artifact = "cyclonedx-json" // CycloneDX 1.6
	ArtifactSPDX      Artifact = "spdx-json"      // SPDX 2.3
)

const (
	// chunkBytes is the size of the chunks that artifacts are stored in. No more of an artifact is ever in memory.
	chunkBytes = 256 << 10
	// MaxArtifactBytes bounds an artifact. The largest known SBOMs are about 100 MiB before compression.
	MaxArtifactBytes = 1 << 30
)

// ErrReplaced means that an artifact was replaced or deleted while it was read.
var ErrReplaced = errors.New("the artifact was replaced while it was read: open it again")

// replaceArtifacts replaces all artifacts of a manifest. Without new artifacts it keeps those that the manifest has.
func replaceArtifacts(ctx context.Context, tx *session, manifest int64, artifacts map[Artifact]io.Reader) error {
	if len(artifacts) == 0 {
		return nil
	}
	if _, err := tx.ExecContext(ctx, `DELETE FROM artifacts WHERE manifest_id = ?`, manifest); err != nil {
		return err
	}
	for name, content := range artifacts {
		if err := rewind(tx, content); err != nil {
			return fmt.Errorf("artifact %s: %w", name, err)
		}
		if err := writeArtifact(ctx, tx, manifest, name, content); err != nil {
			return fmt.Errorf("artifact %s: %w", name, err)
		}
	}
	return nil
}

// rewind makes an artifact start again if an earlier run of the transaction has read it.
func rewind(tx *session, content io.Reader) error {
	if !tx.again {
		return nil
	}
	seeker, ok := content.(io.Seeker)
	if !ok {
		return errors.New("its reader cannot be read again after a conflict with another transaction")
	}
	_, err := seeker.Seek(0, io.SeekStart)
	return err
}

func writeArtifact(ctx context.Context, tx *session, manifest int64, name Artifact, content io.Reader) error {
	id, err := tx.insert(ctx, `INSERT INTO artifacts (manifest_id, name, size) VALUES (?, ?, 0)`, manifest, name)
	if err != nil {
		return err
	}
	var size int64
	chunk := make([]byte, chunkBytes)
	for number := 0; ; number++ {
		n, err := io.ReadFull(content, chunk)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("read: %w", err)
		}
		if n == 0 {
			break
		}
		if size += int64(n); size > MaxArtifactBytes {
			return fmt.Errorf("it is larger than the store takes (%d bytes)", int64(MaxArtifactBytes))
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO chunks (artifact_id, number, data) VALUES (?, ?, ?)`, id, number, chunk[:n]); err != nil {
			return err
		}
	}
	_, err = tx.ExecContext(ctx, `UPDATE artifacts SET size = ? WHERE id = ?`, size, id)
	return err
}

// OpenArtifact returns a reader of an artifact, which reads it in chunks, and its size in bytes; ErrNotFound if there is none. No
// transaction stays open between two reads, so a slow reader blocks nobody. The reader returns ErrReplaced if the artifact is
// replaced meanwhile. ctx must stay valid until the reader is closed.
func (s *Store) OpenArtifact(ctx context.Context, platformDigest string, scope Scope, a Artifact) (io.ReadCloser, int64, error) {
	reader := &artifactReader{store: s, ctx: ctx}
	err := s.queryRow(ctx, fmt.Sprintf("open artifact %s of %s", a, platformDigest), `
		SELECT a.id, a.size FROM manifests m JOIN artifacts a ON a.manifest_id = m.id
		WHERE m.platform_digest = ? AND m.scope = ? AND a.name = ?`, platformDigest, scope, a).Scan(&reader.id, &reader.left)
	if err != nil {
		return nil, 0, err
	}
	return reader, reader.left, nil
}

// artifactReader reads an artifact chunk by chunk.
type artifactReader struct {
	store *Store
	ctx   context.Context // the context of OpenArtifact, since io.Reader has none
	id    int64
	next  int    // number of the next chunk
	chunk []byte // the rest of the current chunk
	left  int64  // bytes that are still to be fetched
}

// Read implements io.Reader.
func (r *artifactReader) Read(p []byte) (int, error) {
	if len(r.chunk) == 0 {
		if r.left == 0 {
			return 0, io.EOF
		}
		if err := r.fetch(); err != nil {
			return 0, err
		}
	}
	n := copy(p, r.chunk)
	r.chunk = r.chunk[n:]
	return n, nil
}

func (r *artifactReader) fetch() error {
	err := r.store.queryRow(r.ctx, "read artifact", `SELECT data FROM chunks WHERE artifact_id = ? AND number = ?`, r.id, r.next).Scan(&r.chunk)
	if errors.Is(err, ErrNotFound) {
		return r.store.wrapError(r.ctx, "read artifact", ErrReplaced)
	}
	if err != nil {
		return err
	}
	r.next++
	r.left -= int64(len(r.chunk))
	return nil
}

// Close implements io.Closer.
func (r *artifactReader) Close() error {
	r.chunk, r.left = nil, 0
	return nil
}
