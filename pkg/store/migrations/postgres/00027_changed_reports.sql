-- +goose Up

-- See migration 27 of SQLite.
CREATE INDEX reports_by_revision ON reports (store_revision);
