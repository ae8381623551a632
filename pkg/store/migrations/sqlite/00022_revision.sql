-- +goose Up

-- The store's revision: each writing transaction raises it, so it orders what was committed. One row.
CREATE TABLE store_revision (
    id       INTEGER PRIMARY KEY CHECK (id = 1),
    revision INTEGER NOT NULL
);
INSERT INTO store_revision (id, revision) VALUES (1, 0);

-- The revision with which each row was written last.
ALTER TABLE reports ADD COLUMN store_revision INTEGER NOT NULL DEFAULT 0;
ALTER TABLE scanner_images ADD COLUMN store_revision INTEGER NOT NULL DEFAULT 0;
ALTER TABLE messages ADD COLUMN store_revision INTEGER NOT NULL DEFAULT 0;

-- Names are stored in lower case, so that every database finds them in the same way.
UPDATE vulnerability_names SET name = lower(name);

-- A failure that replaces another one updates its row.
-- +goose StatementBegin
CREATE TRIGGER matchable_failure_changed AFTER UPDATE ON match_failures BEGIN
    UPDATE matchable SET failed_at = new.failed_at, retry_at = CASE
        WHEN new.data_version = coalesce((SELECT version FROM data_versions WHERE engine = new.engine), '') THEN new.retry_at END
    WHERE manifest_id = new.manifest_id AND engine = new.engine;
END;
-- +goose StatementEnd
