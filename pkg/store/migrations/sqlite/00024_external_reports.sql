-- +goose Up

-- Reports that other programs made and saved over the REST API. Each counts in its namespace only, and belongs to a manifest of its own, whose
-- scope is the name of no namespace. Its findings are those of the report, and its text is an artifact of the manifest.
CREATE TABLE external_reports (
    report_id        INTEGER NOT NULL PRIMARY KEY REFERENCES reports (id) ON DELETE CASCADE,
    namespace        TEXT    NOT NULL,
    -- The image's digest as nodes report it.
    digest           TEXT    NOT NULL,
    -- '' for every platform of the image.
    platform         TEXT    NOT NULL,
    source           TEXT    NOT NULL,
    -- The SHA-256 of the document, and of what counts in it.
    text_sum         TEXT    NOT NULL,
    content          TEXT    NOT NULL,
    serial_number    TEXT    NOT NULL,
    document_version INTEGER NOT NULL,
    -- The time in the document.
    made_at          INTEGER NOT NULL,
    tool             TEXT    NOT NULL,
    saved_at         INTEGER NOT NULL,
    saved_by         TEXT    NOT NULL,
    UNIQUE (namespace, digest, platform, source)
);

-- The sources of external reports that a Scanner or ClusterScanner announces.
CREATE TABLE announced_sources (
    scanner TEXT NOT NULL,
    source  TEXT NOT NULL,
    PRIMARY KEY (scanner, source)
) WITHOUT ROWID;
