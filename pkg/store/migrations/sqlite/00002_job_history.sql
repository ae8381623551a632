-- +goose Up

-- UID of the Scanner on whose behalf a Job was made; '' for match workers.
ALTER TABLE jobs ADD COLUMN scanner TEXT NOT NULL DEFAULT '';
-- Memory limit in bytes, 0 for none, and the greatest that the image may get.
ALTER TABLE jobs ADD COLUMN memory INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN most_memory INTEGER NOT NULL DEFAULT 0;
-- NULL while it lives. An ended Job only stays to be looked at.
ALTER TABLE jobs ADD COLUMN ended_at INTEGER;
ALTER TABLE jobs ADD COLUMN failed INTEGER NOT NULL DEFAULT 0;

-- How many bytes of memory were not enough to catalog an image. By scope, as what a namespace's own Jobs need says
-- nothing about others.
CREATE TABLE memory_exceeded (
    digest   TEXT    NOT NULL,
    platform TEXT    NOT NULL,
    scope    TEXT    NOT NULL,
    bytes    INTEGER NOT NULL,
    noted_at INTEGER NOT NULL,
    PRIMARY KEY (digest, platform, scope)
) WITHOUT ROWID;
