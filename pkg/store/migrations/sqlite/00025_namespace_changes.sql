-- +goose Up

-- The revision of the last transaction that changed what the store has of the images in a namespace: their workloads, reports and SBOMs.
CREATE TABLE namespace_changes (
    namespace      TEXT    NOT NULL PRIMARY KEY,
    store_revision INTEGER NOT NULL
) WITHOUT ROWID;
