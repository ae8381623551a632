-- +goose Up

-- See migration 39 of SQLite.
ALTER TABLE announcements ADD COLUMN package_types text;
