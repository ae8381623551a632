-- +goose Up

-- The announced sources of external reports that know the finding, as JSON: '' for none, NULL until it is recorded.
ALTER TABLE announcements ADD COLUMN sources TEXT;
