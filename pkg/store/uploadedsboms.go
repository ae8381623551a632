package store

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/image"
)

// UploadedSBOM describes an SBOM that somebody uploaded for an image. It counts in one namespace, and for no other.
type UploadedSBOM struct {
	Namespace string
	// Digest of the image as nodes report it. Platform is empty if that is the digest of a platform's manifest, which runs whatever platform a
	// node has. PlatformDigest follows from both.
	Digest, Platform, PlatformDigest string
	// Sum is a hash of the content. It is only written: the store returns the Policy instead.
	Sum string
	// Policy identifies namespace, image and content: a catalog of this SBOM counts as long as it is the latest one (Catalog.CountsWith). The store
	// sets it.
	Policy string
	// User who uploaded the SBOM, at SavedAt. The store sets SavedAt.
	User    string
	SavedAt time.Time
}

// uploadPolicy begins the policies of uploaded SBOMs. Those of registries are hexadecimal.
const uploadPolicy = "upload:"

// IsUpload reports whether a policy is that of an uploaded SBOM.
func IsUpload(policy string) bool { return strings.HasPrefix(policy, uploadPolicy) }

// artifactUpload is what SaveUploadedSBOM gets and OpenUploadedSBOM returns.
const artifactUpload Artifact = "upload"

// scope returns the scope of the upload's own manifest. It is the name of no namespace.
func (u UploadedSBOM) scope() Scope {
	return Scope("upload:" + u.Namespace + ":" + u.Digest + ":" + u.Platform)
}

// policy returns the policy of the upload: one namespace's is never that of another, whatever both upload.
func (u UploadedSBOM) policy() string {
	sum := sha256.Sum256([]byte(string(u.scope()) + "\n" + u.Sum))
	return uploadPolicy + hex.EncodeToString(sum[:16])
}

func (u UploadedSBOM) args() []any { return []any{u.Namespace, u.Digest, u.Platform} }

const (
	selectUploaded = `SELECT u.namespace, u.digest, u.platform, u.platform_digest, u.policy, u.saved_at, u.saved_by FROM uploaded_sboms u WHERE `
	// selectUploadedByKey selects one upload. selectUploadedOf selects that which counts on a platform.
	selectUploadedByKey = selectUploaded + `u.namespace = ? AND u.digest = ? AND u.platform = ?`
	selectUploadedOf    = selectUploaded + `u.namespace = ? AND u.digest = ? AND u.platform IN ('', ?) ORDER BY u.platform LIMIT 1`

	selectOtherUploads = `SELECT id_array(manifest_id) FROM uploaded_sboms WHERE namespace = ? AND digest = ? AND platform = ? AND manifest_id <> ?`
	saveUploaded       = `
		INSERT INTO uploaded_sboms (manifest_id, namespace, digest, platform, platform_digest, policy, saved_at, saved_by) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (manifest_id) DO UPDATE SET policy = excluded.policy, saved_at = excluded.saved_at, saved_by = excluded.saved_by`
)

func scanUploaded(row row) (u UploadedSBOM, err error) {
	var saved millis
	err = row.Scan(&u.Namespace, &u.Digest, &u.Platform, &u.PlatformDigest, &u.Policy, &saved, &u.User)
	u.SavedAt = saved.Time
	return u, err
}

// SavedUpload is the result of SaveUploadedSBOM.
type SavedUpload struct {
	// UploadedSBOM is what the store has now.
	UploadedSBOM
	// First means that the image had none in the namespace. Unchanged means that it had the same content, and that nothing was written.
	First, Unchanged bool
}

// SaveUploadedSBOM saves an uploaded SBOM in the place of the image's former one in the namespace. It writes nothing if the store has the same
// content. content is read from its beginning to its end, and again after a conflict. The error is ErrOverBudget if more than budget bytes would
// then count against the namespace; 0 is no limit.
func (s *Store) SaveUploadedSBOM(ctx context.Context, u UploadedSBOM, content io.ReadSeeker, budget int64) (saved SavedUpload, err error) {
	action := "save uploaded SBOM of " + u.Digest
	decide := func(ctx context.Context, q query) error {
		before, err := scanUploaded(q.QueryRowContext(ctx, selectUploadedByKey, u.args()...))
		switch {
		case errors.Is(err, sql.ErrNoRows):
			saved = SavedUpload{First: true}
			return nil
		case err == nil && before.Policy == u.policy():
			saved = SavedUpload{UploadedSBOM: before, Unchanged: true}
			return errUnchanged
		}
		saved = SavedUpload{}
		return err
	}
	// Without anything to write, no writer is waited for.
	err = s.read(ctx, action, decide)
	if err == nil {
		err = s.writeLarge(ctx, u.Namespace, action, func(ctx context.Context, tx *session) error {
			if err := decide(ctx, tx); err != nil {
				return err
			}
			if err := s.replaceUploaded(ctx, tx, u, content, budget); err != nil {
				return err
			}
			saved.UploadedSBOM, err = scanUploaded(tx.QueryRowContext(ctx, selectUploadedByKey, u.args()...))
			return err
		})
	}
	if errors.Is(err, errUnchanged) {
		err = nil
	}
	return saved, err
}

// replaceUploaded writes an upload and its content.
func (s *Store) replaceUploaded(ctx context.Context, tx *session, u UploadedSBOM, content io.ReadSeeker, budget int64) error {
	now := s.now()
	manifest, err := ensureManifest(ctx, tx, u.PlatformDigest, u.scope(), now)
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `UPDATE manifests SET namespace = ?, last_used = ? WHERE id = ?`, u.Namespace, millis{now}, manifest); err != nil {
		return err
	}
	// An index can lead to several manifests of a platform, if it has artifacts before the image.
	var others string
	if err := tx.QueryRowContext(ctx, selectOtherUploads, append(u.args(), manifest)...).Scan(&others); err != nil {
		return err
	}
	if err := deleteManifests(ctx, tx, others); err != nil {
		return err
	}
	if _, err := content.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if err := replaceArtifacts(ctx, tx, manifest, map[Artifact]io.Reader{artifactUpload: content}); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, saveUploaded, append(append([]any{manifest}, u.args()...), u.PlatformDigest, u.policy(), millis{now}, u.User)...); err != nil {
		return err
	}
	used, err := storedBytes(ctx, tx, u.Namespace)
	if err != nil {
		return err
	}
	if budget > 0 && used > budget {
		return fmt.Errorf("%w: %d of %d bytes would be used", ErrOverBudget, used, budget)
	}
	return nil
}

// UploadedSBOM returns the SBOM that was uploaded for an image in a namespace, or ErrNotFound.
func (s *Store) UploadedSBOM(ctx context.Context, namespace string, key image.Key) (UploadedSBOM, error) {
	return scanUploaded(s.queryRow(ctx, "look up uploaded SBOM of "+key.String(), selectUploadedOf, namespace, key.Digest, platform(key.Platform)))
}

// UploadedSBOMByPolicy returns the uploaded SBOM with a policy, or ErrNotFound.
func (s *Store) UploadedSBOMByPolicy(ctx context.Context, policy string) (UploadedSBOM, error) {
	return scanUploaded(s.queryRow(ctx, "look up uploaded SBOM", selectUploaded+`u.policy = ?`, policy))
}

// OpenUploadedSBOM returns a reader of the content of an uploaded SBOM, as OpenArtifact does.
func (s *Store) OpenUploadedSBOM(ctx context.Context, u UploadedSBOM) (io.ReadCloser, int64, error) {
	return s.OpenArtifact(ctx, u.PlatformDigest, u.scope(), artifactUpload)
}

// DeleteUploadedSBOMs deletes the uploaded SBOMs of an image in a namespace, those of all its platforms. It returns ErrNotFound if there is none.
func (s *Store) DeleteUploadedSBOMs(ctx context.Context, namespace, digest string) error {
	return s.write(ctx, "delete uploaded SBOMs of "+digest, func(ctx context.Context, tx *session) error {
		var ids string
		var n int
		err := tx.QueryRowContext(ctx, `SELECT id_array(manifest_id), count(*) FROM uploaded_sboms WHERE namespace = ? AND digest = ?`, namespace, digest).Scan(&ids, &n)
		if err != nil {
			return err
		}
		if n == 0 {
			return ErrNotFound
		}
		return deleteManifests(ctx, tx, ids)
	})
}
