-- +goose Up

-- See migration 36 of SQLite.
ALTER TABLE announcements ADD COLUMN sources text;
