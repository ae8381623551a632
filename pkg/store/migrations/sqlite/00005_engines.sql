-- +goose Up

-- One row for each engine that has listed a manifest's content: what one has listed is of no use to another. Rows from
-- before are Grype's, but for those of the engine for tests, which has its name for a tool.
ALTER TABLE catalogues RENAME TO catalogues_of_one_engine;
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
SELECT manifest_id, CASE tool WHEN 'fake' THEN 'fake' ELSE 'grype' END, distro, packages, tool, catalogued_at FROM catalogues_of_one_engine;
DROP TABLE catalogues_of_one_engine;

-- What engines keep elsewhere, such as Clair in its own database. It refers to no other table, since it stays until it
-- is deleted there, whatever is forgotten here.
CREATE TABLE engine_manifests (
    engine          TEXT    NOT NULL,
    platform_digest TEXT    NOT NULL,
    -- 1 if the engine did not know it before: then it may be deleted there.
    ours            INTEGER NOT NULL,
    PRIMARY KEY (engine, platform_digest)
) WITHOUT ROWID;

-- What an image may hold of which its report says nothing, as a JSON list. Empty in reports from before: Grype's.
ALTER TABLE reports ADD COLUMN not_covered TEXT NOT NULL DEFAULT '';
