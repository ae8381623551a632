-- +goose Up

-- SBOMs of images that somebody uploaded over the REST API. Each counts in its namespace only, and belongs to a manifest of its own, whose scope is
-- the name of no namespace. What a catalog Job gets is an artifact of that manifest.
CREATE TABLE uploaded_sboms (
    manifest_id     INTEGER NOT NULL PRIMARY KEY REFERENCES manifests (id) ON DELETE CASCADE,
    namespace       TEXT    NOT NULL,
    -- The image's digest as nodes report it.
    digest          TEXT    NOT NULL,
    -- '' if the digest is that of a platform's manifest.
    platform        TEXT    NOT NULL,
    platform_digest TEXT    NOT NULL,
    -- Identifies namespace, image and content.
    policy          TEXT    NOT NULL,
    saved_at        INTEGER NOT NULL,
    saved_by        TEXT    NOT NULL,
    UNIQUE (namespace, digest, platform)
);
CREATE INDEX uploaded_sboms_by_policy ON uploaded_sboms (policy);

-- Who uploaded the SBOM of a catalog, and when.
ALTER TABLE catalogues ADD COLUMN sbom_uploader TEXT NOT NULL DEFAULT '';
ALTER TABLE catalogues ADD COLUMN sbom_uploaded_at INTEGER;
