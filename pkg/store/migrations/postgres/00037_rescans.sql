-- +goose Up

-- See migration 37 of SQLite.
ALTER TABLE scanner_images ADD COLUMN rescan_requested_at bigint;
ALTER TABLE catalogues ADD COLUMN rescanned_at bigint;
