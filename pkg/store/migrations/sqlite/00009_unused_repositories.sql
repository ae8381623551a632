-- +goose Up
-- Repositories that a receiver has heard of and that nothing of its Scanner runs or keeps, and since when a sweep knows that.
CREATE TABLE unused_repositories (
    receiver_id INTEGER NOT NULL REFERENCES receivers (id) ON DELETE CASCADE,
    repository  TEXT    NOT NULL,
    since       INTEGER NOT NULL,
    PRIMARY KEY (receiver_id, repository)
) WITHOUT ROWID;
