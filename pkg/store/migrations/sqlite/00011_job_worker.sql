-- +goose Up

-- The worker's image with which a Job was made; '' for Jobs of versions that did not record it.
ALTER TABLE jobs ADD COLUMN worker TEXT NOT NULL DEFAULT '';
