-- +goose Up

-- 1 while the Scanner is suspended: then nothing is matched for it.
ALTER TABLE scanner_images ADD COLUMN suspended INTEGER NOT NULL DEFAULT 0;
DROP INDEX scanner_images_by_engine;
CREATE INDEX scanner_images_by_engine ON scanner_images (engine, suspended, manifest_id);
