package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"io"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/image"
)

// Catalog describes an image's catalog, without the SBOM itself.
type Catalog struct {
	// Engine that cataloged the image. Other engines cannot use its catalog.
	Engine         string
	Key            image.Key
	Scope          Scope
	PlatformDigest string
	Distro         string
	Packages       int
	// Tool is the name and version of the program that cataloged the image.
	Tool        string
	CatalogedAt time.Time
	// Namespace against whose storage budget the SBOM and findings count: that of the latest catalog with artifacts, else of the
	// first catalog. In the credential scope of a namespace it is always that namespace. It is only written: Catalog leaves it
	// empty.
	Namespace string
	// Origin is where the list of packages comes from.
	Origin Origin
}

// Origin is where the list of packages of a catalog comes from. The zero value is an image's content, where no SBOM was wanted.
type Origin struct {
	// Policy identifies the policy by which an SBOM was accepted: that of a registry for attested SBOMs, or that of an uploaded SBOM (IsUpload).
	// It is empty for a catalog of an image's content.
	Policy string
	// Signer is who signed the attested SBOM: the packages are that signer's claim.
	Signer string
	// Uploader is the user who uploaded the SBOM, at UploadedAt.
	Uploader   string
	UploadedAt time.Time
	// Problem is why the image's content was cataloged although an attested SBOM was preferred. With an uploaded SBOM, it is why the content could not
	// be cataloged.
	Problem string
}

// CountsWith reports whether the catalog counts for an image with a policy. One of an image's content counts for every image. One of an
// attested SBOM counts only for images for which the same attestations are accepted, and one of an uploaded SBOM only as long as that is the
// latest of its image in its namespace.
func (c Catalog) CountsWith(policy string) bool {
	return c.Origin.Policy == "" || c.Origin.Policy == policy
}

// resolveManifest selects the manifest that an image digest resolves to: through an alias, or else because it is the digest of the
// platform manifest itself. Its parameters are those of resolveManifestArgs.
const resolveManifest = `coalesce(
	(SELECT manifest_id FROM images WHERE digest = ? AND platform = ? AND scope = ?),
	(SELECT id FROM manifests WHERE platform_digest = ? AND scope = ?))`

func resolveManifestArgs(key image.Key, scope Scope) []any {
	return []any{key.Digest, platform(key.Platform), scope, key.Digest, scope}
}

// Catalog returns an engine's catalog of an image in a credential scope, or ErrNotFound. It also finds an image whose digest is
// itself the platform digest of a catalog in that scope. The result's Key is the key that was passed.
func (s *Store) Catalog(ctx context.Context, engine string, key image.Key, scope Scope) (Catalog, error) {
	c := Catalog{Engine: engine, Key: key, Scope: scope}
	var catalogedAt, uploadedAt millis
	err := s.queryRow(ctx, "look up catalog of "+key.String(), `
		SELECT m.platform_digest, c.distro, c.packages, c.tool, c.catalogued_at, c.sbom_policy, c.sbom_signer, c.sbom_uploader,
			c.sbom_uploaded_at, c.sbom_problem
		FROM manifests m JOIN catalogues c ON c.manifest_id = m.id
		WHERE c.engine = ? AND m.id = `+resolveManifest, append([]any{engine}, resolveManifestArgs(key, scope)...)...).
		Scan(&c.PlatformDigest, &c.Distro, &c.Packages, &c.Tool, &catalogedAt, &c.Origin.Policy, &c.Origin.Signer, &c.Origin.Uploader,
			&uploadedAt, &c.Origin.Problem)
	if err != nil {
		return Catalog{}, err
	}
	c.CatalogedAt, c.Origin.UploadedAt = catalogedAt.Time, uploadedAt.Time
	return c, nil
}

// CatalogScopes lists the credential scopes in which Catalog finds a catalog of an image that counts with a policy, sorted: the cluster's is
// the first.
func (s *Store) CatalogScopes(ctx context.Context, engine string, key image.Key, policy string) ([]Scope, error) {
	return queryRows(ctx, s, "list the scopes of "+key.String(), `
		SELECT i.scope FROM images i JOIN catalogues c ON c.manifest_id = i.manifest_id
		WHERE i.digest = ? AND i.platform = ? AND c.engine = ? AND c.sbom_policy IN ('', ?)
		UNION
		SELECT m.scope FROM manifests m JOIN catalogues c ON c.manifest_id = m.id
		WHERE m.platform_digest = ? AND c.engine = ? AND c.sbom_policy IN ('', ?)
		ORDER BY 1`, []any{key.Digest, platform(key.Platform), engine, policy, key.Digest, engine, policy}, scanValue[Scope])
}

// SaveCatalog stores a catalog with its artifacts and replaces earlier ones. Each artifact is read to its end in chunks. All writers
// wait while the artifacts are read, so callers should read them from files and not from a network. On a server, a conflict with another
// transaction is an error unless the readers are seekers, which are then read again from their beginning. Without artifacts, the manifest
// keeps those that it has.
func (s *Store) SaveCatalog(ctx context.Context, c Catalog, artifacts map[Artifact]io.Reader) error {
	if err := c.check(); err != nil {
		return err
	}
	return s.writeLarge(ctx, cmp.Or(string(c.Scope), c.Namespace), "save catalog of "+c.Key.String(), func(ctx context.Context, tx *session) error {
		return s.saveCatalog(ctx, tx, c, artifacts)
	})
}

func (c Catalog) check() error {
	if c.Engine == "" || c.Key.Digest == "" || c.PlatformDigest == "" {
		return errors.New("store: save catalog: the engine, the image's digest or its platform digest is empty")
	}
	return nil
}

// saveCatalog replaces an engine's catalog of a manifest. A catalog without artifacts does not move the manifest to another
// namespace's budget.
func (s *Store) saveCatalog(ctx context.Context, tx *session, c Catalog, artifacts map[Artifact]io.Reader) error {
	now, namespace := s.now(), cmp.Or(string(c.Scope), c.Namespace)
	manifest, err := ensureManifest(ctx, tx, c.PlatformDigest, c.Scope, now)
	if err != nil {
		return err
	}
	if err := saveAlias(ctx, tx, c.Key, c.Scope, manifest, now); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `UPDATE manifests SET namespace = ?1 WHERE id = ?2 AND ?1 <> '' AND (?3 = 1 OR namespace = '')`,
		namespace, manifest, len(artifacts) > 0); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `
		INSERT INTO catalogues (manifest_id, engine, distro, packages, tool, catalogued_at, sbom_policy, sbom_signer, sbom_uploader, sbom_uploaded_at,
			sbom_problem)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (manifest_id, engine) DO UPDATE SET distro = excluded.distro, packages = excluded.packages, tool = excluded.tool,
			catalogued_at = excluded.catalogued_at, sbom_policy = excluded.sbom_policy, sbom_signer = excluded.sbom_signer,
			sbom_uploader = excluded.sbom_uploader, sbom_uploaded_at = excluded.sbom_uploaded_at, sbom_problem = excluded.sbom_problem`,
		manifest, c.Engine, c.Distro, c.Packages, c.Tool, millis{orNow(c.CatalogedAt, now)},
		c.Origin.Policy, c.Origin.Signer, c.Origin.Uploader, millis{c.Origin.UploadedAt}, c.Origin.Problem); err != nil {
		return err
	}
	if err := endRescans(ctx, tx, c.Engine, manifest, now); err != nil {
		return err
	}
	if err := markImagesOf(ctx, tx, manifest); err != nil {
		return err
	}
	return replaceArtifacts(ctx, tx, manifest, artifacts)
}

// DeleteCatalog deletes an engine's catalogs of a platform manifest in all credential scopes, so that the image is cataloged again.
// Reports stay.
func (s *Store) DeleteCatalog(ctx context.Context, engine, platformDigest string) error {
	return s.exec(ctx, "delete catalog of "+platformDigest, `DELETE FROM catalogues WHERE engine = ?
		AND manifest_id IN (SELECT id FROM manifests WHERE platform_digest = ?)`, engine, platformDigest)
}

// ensureManifest returns the row ID of a platform manifest, and inserts the row if there is none.
func ensureManifest(ctx context.Context, tx *session, platformDigest string, scope Scope, now time.Time) (int64, error) {
	var id int64
	err := tx.QueryRowContext(ctx, `SELECT id FROM manifests WHERE platform_digest = ? AND scope = ?`, platformDigest, scope).Scan(&id)
	if errors.Is(err, sql.ErrNoRows) {
		return insertManifest(ctx, tx, platformDigest, scope, now)
	}
	return id, err
}

// insertManifest inserts the row of a platform manifest, and links it to the images that Scanners have under the manifest's own digest.
func insertManifest(ctx context.Context, tx *session, platformDigest string, scope Scope, now time.Time) (int64, error) {
	id, err := tx.insert(ctx, `INSERT INTO manifests (platform_digest, scope, last_used) VALUES (?, ?, ?)`, platformDigest, scope, millis{now})
	if err != nil {
		return 0, err
	}
	result, err := tx.ExecContext(ctx, `UPDATE scanner_images SET manifest_id = ? WHERE digest = ? AND scope = ? AND manifest_id IS NULL`,
		id, platformDigest, scope)
	if err != nil {
		return 0, err
	}
	if linked, err := result.RowsAffected(); err != nil || linked == 0 {
		return id, err
	}
	return id, updateRunning(ctx, tx, anyNamespace, id)
}

// saveAlias makes an image key resolve to a manifest, in the table of aliases and for all Scanners that have the image.
func saveAlias(ctx context.Context, tx *session, key image.Key, scope Scope, manifest int64, now time.Time) error {
	if _, err := tx.ExecContext(ctx, `INSERT INTO images (digest, platform, scope, manifest_id) VALUES (?, ?, ?, ?)
		ON CONFLICT (digest, platform, scope) DO UPDATE SET manifest_id = excluded.manifest_id`,
		key.Digest, platform(key.Platform), scope, manifest); err != nil {
		return err
	}
	const concerned = `digest = ? AND platform = ? AND scope = ? AND differs(manifest_id, ?)`
	args := []any{key.Digest, platform(key.Platform), scope, manifest}
	if err := touchManifests(ctx, tx, now, concerned, args...); err != nil {
		return err
	}
	manifests, err := manifestsOf(ctx, tx, concerned, args...)
	if err != nil {
		return err
	}
	result, err := tx.ExecContext(ctx, `UPDATE scanner_images SET manifest_id = ? WHERE `+concerned, append([]any{manifest}, args...)...)
	if err != nil {
		return err
	}
	if linked, err := result.RowsAffected(); err != nil || linked == 0 {
		return err
	}
	if err := markImagesOf(ctx, tx, manifest); err != nil {
		return err
	}
	return updateRunning(ctx, tx, anyNamespace, append(manifests, manifest)...)
}

// orNow returns at, or now if at is zero.
func orNow(at, now time.Time) time.Time {
	if at.IsZero() {
		return now
	}
	return at
}
