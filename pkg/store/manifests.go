package store

import (
	"context"
	"database/sql"
	"errors"
)

// Manifest is a platform manifest that an engine keeps in its own storage, such as Clair in its database. Its record outlives catalogs,
// reports and Scanners, until the manifest is deleted there.
//
// The images of a manifest are known from SaveCatalog on. A caller that saves a manifest before its catalog must not treat it
// as unused in between.
type Manifest struct {
	Engine, PlatformDigest string
	// AddedByOperator means that the engine did not have the manifest before the operator gave it to the engine: only then may it be deleted
	// there.
	AddedByOperator bool
}

// SaveManifest records a manifest. An existing record is not changed: the first value of AddedByOperator stays.
func (s *Store) SaveManifest(ctx context.Context, m Manifest) error {
	if m.Engine == "" || m.PlatformDigest == "" {
		return errors.New("store: save manifest: the engine or the platform digest is empty")
	}
	return s.exec(ctx, "save manifest "+m.PlatformDigest, `
		INSERT INTO engine_manifests (engine, platform_digest, ours) VALUES (?, ?, ?) ON CONFLICT DO NOTHING`,
		m.Engine, m.PlatformDigest, m.AddedByOperator)
}

// Manifest returns the record of a manifest, or ErrNotFound.
func (s *Store) Manifest(ctx context.Context, engine, platformDigest string) (Manifest, error) {
	m := Manifest{Engine: engine, PlatformDigest: platformDigest}
	err := s.queryRow(ctx, "look up manifest "+platformDigest, `SELECT ours FROM engine_manifests WHERE engine = ? AND platform_digest = ?`,
		engine, platformDigest).Scan(&m.AddedByOperator)
	if err != nil {
		return Manifest{}, err
	}
	return m, nil
}

const selectUnused = `
	SELECT e.platform_digest, e.ours FROM engine_manifests e
	WHERE e.engine = ? AND e.platform_digest >= ? AND unjoined(NOT EXISTS (
		SELECT 1 FROM manifests m NESTED JOIN scanner_images si ON si.manifest_id = m.id AND si.engine = e.engine
		WHERE m.platform_digest = e.platform_digest AND si.scanner <> ?))
	ORDER BY e.platform_digest LIMIT ?`

// UnusedManifests lists the manifests of an engine that no Scanner has an image of with that engine, in the order of their digests.
// It ignores the images of the Scanner with the UID except (empty for none). It starts at the digest from (empty for the first) and
// returns at most limit manifests.
func (s *Store) UnusedManifests(ctx context.Context, engine, except, from string, limit int) ([]Manifest, error) {
	args := []any{engine, from, except, limit}
	return queryRows(ctx, s, "list unused manifests of "+engine, selectUnused, args, func(rows *sql.Rows) (Manifest, error) {
		m := Manifest{Engine: engine}
		err := rows.Scan(&m.PlatformDigest, &m.AddedByOperator)
		return m, err
	})
}

// selectHeld iterates over the Scanner's own images. The plus prevents SQLite from iterating over all images of the engine.
const selectHeld = `
	SELECT EXISTS (
		SELECT 1 FROM scanner_images si
		ORDERED JOIN manifests m ON m.id = si.manifest_id
		ORDERED JOIN engine_manifests e ON e.engine = si.engine AND e.platform_digest = m.platform_digest
		WHERE si.scanner = ? AND unindexed(si.engine) = ? AND NOT EXISTS (
			SELECT 1 FROM manifests om ORDERED JOIN scanner_images other ON other.manifest_id = om.id AND other.engine = e.engine
			WHERE om.platform_digest = e.platform_digest AND other.scanner <> si.scanner))`

// HoldsManifests reports whether any of an engine's manifests belongs to an image that only this Scanner (by UID) has with that
// engine. Manifests that no Scanner has do not count. The cost grows with the number of the Scanner's images.
func (s *Store) HoldsManifests(ctx context.Context, engine, scanner string) (held bool, err error) {
	err = s.queryRow(ctx, "find manifests of scanner", selectHeld, scanner, engine).Scan(&held)
	return held, err
}

// DeleteManifest deletes the record of a manifest. A missing one is no error.
func (s *Store) DeleteManifest(ctx context.Context, engine, platformDigest string) error {
	return s.exec(ctx, "delete the record of manifest "+platformDigest, `DELETE FROM engine_manifests WHERE engine = ? AND platform_digest = ?`,
		engine, platformDigest)
}
