-- +goose Up

CREATE TABLE uploaded_sboms (
    manifest_id     bigint PRIMARY KEY REFERENCES manifests (id) ON DELETE CASCADE,
    namespace       text   COLLATE "C" NOT NULL,
    digest          text   COLLATE "C" NOT NULL,
    platform        text   COLLATE "C" NOT NULL,
    platform_digest text   COLLATE "C" NOT NULL,
    policy          text   COLLATE "C" NOT NULL,
    saved_at        bigint NOT NULL,
    saved_by        text   COLLATE "C" NOT NULL,
    UNIQUE (namespace, digest, platform)
);
CREATE INDEX uploaded_sboms_by_policy ON uploaded_sboms (policy);

ALTER TABLE catalogues ADD COLUMN sbom_uploader text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE catalogues ADD COLUMN sbom_uploaded_at bigint;
