-- +goose Up

-- What engines have listed of a manifest, each for itself. Until now there was one that other programs' lists would be of use to.
ALTER TABLE catalogues RENAME TO catalogues_of_grype;
CREATE TABLE catalogues (
    manifest_id   INTEGER NOT NULL REFERENCES manifests (id) ON DELETE CASCADE,
    engine        TEXT    NOT NULL,
    distro        TEXT    NOT NULL,
    packages      INTEGER NOT NULL,
    tool          TEXT    NOT NULL,
    catalogued_at INTEGER NOT NULL,
    PRIMARY KEY (manifest_id, engine)
) WITHOUT ROWID;
INSERT INTO catalogues (manifest_id, engine, distro, packages, tool, catalogued_at)
SELECT manifest_id, CASE tool WHEN 'fake' THEN 'fake' ELSE 'grype' END, distro, packages, tool, catalogued_at FROM catalogues_of_grype;
DROP TABLE catalogues_of_grype;

-- What engines keep elsewhere. It refers to nothing: it stays until it is deleted there.
CREATE TABLE engine_manifests (
    engine          TEXT    NOT NULL,
    platform_digest TEXT    NOT NULL,
    -- 1 if the engine did not know it before.
    ours            INTEGER NOT NULL,
    PRIMARY KEY (engine, platform_digest)
) WITHOUT ROWID;
