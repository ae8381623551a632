-- +goose Up

-- When the image's workloads were written last: each of them ran it then. NULL in rows from before.
ALTER TABLE scanner_images ADD COLUMN recorded_at INTEGER;
