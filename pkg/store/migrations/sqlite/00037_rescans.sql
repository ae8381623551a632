-- +goose Up

-- When a namespace requested that its image is cataloged again; NULL for no request.
ALTER TABLE scanner_images ADD COLUMN rescan_requested_at INTEGER;
-- When the catalog replaced another one on request; NULL if it did not.
ALTER TABLE catalogues ADD COLUMN rescanned_at INTEGER;
