-- +goose Up

-- See migration 25 of SQLite. No index has the revision, so an update in a page with room changes no index.
CREATE TABLE namespace_changes (
    namespace      text   COLLATE "C" PRIMARY KEY,
    store_revision bigint NOT NULL
) WITH (fillfactor = 50);
